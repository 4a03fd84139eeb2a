//! The loop of an agent: processes come and go, orders are taken, nothing ends but the agent itself.

use std::{
    os::fd::AsFd as _,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
        mpsc::{self, TryRecvError},
    },
    time::Duration,
};

use anyhow::Result;
use tfmem_common::config::{PROCESS_RARE, Process};
use tokio::{
    io::{Interest, unix::AsyncFd},
    sync::mpsc::Receiver,
    time::{Instant, sleep},
};

use super::{
    Live,
    drive::{Look, Stop},
    schedule::Pace,
    sink::Passed,
};
use crate::{
    event::Body,
    observe::snapshot::{self, Seen},
    target::{clock, info},
};

/// As in a trace, but one who only waits for rare events need not wake two hundred times a second: calls that close
/// something wake by themselves.
const BUSY: Duration = Duration::from_millis(50);
const IDLE: Duration = Duration::from_millis(500);
/// But not more often than this: hundreds of processes that close something shall cost no more than a few.
const FASTEST: Duration = Duration::from_millis(20);
/// Longer than events are held to put them in order.
const ORDERED_NS: u64 = 300_000_000;
/// Files are swept, counts are given this often.
const HOUSEKEEPING_NS: u64 = 1_000_000_000;

/// What an agent's loop is told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// This process maps a library of TensorFlow's.
    Adopt(u32),
    /// Trace it in full.
    Full(u32),
    /// Only rare events of it, again.
    Rare(u32),
    Pace(Pace),
    /// Processes that may be followed.
    Most(usize),
    Grace(Duration),
}

/// What a loop says of itself, for others to read at any time.
#[derive(Debug, Default)]
pub struct Gauges {
    pub processes: AtomicU64,
    pub in_full: AtomicU64,
    pub probes: AtomicU64,
    pub files: AtomicU64,
    /// Processes that were not followed because there were too many.
    pub refused: AtomicU64,
    /// When the loop went round last, boot clock.
    pub alive: AtomicU64,
}

#[derive(Debug)]
pub(super) struct Served {
    gauges: Arc<Gauges>,
    most: usize,
    /// Last looks at processes that were traced in full, under way: they take a second for some gigabytes.
    looks: Vec<(u32, mpsc::Receiver<Seen>)>,
    /// Processes that were traced in full, and when all of that time has been passed on.
    settling: Vec<(u64, u32)>,
    housekeeping: u64,
}

impl Default for Served {
    fn default() -> Self {
        Self { gauges: Arc::default(), most: usize::MAX, looks: Vec::new(), settling: Vec::new(), housekeeping: 0 }
    }
}

impl Live {
    #[must_use]
    pub fn gauges(&self) -> Arc<Gauges> {
        self.served.gauges.clone()
    }

    /// Follows orders until `stop` completes.
    ///
    /// # Errors
    /// When the kernel's buffer cannot be waited for.
    pub async fn serve(&mut self, orders: &mut Receiver<Order>, mut stop: impl Stop) -> Result<()> {
        self.emit(0, Body::TraceStart);
        // Nothing tells of mappings: the events for that slow every process of the machine down.
        self.emit(0, Body::Polled);
        let ring = self.ring.as_fd().try_clone_to_owned()?;
        // SAFETY: the descriptor is owned by the wrapper and lives as long as its registration.
        let ring = unsafe { AsyncFd::register_with_interest(ring, Interest::READABLE) }?;
        let mut quiet_since = Instant::now();
        let mut drained = None;
        loop {
            let rests = drained.map(|at: Instant| FASTEST.saturating_sub(at.elapsed())).filter(|rest| !rest.is_zero());
            let pause = if quiet_since.elapsed() < Duration::from_secs(1) { BUSY } else { IDLE };
            let due = self.schedule.next().map(|due| Duration::from_nanos(due.saturating_sub(clock::boot_ns())));
            let pause = rests.unwrap_or_else(|| due.map_or(pause, |due| due.clamp(BUSY, pause)));
            tokio::select! {
                guard = ring.readable(), if rests.is_none() => guard?.clear_ready(),
                () = sleep(pause) => {}
                Some(order) = orders.recv() => self.obey(order),
                () = stop.wait() => return Ok(()),
            }
            drained = self.drain().then(Instant::now);
            quiet_since = drained.unwrap_or(quiet_since);
            self.look_around();
            self.take_looks();
            self.settle();
            self.keep_house();
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Adopt(pid) => self.adopt(pid),
            Order::Full(pid) => self.trace_in_full(pid),
            Order::Rare(pid) => self.trace_rarely(pid),
            Order::Pace(pace) => self.schedule.pace = pace,
            Order::Most(most) => self.served.most = most,
            Order::Grace(grace) => self.options.grace = grace,
        }
    }

    fn adopt(&mut self, pid: u32) {
        let us = std::process::id();
        let all: Vec<u32> = [pid].into_iter().chain(info::descendants(pid)).filter(|&pid| pid != us).collect();
        // The probes go in first: with the process followed already, calls would be seen of which one end has its probe.
        for &pid in &all {
            self.libraries.prepare(&mut self.programs, pid);
        }
        for pid in all {
            // A pid may have become another process's.
            if self.tracked.get(&pid).is_some_and(|tracked| tracked.is_another(pid)) {
                self.ended(pid, None, clock::boot_ns());
            }
            if self.tracked.contains_key(&pid) {
                self.judge(pid, None);
            } else if self.take(pid) {
                self.judge(pid, None);
                self.schedule.at(pid, clock::boot_ns());
            }
        }
    }

    fn take(&mut self, pid: u32) -> bool {
        if self.tracked.len() >= self.served.most || !info::alive(pid) {
            self.served.gauges.refused.fetch_add(u64::from(info::alive(pid)), Relaxed);
            return false;
        }
        if let Err(error) = self.programs.track(pid, Process { flags: PROCESS_RARE, ..Process::default() }) {
            log::warn!("{error:#}");
            self.served.gauges.refused.fetch_add(1, Relaxed);
            return false;
        }
        self.follow(pid, false, true);
        log::info!("process {pid} is followed");
        true
    }

    fn trace_in_full(&mut self, pid: u32) {
        let Some(tracked) = self.tracked.get_mut(&pid) else { return };
        tracked.in_full = true;
        self.served.settling.retain(|&(_, settling)| settling != pid);
        self.served.looks.retain(|&(looking, _)| looking != pid);
        // Told before the first event of that kind can come.
        self.sink.tell(Passed::Full(pid));
        for event in self.libraries.full(&mut self.programs, pid) {
            self.order.push(event);
        }
        self.set_rare(pid, false);
        self.look(pid, Look::Full);
    }

    fn trace_rarely(&mut self, pid: u32) {
        let Some(tracked) = self.tracked.get_mut(&pid) else { return };
        if !std::mem::take(&mut tracked.in_full) {
            return;
        }
        self.set_rare(pid, true);
        // Children were born with its settings.
        for child in info::descendants(pid) {
            if self.tracked.get(&child).is_some_and(|tracked| !tracked.in_full) {
                self.set_rare(child, true);
            }
        }
        self.libraries.rare(pid);
        let (sender, seen) = mpsc::channel();
        let look = move || snapshot::with_holders(pid).map(|seen| drop(sender.send(seen)));
        // Without a thread there is no look: the channel is closed then.
        if let Err(error) = std::thread::Builder::new().name("look".into()).spawn(look) {
            log::debug!("process {pid}: {error}");
        }
        self.served.looks.push((pid, seen));
    }

    fn set_rare(&mut self, pid: u32, rare: bool) {
        let Some(process) = self.programs.tracked(pid) else { return };
        let flags = if rare { process.flags | PROCESS_RARE } else { process.flags & !PROCESS_RARE };
        if let Err(error) = self.programs.track(pid, Process { flags, ..process }) {
            log::warn!("{error:#}");
        }
    }

    /// Takes the looks that are done.
    fn take_looks(&mut self) {
        for (pid, seen) in std::mem::take(&mut self.served.looks) {
            match seen.try_recv() {
                Err(TryRecvError::Empty) => {
                    self.served.looks.push((pid, seen));
                    continue;
                }
                // What it shows is of the moment at which it was done, more or less.
                Ok(seen) => self.saw(clock::boot_ns(), pid, seen),
                Err(TryRecvError::Disconnected) => {}
            }
            self.served.settling.push((clock::boot_ns() + ORDERED_NS, pid));
        }
    }

    /// Says of which processes everything of their time in full has been passed on.
    fn settle(&mut self) {
        let now = clock::boot_ns();
        let (due, rest): (Vec<_>, Vec<_>) = self.served.settling.drain(..).partition(|&(at, _)| at <= now);
        self.served.settling = rest;
        for (_, pid) in due {
            self.sink.tell(Passed::Rare(pid));
        }
    }

    fn keep_house(&mut self) {
        let now = clock::boot_ns();
        let gauges = &self.served.gauges;
        gauges.alive.store(now, Relaxed);
        if now < self.served.housekeeping {
            return;
        }
        self.served.housekeeping = now + HOUSEKEEPING_NS;
        self.libraries.sweep(now);
        let (probes, files) = self.libraries.counts();
        let in_full = self.tracked.values().filter(|tracked| tracked.in_full).count();
        gauges.processes.store(self.tracked.len() as u64, Relaxed);
        gauges.in_full.store(in_full as u64, Relaxed);
        gauges.probes.store(probes as u64, Relaxed);
        gauges.files.store(files as u64, Relaxed);
        // Ledgers go by time: where nothing happens they would not learn that it passes.
        self.sink.tell(Passed::Time(now.saturating_sub(ORDERED_NS)));
    }
}
