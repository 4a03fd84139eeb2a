//! Things to be seen by our own probes: a function to be called, system calls, children.

use std::{ffi::c_char, hint::black_box, io, ptr};

use nix::{
    sys::wait::{WaitPidFlag, WaitStatus, waitpid},
    unistd::{ForkResult, Pid, fork},
};

use crate::{event::Addr, target::maps};

pub const NUMBER: u64 = 0x7466_6d65_6d64_6f63;
pub const TEXT: &std::ffi::CStr = c"tfmem doctor";

/// The function that carries the trial probes.
#[inline(never)]
pub extern "C" fn probed(number: u64, text: *const c_char) -> u64 {
    black_box(number) ^ black_box(text as u64)
}

/// Calls it in a way that no optimisation sees through, and returns what it returned.
pub fn call() -> u64 {
    let function: extern "C" fn(u64, *const c_char) -> u64 = probed;
    black_box(function)(NUMBER, TEXT.as_ptr())
}

/// Where the function lies in the file `/proc/self/exe`.
pub fn file_offset() -> Option<u64> {
    let function: extern "C" fn(u64, *const c_char) -> u64 = probed;
    let address = function as usize as Addr;
    let lines = maps::read(std::process::id()).ok()?;
    let line = lines.iter().find(|line| line.start <= address && address < line.end && line.inode != 0)?;
    Some(address - line.start + line.offset)
}

/// What the memory calls were asked for and answered.
#[derive(Clone, Copy, Debug)]
pub struct Calls {
    pub mapped: Addr,
    pub moved: Addr,
}

pub const MAPPED_BYTES: usize = 3 * 4096;
pub const MOVED_BYTES: usize = 5 * 4096;

/// One successful call of each kind that changes the memory map, all on a mapping of our own.
///
/// # Errors
/// When there is no memory to map.
pub fn memory_calls() -> io::Result<Calls> {
    // SAFETY: a new mapping that nobody else knows of, unmapped by its final address; `brk(0)` only asks.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let mapped = libc::mmap(ptr::null_mut(), MAPPED_BYTES, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        libc::madvise(mapped, MAPPED_BYTES, libc::MADV_DONTNEED);
        let moved = libc::mremap(mapped, MAPPED_BYTES, MOVED_BYTES, libc::MREMAP_MAYMOVE);
        if moved == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            libc::munmap(mapped, MAPPED_BYTES);
            return Err(error);
        }
        libc::munmap(moved, MOVED_BYTES);
        libc::syscall(libc::SYS_brk, 0);
        Ok(Calls { mapped: mapped as Addr, moved: moved as Addr })
    }
}

/// A child of ours that only waits. It ends when this is dropped, and with us in any case.
#[derive(Debug)]
pub struct Sleeper(Pid);

impl Sleeper {
    /// # Errors
    /// When no process can be made.
    pub fn start() -> io::Result<Self> {
        let parent = std::process::id();
        // SAFETY: the child only makes system calls.
        match unsafe { fork() }? {
            ForkResult::Parent { child } => Ok(Self(child)),
            ForkResult::Child => {
                // SAFETY: plain system calls without memory.
                unsafe {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    // Its parent may have ended before it asked for that.
                    while libc::getppid() as u32 == parent {
                        libc::pause();
                    }
                    libc::_exit(0)
                }
            }
        }
    }

    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.0.as_raw() as u32
    }

    /// Kills it. `true`: it stopped at its end for whoever follows it by ptrace.
    pub fn end(&mut self) -> bool {
        let _ = nix::sys::signal::kill(self.0, nix::sys::signal::Signal::SIGKILL);
        let mut stopped = false;
        loop {
            match waitpid(self.0, Some(WaitPidFlag::__WALL)) {
                Ok(WaitStatus::PtraceEvent(_, _, event)) => {
                    stopped |= event == libc::PTRACE_EVENT_EXIT;
                    crate::target::ptrace::go_on(self.pid(), 0);
                }
                Ok(WaitStatus::Exited(..) | WaitStatus::Signaled(..)) => return stopped,
                Ok(_) | Err(nix::Error::EINTR) => {}
                Err(_) => return stopped,
            }
        }
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        // A child that was ended already is no longer ours to wait for: the call fails at once.
        self.end();
    }
}

/// System calls through which the kernel's own code returns from a probed function: return probes since 6.11, and
/// probes on five-byte nops since 6.18 (`arch/x86/entry/syscalls/syscall_64.tbl`).
const PROBE_CALLS: [u32; 2] = [335, 336];

/// Calls the probed function in a child under a seccomp filter that kills for the kernel's own probe calls, as a
/// filter with a list of allowed calls would. `true`: it was killed.
///
/// # Errors
/// When no process can be made, or it takes no filter.
pub fn killed_under_seccomp() -> io::Result<bool> {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let jump =
        |k: u32, jt: u8| libc::sock_filter { code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16, jt, jf: 0, k };
    let mut filter = [
        // The call's number is the first field of `struct seccomp_data`.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        jump(PROBE_CALLS[0], 2),
        jump(PROBE_CALLS[1], 1),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_KILL_PROCESS),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the child only makes system calls and calls a function that does nothing.
    match unsafe { fork() }? {
        ForkResult::Child => {
            // SAFETY: the filter was made before the fork and lives on in the child's copy of our memory.
            unsafe {
                let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
                // Whoever is killed by a filter would leave a core file.
                libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
                libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
                if libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) != 0 {
                    libc::_exit(1);
                }
                black_box(call());
                libc::_exit(0)
            }
        }
        ForkResult::Parent { child } => loop {
            match waitpid(child, None) {
                Ok(WaitStatus::Exited(_, 0)) => return Ok(false),
                Ok(WaitStatus::Signaled(..)) => return Ok(true),
                Ok(WaitStatus::Exited(..)) => return Err(io::Error::other("this kernel takes no seccomp filter")),
                Ok(_) | Err(nix::Error::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probed_function_is_found_in_our_file() {
        let offset = file_offset().unwrap();
        let file = std::fs::read("/proc/self/exe").unwrap();
        let function: extern "C" fn(u64, *const c_char) -> u64 = probed;
        // SAFETY: the function's own code.
        let code = unsafe { std::slice::from_raw_parts(function as usize as *const u8, 8) };
        assert_eq!(file.get(offset as usize..offset as usize + 8), Some(code));
        assert_eq!(call(), NUMBER ^ TEXT.as_ptr() as u64);
    }

    #[test]
    fn memory_calls_leave_nothing() {
        let calls = memory_calls().unwrap();
        let lines = maps::read(std::process::id()).unwrap();
        let whole = |line: &&maps::Line| line.start == calls.moved && line.len() == MOVED_BYTES as u64;
        assert!(calls.mapped != 0 && !lines.iter().any(|line| whole(&line)));
    }
}
