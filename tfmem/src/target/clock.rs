//! The boot clock, which the kernel stamps events with, and its distance to wall time.

use nix::time::{ClockId, clock_gettime};

/// Nanoseconds on `CLOCK_BOOTTIME`.
#[must_use]
pub fn boot_ns() -> u64 {
    read(ClockId::CLOCK_BOOTTIME)
}

/// Unix time in ns at which the boot clock was 0, by the wall clock as it is set now.
#[must_use]
pub fn wall_offset_ns() -> u64 {
    read(ClockId::CLOCK_REALTIME).saturating_sub(boot_ns())
}

fn read(clock: ClockId) -> u64 {
    // Both clocks exist on every kernel that tfmem runs on.
    clock_gettime(clock).map_or(0, |time| time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64)
}
