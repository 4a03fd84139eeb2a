//! What tfmem does to another process, tried on a child of its own; and what the kernel has beside what tfmem uses.

use std::{fs::File, io};

use super::{
    bait::Sleeper,
    check::Check,
    privilege::{BPF, Held, PERFMON},
    system::{SUDO, untried},
};
use crate::{
    attach::link,
    observe::pagemap::Pagemap,
    target::{
        maps::{self, Line},
        ptrace,
    },
};

const fn ptraced() -> Check {
    Check::new("ptrace", "seeing the memory of a process at its end (`run`)").required()
}

const fn pages() -> Check {
    Check::new("pagemap", "telling which of a process's pages are resident").required()
}

const fn files() -> Check {
    Check::new("mapped files", "reaching the very files that a process maps (/proc/PID/map_files)").required()
}

/// Ring buffer and, for information, ways that tfmem could go but does not need here.
pub fn features(held: Held) -> Vec<Check> {
    let ring = Check::new("ring buffer", "carrying the events (5.8)").required();
    let raw = Check::new("raw tracepoints", "another way to see system calls, not needed where tracepoints work");
    let fentry = Check::new("fentry", "another way to see the kernel's functions, not needed");
    if !held.has(BPF) || !held.has(PERFMON) {
        return [ring, raw, fentry].into_iter().map(|check| untried(check, held)).collect();
    }
    let judge = |check: Check, answer: anyhow::Result<bool>, fix: &str| match answer {
        Ok(true) => check,
        Ok(false) => check.missing("this kernel has none").fix(fix),
        // Such as a policy of the host's: what it is cannot be known here.
        Err(error) => check.missing(format!("{error:#}")).fix(format!("{fix}, and no policy that refuses it to root")),
    };
    vec![
        judge(ring, link::has_ring_buffer(), "a kernel from 5.15 on"),
        judge(raw, link::has_raw_tracepoints(), "a kernel with CONFIG_BPF_EVENTS=y"),
        judge(
            fentry,
            link::has_fentry(),
            "a kernel with CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS=y and without lockdown",
        ),
    ]
}

/// Looks at a child of ours the way a traced process is looked at.
pub fn child(held: Held) -> Vec<Check> {
    let mut child = match Sleeper::start() {
        Ok(child) => child,
        Err(error) => {
            let why = format!("no child could be made: {error}");
            return [files(), pages(), ptraced()].into_iter().map(|check| check.not_tried(why.clone())).collect();
        }
    };
    let lines = maps::read(child.pid()).unwrap_or_default();
    vec![mapped_files(held, &child, &lines), resident_pages(&child, &lines), followed(held, &mut child)]
}

fn mapped_files(held: Held, child: &Sleeper, lines: &[Line]) -> Check {
    let Some(line) = lines.iter().find(|line| line.executable && line.inode != 0) else {
        return files().missing("/proc/PID/maps of a child cannot be read");
    };
    match File::open(line.map_file(child.pid())) {
        Ok(_) => files(),
        Err(error) if !held.missing().is_empty() => files().not_tried(error.to_string()).fix(SUDO),
        Err(error) => files().missing(error.to_string()).fix("CAP_SYS_ADMIN in the initial user namespace"),
    }
}

fn resident_pages(child: &Sleeper, lines: &[Line]) -> Check {
    // A child shares our pages, of which it has copied a few at least: its stack.
    let read = || -> io::Result<u64> {
        let mut pagemap = Pagemap::open(child.pid())?;
        let mut extents = Vec::new();
        let stack = lines.iter().find(|line| line.name == "[stack]").ok_or(io::ErrorKind::NotFound)?;
        Ok(pagemap.read(stack.start, stack.end, &mut extents)?.own)
    };
    match read() {
        Ok(0) => pages().missing("no page of a running child is shown as resident"),
        Ok(_) => pages(),
        Err(error) => pages().missing(format!("/proc/PID/pagemap of a child: {error}")).fix(SUDO),
    }
}

fn followed(held: Held, child: &mut Sleeper) -> Check {
    if let Err(error) = ptrace::seize(child.pid()) {
        let fix = if held.missing().is_empty() {
            "CAP_SYS_PTRACE, kernel.yama.ptrace_scope below 3, and a seccomp filter that lets ptrace through"
        } else {
            SUDO
        };
        return ptraced().missing(error.to_string()).fix(fix);
    }
    if child.end() { ptraced() } else { ptraced().limited("a child was followed, but not seen at its end") }
}
