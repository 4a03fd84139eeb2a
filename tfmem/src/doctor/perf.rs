//! A kprobe by hand: as a bare perf event, without any program behind it.

use std::{
    ffi::CStr,
    io,
    os::fd::{FromRawFd as _, OwnedFd},
};

/// `struct perf_event_attr` of `linux/perf_event.h` as far as `config2` (`PERF_ATTR_SIZE_VER1`); the kernel takes any
/// published size.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    /// For a kprobe: address of the function's name.
    config1: u64,
    /// For a kprobe: offset in the function.
    config2: u64,
}

/// `PERF_FLAG_FD_CLOEXEC`
const CLOSE_ON_EXEC: libc::c_ulong = 8;

const _: () = assert!(size_of::<Attributes>() == 72);

/// Puts a probe on a function of the kernel and takes it away again.
///
/// # Errors
/// What the kernel says.
pub fn kprobe(kind: u32, function: &CStr) -> io::Result<()> {
    let attributes = Attributes {
        kind,
        size: size_of::<Attributes>() as u32,
        config1: function.as_ptr() as u64,
        ..Attributes::default()
    };
    let (every_process, first_cpu, no_group) = (-1, 0, -1);
    // SAFETY: the structure and the name live until the call returns; the kernel only reads them.
    let result = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            every_process,
            first_cpu,
            no_group,
            CLOSE_ON_EXEC,
        )
    };
    let fd = i32::try_from(result).unwrap_or(-1);
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else has. Dropping it removes the probe.
    drop(unsafe { OwnedFd::from_raw_fd(fd) });
    Ok(())
}
