//! The page that the bench writes.

use std::{fmt::Write as _, fs};

use crate::{
    Section,
    figure::{self, Figure},
};

pub const PROBE: &str = "\
A program calls stand-ins for TensorFlow's functions as fast as it can: their first instructions are the real ones', \
they do (next to) nothing. It stays the same process all along. The time is the calling thread's CPU time, the kernel's \
part included. In each round it is measured without a probe, with an empty BPF program on the same instruction and \
attached in the same way, with tfmem's program while the process is not among those that are traced (what a stranger pays that maps the same library), \
and traced, with a reader that drains the buffer every 2 ms. A round in which an event is lost fails. The trap itself is \
the kernel's price and differs between machines (nested virtualisation makes it dear), so what counts is the ratio to \
the empty program.\n\n\
*A probe that only sends a record with the time* is the least that a probe on each call can do. What tfmem's does beyond: \
whose thread it is (an access to an array), and for a chunk that is taken a look at what TensorFlow has noted: one read \
of the program's memory when no op is named, three when one is (note, name, region), and in the short form four more (the \
pool's lists, region, handle, chunk). After a trap the processor's caches and predictors are cold: the first read of a \
program's memory costs more than twice what each further one does.";

pub const READING: &str = "\
*Producing*: what the traced call above costs beyond the same call without a probe. *Decoding and ledger*: the records \
of that very run, fed to the stages of a trace on one thread. *Whole CPU time*: user and system time of `tfmem run` on \
a storm of chunks, all threads, less that of a trace of two chunks; no event may be lost. *Ledger*: the most that a \
process holds beyond what it held before, while a million allocations are accounted for. *Peak memory*: the most that \
was ever resident of the tfmem process (`VmHWM`), its event buffer of 16 MiB and what waits to be put in order included.";

pub const ATTACH: &str = "\
A Python process that has imported TensorFlow 2.21.0 (`libtensorflow_cc.so.2` alone is 0.8 GB) and sleeps. *Attach*: \
from the start of `tfmem trace` until it says that it is attached, all probes in. *Until all probes are out*: until tfmem \
has ended. *Idle*: run time and time slices of all threads from `/proc/PID/task/*/schedstat`. *bpftrace*: the same file, \
functions that tfmem probes too, from its start to its end with a program that ends as soon as it runs.";

pub const PROGRAMS: &str = "\
One process that works in blocks that are all alike (an epoch; a session opened, run 300 times and closed; 10,000 \
additions) is left alone, then traced (`tfmem trace`), then left alone, round after round. A round's figure is the \
median of its blocks, traced against the mean of before and after. *CPU time*: user and system time of all threads of the \
program; what others do on a busy machine does not count there, as it does in the wall time. *Probes hit*: how often \
the kernel ran an uprobe program of tfmem's in one block. A block of memory from TensorFlow's aligned allocator needs \
three (its size is known at the entry, its address at the return, and it is freed), a chunk of a pool two, and none can be \
left out: what is not seen is not known. *Their traps alone* is that number times the empty probe of the first table: \
the part of the price that is the kernel's and the machine's, whatever a program does in a probe.";

pub const WHOLE: &str = "\
A loop of TensorFlow 1 sessions, import and all, alone and under `tfmem run -o`, once. The report is written when the \
program has ended; then the kernel takes the probes out.";

/// Where the figures come from.
pub struct Machine {
    kernel: String,
    processor: String,
    cores: usize,
    virtual_machine: bool,
    memory_gib: u64,
    /// Before the first measurement: what else was going on.
    load: String,
}

impl Machine {
    pub fn look() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpu = read("/proc/cpuinfo");
        let field = |name: &str| {
            let line = cpu.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_once(": ")).map_or_else(String::new, |(_, value)| value.trim().to_owned())
        };
        let memory = read("/proc/meminfo");
        let kib =
            memory.lines().find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse().ok());
        Self {
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            processor: field("model name"),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            virtual_machine: field("flags").split_whitespace().any(|flag| flag == "hypervisor"),
            memory_gib: kib.unwrap_or(0_u64).div_ceil(1 << 20),
            load: read("/proc/loadavg").split_whitespace().next().unwrap_or("?").to_owned(),
        }
    }
}

pub fn text(sections: &[Section], machine: &Machine, quick: bool) -> String {
    let Machine { kernel, processor, cores, virtual_machine, memory_gib, load } = machine;
    let kind = if *virtual_machine { "a virtual machine" } else { "hardware" };
    let mut out = format!(
        "# What tfmem costs\n\n\
         Written by `cargo xtask bench`; run it to get the figures of your own machine. These are of {kind} with {cores} \
         cores of {processor}, {memory_gib} GiB, Linux {kernel}; tfmem {}. Its load was {load} before the first \
         measurement.\n\n\
         What is compared runs in turns, round after round. The figure is the median of the rounds, the ratio the median \
         of the rounds' own ratios, so that a machine that is busy for a while slows both sides of a round.\n\n",
        env!("CARGO_PKG_VERSION"),
    );
    if quick {
        out.push_str(
            "This was a quick run: one or two rounds of each. Its figures are no more than a first impression.\n\n",
        );
    }
    out.push_str(&goals(sections));
    for Section { title, method, figures } in sections {
        let _ = write!(out, "## {title}\n\n{method}\n\n{}\n", figure::table(figures));
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

fn goals(sections: &[Section]) -> String {
    let figures = || sections.iter().flat_map(|section| &section.figures);
    let missed: Vec<String> = figures().filter_map(Figure::missed).collect();
    let judged = figures().filter(|figure| figure.met().is_some()).count();
    if missed.is_empty() {
        return format!("All {judged} goals are met.\n\n");
    }
    let lines: String = missed.iter().map(|missed| format!("* {missed}\n")).collect();
    format!("{} of {judged} goals are met. Missed:\n\n{lines}\n", judged - missed.len())
}
