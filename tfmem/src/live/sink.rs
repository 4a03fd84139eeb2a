//! Where the events of a trace go: a thread of its own, so that the ledger's work never delays a held process.

use std::{
    sync::{
        Arc,
        mpsc::{SyncSender, sync_channel},
    },
    thread::JoinHandle,
};

use anyhow::{Result, anyhow};

use crate::{event::Event, recording::recorder::Recorder, retention::Analysis};

/// Batches that may wait. When the ledger falls that far behind, draining waits, and what the ring buffer cannot hold
/// meanwhile is counted by the kernel.
const BATCHES: usize = 1024;

#[derive(Debug)]
pub struct Sink {
    batches: SyncSender<Arc<Vec<Event>>>,
    recorder: Option<Recorder>,
    thread: JoinHandle<Analysis>,
}

impl Sink {
    /// # Errors
    /// When no thread can be made.
    pub fn start(mut analysis: Analysis) -> Result<Self> {
        let (batches, receiver) = sync_channel::<Arc<Vec<Event>>>(BATCHES);
        let thread = std::thread::Builder::new().name("ledger".into()).spawn(move || {
            for batch in receiver {
                for event in batch.iter() {
                    analysis.feed(event);
                }
            }
            analysis
        })?;
        Ok(Self { batches, recorder: None, thread })
    }

    /// Everything from now on is recorded too.
    pub fn record(&mut self, recorder: Recorder) {
        self.recorder = Some(recorder);
    }

    /// Hands on a batch in order of time.
    pub fn send(&mut self, batch: Vec<Event>) {
        let batch = Arc::new(batch);
        if let Some(recorder) = &mut self.recorder {
            recorder.send(&batch);
        }
        // The thread only ends when the sender is dropped or it panicked; the latter shows at `finish`.
        let _ = self.batches.send(batch);
    }

    /// Waits until everything is accounted for. A recording is ended later, with the facts of the end.
    ///
    /// # Errors
    /// When the ledger's thread died.
    pub fn finish(self) -> Result<(Analysis, Option<Recorder>)> {
        drop(self.batches);
        let analysis = self.thread.join().map_err(|_| anyhow!("the ledger's thread panicked"))?;
        Ok((analysis, self.recorder))
    }
}
