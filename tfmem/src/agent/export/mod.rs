//! What the agent sends away. A thread of its own: nobody waits for a network, and with every endpoint down the agent
//! still works.

mod backoff;
pub mod otlp;
mod push;
mod spool;

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::Result;

use self::{
    backoff::Backoff,
    otlp::Host,
    push::{Client, Outcome},
    spool::Spool,
};
use super::{config::Config, desk::Board, metrics::own::Sent};
use crate::{catalogue, live::facts, target::clock};

/// Messages between the desk and the thread; one more is dropped and counted.
const WAITING: usize = 16;
/// The thread looks at the time this often.
const TICK: Duration = Duration::from_millis(250);
/// At the agent's end what waits is spooled; an attempt that is under way is not waited for longer than this.
const FAREWELL: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Metrics,
    Findings,
}

impl What {
    const fn name(self) -> &'static str {
        match self {
            Self::Metrics => "metrics",
            Self::Findings => "findings",
        }
    }

    fn of(name: &str) -> Option<Self> {
        [Self::Metrics, Self::Findings].into_iter().find(|what| what.name() == name)
    }

    const fn path(self) -> &'static str {
        match self {
            Self::Metrics => "/v1/metrics",
            Self::Findings => "/v1/logs",
        }
    }
}

type Message = (What, Vec<u8>);

/// The way out, if there is one.
pub struct Exporter(Option<Running>);

struct Running {
    board: Arc<Board>,
    host: Host,
    every: Duration,
    next: Instant,
    messages: SyncSender<Message>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Exporter {
    /// # Errors
    /// When certificates or the spool cannot be had.
    pub fn start(config: &Config, board: Arc<Board>) -> Result<Self> {
        let Some(otlp) = &config.otlp else { return Ok(Self(None)) };
        let host = host(config);
        let mut backoff = Backoff::new(catalogue::digest(host.name.bytes()));
        // Hosts that start together do not all send at the same moment.
        let next = Instant::now() + backoff.part_of(otlp.every.0);
        let sender = Sender {
            client: Client::new(otlp)?,
            spool: Spool::open(&config.spool.folder, config.spool.limit.0)?,
            sent: board.sent.clone(),
            backoff,
            not_before: None,
            budget: Budget { in_a_minute: config.limits.pushed_in_a_minute.0, sent: VecDeque::new() },
        };
        let (messages, receiver) = sync_channel(WAITING);
        let stop = Arc::<AtomicBool>::default();
        let stopped = stop.clone();
        let thread = thread::Builder::new().name("export".into()).spawn(move || sender.run(&receiver, &stopped))?;
        Ok(Self(Some(Running { board, host, every: otlp.every.0, next, messages, stop, thread })))
    }

    /// Called once a second.
    pub fn second(&mut self, now: Instant) {
        let Some(running) = &mut self.0 else {
            return;
        };
        if now >= running.next {
            running.next = now + running.every;
            running.offer();
        }
    }

    /// Ends the thread; what could not be sent stays in the spool.
    pub fn end(&mut self) {
        let Some(mut running) = self.0.take() else { return };
        running.offer();
        running.stop.store(true, Relaxed);
        drop(running.messages);
        let until = Instant::now() + FAREWELL;
        while !running.thread.is_finished() && Instant::now() < until {
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Running {
    fn offer(&mut self) {
        let now = self.host.boot.saturating_add(clock::boot_ns());
        let metrics = otlp::metrics(&self.board.families(), &self.host, now);
        self.hand_over(What::Metrics, metrics);
        let findings = self.board.shared.findings();
        if !findings.is_empty() {
            self.hand_over(What::Findings, otlp::findings(&findings, &self.host, now));
        }
    }

    fn hand_over(&self, what: What, body: Vec<u8>) {
        if self.messages.try_send((what, body)).is_err() {
            self.board.sent.count(what.name(), "dropped_busy", 1);
        }
    }
}

fn host(config: &Config) -> Host {
    let machine = facts::host();
    // In a pod the kernel's word is the pod's name.
    let given = std::env::var("TFMEM_HOST_NAME").ok().filter(|name| !name.is_empty());
    let id = std::fs::read_to_string("/etc/machine-id").ok().map(|id| id.trim().to_owned());
    let boot = clock::wall_offset_ns();
    Host {
        name: config.host.name.clone().or(given).unwrap_or(machine.hostname),
        id: id.filter(|id| !id.is_empty()),
        cluster: config.host.cluster.clone(),
        began: boot.saturating_add(clock::boot_ns()),
        boot,
    }
}

struct Sender {
    client: Client,
    spool: Spool,
    sent: Arc<Sent>,
    backoff: Backoff,
    not_before: Option<Instant>,
    budget: Budget,
}

impl Sender {
    fn run(mut self, messages: &Receiver<Message>, stop: &AtomicBool) {
        loop {
            match messages.recv_timeout(TICK) {
                Ok((what, body)) if stop.load(Relaxed) => self.keep(what, &body),
                Ok((what, body)) => self.take(what, &body),
                Err(RecvTimeoutError::Timeout) => self.catch_up(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.sent.spooled(self.spool.bytes());
        }
    }

    /// A new message goes at once if nothing older waits.
    fn take(&mut self, what: What, body: &[u8]) {
        if !self.spool.is_empty() || !self.may_send(body.len()) || !self.attempt(what, body) {
            self.keep(what, body);
        }
    }

    /// Sends the oldest that waits.
    fn catch_up(&mut self) {
        if self.not_before.is_some_and(|at| Instant::now() < at) {
            return;
        }
        let Some((what, body)) = self.spool.front() else { return };
        if self.may_send(body.len()) && self.attempt(what, &body) {
            self.spool.pop();
        }
    }

    fn may_send(&mut self, bytes: usize) -> bool {
        let now = Instant::now();
        if self.not_before.is_some_and(|at| now < at) {
            return false;
        }
        let allowed = self.budget.allows(bytes as u64, now);
        if !allowed {
            self.sent.count("bytes", "held_back", bytes as u64);
        }
        allowed
    }

    /// `true`: the message needs no further attempt.
    fn attempt(&mut self, what: What, body: &[u8]) -> bool {
        let outcome = self.client.send(what, body);
        self.budget.spent(body.len() as u64, Instant::now());
        match outcome {
            Outcome::Sent => {
                self.backoff.worked();
                self.not_before = None;
                self.sent.count(what.name(), "sent", 1);
                self.sent.count("bytes", "sent", body.len() as u64);
                true
            }
            Outcome::Later(why, asked) => {
                let wait = self.backoff.failed(asked);
                log::info!("{} could not be sent ({why}): again in {wait:.0?}", what.name());
                self.not_before = Some(Instant::now() + wait);
                self.sent.count(what.name(), "failed", 1);
                false
            }
            Outcome::Never(why) => {
                log::warn!("{} were refused ({why}) and are dropped", what.name());
                self.sent.count(what.name(), "dropped_refused", 1);
                true
            }
        }
    }

    fn keep(&mut self, what: What, body: &[u8]) {
        match self.spool.push(what, body) {
            Ok(dropped) => {
                for what in dropped {
                    self.sent.count(what.name(), "dropped_old", 1);
                }
            }
            Err(error) => {
                log::warn!("the spool: {error}");
                self.sent.count(what.name(), "dropped_no_disk", 1);
            }
        }
    }
}

/// Bytes in a minute.
struct Budget {
    in_a_minute: u64,
    sent: VecDeque<(Instant, u64)>,
}

impl Budget {
    fn allows(&mut self, bytes: u64, now: Instant) -> bool {
        while self.sent.front().is_some_and(|&(at, _)| now.duration_since(at) >= Duration::from_secs(60)) {
            self.sent.pop_front();
        }
        let sent: u64 = self.sent.iter().map(|&(_, bytes)| bytes).sum();
        // One that is larger than all goes alone.
        sent == 0 || sent.saturating_add(bytes) <= self.in_a_minute
    }

    fn spent(&mut self, bytes: u64, now: Instant) {
        self.sent.push_back((now, bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_held_back_until_a_minute_is_over() {
        let mut budget = Budget { in_a_minute: 100, sent: VecDeque::new() };
        let start = Instant::now();
        assert!(budget.allows(500, start), "one that is larger than all");
        budget.spent(80, start);
        assert!(budget.allows(20, start));
        assert!(!budget.allows(21, start));
        assert!(budget.allows(21, start + Duration::from_secs(60)));
    }
}
