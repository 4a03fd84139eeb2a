//! A trace of running processes: kernel and `/proc` in, events in order of time out.
//!
//! The loop reacts to what cannot wait (a held process, a fork, a moment to look at a process) and hands every event
//! on to the [`sink`]. It keeps no account of memory: that is the ledger's work.

mod callers;
mod closes;
pub mod drive;
pub mod facts;
mod libraries;
pub use libraries::code_of;
pub mod line;
pub mod marks;
mod oracle;
mod python;
mod schedule;
pub mod serve;
pub mod sink;
mod stacks;
pub mod symbols;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result};
use tfmem_common::config::{PROCESS_HOLD, Process};

use self::{
    callers::Callers,
    closes::Closes,
    libraries::{Libraries, Which},
    schedule::Schedule,
    sink::Sink,
    stacks::Stacks,
};
use crate::{
    attach::{
        kernel,
        link::{self, Lease, Programs, Ring},
        memory::{self, Backend},
    },
    doctor,
    event::{Body, Event, ExitStatus, ProcessInfo},
    recording::{format::Head, recorder::Recorder},
    report::model::Report,
    retention,
    stream::{losses::Losses, missed::Misses, order::Order},
    target::{clock, guard::Guard, info, warden::Warden},
};
pub use schedule::Pace;

#[derive(Clone, Debug)]
pub struct Options {
    pub grace: Duration,
    pub buffer_bytes: u32,
    pub debug_bpf: bool,
    /// Ways of following the memory map, the first that works is taken.
    pub memory: Vec<Backend>,
    /// Where resolved symbols are kept between runs; `None`: the default place.
    pub cache: Option<PathBuf>,
    /// Functions that the user named as boundaries.
    pub symbols: Vec<symbols::Symbol>,
    pub stacks: link::Stacks,
    pub attach: link::Attach,
    /// For one that runs for weeks beside everything else: probes on rare events, looks at this pace. `None`: all.
    pub rare: Option<Pace>,
    /// No probe on what a program does all the time: boundaries and looks alone.
    pub snapshot_only: bool,
}

/// Everything a running trace owns.
pub struct Live {
    options: Options,
    programs: Programs,
    ring: Ring,
    order: Order,
    losses: Losses,
    misses: Misses,
    /// When the kernel was asked last what was lost of whom.
    misses_read: u64,
    /// Where no event tells of mappings: when the next look at all processes is due.
    poll: Option<u64>,
    libraries: Libraries,
    callers: Callers,
    stacks: Stacks,
    schedule: Schedule,
    sink: Sink,
    warden: Option<Warden>,
    guard: Option<Guard>,
    lease: Option<Lease>,
    /// Records that could not be decoded (a bug or a damaged buffer), counted.
    undecodable: u64,
    tracked: BTreeMap<u32, Tracked>,
    /// Boot time at which children that outlive the main process are waited for no longer.
    deadline: Option<u64>,
    /// The process of the last event.
    last_seen: u32,
    /// What `--until-close` waits for.
    closes: Option<Closes>,
    served: serve::Served,
}

#[derive(Debug, Default)]
struct Tracked {
    /// Seized by the warden: its end will be told with its status.
    seized: bool,
    /// When it started: a pid may be another process's by the time we ask for it.
    started: Option<u64>,
    /// Its main thread has ended.
    leader_gone: bool,
    /// It was seen at its very end: nothing that is read later says more.
    exiting: bool,
    /// It was not to be found when it was last asked for.
    nowhere: bool,
    /// All that it does is wanted, where of others rare events are.
    in_full: bool,
}

impl Tracked {
    /// Has the pid become another process's? Its end went unnoticed then.
    fn is_another(&self, pid: u32) -> bool {
        self.started.is_some_and(|started| info::started(pid).is_some_and(|now| now != started))
    }
}

/// Probes that are still in. They fire for nobody any more once the traced processes are forgotten.
pub struct Attached {
    _programs: Programs,
}

/// What the kernel allowed, for the report.
#[derive(Clone, Debug, Default)]
pub struct Capabilities(pub BTreeMap<String, String>);

impl Live {
    /// Loads the programs; nothing is traced yet.
    ///
    /// # Errors
    /// When the kernel refuses the programs.
    pub fn new(options: Options, sink: Sink, guard: Option<Guard>) -> Result<(Self, Capabilities)> {
        let (layout, reasons) = kernel::layout();
        let mut capabilities = doctor::capabilities(&reasons);
        let (mut programs, ring) = Programs::load(link::Options {
            buffer_bytes: options.buffer_bytes,
            layout,
            debug: options.debug_bpf,
            stacks: options.stacks,
            attach: options.attach,
        })?;
        let known = |backend| doctor::decided().against(backend).map(|tried| tried.reason().to_owned());
        let chosen = memory::follow(&mut programs, &options.memory, known)?;
        capabilities.insert("attach".to_owned(), programs.attaching().to_string());
        log::info!("the memory map is followed by {chosen}");
        capabilities.insert("mm".to_owned(), chosen.to_string());
        if options.snapshot_only {
            capabilities.insert("allocations".to_owned(), "not followed (--snapshot-only)".to_owned());
        }
        if options.debug_bpf {
            programs.log().context("read the BPF programs' log")?;
        }
        let rare = options.rare;
        let which = match rare {
            Some(_) => Which::Rare,
            None if options.snapshot_only => Which::Boundaries,
            None => Which::All,
        };
        let live = Self {
            libraries: Libraries::new(options.cache.as_deref(), options.symbols.clone(), which),
            callers: Callers::default(),
            stacks: Stacks::new(options.stacks, options.cache.as_deref()),
            options,
            programs,
            ring,
            order: Order::default(),
            losses: Losses::default(),
            misses: Misses::default(),
            misses_read: 0,
            poll: (chosen.backend == Backend::Poll && rare.is_none()).then_some(0),
            schedule: Schedule::of(rare.unwrap_or_default()),
            served: serve::Served::default(),
            sink,
            warden: None,
            guard,
            lease: None,
            undecodable: 0,
            tracked: BTreeMap::new(),
            deadline: None,
            last_seen: 0,
            closes: None,
        };
        Ok((live, Capabilities(capabilities)))
    }

    /// Everything that the trace yields is recorded too. To be called before it begins.
    ///
    /// # Errors
    /// When the beginning of the recording cannot be written.
    pub fn record(&mut self, output: File, options: retention::Options, capabilities: &Capabilities) -> Result<()> {
        let head = Head::new(options, &facts::gather(capabilities.clone()));
        self.sink.record(Recorder::start(output, &head).context("begin the recording")?);
        Ok(())
    }

    /// Traces a process that does not run yet: held at every new library until its probes are in.
    ///
    /// # Errors
    /// When the kernel's table of processes cannot take it, or it cannot be followed.
    pub fn begin_child(&mut self, pid: u32, warden: Warden) -> Result<()> {
        self.say_start();
        self.lease = Some(self.programs.lease()?);
        self.programs.track(pid, Process { flags: PROCESS_HOLD, ..Process::default() })?;
        warden.seize(pid).with_context(|| format!("follow process {pid}"))?;
        self.warden = Some(warden);
        self.follow(pid, true, false);
        Ok(())
    }

    /// Traces a running process. It is never stopped.
    ///
    /// # Errors
    /// When the process is gone or the kernel's table of processes cannot take it.
    pub fn begin_running(&mut self, pids: &[u32]) -> Result<()> {
        self.say_start();
        let children = pids.iter().flat_map(|&pid| info::descendants(pid));
        let us = std::process::id();
        let all: BTreeSet<u32> = pids.iter().copied().chain(children).filter(|&pid| pid != us).collect();
        // The probes go in first, which takes a while: with the process traced already, calls would be seen of which
        // only one end has its probe.
        for &pid in &all {
            self.libraries.prepare(&mut self.programs, pid);
        }
        for pid in all {
            self.programs.track(pid, Process::default())?;
            self.follow(pid, false, true);
            self.look(pid, drive::Look::WithHolders);
            self.judge(pid, None);
        }
        Ok(())
    }

    fn say_start(&mut self) {
        self.emit(0, Body::TraceStart);
        if self.poll.is_some() {
            log::warn!("mappings are polled once a second: a library that is mapped later gets its probes late");
            self.emit(0, Body::Polled);
        }
    }

    /// The traced processes, in words.
    #[must_use]
    pub fn who(&self) -> String {
        let pids: Vec<String> = self.tracked.keys().take(8).map(u32::to_string).collect();
        let more = self.tracked.len() - pids.len();
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        let noun = if self.tracked.len() == 1 { "process" } else { "processes" };
        format!("{noun} {}{more}", pids.join(", "))
    }

    /// Ends the trace a grace time after this many sessions were closed.
    pub fn until_closes(&mut self, count: u64) {
        self.closes = Some(Closes::new(count, self.options.grace.as_nanos() as u64));
    }

    fn follow(&mut self, pid: u32, seized: bool, attached: bool) {
        let started = info::started(pid);
        self.tracked.insert(pid, Tracked { seized, started, ..Tracked::default() });
        if let Some(guard) = &self.guard {
            guard.add(pid);
        }
        self.describe(pid, attached);
    }

    /// Says who a process is. A process that is gone already is described by its end alone.
    fn describe(&mut self, pid: u32, attached: bool) {
        if let Ok(found) = info::read(pid, attached) {
            self.emit(pid, Body::Process(Arc::<ProcessInfo>::new(found)));
        }
    }

    fn ended(&mut self, pid: u32, status: Option<ExitStatus>, at: u64) {
        if self.tracked.remove(&pid).is_none() {
            return;
        }
        self.say_missed();
        self.programs.untrack(pid);
        self.misses.forget(pid);
        self.libraries.forget(pid);
        self.callers.forget(pid);
        self.stacks.forget(&mut self.programs, pid);
        self.schedule.forget(pid);
        if let Some(guard) = &self.guard {
            guard.remove(pid);
        }
        self.order.push(Event { at, pid, tid: pid, stack: None, body: Body::Ended { status } });
    }

    /// Ends the trace: waits for the ledger and makes the report. The probes go out when the second value is dropped:
    /// the kernel takes tens of milliseconds for each, which nobody needs to wait for before reading.
    ///
    /// # Errors
    /// When the ledger's thread died.
    pub fn finish(self, capabilities: Capabilities) -> Result<(Report, Attached)> {
        let Self { sink, programs, warden, lease, .. } = self;
        // Followed processes are let go first.
        drop((warden, lease));
        let (analysis, recorder) = sink.finish()?;
        let mut facts = facts::gather(capabilities);
        if let Some(recorder) = recorder {
            recorder.finish(&mut facts);
        }
        let report = analysis.finish(facts);
        Ok((report, Attached { _programs: programs }))
    }

    fn emit(&mut self, pid: u32, body: Body) {
        self.order.push(Event { at: clock::boot_ns(), pid, tid: pid, stack: None, body });
    }
}
