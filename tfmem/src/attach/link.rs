//! Loading the BPF object and attaching its programs: with `stream::source`, the only place that knows aya.

use std::path::Path;

use anyhow::{Context as _, Result, anyhow, bail};
use aya::{
    Ebpf, EbpfLoader,
    maps::{HashMap, MapData, PerCpuArray, RingBuf},
    programs::{
        TracePoint, UProbe,
        uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeScope},
    },
};
use tfmem_common::{
    config::{FileId, KernelLayout, Process},
    counters,
};
use tokio::io::{Interest, unix::AsyncFd};

use super::{plan::Plan, tracefs};

/// The BPF object, built by `build.rs`. Aligned, as the ELF reader casts it.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/tfmem-ebpf"));

/// Tracepoints: program, category, name.
const PROCESS_TRACEPOINTS: &[(&str, &str, &str)] = &[
    ("task_newtask", "task", "task_newtask"),
    ("sched_process_exec", "sched", "sched_process_exec"),
    ("sched_process_exit", "sched", "sched_process_exit"),
];
const MEMORY_TRACEPOINTS: &[(&str, &str, &str)] = &[
    ("enter_mmap", "syscalls", "sys_enter_mmap"),
    ("exit_mmap", "syscalls", "sys_exit_mmap"),
    ("enter_munmap", "syscalls", "sys_enter_munmap"),
    ("exit_munmap", "syscalls", "sys_exit_munmap"),
    ("enter_mremap", "syscalls", "sys_enter_mremap"),
    ("exit_mremap", "syscalls", "sys_exit_mremap"),
    ("enter_brk", "syscalls", "sys_enter_brk"),
    ("exit_brk", "syscalls", "sys_exit_brk"),
    ("enter_madvise", "syscalls", "sys_enter_madvise"),
    ("exit_madvise", "syscalls", "sys_exit_madvise"),
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
];

#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Bytes of the ring buffer; rounded up to a power of two.
    pub buffer_bytes: u32,
    pub layout: KernelLayout,
    /// BPF-side diagnostics through aya-log.
    pub debug: bool,
}

/// Loaded programs and their links. Dropping it detaches everything; so does the end of this process, however it ends.
pub struct Programs {
    ebpf: Ebpf,
    processes: HashMap<MapData, u32, Process>,
    judged: HashMap<MapData, FileId, u8>,
    counters: PerCpuArray<MapData, u64>,
}

impl Programs {
    /// Loads every program and attaches the tracepoints. Nothing is traced before [`Programs::track`].
    ///
    /// # Errors
    /// When the kernel refuses a program or a tracepoint; the message says which.
    pub fn load(options: Options) -> Result<(Self, RingBuf<MapData>)> {
        let debug = u32::from(options.debug);
        let mut ebpf = EbpfLoader::new()
            // No type of the kernel's is relocated (`attach::kernel` reads the few offsets that matter), and reading
            // all of its BTF costs half a second and 60 MiB.
            .btf(None)
            .override_global("KERNEL", &options.layout, true)
            .override_global("DEBUG", &debug, true)
            .map_max_entries("EVENTS", ring_size(options.buffer_bytes))
            .load(OBJECT)
            .context("load the BPF object")?;
        for name in UPROBES {
            let program: &mut UProbe = program(&mut ebpf, name)?;
            program.load().with_context(|| format!("load BPF program `{name}`"))?;
        }
        tracefs::with_tracefs(|| {
            for (name, category, event) in PROCESS_TRACEPOINTS.iter().chain(MEMORY_TRACEPOINTS) {
                let program: &mut TracePoint = program(&mut ebpf, name)?;
                program.load().with_context(|| format!("load BPF program `{name}`"))?;
                program.attach(category, event).with_context(|| format!("attach to tracepoint {category}:{event}"))?;
            }
            Ok(())
        })?;
        let ring = RingBuf::try_from(take(&mut ebpf, "EVENTS")?)?;
        let processes = HashMap::try_from(take(&mut ebpf, "PROCESSES")?)?;
        let judged = HashMap::try_from(take(&mut ebpf, "FILES_JUDGED")?)?;
        let counters = PerCpuArray::try_from(take(&mut ebpf, "COUNTERS")?)?;
        Ok((Self { ebpf, processes, judged, counters }, ring))
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
        self.processes.insert(pid, process, 0).with_context(|| format!("trace process {pid}"))
    }

    /// The settings of a traced process as the kernel has them now.
    pub fn tracked(&self, pid: u32) -> Option<Process> {
        self.processes.get(&pid, 0).ok()
    }

    pub fn untrack(&mut self, pid: u32) {
        // Already gone is as good as removed.
        let _ = self.processes.remove(&pid);
    }

    /// Code of this file needs no probes: never stop a process for it again.
    pub fn judged(&mut self, file: FileId) {
        if file.ino != 0 {
            // A full table only means that the file is judged again.
            let _ = self.judged.insert(file, 1, 0);
        }
    }

    /// Puts the probes of a plan into the file behind `path`, for all processes that map it (programs leave at once
    /// for processes that are not traced). Returns what the kernel refused.
    pub fn attach(&mut self, path: &Path, plan: &Plan) -> Vec<(String, String)> {
        let mut refused = Vec::new();
        for point in &plan.points {
            if let Err(error) = self.attach_point(path, &point.program, point.file_offset, point.cookie) {
                refused.push((point.symbol.clone(), format!("{error:#}")));
            }
        }
        refused
    }

    fn attach_point(&mut self, path: &Path, name: &str, offset: u64, cookie: u64) -> Result<()> {
        let program: &mut UProbe = program(&mut self.ebpf, name)?;
        let point = UProbeAttachPoint { location: UProbeAttachLocation::AbsoluteOffset(offset), cookie: Some(cookie) };
        program.attach(point, path, UProbeScope::AllProcesses)?;
        Ok(())
    }

    /// The kernel's loss counters, summed over CPUs.
    pub fn counters(&self) -> Vec<u64> {
        (0..counters::SLOTS).map(|slot| self.counters.get(&slot, 0).map_or(0, |cpus| cpus.iter().sum())).collect()
    }
}

fn ring_size(bytes: u32) -> u32 {
    bytes.max(64 << 10).next_power_of_two()
}

fn program<'a, P>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut P>
where
    &'a mut P: TryFrom<&'a mut aya::programs::Program, Error = aya::programs::ProgramError>,
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
