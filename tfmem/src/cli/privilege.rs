//! Is tfmem allowed to do its work? Asked before anything starts, so that the answer is one clear sentence.

use std::fs;

use super::exit::Failure;

/// Capabilities by number (`linux/capability.h`), and what each is needed for.
const NEEDED: &[(u32, &str, &str)] = &[
    (39, "CAP_BPF", "load the BPF programs"),
    (38, "CAP_PERFMON", "attach probes"),
    (19, "CAP_SYS_PTRACE", "look at another process"),
    (21, "CAP_SYS_ADMIN", "attach tracepoints and reach mapped files"),
];

/// # Errors
/// Names what is missing and how to get it.
pub fn check() -> Result<(), Failure> {
    let effective = effective().unwrap_or(u64::MAX);
    let missing: Vec<String> = NEEDED
        .iter()
        .filter(|(number, _, _)| effective >> number & 1 == 0)
        .map(|(_, name, purpose)| format!("{name} (to {purpose})"))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "missing privilege: {}. Run it as root: sudo tfmem …; `tfmem doctor` says what this machine allows",
        missing.join(", ")
    )))
}

fn effective() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}
