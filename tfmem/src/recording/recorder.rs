//! Recording beside the ledger: a thread of its own, so that a slow disk delays nobody. What goes wrong ends the
//! recording, never the trace, and is counted.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Write},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    time::{Duration, Instant},
};

use nix::sys::signal::{SigSet, SigmaskHow, Signal};

use super::{
    format::{Head, Tail},
    writer::Writer,
};
use crate::{event::Event, retention::Facts};

/// Events that may wait for the disk. It is the same memory that waits for the ledger, and at the rates of a busy
/// program a stall of seconds.
const MOST_WAITING: usize = 1 << 20;
/// A disk that takes longer than this for the last frames is not waited for.
const PATIENCE: Duration = Duration::from_secs(20);

/// Losses by name, as the report lists them.
const EVENTS_LOST: &str = "recording_events_lost";

/// What is recorded to. The part of a frame that was written when an error came is cut off, where that can be done.
pub trait Output: Write + Send + 'static {
    /// Cuts off what lies behind `len`.
    ///
    /// # Errors
    /// When it cannot be done; then a reader finds half a frame at the end and stops there.
    fn cut(&mut self, len: u64) -> io::Result<()>;
}

impl Output for File {
    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.set_len(len)
    }
}

enum Message {
    Events(Arc<Vec<Event>>),
    End(Box<Tail>),
}

/// A recording under way.
#[derive(Debug)]
pub struct Recorder {
    messages: Sender<Message>,
    waiting: Arc<AtomicUsize>,
    lost: Receiver<u64>,
    /// Events that were not handed on because the disk was too far behind. Then none after them is either.
    refused: u64,
    refusing: bool,
}

impl Recorder {
    /// Begins the file and the thread.
    ///
    /// # Errors
    /// When the beginning cannot be written or no thread can be made.
    pub fn start(output: impl Output, head: &Head) -> io::Result<Self> {
        let writer = Writer::begin(output, head)?;
        let (messages, receiver) = channel();
        let (tell, lost) = channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let thread = Thread { writer, waiting: Arc::clone(&waiting), stopped: false, lost: 0 };
        std::thread::Builder::new().name("recorder".into()).spawn(move || {
            let _ = tell.send(thread.run(&receiver));
        })?;
        Ok(Self { messages, waiting, lost, refused: 0, refusing: false })
    }

    /// Takes a batch in order of time. Never waits.
    pub fn send(&mut self, batch: &Arc<Vec<Event>>) {
        if !self.refusing && self.waiting.load(Ordering::Relaxed) + batch.len() > MOST_WAITING.max(batch.len()) {
            log::warn!("the recording stops here: the disk cannot keep up (the trace goes on)");
            self.refusing = true;
        }
        if self.refusing {
            self.refused += batch.len() as u64;
            return;
        }
        self.waiting.fetch_add(batch.len(), Ordering::Relaxed);
        // A thread that died shows at the end.
        let _ = self.messages.send(Message::Events(Arc::clone(batch)));
    }

    /// Ends the recording with the facts of the end, to which what was lost here is added.
    pub fn finish(self, facts: &mut Facts) {
        let Self { messages, lost, refused, refusing, waiting } = self;
        if !refusing {
            let tail = Tail { events: 0, facts: (&*facts).into() };
            let _ = messages.send(Message::End(Box::new(tail)));
        }
        drop(messages);
        let lost = lost.recv_timeout(PATIENCE).unwrap_or_else(|_| {
            log::warn!("the recording is not complete: its last part could not be written in time");
            waiting.load(Ordering::Relaxed) as u64
        });
        if lost + refused > 0 {
            facts.lost.insert(EVENTS_LOST.to_owned(), lost + refused);
        }
    }
}

struct Thread<O> {
    writer: Writer<O>,
    waiting: Arc<AtomicUsize>,
    /// An error came: nothing is written any more.
    stopped: bool,
    lost: u64,
}

impl<O: Output> Thread<O> {
    /// Events that are not in the recording.
    fn run(mut self, messages: &Receiver<Message>) -> u64 {
        // A limit on the size of files is an error like any other, not the end of tfmem.
        let mut mask = SigSet::empty();
        mask.add(Signal::SIGXFSZ);
        if let Err(error) = mask.thread_swap_mask(SigmaskHow::SIG_BLOCK) {
            log::debug!("SIGXFSZ: {error}");
        }
        loop {
            let message = match self.writer.due() {
                Some(due) => messages.recv_timeout(due.saturating_duration_since(Instant::now())),
                None => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match message {
                Ok(Message::Events(batch)) => self.record(&batch),
                Ok(Message::End(tail)) => {
                    self.end(*tail);
                    break;
                }
                Err(RecvTimeoutError::Timeout) => {
                    let result = self.writer.flush();
                    self.check(result);
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let result = self.writer.flush();
                    self.check(result);
                    break;
                }
            }
        }
        self.lost + self.writer.too_large()
    }

    fn record(&mut self, batch: &[Event]) {
        for event in batch {
            if self.stopped {
                self.lost += 1;
                continue;
            }
            let result = self.writer.push(event);
            self.check(result);
        }
        // A steady stream of batches must not put off what is due.
        if !self.stopped && self.writer.due().is_some_and(|due| due <= Instant::now()) {
            let result = self.writer.flush();
            self.check(result);
        }
        self.waiting.fetch_sub(batch.len(), Ordering::Relaxed);
    }

    fn end(&mut self, mut tail: Tail) {
        if self.stopped {
            return;
        }
        if self.writer.too_large() > 0 {
            tail.facts.lost = BTreeMap::from([(EVENTS_LOST.to_owned(), self.writer.too_large())]);
        }
        let result = self.writer.finish(tail);
        self.check(result);
    }

    fn check(&mut self, result: io::Result<()>) {
        let Err(error) = result else { return };
        log::warn!("the recording stops here: {error} (the trace goes on)");
        self.stopped = true;
        self.lost += self.writer.discard();
        let written = self.writer.written();
        if let Err(error) = self.writer.output().cut(written) {
            log::debug!("half a frame stays at the end of the recording: {error}");
        }
    }
}
