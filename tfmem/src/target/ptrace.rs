//! The few ptrace requests that the warden needs, with raw signal numbers: wrappers elsewhere know no real-time
//! signals, and a program may use them.

use std::{io, ptr};

use super::info;
use crate::event::ExitStatus;

/// What `waitpid` says of a seized process or a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Ended(ExitStatus),
    /// `PTRACE_EVENT_EXIT`: at its end, memory still there.
    Exiting,
    /// Stopped as a whole by a stop signal.
    GroupStop,
    /// Another ptrace stop: a thread or process was made, one begins, one was continued.
    Trap,
    /// About to receive this signal.
    Signal(i32),
}

/// Who sent the signal that is about to be delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// `SI_KERNEL`: such as the stop signal of our BPF program.
    Kernel,
    Other,
}

/// Follows a process without stopping it, and every thread and child that it makes from now on. The end of each will
/// stop it for us, with all memory in place.
///
/// # Errors
/// `EPERM` when somebody else traces it, `ESRCH` when it is gone.
pub fn seize(pid: u32) -> io::Result<()> {
    let options =
        libc::PTRACE_O_TRACEEXIT | libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_TRACEFORK | libc::PTRACE_O_TRACEVFORK;
    request(libc::PTRACE_SEIZE, pid, options as usize)
}

/// Lets a stopped process run, delivering `signal` (0: none).
pub fn go_on(pid: u32, signal: i32) {
    // It may have been killed meanwhile: its end will be seen.
    let _ = request(libc::PTRACE_CONT, pid, signal as usize);
}

/// Leaves a process in its group stop, but hears of its end.
pub fn listen(pid: u32) {
    let _ = request(libc::PTRACE_LISTEN, pid, 0);
}

/// Is a thread followed by this process?
#[must_use]
pub fn is_traced_by_us(tid: u32) -> bool {
    // The warden's own thread is named there.
    let tracer = info::status(tid, "TracerPid:");
    tracer.is_some_and(|tracer| std::path::Path::new(&format!("/proc/self/task/{tracer}")).exists())
}

pub fn signal(pid: u32, signal: i32) {
    // SAFETY: no memory is involved.
    unsafe { libc::kill(pid as libc::pid_t, signal) };
}

/// Who sent the signal at whose delivery `pid` is stopped.
#[must_use]
pub fn sender(pid: u32) -> Option<Sender> {
    code(pid).map(|code| if code == SI_KERNEL { Sender::Kernel } else { Sender::Other })
}

/// Is a thread that we follow stopped at its end, and not anywhere else?
#[must_use]
pub fn at_its_end(tid: u32) -> bool {
    code(tid) == Some(libc::PTRACE_EVENT_EXIT << 8 | libc::SIGTRAP)
}

/// `si_code` of what a followed thread is stopped by.
fn code(pid: u32) -> Option<i32> {
    // SAFETY: all-zero is a valid siginfo.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel fills the structure that we own.
    let result = unsafe {
        libc::ptrace(libc::PTRACE_GETSIGINFO, pid as libc::pid_t, ptr::null_mut::<libc::c_void>(), &raw mut info)
    };
    (result == 0).then_some(info.si_code)
}

/// `asm-generic/siginfo.h`: sent by the kernel itself, from somewhere.
const SI_KERNEL: i32 = 0x80;

/// The next state change of a seized process or child, if one is waiting.
#[must_use]
pub fn wait_any() -> Option<(u32, Status)> {
    let mut status = 0;
    // SAFETY: the kernel fills the integer that we own.
    let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::WNOHANG) };
    (pid > 0).then(|| (pid as u32, status_of(status)))
}

fn status_of(status: i32) -> Status {
    if libc::WIFEXITED(status) {
        return Status::Ended(ExitStatus::Code(libc::WEXITSTATUS(status)));
    }
    if libc::WIFSIGNALED(status) {
        return Status::Ended(ExitStatus::Signal(libc::WTERMSIG(status)));
    }
    let signal = libc::WSTOPSIG(status);
    match status >> 16 {
        0 => Status::Signal(signal),
        libc::PTRACE_EVENT_EXIT => Status::Exiting,
        libc::PTRACE_EVENT_STOP if is_stop(signal) => Status::GroupStop,
        _ => Status::Trap,
    }
}

const fn is_stop(signal: i32) -> bool {
    matches!(signal, libc::SIGSTOP | libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU)
}

fn request(request: libc::c_uint, pid: u32, data: usize) -> io::Result<()> {
    // SAFETY: none of the requests above uses `addr`, and `data` is a number.
    let result = unsafe {
        libc::ptrace(request, pid as libc::pid_t, ptr::null_mut::<libc::c_void>(), data as *mut libc::c_void)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_as_the_kernel_encodes_them() {
        let stopped = |signal: i32, event: i32| (event << 16) | (signal << 8) | 0x7f;
        assert_eq!(status_of(3 << 8), Status::Ended(ExitStatus::Code(3)));
        assert_eq!(status_of(9), Status::Ended(ExitStatus::Signal(9)));
        assert_eq!(status_of(stopped(libc::SIGTRAP, libc::PTRACE_EVENT_EXIT)), Status::Exiting);
        assert_eq!(status_of(stopped(libc::SIGSTOP, libc::PTRACE_EVENT_STOP)), Status::GroupStop);
        assert_eq!(status_of(stopped(libc::SIGTRAP, libc::PTRACE_EVENT_STOP)), Status::Trap);
        // A real-time signal, which other wrappers refuse to name.
        assert_eq!(status_of(stopped(34, 0)), Status::Signal(34));
    }
}
