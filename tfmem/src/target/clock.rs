//! The boot clock, which the kernel stamps events with, and its distance to wall time.

use nix::time::{ClockId, clock_gettime};

/// Nanoseconds on `CLOCK_BOOTTIME`.
#[must_use]
pub fn boot_ns() -> u64 {
    read(ClockId::CLOCK_BOOTTIME)
}

/// Wall time (ns since 1970) minus boot time, now.
#[must_use]
pub fn wall_offset_ns() -> i128 {
    i128::from(read(ClockId::CLOCK_REALTIME)) - i128::from(boot_ns())
}

fn read(clock: ClockId) -> u64 {
    // Both clocks exist on every kernel that tfmem runs on.
    clock_gettime(clock).map_or(0, |time| time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}
