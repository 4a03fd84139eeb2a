//! Where the events of a trace go: a thread of its own, so that the ledger's work never delays a held process.

use std::{
    sync::mpsc::{SyncSender, sync_channel},
    thread::JoinHandle,
};

use anyhow::{Result, anyhow};

use crate::{event::Event, retention::Analysis};

/// Batches that may wait. When the ledger falls that far behind, draining waits, and what the ring buffer cannot hold
/// meanwhile is counted by the kernel.
const BATCHES: usize = 1024;

#[derive(Debug)]
pub struct Sink {
    batches: SyncSender<Vec<Event>>,
    thread: JoinHandle<Analysis>,
}

impl Sink {
    /// # Errors
    /// When no thread can be made.
    pub fn start(mut analysis: Analysis) -> Result<Self> {
        let (batches, receiver) = sync_channel::<Vec<Event>>(BATCHES);
        let thread = std::thread::Builder::new().name("ledger".into()).spawn(move || {
            for batch in receiver {
                for event in &batch {
                    analysis.feed(event);
                }
            }
            analysis
        })?;
        Ok(Self { batches, thread })
    }

    /// Hands on a batch in order of time.
    pub fn send(&self, batch: Vec<Event>) {
        // The thread only ends when the sender is dropped or it panicked; the latter shows at `finish`.
        let _ = self.batches.send(batch);
    }

    /// Waits until everything is accounted for.
    ///
    /// # Errors
    /// When the ledger's thread died.
    pub fn finish(self) -> Result<Analysis> {
        drop(self.batches);
        self.thread.join().map_err(|_| anyhow!("the ledger's thread panicked"))
    }
}
