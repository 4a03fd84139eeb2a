//! Where everything but the events comes together: timers, limits, orders, the configuration. A thread of its own.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use anyhow::Result;
use serde_json::json;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{Notify, mpsc, oneshot},
    time::{MissedTickBehavior, interval},
};

use super::{
    config::{self, Config},
    control::{Answer, Asked, Control, Request},
    discover,
    escalation::{By, Escalations},
    export::Exporter,
    http::{Pages, Server},
    ledgers::{Ask, Handle, Shared, Wish},
    limits::{Governor, Usage},
    metrics::{
        openmetrics,
        own::{self, Own, Sent},
        processes,
    },
};
use crate::{
    live::{Pace, facts, serve::Gauges, serve::Order},
    report::model::Report,
    retention,
    snapshot::{self, model},
    target::{clock, info},
};

/// A loop that did not go round for so long stands still: the watchdog shall see it.
const STILL_NS: u64 = 20_000_000_000;
/// Full looks may take this share of the time at most, all processes together.
const REST: u64 = 200;

/// What others see of the agent.
pub struct Board {
    pub shared: Arc<Shared>,
    pub gauges: Arc<Gauges>,
    pub found: Arc<discover::Counts>,
    pub sent: Arc<Sent>,
    own: Mutex<Own>,
    /// Labels of everything, and how many processes have series of their own.
    settings: Mutex<(Vec<(&'static str, String)>, usize)>,
}

impl Board {
    pub fn new(shared: Arc<Shared>, gauges: Arc<Gauges>, found: Arc<discover::Counts>) -> Self {
        let (own, settings) = (Mutex::default(), Mutex::default());
        Self { shared, gauges, found, sent: Arc::default(), own, settings }
    }

    fn configure(&self, config: &Config) {
        let labels = config.host.cluster.iter().map(|cluster| ("tfmem_cluster", cluster.clone())).collect();
        *self.settings.lock().unwrap_or_else(PoisonError::into_inner) = (labels, config.metrics.processes as usize);
    }

    /// All metrics as they are now.
    pub fn families(&self) -> Vec<super::metrics::family::Family> {
        let most = self.settings.lock().unwrap_or_else(PoisonError::into_inner).1;
        let own = self.own.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let state = self.shared.state();
        let mut families = processes::families(&state, most);
        families.extend(own::families(&own, &state, &self.gauges, &self.found, &self.sent));
        families
    }
}

impl Pages for Board {
    fn metrics(&self) -> Option<String> {
        let labels = self.settings.lock().unwrap_or_else(PoisonError::into_inner).0.clone();
        openmetrics::page(self.families(), &labels).ok()
    }

    fn healthy(&self) -> bool {
        clock::boot_ns().saturating_sub(self.gauges.alive.load(Relaxed)) < STILL_NS
    }
}

/// How often processes are looked at.
pub fn pace(config: &Config) -> Pace {
    Pace { totals_every_ns: config.trace.totals_every.ns(), rest: REST, for_all: true }
}

/// What the analysis is asked to do.
pub fn analysis(config: &Config) -> retention::Options {
    retention::Options {
        grace_ns: config.trace.grace.ns(),
        min_bytes: config.trace.min_bytes.0,
        ..retention::Options::default()
    }
}

pub struct Desk {
    path: PathBuf,
    config: Config,
    board: Arc<Board>,
    ledgers: Arc<Handle>,
    orders: mpsc::Sender<Order>,
    governor: Governor,
    escalations: Escalations,
    exporter: Exporter,
    server: Option<Server>,
    most: usize,
    began: Instant,
    reloads: u64,
}

impl Desk {
    /// # Errors
    /// When an address cannot be listened at. Call inside a tokio runtime.
    pub async fn new(
        path: PathBuf,
        config: Config,
        board: Arc<Board>,
        ledgers: Arc<Handle>,
        orders: mpsc::Sender<Order>,
    ) -> Result<Self> {
        board.configure(&config);
        let mut desk = Self {
            governor: Governor::new(&config.limits, pace(&config)),
            escalations: Escalations::new(config.escalation.clone()),
            exporter: Exporter::start(&config, board.clone())?,
            server: None,
            most: config.limits.processes as usize,
            began: Instant::now(),
            reloads: 0,
            path,
            config,
            board,
            ledgers,
            orders,
        };
        desk.serve_pages().await?;
        Ok(desk)
    }

    async fn serve_pages(&mut self) -> Result<()> {
        let wanted = self.config.metrics.listen.as_ref().map(|address| *address.get_ref());
        // Port 0 is any: the one that it was given is kept.
        let same = |server: &Server| {
            wanted
                .is_some_and(|w| w.ip() == server.address.ip() && (w.port() == 0 || w.port() == server.address.port()))
        };
        if self.server.as_ref().is_some_and(same) {
            return Ok(());
        }
        self.server = None;
        if let Some(address) = wanted {
            let server = Server::start(address, self.board.clone()).await?;
            log::warn!("metrics at http://{}/metrics", server.address);
            self.server = Some(server);
        }
        Ok(())
    }

    /// Until `end` says so.
    ///
    /// # Errors
    /// When signals cannot be handled or the socket for orders cannot be made.
    pub async fn run(mut self, mut wishes: mpsc::Receiver<Wish>, end: Arc<Notify>) -> Result<()> {
        let (sender, mut asked) = mpsc::channel::<Asked>(16);
        let group = self.config.control.group.as_ref().map(|group| group.get_ref().as_str());
        let _control = Control::listen(&self.config.control.socket, group, sender)?;
        let mut reload = signal(SignalKind::hangup())?;
        let mut second = interval(Duration::from_secs(1));
        second.set_missed_tick_behavior(MissedTickBehavior::Delay);
        tell_manager(&[sd_notify::NotifyState::Ready]);
        loop {
            tokio::select! {
                _ = second.tick() => self.second(),
                Some(wish) = wishes.recv() => self.wish(wish),
                Some((request, answer)) = asked.recv() => self.order(request, answer),
                _ = reload.recv() => self.reload().await,
                () = end.notified() => {
                    tell_manager(&[sd_notify::NotifyState::Stopping]);
                    self.exporter.end();
                    return Ok(());
                }
            }
        }
    }

    fn send(&self, order: Order) {
        // The loop takes orders within milliseconds; a full queue means that it stands still, which the watchdog sees.
        if self.orders.try_send(order).is_err() {
            log::warn!("the loop takes no orders");
        }
    }

    fn second(&mut self) {
        let (usage, now) = (Usage::read(), Instant::now());
        let effects = self.governor.judge(usage, now);
        if let Some(pace) = effects.pace {
            self.send(Order::Pace(pace));
        }
        for pid in self.escalations.over_limit(effects.no_full) {
            log::warn!("process {pid}: full tracing ends, the agent is above a limit");
            self.send(Order::Rare(pid));
        }
        if effects.trim {
            self.ledgers.ask(Ask::Trim);
            // SAFETY: no preconditions; gives back what the allocator keeps free.
            unsafe { libc::malloc_trim(0) };
        }
        let most = if effects.take_none { 0 } else { self.config.limits.processes as usize };
        if std::mem::replace(&mut self.most, most) != most {
            self.send(Order::Most(most));
        }
        for pid in self.escalations.over(now) {
            self.send(Order::Rare(pid));
        }
        self.escalations.gone(|pid| info::state(pid).is_some());
        *self.board.own.lock().unwrap_or_else(PoisonError::into_inner) = Own {
            usage,
            hits: self.governor.hits,
            stretched: self.governor.stretched(),
            escalations: self.escalations.counts,
            reloads: self.reloads,
        };
        self.exporter.second(now);
        if self.board.healthy() {
            tell_manager(&[sd_notify::NotifyState::Watchdog]);
        }
    }

    fn wish(&mut self, wish: Wish) {
        if self.escalations.begin(wish.pid, None, By::Rule, Instant::now()).is_ok() {
            log::warn!(
                "process {}: traced in full for {}, as it grew by {} MiB or more over {} boundaries",
                wish.pid,
                humantime::format_duration(self.config.escalation.time.0),
                wish.rule.grew_by.0 >> 20,
                wish.rule.boundaries
            );
            self.send(Order::Full(wish.pid));
        }
    }

    fn order(&mut self, request: Request, answer: oneshot::Sender<Answer>) {
        let reply = match request {
            Request::Status => Answer::Ok(self.status()),
            Request::Processes => value(&self.board.shared.state().processes),
            Request::Escalate { pid, for_ms } => self.escalate(pid, for_ms.map(Duration::from_millis)),
            Request::Snapshot { pid } if self.follows(pid) => {
                // It takes a second or more.
                drop(tokio::task::spawn_blocking(move || answer.send(take_snapshot(pid))));
                return;
            }
            Request::Report { pid } => {
                let (sender, report) = oneshot::channel();
                if self.ledgers.ask(Ask::Report(pid, sender)) {
                    tokio::spawn(async move {
                        let report = report.await.ok().flatten();
                        answer.send(report.map_or_else(|| unknown(pid), |report: Arc<Report>| value(report.as_ref())))
                    });
                    return;
                }
                Answer::Error("the ledgers have too much to do: ask again".to_owned())
            }
            Request::Snapshot { pid } => unknown(pid),
        };
        // One who does not wait for the answer does not need it.
        let _ = answer.send(reply);
    }

    fn follows(&self, pid: u32) -> bool {
        self.board.shared.state().processes.iter().any(|process| process.pid == pid)
    }

    fn escalate(&mut self, pid: u32, time: Option<Duration>) -> Answer {
        if !self.follows(pid) {
            return unknown(pid);
        }
        match self.escalations.begin(pid, time, By::Hand, Instant::now()) {
            Ok(()) => {
                self.send(Order::Full(pid));
                Answer::Ok(
                    json!({ "pid": pid, "for_ms": time.unwrap_or(self.config.escalation.time.0).as_millis() as u64 }),
                )
            }
            Err(refused) => Answer::Error(format!("process {pid}: {refused}")),
        }
    }

    fn status(&self) -> serde_json::Value {
        let own = self.board.own.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (state, gauges) = (self.board.shared.state(), &self.board.gauges);
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
            "uptime_s": self.began.elapsed().as_secs(),
            "healthy": self.board.healthy(),
            "configuration": self.path,
            "metrics": self.server.as_ref().map(|server| server.address.to_string()),
            "discovery": if self.board.found.by_perf.load(Relaxed) { "perf" } else { "poll" },
            "processes": gauges.processes.load(Relaxed),
            "in_full": gauges.in_full.load(Relaxed),
            "probes": gauges.probes.load(Relaxed),
            "libraries": gauges.files.load(Relaxed),
            "cpu_share": self.governor.cpu,
            "cpu_ms": own.usage.cpu.as_millis() as u64,
            "memory_bytes": own.usage.memory,
            "files": own.usage.files,
            "looks_stretched": own.stretched,
            "limit_hits": { "cpu": own.hits.cpu, "cpu_hard": own.hits.cpu_hard, "memory": own.hits.memory, "files": own.hits.files },
            "escalations": { "by_hand": own.escalations.by_hand, "by_rule": own.escalations.by_rule,
                "refused": own.escalations.refused, "cut_short": own.escalations.cut_short },
            "totals": state.totals,
            "lost": state.lost,
            "reloads": own.reloads,
        })
    }

    /// Takes the configuration anew; the ledgers stay. With a mistake in it everything stays as it was.
    async fn reload(&mut self) {
        let config = match config::read(&self.path) {
            Ok(config) => config,
            Err(mistake) => {
                log::error!("the configuration is not taken: {mistake}");
                return;
            }
        };
        if config.trace.buffer != self.config.trace.buffer || config.control.socket != self.config.control.socket {
            log::warn!("`buffer` and `socket` are taken at the next start");
        }
        self.board.configure(&config);
        self.governor.configure(&config.limits, pace(&config));
        self.escalations.configure(config.escalation.clone());
        self.send(Order::Pace(self.governor.stretched_pace()));
        self.send(Order::Grace(config.trace.grace.0));
        self.ledgers.ask(Ask::Configure(analysis(&config), config.escalation.rule.clone()));
        self.config = config;
        self.exporter.end();
        match Exporter::start(&self.config, self.board.clone()) {
            Ok(exporter) => self.exporter = exporter,
            Err(error) => log::error!("nothing is sent away: {error:#}"),
        }
        if let Err(error) = self.serve_pages().await {
            log::error!("{error:#}");
        }
        self.reloads += 1;
        log::warn!("the configuration was taken anew");
    }
}

fn value(of: &impl serde::Serialize) -> Answer {
    serde_json::to_value(of).map_or_else(|error| Answer::Error(error.to_string()), Answer::Ok)
}

fn unknown(pid: u32) -> Answer {
    Answer::Error(format!("process {pid} is not followed: `tfmem agent ctl processes` lists those that are"))
}

fn take_snapshot(pid: u32) -> Answer {
    let (began, taken_at) = (Instant::now(), std::time::SystemTime::now());
    let process = match snapshot::take(pid) {
        Ok(process) => process,
        Err(error) => return Answer::Error(format!("process {pid}: {error}")),
    };
    value(&model::Snapshot {
        schema: model::NAME.to_owned(),
        tfmem: model::Version { version: env!("CARGO_PKG_VERSION").to_owned() },
        host: facts::host(),
        taken_at: humantime::format_rfc3339_millis(taken_at).to_string(),
        took_ms: began.elapsed().as_millis() as u64,
        own_peak_bytes: facts::cost().map_or(0, |cost| cost.peak_rss_bytes),
        processes: vec![process],
    })
}

/// Where no service manager listens this does nothing.
fn tell_manager(what: &[sd_notify::NotifyState]) {
    if let Err(error) = sd_notify::notify(what) {
        log::debug!("the service manager: {error}");
    }
}
