//! Finding TensorFlow's processes, by what the libraries that they map hold and not by any name.
//!
//! A thread of its own: reading a library's symbols for the first time takes a while. What it finds goes to the loop as
//! an order; plans of probes lie in the cache by then.

mod files;
pub mod perf;
mod scan;

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use tokio::sync::mpsc::Sender;

use self::{files::Files, perf::Mappings, scan::Scan};
use super::config::Discovery;
use crate::live::serve::Order;

/// The buffers are read this often: what is left of the second in which a library's probes must be in goes to putting
/// them in.
const EVERY: Duration = Duration::from_millis(200);
/// Without the kernel's word `/proc` is read this often.
const SCAN_EVERY: Duration = Duration::from_millis(500);
/// With it, now and then all the same: who knows.
const SCAN_SELDOM: Duration = Duration::from_secs(300);

/// What the finder counts, for others to read.
#[derive(Debug, Default)]
pub struct Counts {
    /// Mappings of code that the kernel told of.
    pub told: AtomicU64,
    /// Of these, those that did not fit into the buffer: `/proc` was read instead.
    pub lost: AtomicU64,
    /// Files whose symbols were looked at.
    pub examined: AtomicU64,
    /// Processes found.
    pub found: AtomicU64,
    /// The kernel tells of mappings.
    pub by_perf: AtomicBool,
}

/// The running thread. Dropping it ends it.
#[derive(Debug)]
pub struct Finder {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    pub counts: Arc<Counts>,
}

impl Finder {
    /// # Errors
    /// When the kernel shall tell and does not, or no thread can be made.
    pub fn start(how: Discovery, cache: Option<&Path>, orders: Sender<Order>) -> Result<Self> {
        let counts = Arc::<Counts>::default();
        let mappings = match (how, Mappings::open()) {
            (Discovery::Poll, _) => None,
            (_, Ok(mappings)) => Some(mappings),
            (Discovery::Perf, Err(error)) => return Err(error).context("perf events of mappings"),
            (Discovery::Auto, Err(error)) => {
                log::warn!("the kernel does not tell of mappings ({error}): /proc is read twice a second instead");
                None
            }
        };
        counts.by_perf.store(mappings.is_some(), Relaxed);
        let stop = Arc::<AtomicBool>::default();
        let search = Search { files: Files::new(cache), scan: Scan::default(), orders, counts: counts.clone() };
        let stopped = stop.clone();
        let thread = thread::Builder::new().name("finder".into()).spawn(move || search.run(mappings, &stopped))?;
        Ok(Self { stop, thread: Some(thread), counts })
    }
}

impl Drop for Finder {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Search {
    files: Files,
    scan: Scan,
    orders: Sender<Order>,
    counts: Arc<Counts>,
}

impl Search {
    fn run(mut self, mut mappings: Option<Mappings>, stop: &AtomicBool) {
        // The buffers are open already: who maps something while `/proc` is read is told of.
        let mut scanned = Instant::now();
        self.scan_all();
        while !stop.load(Relaxed) {
            let lost = mappings.as_mut().is_some_and(|mappings| self.read(mappings));
            let every = if mappings.is_some() { SCAN_SELDOM } else { SCAN_EVERY };
            if lost || scanned.elapsed() >= every {
                scanned = Instant::now();
                self.scan_all();
            }
            thread::sleep(EVERY);
        }
    }

    /// `true`: records were lost.
    fn read(&mut self, mappings: &mut Mappings) -> bool {
        let reading = mappings.read();
        self.counts.told.fetch_add(reading.mapped.len() as u64, Relaxed);
        self.counts.lost.fetch_add(reading.lost, Relaxed);
        let mut found = Vec::new();
        for mapped in reading.mapped {
            // One process loads several of TensorFlow's libraries, in one go as a rule.
            if self.files.told(mapped) && !found.contains(&mapped.pid) {
                found.push(mapped.pid);
            }
        }
        for pid in found {
            self.found(pid);
        }
        reading.lost > 0
    }

    fn scan_all(&mut self) {
        for pid in self.scan.changed() {
            if self.files.seen(pid) {
                self.found(pid);
            }
        }
        self.counts.examined.store(self.files.examined(), Relaxed);
    }

    fn found(&mut self, pid: u32) {
        self.counts.examined.store(self.files.examined(), Relaxed);
        self.counts.found.fetch_add(1, Relaxed);
        // The loop takes orders within milliseconds; one that has ended needs none.
        let _ = self.orders.blocking_send(Order::Adopt(pid));
    }
}
