//! What the pure stages cannot know: the machine, the clocks, and what the trace itself cost.

use std::{collections::BTreeMap, fs};

use nix::sys::resource::{UsageWho, getrusage};

use super::Capabilities;
use crate::{
    report::model::{Cost, Host},
    retention::{Facts, WallClock},
    target::{clock, info},
};

/// Gathered at the end of a trace; at its beginning too for a recording, which may have no end.
pub fn gather(capabilities: Capabilities) -> Facts {
    Facts {
        host: host(),
        capabilities: capabilities.0,
        cost: cost(),
        clock: WallClock { boot_unix_ns: clock::wall_offset_ns() },
        lost: BTreeMap::new(),
    }
}

/// The machine that this runs on.
pub fn host() -> Host {
    let line = |path: &str| fs::read_to_string(path).map_or_else(|_| String::new(), |text| text.trim().to_owned());
    Host {
        kernel: line("/proc/sys/kernel/osrelease"),
        boot_id: line("/proc/sys/kernel/random/boot_id"),
        hostname: line("/proc/sys/kernel/hostname"),
    }
}

/// CPU time of all our threads, and the most memory that was resident.
pub fn cost() -> Option<Cost> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).ok()?;
    let ms = |time: nix::sys::time::TimeVal| time.tv_sec() as u64 * 1000 + time.tv_usec() as u64 / 1000;
    Some(Cost {
        cpu_ms: ms(usage.user_time()) + ms(usage.system_time()),
        // Not `ru_maxrss`: it starts with what the process that started us had, as `exec` keeps it.
        peak_rss_bytes: info::kib(std::process::id(), "VmHWM:")? * 1024,
    })
}
