//! Loading the BPF object, attaching its programs, reading its buffer: the only place that knows aya.

pub mod runs;

use std::{
    path::Path,
    sync::mpsc::{self, RecvTimeoutError, Sender},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use aya::{
    Ebpf, EbpfLoader,
    maps::{Array, HashMap, MapData, MapType, PerCpuArray, RingBuf},
    programs::{
        KProbe, Program, ProgramError, ProgramType, TracePoint, kprobe::KProbeLinkId, trace_point::TracePointLinkId,
    },
    sys::{is_map_supported, is_program_supported},
};
use tfmem_common::{
    config::{FileId, KernelLayout, Process},
    counters,
    lost::{Key, Lost, RESERVED_SHARE, what},
};
use thiserror::Error;
use tokio::io::{Interest, unix::AsyncFd};

use super::{
    memory::{Backend, Place},
    tracefs,
};

mod epoch;
mod kept;
mod multi;
mod sys;
mod unwind;
mod uprobes;

use crate::target::clock;
use epoch::Epoch;
pub use kept::Kept;
use multi::Multi;
pub use unwind::{Stacks, Unwind};
pub use uprobes::{Attach, Chosen, Spot};

/// The BPF object, built by `build.rs`. Aligned, as the ELF reader casts it.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/tfmem-ebpf"));

/// The buffer that events come through.
pub type Ring = RingBuf<MapData>;

/// Program, category, name.
pub type Tracepoint = (&'static str, &'static str, &'static str);

pub const PROCESS_TRACEPOINTS: &[Tracepoint] = &[
    ("task_newtask", "task", "task_newtask"),
    ("sched_process_exec", "sched", "sched_process_exec"),
    ("sched_process_exit", "sched", "sched_process_exit"),
];
const UPROBES: &[&str] = &[
    "chunk",
    "chunk_short",
    "chunk_given_back",
    "aligned_malloc",
    "aligned_malloc_ret",
    "aligned_free",
    "call_enter",
    "call_leave",
    "gpu_enter",
    "gpu_leave",
];

#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes of the ring buffer; rounded up to a power of two.
    pub buffer_bytes: u32,
    pub layout: KernelLayout,
    /// BPF-side diagnostics through aya-log.
    pub debug: bool,
    pub stacks: Stacks,
    pub attach: Attach,
}

/// What the kernel said when it did not take a program.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{error}{}", shown(.log))]
pub struct Refused {
    pub error: String,
    /// Last lines of the verifier's log; none when it did not come so far.
    pub log: Vec<String>,
}

/// Lines of the verifier's log that are worth showing: the reason stands at the end, before one line of totals.
const LOG_LINES: usize = 6;

impl Refused {
    fn of(error: impl Into<String>) -> Self {
        Self { error: error.into(), log: Vec::new() }
    }
}

impl From<ProgramError> for Refused {
    fn from(error: ProgramError) -> Self {
        match error {
            ProgramError::LoadError { io_error, verifier_log } => {
                Self { error: io_error.to_string(), log: last_lines(&verifier_log.to_string()) }
            }
            other => Self::of(format!("{:#}", anyhow!(other))),
        }
    }
}

fn last_lines(log: &str) -> Vec<String> {
    let lines: Vec<&str> = log.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.iter().skip(lines.len().saturating_sub(LOG_LINES)).map(|line| (*line).to_owned()).collect()
}

fn shown(log: &[String]) -> String {
    if log.is_empty() { String::new() } else { format!("; verifier: {}", log.join(" | ")) }
}

/// Loaded programs and their links. Dropping it detaches everything; so does the end of this process, however it ends.
pub struct Programs {
    ebpf: Ebpf,
    /// Those for libraries; aya's own of the same names are not loaded then.
    multi: Result<Multi, Chosen>,
    processes: HashMap<MapData, u32, Process>,
    epoch: Epoch,
    judged: HashMap<MapData, FileId, u8>,
    counters: PerCpuArray<MapData, u64>,
    lost: HashMap<MapData, Key, Lost>,
    lease: Option<Array<MapData, u64>>,
    unwind: Option<Unwind>,
}

/// May hold processes while it lives: a thread tells the kernel again and again that somebody is there to let them go.
#[derive(Debug)]
pub struct Lease {
    // Dropping it ends the thread.
    _alive: Sender<()>,
}

/// A held process is let go within milliseconds; the lease is long enough for a machine that is busy for a second.
const LEASE: Duration = Duration::from_secs(2);
const RENEWED_EVERY: Duration = Duration::from_millis(200);

impl Programs {
    /// Loads the programs and attaches those that tell of processes. Nothing is traced before [`Programs::track`], and
    /// nobody follows the memory map before [`super::memory::follow`].
    ///
    /// # Errors
    /// When the kernel refuses a program or a tracepoint; the message says which.
    pub fn load(options: Options) -> Result<(Self, Ring)> {
        let (mut programs, ring) = Self::open(options)?;
        let tracepoints = PROCESS_TRACEPOINTS.iter().map(|(name, ..)| *name);
        for name in UPROBES.iter().copied().chain(tracepoints) {
            programs.load_program(name).with_context(|| format!("load BPF program `{name}`"))?;
        }
        programs.attach_tracepoints(PROCESS_TRACEPOINTS)?;
        Ok((programs, ring))
    }

    /// Makes the maps. No program is loaded yet.
    ///
    /// # Errors
    /// When the kernel refuses a map; the message says which.
    pub fn open(options: Options) -> Result<(Self, Ring)> {
        let debug = u32::from(options.debug);
        let buffer = ring_size(options.buffer_bytes);
        let wake_every = u64::from(buffer / WAKES);
        let crowded = u64::from(buffer) - u64::from(buffer) / RESERVED_SHARE;
        let stacks = options.stacks.number();
        let mut loader = EbpfLoader::new();
        loader
            // No type of the kernel's is relocated (`attach::kernel` reads the few offsets that matter), and reading
            // all of its BTF costs half a second and 60 MiB.
            .btf(None)
            .override_global("KERNEL", &options.layout, true)
            .override_global("DEBUG", &debug, true)
            .override_global("CROWDED", &crowded, true)
            .override_global("WAKE_EVERY", &wake_every, true)
            .map_max_entries("EVENTS", buffer);
        options.stacks.prepare(&mut loader, &stacks);
        let mut ebpf = loader.load(OBJECT).context("load the BPF object")?;
        let multi = options.attach.open(OBJECT, &ebpf)?;
        let ring = RingBuf::try_from(take(&mut ebpf, "EVENTS")?)?;
        let processes = HashMap::try_from(take(&mut ebpf, "PROCESSES")?)?;
        let epoch = Epoch::begin(Array::try_from(take(&mut ebpf, "EPOCH")?)?)?;
        let judged = HashMap::try_from(take(&mut ebpf, "FILES_JUDGED")?)?;
        let counters = PerCpuArray::try_from(take(&mut ebpf, "COUNTERS")?)?;
        let lost = HashMap::try_from(take(&mut ebpf, "LOST")?)?;
        let lease = Some(Array::try_from(take(&mut ebpf, "LEASE")?)?);
        let unwind = if options.stacks == Stacks::Off { None } else { Some(Unwind::open(&mut ebpf)?) };
        Ok((Self { ebpf, multi, processes, epoch, judged, counters, lost, lease, unwind }, ring))
    }

    /// Lets the programs hold processes from now on, for as long as the lease lives.
    ///
    /// # Errors
    /// When there is one already, or no thread can be made.
    pub fn lease(&mut self) -> Result<Lease> {
        let mut map = self.lease.take().context("processes may be held already")?;
        let mut renew = move || map.set(0, clock::boot_ns() + LEASE.as_nanos() as u64, 0);
        renew().context("renew the lease")?;
        let (alive, ended) = mpsc::channel::<()>();
        std::thread::Builder::new().name("lease".into()).spawn(move || {
            while ended.recv_timeout(RENEWED_EVERY) == Err(RecvTimeoutError::Timeout) {
                if let Err(error) = renew() {
                    log::warn!("processes will not be held any more: {error}");
                    return;
                }
            }
        })?;
        Ok(Lease { _alive: alive })
    }

    /// Loads one program. Returns how many instructions the verifier went through, where the kernel says it (5.16).
    ///
    /// # Errors
    /// What the kernel and its verifier said.
    pub fn load_program(&mut self, name: &str) -> Result<Option<u32>, Refused> {
        if let Ok(multi) = &mut self.multi
            && multi.has(name)
        {
            return multi.load(name);
        }
        let program = self.ebpf.program_mut(name).ok_or_else(|| Refused::of("the BPF object has no such program"))?;
        match program {
            Program::UProbe(program) => program.load(),
            Program::TracePoint(program) => program.load(),
            Program::KProbe(program) => program.load(),
            _ => return Err(Refused::of("a type of program that tfmem does not use")),
        }?;
        Ok(program.info().ok().and_then(|info| info.verified_instruction_count()))
    }

    /// Attaches loaded programs to these tracepoints, or to none of them.
    ///
    /// # Errors
    /// When there is no such tracepoint or the kernel refuses it.
    pub fn attach_tracepoints(&mut self, points: &[Tracepoint]) -> Result<Vec<Link>> {
        let mut links = Vec::new();
        let attached = tracefs::with_tracefs(|| {
            points.iter().try_for_each(|(name, category, event)| {
                let attached = program::<TracePoint>(&mut self.ebpf, name)?.attach(category, event);
                let link = attached.with_context(|| format!("attach to tracepoint {category}:{event}"))?;
                links.push(Link::Tracepoint(name, link));
                Ok(())
            })
        });
        self.all_or_none(attached, links)
    }

    /// Attaches loaded programs to the kernel's functions: of each list to the first place that it takes, or to none of
    /// all.
    ///
    /// # Errors
    /// When the kernel has no kprobes or refuses all places of a list.
    pub fn attach_kprobes(&mut self, wanted: &[&[Place]]) -> Result<Vec<Link>> {
        ensure!(has_kprobes(), "not compiled in (CONFIG_KPROBE_EVENTS)");
        let mut links = Vec::new();
        let attached = wanted.iter().try_for_each(|places| {
            links.extend(self.attach_first(places)?);
            Ok(())
        });
        self.all_or_none(attached, links)
    }

    fn attach_first(&mut self, places: &[Place]) -> Result<Vec<Link>> {
        let mut refused = Vec::new();
        for place in places {
            match self.attach_place(place) {
                Ok(links) => return Ok(links),
                Err(error) => refused.push(format!("{}: {error:#}", place.function)),
            }
        }
        bail!("{}", refused.join("; "))
    }

    fn attach_place(&mut self, place: &Place) -> Result<Vec<Link>> {
        let mut links = Vec::new();
        let attached = place.programs.iter().try_for_each(|name| {
            let link = program::<KProbe>(&mut self.ebpf, name)?.attach(place.function, 0)?;
            links.push(Link::Kprobe(name, link));
            Ok(())
        });
        self.all_or_none(attached, links)
    }

    fn all_or_none(&mut self, attached: Result<()>, links: Vec<Link>) -> Result<Vec<Link>> {
        match attached {
            Ok(()) => Ok(links),
            Err(error) => {
                self.detach(links);
                Err(error)
            }
        }
    }

    /// Takes programs off again.
    pub fn detach(&mut self, links: Vec<Link>) {
        for link in links {
            let detached = match link {
                Link::Tracepoint(name, link) => {
                    program::<TracePoint>(&mut self.ebpf, name).and_then(|program| Ok(program.detach(link)?))
                }
                Link::Kprobe(name, link) => {
                    program::<KProbe>(&mut self.ebpf, name).and_then(|program| Ok(program.detach(link)?))
                }
            };
            if let Err(error) = detached {
                // It goes with tfmem at the latest.
                log::warn!("a probe of the kernel stays in for now: {error:#}");
            }
        }
    }

    /// Passes what the programs log (`--debug-bpf`) on to the `log` crate. Call inside a tokio runtime.
    ///
    /// # Errors
    /// When the log's map is missing.
    pub fn log(&mut self) -> Result<()> {
        let logger = aya_log::EbpfLogger::init(&mut self.ebpf).context("read the BPF programs' log")?;
        // SAFETY: the logger owns its descriptor and keeps it for as long as it is registered.
        let mut logger = unsafe { AsyncFd::register_with_interest(logger, Interest::READABLE) }?;
        tokio::spawn(async move {
            while let Ok(mut ready) = logger.readable_mut().await {
                ready.get_inner_mut().flush();
                ready.clear_ready();
            }
        });
        Ok(())
    }

    /// Traces a process from now on (or changes its settings).
    pub fn track(&mut self, pid: u32, process: Process) -> Result<()> {
        self.processes.insert(pid, process, 0).with_context(|| format!("trace process {pid}"))?;
        self.epoch.next()
    }

    /// The settings of a traced process as the kernel has them now.
    pub fn tracked(&self, pid: u32) -> Option<Process> {
        self.processes.get(&pid, 0).ok()
    }

    pub fn untrack(&mut self, pid: u32) {
        // Already gone is as good as removed.
        let _ = self.processes.remove(&pid);
        if let Err(error) = self.epoch.next() {
            log::warn!("process {pid} is traced for longer than asked: {error:#}");
        }
        for what in what::CHUNK_TAKEN..=what::LAST {
            let _ = self.lost.remove(&Key { pid, what });
        }
    }

    /// Nobody sees from now on when a process's libraries go.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn places_may_move(&mut self) -> Result<()> {
        self.epoch.places_may_move()
    }

    /// Code of this file needs no probes: never stop a process for it again.
    pub fn judged(&mut self, file: FileId) {
        if file.ino != 0 {
            // A full table only means that the file is judged again.
            let _ = self.judged.insert(file, 1, 0);
        }
    }

    /// What was lost of whom, since the programs were loaded. Processes that are not traced any more are left out.
    pub fn lost(&self) -> Vec<(Key, Lost)> {
        // An entry that is removed while the table is read ends the reading early: the rest is read next time.
        self.lost.iter().flatten().collect()
    }

    /// What the unwinder in the kernel knows; `None` when stacks are off.
    pub const fn unwind(&mut self) -> Option<&mut Unwind> {
        self.unwind.as_mut()
    }

    /// The kernel's loss counters, summed over CPUs.
    pub fn counters(&self) -> Vec<u64> {
        (0..counters::SLOTS).map(|slot| self.counters.get(&slot, 0).map_or(0, |cpus| cpus.iter().sum())).collect()
    }
}

/// Every program of the object.
pub fn program_names() -> impl Iterator<Item = &'static str> {
    let memory = Backend::ALL.into_iter().flat_map(Backend::programs);
    uprobe_names().chain(PROCESS_TRACEPOINTS.iter().map(|(name, ..)| *name)).chain(memory)
}

/// Those of them that go into libraries.
pub fn uprobe_names() -> impl Iterator<Item = &'static str> {
    UPROBES.iter().copied()
}

/// Can the kernel make a ring buffer (5.8)? By making a small one.
///
/// # Errors
/// When it refuses to say.
pub fn has_ring_buffer() -> Result<bool> {
    Ok(is_map_supported(MapType::RingBuf)?)
}

/// Can the kernel load a raw tracepoint program? By loading an empty one.
///
/// # Errors
/// When it refuses to say.
pub fn has_raw_tracepoints() -> Result<bool> {
    Ok(is_program_supported(ProgramType::RawTracePoint)?)
}

/// Can the kernel attach to the entry of its own functions by trampoline? By attaching to one made for such tests.
///
/// # Errors
/// When it refuses.
pub fn has_fentry() -> Result<bool> {
    Ok(is_program_supported(ProgramType::Tracing)?)
}

/// A reader that sleeps is woken so many times before the buffer is full.
const WAKES: u32 = 16;

fn ring_size(bytes: u32) -> u32 {
    bytes.max(64 << 10).next_power_of_two()
}

/// Is the kernel built with kprobes for perf events (`CONFIG_KPROBE_EVENTS`)?
#[must_use]
pub fn has_kprobes() -> bool {
    Path::new("/sys/bus/event_source/devices/kprobe/type").exists()
}

/// An attached program, by its name.
#[derive(Debug)]
pub enum Link {
    Tracepoint(&'static str, TracePointLinkId),
    Kprobe(&'static str, KProbeLinkId),
}

fn program<'a, P>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut P>
where
    &'a mut P: TryFrom<&'a mut Program, Error = ProgramError>,
{
    let program = ebpf.program_mut(name).ok_or_else(|| anyhow!("the BPF object has no program `{name}`"))?;
    program.try_into().with_context(|| format!("BPF program `{name}`"))
}

fn take(ebpf: &mut Ebpf, name: &str) -> Result<aya::maps::Map> {
    match ebpf.take_map(name) {
        Some(map) => Ok(map),
        None => bail!("the BPF object has no map `{name}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_verifiers_log_is_kept() {
        let log = (0..40).map(|line| format!("{line}: insn\n")).collect::<String>() + "R1 invalid mem access\n\n";
        let kept = last_lines(&log);
        assert_eq!(kept.len(), LOG_LINES);
        assert_eq!(kept.last().map(String::as_str), Some("R1 invalid mem access"));
        let refused = Refused { error: "Permission denied".to_owned(), log: vec!["R1".to_owned(), "end".to_owned()] };
        assert_eq!(refused.to_string(), "Permission denied; verifier: R1 | end");
        assert_eq!(Refused::of("no").to_string(), "no");
    }

    #[test]
    fn every_program_is_named_once() {
        let names: Vec<_> = program_names().collect();
        let unique: std::collections::BTreeSet<_> = names.iter().collect();
        assert_eq!(names.len(), unique.len());
    }
}
