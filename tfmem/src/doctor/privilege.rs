//! Capabilities in effect. They say what may be tried; only trying says what works.

use std::fs;

/// Number (`linux/capability.h`), name, and what it is needed for.
pub type Capability = (u32, &'static str, &'static str);

pub const BPF: Capability = (39, "CAP_BPF", "load the BPF programs");
pub const PERFMON: Capability = (38, "CAP_PERFMON", "attach probes");
pub const SYS_PTRACE: Capability = (19, "CAP_SYS_PTRACE", "look at another process");
pub const SYS_ADMIN: Capability = (21, "CAP_SYS_ADMIN", "attach tracepoints and reach mapped files");
pub const SYS_RESOURCE: Capability = (24, "CAP_SYS_RESOURCE", "lock memory (before Linux 5.11)");

/// Nothing can be traced without these.
pub const NEEDED: &[Capability] = &[BPF, PERFMON, SYS_PTRACE, SYS_ADMIN];

/// What the agent cannot do without.
pub const NEEDED_BY_AGENT: &[Capability] = &[BPF, PERFMON, SYS_PTRACE];

/// A set of capabilities.
#[derive(Clone, Copy, Debug)]
pub struct Held(u64);

impl Held {
    /// Those of this process. Where they cannot be read, nothing is ruled out.
    #[must_use]
    pub fn read() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self(effective(&status).unwrap_or(u64::MAX))
    }

    #[must_use]
    pub const fn has(self, capability: Capability) -> bool {
        self.0 >> capability.0 & 1 != 0
    }

    #[must_use]
    pub fn missing(self) -> Vec<Capability> {
        NEEDED.iter().copied().filter(|&capability| !self.has(capability)).collect()
    }
}

/// What decides how far this process' privileges reach: user, capabilities, seccomp filter, namespaces.
#[must_use]
pub fn circumstances() -> Vec<String> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let lines = status.lines().filter(|line| ["Uid:", "CapEff:", "Seccomp:"].iter().any(|name| line.starts_with(name)));
    let namespaces = ["user", "pid", "mnt", "cgroup"].iter().filter_map(|kind| {
        let link = fs::read_link(format!("/proc/self/ns/{kind}")).ok()?;
        Some(link.to_string_lossy().into_owned())
    });
    lines.map(str::to_owned).chain(namespaces).collect()
}

fn effective(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_by_number() {
        let held = |text| Held(effective(text).unwrap_or(u64::MAX));
        let root_without_resource = held("Name:\ttfmem\nCapEff:\t000001fffeffffff\n");
        assert!(root_without_resource.missing().is_empty());
        assert!(!root_without_resource.has(SYS_RESOURCE));
        let nobody = held("CapEff:\t0000000000000000\n");
        assert_eq!(nobody.missing().len(), NEEDED.len());
        assert!(held("nothing").missing().is_empty());
    }
}
