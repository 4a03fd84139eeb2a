//! Checks of privileges and of the kernel's own settings.

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit, setrlimit};
use tfmem_common::config::KernelLayout;

use super::{
    check::Check,
    facts::{self, Version},
    privilege::{BPF, Held, NEEDED, PERFMON, SYS_RESOURCE},
};
use crate::{attach::tracefs, catalogue::features::OLDEST_KERNEL, report::units::bytes};

pub const SUDO: &str = "run it as root: sudo tfmem doctor";
const CONTAINER: &str = "in a container: docker run --privileged --pid=host, or hostPID and privileged in Kubernetes";

/// The kernel's memory for BPF is charged to the cgroup since this release, not to the limit of locked memory.
const CHARGED_TO_CGROUP: Version = (5, 11);

pub fn privileges(held: Held) -> Vec<Check> {
    let mut checks: Vec<Check> = NEEDED
        .iter()
        .map(|&capability| {
            let check = Check::new(capability.1, capability.2).required().privilege();
            if held.has(capability) { check } else { check.missing("not held").fix(SUDO) }
        })
        .collect();
    checks.push(user_namespace());
    checks.push(pid_namespace());
    checks
}

fn user_namespace() -> Check {
    let check = Check::new("user namespace", "privileges that count for the whole machine");
    match facts::in_initial_user_namespace() {
        Some(true) => check.found("the initial one"),
        Some(false) => check
            .limited("not the initial one: its root has no privileges over the kernel")
            .fix("run tfmem outside of the rootless container"),
        None => check.not_tried("/proc/self/ns/user cannot be read"),
    }
}

fn pid_namespace() -> Check {
    let check = Check::new("pid namespace", "process numbers that mean the same to tfmem and to its probes").required();
    match facts::in_initial_pid_namespace() {
        Some(true) => check.found("the initial one"),
        Some(false) => check
            .missing("not the initial one: the kernel reports processes by other numbers than tfmem sees")
            .fix(format!("run tfmem on the host, or {CONTAINER}")),
        None => check.not_tried("/proc/self/ns/pid cannot be read"),
    }
}

/// Settings. `layout` is what was found in the kernel's type information, with reasons for what was not.
pub fn kernel(held: Held, layout: &KernelLayout, reasons: &[String]) -> Vec<Check> {
    let release = facts::release();
    let version = facts::version(&release);
    vec![
        release_check(&release, version),
        type_information(layout, reasons),
        lockdown(),
        perf_events(held),
        locked_memory(held, version),
        ptrace_scope(),
        tracefs(held),
    ]
}

fn release_check(release: &str, version: Option<Version>) -> Check {
    let check = Check::new("kernel", "5.15 or later, but what is tried below decides").found(release);
    match version {
        Some(version) if version < OLDEST_KERNEL => check.limited("older than 5.15").fix("update the kernel"),
        _ => check,
    }
}

fn type_information(layout: &KernelLayout, reasons: &[String]) -> Check {
    let check = Check::new("type information", "finding what the probes read in the kernel (BTF)");
    if reasons.is_empty() {
        return check.found("all places known");
    }
    let mut lost = Vec::new();
    if layout.fsbase == 0 {
        lost.push("allocations are not named by their op");
    }
    if !knows_files(layout) {
        lost.push("`run` stops the program at every mapping of code, not once for each file");
    }
    check
        .limited(format!("{} ({})", lost.join("; "), reasons.join("; ")))
        .fix("a kernel built with CONFIG_DEBUG_INFO_BTF=y, as those of all large distributions")
}

const fn knows_files(layout: &KernelLayout) -> bool {
    // `fdt`, `fd`, `inode` and `dev` may be at 0 in some kernel; all of them at once are not.
    layout.files != 0 && layout.inode != 0 && layout.ino != 0 && layout.sb != 0
}

fn lockdown() -> Check {
    let check = Check::new("kernel lockdown", "reading the kernel's memory");
    match facts::lockdown().as_deref() {
        Some("confidentiality") => check
            .limited("confidentiality: the kernel's memory and its probes are closed even to root")
            .fix("boot with lockdown=integrity or without lockdown="),
        Some(mode) => check.found(mode),
        None => check.found("none"),
    }
}

fn perf_events(held: Held) -> Check {
    let check = Check::new("perf_event_paranoid", "probes, which are perf events");
    let Some(level) = facts::perf_event_paranoid() else {
        return check.limited("the kernel has no perf events").fix("a kernel built with CONFIG_PERF_EVENTS=y");
    };
    if held.missing().is_empty() || level < 0 {
        return check.found(format!("{level}, which does not concern CAP_PERFMON"));
    }
    check.found(level.to_string()).limited(format!("{level} closes perf events to all without CAP_PERFMON")).fix(SUDO)
}

/// Tries to raise the limit. Since 5.11 it does not matter, and root without `CAP_SYS_RESOURCE` is not rare.
fn locked_memory(held: Held, version: Option<Version>) -> Check {
    let check = Check::new("memory lock", "BPF maps, before Linux 5.11");
    let before = getrlimit(Resource::RLIMIT_MEMLOCK);
    let raised = setrlimit(Resource::RLIMIT_MEMLOCK, RLIM_INFINITY, RLIM_INFINITY).is_ok();
    if let Ok((soft, hard)) = before
        && version.is_some_and(|version| version >= CHARGED_TO_CGROUP)
    {
        // A program that is started inherits it: it gets what it would have without us.
        let _ = setrlimit(Resource::RLIMIT_MEMLOCK, soft, hard);
    }
    let limit = match before {
        _ if raised => "unlimited".to_owned(),
        Ok((RLIM_INFINITY, _)) => "unlimited".to_owned(),
        Ok((limit, _)) => bytes(limit),
        Err(error) => error.to_string(),
    };
    let check = check.found(limit);
    if raised || version.is_some_and(|version| version >= CHARGED_TO_CGROUP) {
        return if raised {
            check
        } else {
            let why = if held.has(SYS_RESOURCE) { "refused" } else { "CAP_SYS_RESOURCE is not held" };
            let limit = check.found.clone().unwrap_or_default();
            check.found(format!("{limit}, not raised ({why}), which does not matter since 5.11"))
        };
    }
    check.limited("the limit could not be raised").fix("give tfmem CAP_SYS_RESOURCE, or raise `ulimit -l`")
}

fn ptrace_scope() -> Check {
    let check = Check::new("ptrace scope", "to follow processes");
    match facts::ptrace_scope() {
        None => check.found("no Yama"),
        Some(3) => check
            .limited("3: nobody may follow a process until the next boot; `run` cannot see memory at its end")
            .fix("boot with kernel.yama.ptrace_scope=2 or less (/etc/sysctl.d)"),
        Some(scope) => check.found(format!("{scope}, which does not concern CAP_SYS_PTRACE")),
    }
}

/// tracefs, seen or mounted for a thread of our own.
fn tracefs(held: Held) -> Check {
    let check = Check::new("tracefs", "the numbers of the tracepoints").required();
    if tracefs::mounted() {
        return check.found("mounted");
    }
    match tracefs::with_tracefs(|| Ok(tracefs::mounted())) {
        Ok(true) => check.found("not mounted; mounted for tfmem alone while it attaches"),
        Ok(false) => check.missing("mounted, but without events").fix("a kernel built with CONFIG_TRACING=y"),
        Err(error) if !held.missing().is_empty() => check.not_tried(format!("{error:#}")).fix(SUDO),
        Err(error) => {
            check.missing(format!("{error:#}")).fix("as root on the host: mount -t tracefs tracefs /sys/kernel/tracing")
        }
    }
}

/// Only for information: GPU figures are not read yet.
pub fn nvml() -> Check {
    let check = Check::new("NVML", "GPU figures, which come with a later version");
    match facts::library("libnvidia-ml.so.1") {
        Some(path) => check.found(path.display().to_string()),
        None => check.missing("no libnvidia-ml.so.1: no NVIDIA driver here, or one inside a container only"),
    }
}

/// A check that could not be made without capabilities that are not held.
pub fn untried(check: Check, held: Held) -> Check {
    let names: Vec<&str> = [BPF, PERFMON].iter().filter(|&&one| !held.has(one)).map(|(_, name, _)| *name).collect();
    check.not_tried(format!("needs {}", names.join(" and "))).fix(SUDO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_missing_layout_costs_is_said() {
        let none = type_information(&KernelLayout::default(), &["no such file".to_owned()]);
        let text = format!("{none:?}");
        assert!(text.contains("not named") && text.contains("every mapping") && text.contains("no such file"));
        let full = KernelLayout { fsbase: 8, files: 8, fdt: 8, fd: 8, inode: 8, ino: 8, sb: 8, dev: 8 };
        assert!(type_information(&full, &[]).works());
    }

    #[test]
    fn an_old_kernel_is_tried_all_the_same() {
        assert!(release_check("5.10.0", Some((5, 10))).allows());
        assert!(!release_check("5.10.0", Some((5, 10))).works());
        assert!(release_check("6.1.0", Some((6, 1))).works());
        assert!(release_check("?", None).works());
    }
}
