//! Where the events of a trace go: a thread of its own, so that the ledger's work never delays a held process.

use std::{
    sync::{
        Arc,
        mpsc::{SyncSender, sync_channel},
    },
    thread::JoinHandle,
};

use anyhow::{Context as _, Result, anyhow};

use crate::{event::Event, recording::recorder::Recorder, retention::Analysis};

/// Batches that may wait. When the ledger falls that far behind, draining waits, and what the ring buffer cannot hold
/// meanwhile is counted by the kernel.
const BATCHES: usize = 1024;

pub struct Sink {
    to: To,
    recorder: Option<Recorder>,
}

enum To {
    Thread(SyncSender<Arc<Vec<Event>>>, JoinHandle<Analysis>),
    Others(Box<dyn FnMut(Passed) + Send>),
}

/// What somebody else's ledgers are given, in order of time.
#[derive(Clone, Debug)]
pub enum Passed {
    Events(Arc<Vec<Event>>),
    /// From here on this process is traced in full.
    Full(u32),
    /// It is not any more, and everything of that time has been passed.
    Rare(u32),
    /// Everything up to this moment has been passed.
    Time(u64),
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
        Ok(Self { to: To::Thread(batches, thread), recorder: None })
    }

    /// Others keep the ledgers. They must not take long: whoever reads the kernel's buffer waits for them.
    pub fn to(others: Box<dyn FnMut(Passed) + Send>) -> Self {
        Self { to: To::Others(others), recorder: None }
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
        match &mut self.to {
            // The thread only ends when the sender is dropped or it panicked; the latter shows at `finish`.
            To::Thread(batches, _) => drop(batches.send(batch)),
            To::Others(others) => others(Passed::Events(batch)),
        }
    }

    /// Tells others more than events. The thread has one ledger, which sees all.
    pub fn tell(&mut self, passed: Passed) {
        if let To::Others(others) = &mut self.to {
            others(passed);
        }
    }

    /// Waits until everything is accounted for. A recording is ended later, with the facts of the end.
    ///
    /// # Errors
    /// When the ledger's thread died, or the ledgers are others'.
    pub fn finish(self) -> Result<(Analysis, Option<Recorder>)> {
        let To::Thread(batches, thread) = self.to else { return Err(anyhow!("no report")).context("others have it") };
        drop(batches);
        let analysis = thread.join().map_err(|_| anyhow!("the ledger's thread panicked"))?;
        Ok((analysis, self.recorder))
    }
}
