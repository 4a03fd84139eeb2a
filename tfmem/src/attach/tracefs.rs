//! Tracepoints are attached by a number that only tracefs tells. Many machines have it mounted; where it is not, it is
//! mounted in a mount namespace of one thread of our own, so that nothing on the host changes.

use std::path::Path;

use anyhow::{Context as _, Result};
use nix::{
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
};

const TRACEFS: &str = "/sys/kernel/tracing";

/// Is tracefs there for everybody?
#[must_use]
pub fn mounted() -> bool {
    Path::new(TRACEFS).join("events").is_dir() || Path::new("/sys/kernel/debug/tracing/events").is_dir()
}

/// Runs `work` in a thread that sees tracefs.
///
/// # Errors
/// When tracefs is missing and could not be mounted (`CAP_SYS_ADMIN` is needed), or `work` fails.
pub fn with_tracefs<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    if mounted() {
        return work();
    }
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            mount_privately().context("tracefs is not mounted and could not be mounted privately")?;
            work()
        });
        thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("the attaching thread panicked")))
    })
}

fn mount_privately() -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNS).context("unshare(CLONE_NEWNS)")?;
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).context("make mounts private")?;
    mount(Some("tracefs"), TRACEFS, Some("tracefs"), MsFlags::empty(), none)
        .with_context(|| format!("mount tracefs on {TRACEFS}"))
}
