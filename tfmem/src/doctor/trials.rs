//! The real programs, loaded and attached to tfmem itself, with something to see.

use std::{
    io,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::Result;
use tfmem_common::{
    config::{KernelLayout, Process},
    cookie::{Cookie, Text},
};

use super::{
    bait,
    check::{Check, Outcome},
    facts,
    privilege::{BPF, Held, PERFMON},
    seen,
    system::untried,
};
use crate::{
    attach::{
        link::{Attach, Chosen, Link, Options, PROCESS_TRACEPOINTS, Programs, Ring, Stacks, program_names},
        memory::{self, Backend},
    },
    event::Event,
    report::units::count,
    stream::decode::{Record, decode},
};

/// As `run` and `trace` have it unless told otherwise: what is too large for this machine must show here.
const BUFFER_BYTES: u32 = 32 << 20;
const OWN_FILE: &str = "/proc/self/exe";
const BPF_KERNEL: &str = "a kernel from 5.15 on, with CONFIG_BPF_SYSCALL=y and CONFIG_BPF_EVENTS=y";
const TRACEPOINT_KERNEL: &str = "a kernel with CONFIG_FTRACE_SYSCALLS=y and CONFIG_BPF_EVENTS=y, and tracefs";
const UPROBE_KERNEL: &str = "a kernel with CONFIG_UPROBE_EVENTS=y";
const MULTI_KERNEL: &str = "a kernel from 6.6 on; tfmem works without";

const fn maps() -> Check {
    Check::new("BPF maps", "events and tables of the traced processes").required()
}

const fn programs() -> Check {
    Check::new("BPF programs", "tfmem's own, as they will run").required()
}

const fn uprobe() -> Check {
    Check::new("uprobe", "seeing a function of a library being called").required()
}

const fn cookie() -> Check {
    Check::new("attach cookie", "telling one probe from another (5.15)").required()
}

const fn uretprobe() -> Check {
    Check::new("uretprobe", "seeing what a function returned").required()
}

const fn together() -> Check {
    Check::new("uprobe-multi", "taking the probes of a library out at once (6.6)")
}

const fn seccomp() -> Check {
    Check::new("uretprobe, seccomp", "return probes in programs under a seccomp filter")
}

const fn kernel_functions() -> Check {
    Check::new("mappings, kprobe", "the memory map, by probes on the kernel's functions (`--mm kprobe`)")
}

const fn system_calls() -> Check {
    Check::new("mappings, tracepoint", "the memory map, by the system calls' tracepoints (`--mm tracepoint`)")
}

const fn mappings() -> Check {
    Check::new("mappings", "which way `--mm auto` takes")
}

const fn processes() -> Check {
    Check::new("processes", "tracepoints of fork, exec, exit").required()
}

/// Every check that needs programs in the kernel.
pub fn run(held: Held, layout: KernelLayout) -> Vec<Check> {
    let memory = [kernel_functions(), system_calls(), mappings()];
    let rest = [programs(), uprobe(), cookie(), uretprobe(), together(), seccomp(), processes()];
    let rest = rest.into_iter().chain(memory);
    if !held.has(BPF) || !held.has(PERFMON) {
        return [maps()].into_iter().chain(rest).map(|check| untried(check, held)).collect();
    }
    let options =
        Options { buffer_bytes: BUFFER_BYTES, layout, debug: false, stacks: Stacks::Dwarf, attach: Attach::Auto };
    match Programs::open(options) {
        Ok((programs, ring)) => {
            let mut trial =
                Trial { programs, ring, pid: std::process::id(), checks: vec![maps().found("32 MiB buffer")] };
            trial.load();
            trial.probes();
            trial.memory();
            trial.processes();
            trial.checks
        }
        Err(error) => {
            let failed = maps().missing(format!("{error:#}")).fix(maps_fix(&error));
            [failed].into_iter().chain(rest.map(|check| check.not_tried("needs the BPF maps"))).collect()
        }
    }
}

fn maps_fix(error: &anyhow::Error) -> &'static str {
    let denied = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
    };
    if error.chain().any(denied) {
        "privileges in the initial user namespace, and no seccomp filter or policy that forbids bpf()"
    } else {
        "a kernel from 5.15 on with CONFIG_BPF_SYSCALL=y, and enough memory in this cgroup"
    }
}

struct Trial {
    programs: Programs,
    ring: Ring,
    pid: u32,
    checks: Vec<Check>,
}

impl Trial {
    fn load(&mut self) {
        let (mut loaded, mut refused) = (Vec::new(), Vec::new());
        for name in program_names() {
            match self.programs.load_program(name) {
                Ok(Some(instructions)) => loaded.push(format!("{name} {}", count(u64::from(instructions)))),
                Ok(None) => loaded.push(name.to_owned()),
                Err(error) => refused.push(format!("{name}: {error}")),
            }
        }
        let check = programs().found(format!("{} loaded, instructions verified: {}", loaded.len(), loaded.join(", ")));
        self.checks.push(if refused.is_empty() {
            check
        } else {
            check.missing(format!("refused: {}", refused.join("; "))).fix(BPF_KERNEL)
        });
    }

    /// Entry and return probe on a function of our own, which is then called.
    fn probes(&mut self) {
        let Some(offset) = bait::file_offset() else {
            let why = "tfmem does not find its own code in /proc/self/maps";
            self.checks
                .extend([uprobe(), cookie(), uretprobe(), together(), seccomp()].map(|check| check.not_tried(why)));
            return;
        };
        let mark = Cookie { call: seen::CALL.number(), text: Text::CStr(1), wake: false }.pack();
        let mut attach = |program| self.programs.attach_point(Path::new(OWN_FILE), program, offset, mark);
        let (entry, leave) = (attach("call_enter"), attach("call_leave"));
        let (result, events) = self.watch(bait::call);
        let seen = seen::probed_call(self.pid, &events, result);
        log::debug!("the probed call: {seen:?}");

        self.checks.push(match &entry {
            Err(error) => uprobe().missing(format!("{error:#}")).fix(UPROBE_KERNEL),
            Ok(()) if !seen.entered => uprobe().missing(UNSEEN),
            Ok(()) if !seen.argument => uprobe().missing("hit, but the arguments are wrong"),
            Ok(()) if !seen.text => uprobe().limited("hit, but a text argument could not be read"),
            Ok(()) => uprobe().found("hit; arguments and text are right"),
        });
        self.checks.push(match (&entry, seen.entered || seen.left) {
            (_, true) if seen.cookie => cookie().found("came along"),
            (_, true) => cookie().missing("lost on the way").fix("a kernel from 5.15 on"),
            _ => cookie().not_tried("no probe was hit"),
        });
        self.checks.push(match &leave {
            Err(error) => uretprobe().missing(format!("{error:#}")).fix(UPROBE_KERNEL),
            Ok(()) if !seen.left => uretprobe().missing(UNSEEN),
            Ok(()) if !seen.returned => uretprobe().missing("hit, but the result is wrong"),
            Ok(()) => uretprobe().found("hit; the result is right"),
        });
        self.checks.push(match self.programs.attaching() {
            Chosen::Multi if seen.entered && seen.left => together().found("the probes above"),
            Chosen::Multi => together().missing("the probes above do not work"),
            other => together().missing(format!("{other}: each probe takes its time to come out")).fix(MULTI_KERNEL),
        });
        self.checks.push(under_seccomp(leave.is_ok()));
    }

    /// Each way of following the memory map, one after the other.
    fn memory(&mut self) {
        let ways = [
            (Backend::Tracepoint, system_calls(), TRACEPOINT_KERNEL),
            (Backend::Kprobe, kernel_functions(), "a kernel with CONFIG_KPROBE_EVENTS=y and CONFIG_BPF_EVENTS=y"),
        ];
        let mut best = None;
        let mut others = String::new();
        for (backend, check, fix) in ways {
            let attached = memory::attach(&mut self.programs, backend);
            let check = self.judged(check, attached, fix, Self::memory_calls);
            if best.is_none() && check.works() {
                best = Some(backend);
            } else {
                others.push_str(&format!("; {backend}: {}", why_not(&check)));
            }
            self.checks.push(check);
        }
        self.checks.push(match best {
            None => mappings()
                .limited(
                    "poll: the mappings are read once a second; libraries that are mapped later get their probes late",
                )
                .fix(TRACEPOINT_KERNEL),
            Some(best) => mappings().found(format!("{best}, the first that works{others}")),
        });
    }

    fn processes(&mut self) {
        let attached = self.programs.attach_tracepoints(PROCESS_TRACEPOINTS);
        let check = self.judged(processes(), attached, TRACEPOINT_KERNEL, Self::child);
        self.checks.push(check);
    }

    /// Probes that are in must see what they are for; then they are taken out again.
    fn judged(
        &mut self,
        check: Check,
        attached: Result<Vec<Link>>,
        fix: &'static str,
        missed: fn(&mut Self) -> Result<Vec<&'static str>>,
    ) -> Check {
        let tried = attached.and_then(|links| {
            let (points, missed) = (links.len(), missed(self));
            self.programs.detach(links);
            Ok((points, missed?))
        });
        match tried {
            Ok((points, missed)) if missed.is_empty() => check.found(format!("{points} attached, all seen")),
            Ok((_, missed)) => check.missing(format!("attached, but not seen: {}", missed.join(", "))),
            Err(error) => check.missing(format!("{error:#}")).fix(fix),
        }
    }

    fn memory_calls(&mut self) -> Result<Vec<&'static str>> {
        let (calls, events) = self.watch(bait::memory_calls);
        Ok(seen::memory_calls_missed(self.pid, &events, &calls?))
    }

    fn child(&mut self) -> Result<Vec<&'static str>> {
        // Its children are traced from their first instruction: that is the point.
        let (child, events) = self.watch(|| {
            let quiet = Stdio::null;
            let mut child =
                Command::new(OWN_FILE).arg("--version").stdin(quiet()).stdout(quiet()).stderr(quiet()).spawn()?;
            child.wait().map(|_| child.id())
        });
        Ok(seen::process_events_missed(self.pid, &events, child?))
    }

    /// Does something that our probes should see; returns what they saw of it.
    fn watch<T>(&mut self, act: impl FnOnce() -> T) -> (T, Vec<Event>) {
        self.drain();
        if let Err(error) = self.programs.track(self.pid, Process::default()) {
            // What is missing then will be found missing.
            log::debug!("{error:#}");
        }
        let result = act();
        self.programs.untrack(self.pid);
        (result, self.drain())
    }

    fn drain(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        while let Some(record) = self.ring.next() {
            match decode(&record) {
                Ok(Record::Event(event)) => events.push(event),
                Ok(Record::Hold(_) | Record::Copy(_) | Record::Nothing) => {}
                Err(error) => log::debug!("a record that cannot be read: {error}"),
            }
        }
        events
    }
}

fn why_not(check: &Check) -> &str {
    match &check.outcome {
        Outcome::Works => "works too",
        Outcome::Degraded(why) | Outcome::Missing(why) | Outcome::NotTried(why) => why,
    }
}

const UNSEEN: &str = "attached, but a call was not seen (in the initial pid namespace it would be)";

fn under_seccomp(attached: bool) -> Check {
    let affected = facts::version(&facts::release()).is_some_and(facts::may_have_seccomp_bug);
    let fix = "update the kernel: 6.14 has the cure, stable series before it have it in later releases";
    if !attached {
        let check = seccomp().not_tried("needs a return probe");
        return if affected { check.fix(fix) } else { check };
    }
    match bait::killed_under_seccomp() {
        Ok(false) => seccomp().found("a child under a filter survived"),
        Ok(true) => seccomp()
            .limited("this kernel kills programs under a seccomp filter (most containers) at a return probe")
            .fix(fix),
        Err(error) => seccomp().not_tried(error.to_string()),
    }
}
