//! The thread that keeps the ledgers, and what others see of it.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{SyncSender, TrySendError, sync_channel},
    },
    thread::JoinHandle,
};

use anyhow::Result;
use tokio::sync::{mpsc, oneshot};

use super::{
    Ledgers,
    state::{Finding, State, Traced},
};
use crate::{
    agent::config::Rule,
    live::{
        Capabilities,
        sink::{Passed, Sink},
    },
    report::model::Report,
    retention::Options,
};

/// Messages that may wait. When the ledgers fall that far behind, whoever reads the kernel's buffer waits, and what does
/// not fit there is counted by the kernel.
const WAITING: usize = 1024;
/// Findings that wait for somebody who sends them away.
const FINDINGS: usize = 1024;
/// And reports.
const TRACED: usize = 4;

/// A process that a rule wants traced in full.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    pub pid: u32,
    pub rule: Rule,
}

/// What others ask of the ledgers.
#[derive(Debug)]
pub enum Ask {
    Report(u32, oneshot::Sender<Option<Arc<Report>>>),
    Trim,
    /// What the kernel allows, for reports.
    Capabilities(Capabilities),
    Configure(Options, Vec<Rule>),
}

enum Message {
    Passed(Passed),
    Ask(Ask),
    End,
}

/// What the ledgers show, for others to read at any time.
#[derive(Debug, Default)]
pub struct Shared {
    state: Mutex<Arc<State>>,
    findings: Mutex<VecDeque<Finding>>,
    traced: Mutex<VecDeque<Traced>>,
}

impl Shared {
    pub fn state(&self) -> Arc<State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reports of full tracing since this was asked last.
    pub fn traced(&self) -> Vec<Traced> {
        self.traced.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }

    /// Findings since this was asked last.
    pub fn findings(&self) -> Vec<Finding> {
        self.findings.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }
}

/// The running thread.
pub struct Handle {
    pub shared: Arc<Shared>,
    messages: SyncSender<Message>,
    thread: JoinHandle<()>,
}

/// Starts the thread; `wishes` get what the rules say.
///
/// # Errors
/// When no thread can be made.
pub fn start(mut ledgers: Ledgers, wishes: mpsc::Sender<Wish>) -> Result<Handle> {
    let shared = Arc::<Shared>::default();
    let (messages, receiver) = sync_channel(WAITING);
    let shown = shared.clone();
    let thread = std::thread::Builder::new().name("ledgers".into()).spawn(move || {
        for message in receiver {
            match message {
                Message::Passed(passed) => {
                    ledgers.take(&passed);
                    if let Passed::Time(at) = passed {
                        show(&mut ledgers, &shown, &wishes, at);
                    }
                }
                Message::Ask(Ask::Report(pid, answer)) => drop(answer.send(ledgers.report(pid))),
                Message::Ask(Ask::Trim) => ledgers.trim(),
                Message::Ask(Ask::Capabilities(capabilities)) => ledgers.capabilities = capabilities,
                Message::Ask(Ask::Configure(options, rules)) => {
                    ledgers.options = options;
                    ledgers.rules = rules;
                }
                Message::End => return,
            }
        }
    })?;
    Ok(Handle { shared, messages, thread })
}

fn show(ledgers: &mut Ledgers, shown: &Shared, wishes: &mpsc::Sender<Wish>, at: u64) {
    {
        let mut findings = shown.findings.lock().unwrap_or_else(PoisonError::into_inner);
        findings.extend(ledgers.findings.drain(..));
        while findings.len() > FINDINGS {
            findings.pop_front();
            ledgers.totals.findings_dropped += 1;
        }
    }
    {
        // Kept for one who sends profiles away; nobody counts them who does not.
        let mut traced = shown.traced.lock().unwrap_or_else(PoisonError::into_inner);
        traced.extend(ledgers.traced.drain(..));
        while traced.len() > TRACED {
            traced.pop_front();
        }
    }
    for wish in ledgers.wishes.drain(..) {
        // Nobody there, or many before it: the rule will speak again at the next boundary.
        let _ = wishes.try_send(wish);
    }
    *shown.state.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(ledgers.state(at));
}

impl Handle {
    /// Where the loop's events go.
    pub fn sink(&self) -> Sink {
        let messages = self.messages.clone();
        // The thread only ends when it is told to, or panicked: the watchdog sees that the state gets old.
        Sink::to(Box::new(move |passed| drop(messages.send(Message::Passed(passed)))))
    }

    /// `false`: there is too much to do.
    pub fn ask(&self, ask: Ask) -> bool {
        !matches!(self.messages.try_send(Message::Ask(ask)), Err(TrySendError::Full(_) | TrySendError::Disconnected(_)))
    }

    /// Ends the thread after everything that was sent before.
    pub fn end(self) {
        let _ = self.messages.send(Message::End);
        let _ = self.thread.join();
    }
}
