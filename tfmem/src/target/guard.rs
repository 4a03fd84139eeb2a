//! Nothing stays stopped if tfmem is killed.
//!
//! While a library's probes go in, the process that maps it stands still. If tfmem dies in that moment (`kill -9`),
//! nobody would let it go on. So `run` forks a guard before anything else: a process that sleeps on a pipe, knows the
//! traced pids, and when the pipe breaks continues those that stand still.

use std::{
    collections::BTreeSet,
    io,
    os::fd::{AsRawFd as _, OwnedFd, RawFd},
    time::Duration,
};

use nix::{
    fcntl::OFlag,
    sys::{
        signal::{Signal, kill},
        wait::waitpid,
    },
    unistd::{ForkResult, Pid, fork, pipe2, setsid, write},
};

use super::info;

/// Our end. Dropping it at a regular end lets the guard find nothing stopped and leave.
#[derive(Debug)]
pub struct Guard {
    pipe: OwnedFd,
}

impl Guard {
    /// Starts the guard. Call before any thread exists.
    ///
    /// # Errors
    /// When no process or pipe can be made.
    pub fn start() -> io::Result<Self> {
        let (reading, writing) = pipe2(OFlag::O_CLOEXEC)?;
        // SAFETY: no other thread exists yet, so the child may do anything.
        match unsafe { fork() }? {
            ForkResult::Parent { child } => {
                waitpid(child, None)?;
                Ok(Self { pipe: writing })
            }
            ForkResult::Child => {
                drop(writing);
                // A session of its own: Ctrl-C in our terminal is not for the guard. Forked twice: not our child.
                let _ = setsid();
                // SAFETY: as above.
                if let Ok(ForkResult::Child) = unsafe { fork() } {
                    watch(&reading);
                }
                // SAFETY: ends this process at once, without running the parent's exit handlers.
                unsafe { libc::_exit(0) }
            }
        }
    }

    /// The guard shall look after this process.
    pub fn add(&self, pid: u32) {
        self.send(i64::from(pid));
    }

    /// The process is gone.
    pub fn remove(&self, pid: u32) {
        self.send(-i64::from(pid));
    }

    fn send(&self, message: i64) {
        // A guard that is gone cannot be helped; the trace goes on.
        let _ = write(&self.pipe, &message.to_ne_bytes());
    }
}

fn watch(pipe: &OwnedFd) {
    close_all_but(pipe.as_raw_fd());
    let mut pids = BTreeSet::new();
    let mut message = [0u8; 8];
    loop {
        match nix::unistd::read(pipe, &mut message) {
            Ok(8) => {
                let message = i64::from_ne_bytes(message);
                if message > 0 {
                    pids.insert(message);
                } else {
                    pids.remove(&-message);
                }
            }
            Err(nix::Error::EINTR) => {}
            _ => break,
        }
    }
    for _ in 0..SWEEPS {
        sweep(&mut pids);
        std::thread::sleep(BETWEEN_SWEEPS);
    }
}

/// The kernel takes seconds to close a dead tracer's probes, and they may hold processes until tfmem's lease on that
/// has run out (2 s).
const SWEEPS: u32 = 60;
const BETWEEN_SWEEPS: Duration = Duration::from_millis(50);

/// Lets go what stands still: the processes known, and their descendants made since.
fn sweep(pids: &mut BTreeSet<i64>) {
    let Ok(all) = std::fs::read_dir("/proc") else { return };
    for pid in all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok()) {
        let Some((ppid, state)) = info::parent_and_state(pid) else { continue };
        if pids.contains(&i64::from(ppid)) {
            pids.insert(i64::from(pid));
        }
        if pids.contains(&i64::from(pid)) && matches!(state, 'T' | 't') {
            let _ = kill(Pid::from_raw(pid as i32), Signal::SIGCONT);
        }
    }
}

/// The guard must not keep the terminal, a pipe of the user's, or our maps alive.
fn close_all_but(keep: RawFd) {
    let Ok(open) = std::fs::read_dir("/proc/self/fd") else { return };
    let open: Vec<RawFd> =
        open.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).filter(|&fd| fd != keep).collect();
    for fd in open {
        // SAFETY: this process uses no descriptor but `keep`; closing one that is already closed is an error only.
        unsafe { libc::close(fd) };
    }
}
