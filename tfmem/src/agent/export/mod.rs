//! What the agent sends away. A thread of its own: nobody waits for a network, and with every endpoint down the agent
//! still works.

mod backoff;
pub mod otlp;
mod profiles;
mod push;
mod spool;

use std::{
    collections::VecDeque,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::Result;
use toml::Spanned;

use self::{
    backoff::Backoff,
    otlp::Host,
    push::{Client, Endpoint, Outcome},
    spool::Spool,
};
use super::{
    config::{Config, PprofKind, Time},
    desk::Board,
    metrics::own::Sent,
};
use crate::{catalogue, live::facts, target::clock};

/// Messages between the desk and a thread; one more is dropped and counted.
const WAITING: usize = 16;
/// The thread looks at the time this often.
const TICK: Duration = Duration::from_millis(250);
/// At the agent's end what waits is spooled; an attempt that is under way is not waited for longer than this.
const FAREWELL: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    Metrics,
    Findings,
    /// Profiles
    Pyroscope,
    Parca,
}

impl What {
    const fn name(self) -> &'static str {
        match self {
            Self::Metrics => "metrics",
            Self::Findings => "findings",
            Self::Pyroscope => "pyroscope",
            Self::Parca => "parca",
        }
    }

    fn of(name: &str) -> Option<Self> {
        [Self::Metrics, Self::Findings, Self::Pyroscope, Self::Parca].into_iter().find(|what| what.name() == name)
    }

    const fn path(self) -> &'static str {
        match self {
            Self::Metrics => "/v1/metrics",
            Self::Findings => "/v1/logs",
            Self::Pyroscope => "/push.v1.PusherService/Push",
            Self::Parca => "/profiles/writeraw",
        }
    }

    const fn content_type(self) -> &'static str {
        match self {
            Self::Metrics | Self::Findings => "application/x-protobuf",
            Self::Pyroscope => "application/proto",
            Self::Parca => "application/json",
        }
    }
}

type Message = (What, Vec<u8>);

/// The ways out that are configured.
pub struct Exporter {
    board: Arc<Board>,
    host: Host,
    otlp: Option<(Way, Every)>,
    pprof: Option<(Way, PprofKind)>,
}

/// A message each so often.
struct Every {
    time: Duration,
    next: Instant,
}

/// The thread that sends to one endpoint.
struct Way {
    messages: SyncSender<Message>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Exporter {
    /// # Errors
    /// When certificates or the spool cannot be had.
    pub fn start(config: &Config, board: Arc<Board>) -> Result<Self> {
        let host = host(config);
        let otlp = config.otlp.as_ref().map(|otlp| -> Result<_> {
            let endpoint = endpoint(&otlp.endpoint, otlp.timeout, otlp.ca.as_ref(), otlp.headers_file.as_ref());
            // Hosts that start together do not all send at the same moment.
            let next = Instant::now() + backoff(&host).part_of(otlp.every.0);
            Ok((Way::open(config, &endpoint, "otlp", &host, &board)?, Every { time: otlp.every.0, next }))
        });
        let pprof = config.pprof.as_ref().map(|pprof| -> Result<_> {
            let endpoint = endpoint(&pprof.endpoint, pprof.timeout, pprof.ca.as_ref(), pprof.headers_file.as_ref());
            Ok((Way::open(config, &endpoint, "pprof", &host, &board)?, pprof.kind))
        });
        Ok(Self { otlp: otlp.transpose()?, pprof: pprof.transpose()?, board, host })
    }

    /// Called once a second.
    pub fn second(&mut self, now: Instant) {
        let due = self.otlp.as_mut().is_some_and(|(_, every)| {
            let due = now >= every.next;
            if due {
                every.next = now + every.time;
            }
            due
        });
        if due {
            self.offer();
        }
        self.offer_profiles();
    }

    /// Ends the threads; what could not be sent stays in the spools.
    pub fn end(&mut self) {
        self.offer();
        self.offer_profiles();
        let ways = self.otlp.take().map(|(way, _)| way).into_iter().chain(self.pprof.take().map(|(way, _)| way));
        let ending: Vec<JoinHandle<()>> = ways.map(Way::end).collect();
        let until = Instant::now() + FAREWELL;
        while ending.iter().any(|thread| !thread.is_finished()) && Instant::now() < until {
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn offer(&self) {
        let Some((way, _)) = &self.otlp else { return };
        let now = self.host.boot.saturating_add(clock::boot_ns());
        let metrics = otlp::metrics(&self.board.families(), &self.host, now);
        way.hand_over(&self.board.sent, What::Metrics, metrics);
        let findings = self.board.shared.findings();
        if !findings.is_empty() {
            way.hand_over(&self.board.sent, What::Findings, otlp::findings(&findings, &self.host, now));
        }
    }

    fn offer_profiles(&self) {
        let Some((way, kind)) = &self.pprof else { return };
        for traced in self.board.shared.traced() {
            if let Some((what, body)) = profiles::message(&traced, *kind, &self.host) {
                way.hand_over(&self.board.sent, what, body);
            }
        }
    }
}

impl Way {
    fn open(config: &Config, endpoint: &Endpoint, name: &'static str, host: &Host, board: &Board) -> Result<Self> {
        let sender = Sender {
            client: Client::new(endpoint)?,
            spool: Spool::open(&config.spool.folder.join(name), config.spool.limit.0)?,
            name,
            sent: board.sent.clone(),
            backoff: backoff(host),
            not_before: None,
            budget: Budget { in_a_minute: config.limits.pushed_in_a_minute.0, sent: VecDeque::new() },
        };
        let (messages, receiver) = sync_channel(WAITING);
        let stop = Arc::<AtomicBool>::default();
        let stopped = stop.clone();
        let thread = thread::Builder::new().name(name.into()).spawn(move || sender.run(&receiver, &stopped))?;
        Ok(Self { messages, stop, thread })
    }

    fn hand_over(&self, sent: &Sent, what: What, body: Vec<u8>) {
        if self.messages.try_send((what, body)).is_err() {
            sent.count(what.name(), "dropped_busy", 1);
        }
    }

    fn end(self) -> JoinHandle<()> {
        self.stop.store(true, Relaxed);
        self.thread
    }
}

fn backoff(host: &Host) -> Backoff {
    Backoff::new(catalogue::digest(host.name.bytes()))
}

fn endpoint(
    address: &Spanned<String>,
    timeout: Time,
    ca: Option<&Spanned<PathBuf>>,
    headers_file: Option<&Spanned<PathBuf>>,
) -> Endpoint {
    Endpoint {
        address: address.get_ref().clone(),
        timeout: timeout.0,
        ca: ca.map(|path| path.get_ref().clone()),
        headers_file: headers_file.map(|path| path.get_ref().clone()),
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
    /// Of the way.
    name: &'static str,
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
            self.sent.spooled(self.name, self.spool.bytes());
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
