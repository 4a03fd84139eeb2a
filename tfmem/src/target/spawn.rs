//! Starting the program of `tfmem run`: it exists and is traced before its first instruction runs.

use std::{
    ffi::{CString, OsString},
    io::{self, Read as _, Write as _},
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::ffi::OsStringExt as _,
    },
};

use nix::{
    fcntl::OFlag,
    unistd::{ForkResult, fork, pipe2},
};
use thiserror::Error;

#[derive(Debug, Error)]
pub enum SpawnError {
    #[error("{command}: command not found")]
    NotFound { command: String },
    #[error("{command}: cannot be executed: {source}")]
    NotExecutable { command: String, source: io::Error },
    #[error("the command holds a zero byte")]
    ZeroByte,
    #[error("cannot start a process: {0}")]
    System(#[from] io::Error),
}

impl SpawnError {
    /// The status a shell would give.
    #[must_use]
    pub const fn status(&self) -> i32 {
        match self {
            Self::NotFound { .. } => 127,
            Self::NotExecutable { .. } => 126,
            Self::ZeroByte => 2,
            Self::System(_) => 1,
        }
    }
}

/// A child that waits before its exec.
#[derive(Debug)]
pub struct Waiting {
    pub pid: u32,
    command: String,
    go: OwnedFd,
    failed: OwnedFd,
}

/// Forks the child; it waits for [`Waiting::go`].
///
/// # Errors
/// When the command cannot be passed on or no process can be made.
pub fn prepare(command: &[OsString]) -> Result<Waiting, SpawnError> {
    let name = command.first().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let args = command
        .iter()
        .map(|arg| CString::new(arg.clone().into_vec()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| SpawnError::ZeroByte)?;
    let mut pointers: Vec<*const libc::c_char> = args.iter().map(|arg| arg.as_ptr()).collect();
    pointers.push(std::ptr::null());
    let (wait_go, go) = pipe2(OFlag::O_CLOEXEC).map_err(io::Error::from)?;
    let (failed, say_failed) = pipe2(OFlag::O_CLOEXEC).map_err(io::Error::from)?;
    // SAFETY: the child only calls async-signal-safe functions (`child`), and all it needs was allocated before.
    match unsafe { fork() }.map_err(io::Error::from)? {
        ForkResult::Child => child(&pointers, wait_go.as_raw_fd(), go.as_raw_fd(), say_failed.as_raw_fd()),
        ForkResult::Parent { child } => Ok(Waiting { pid: child.as_raw() as u32, command: name, go, failed }),
    }
}

/// The child's side, between fork and exec.
fn child(args: &[*const libc::c_char], wait_go: i32, go: i32, say_failed: i32) -> ! {
    let mut byte = 0u8;
    // SAFETY: plain system calls on our own descriptors and memory; `args` is a null-terminated array of strings that
    // outlive the call. The signal mask and SIGPIPE are set back to what a program expects to start with.
    unsafe {
        // Our copy of the writing end must go, or the end of a killed parent would not be seen.
        libc::close(go);
        if libc::read(wait_go, (&raw mut byte).cast(), 1) != 1 {
            libc::_exit(125);
        }
        let mut none = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        if let Some(&program) = args.first() {
            libc::execvp(program, args.as_ptr());
        }
        let error = *libc::__errno_location();
        libc::write(say_failed, (&raw const error).cast(), size_of::<i32>());
        libc::_exit(127)
    }
}

impl Waiting {
    /// Lets the child exec. Returns when the new program is in place (it may already be held at its first
    /// instruction) or the exec failed.
    ///
    /// # Errors
    /// The exec's own error.
    pub fn go(self) -> Result<(), SpawnError> {
        let Self { pid: _, command, go, failed } = self;
        std::fs::File::from(go).write_all(&[1])?;
        let mut errno = [0u8; 4];
        let mut failed = std::fs::File::from(failed);
        match failed.read(&mut errno)? {
            4 => {
                let source = io::Error::from_raw_os_error(i32::from_ne_bytes(errno));
                Err(match source.kind() {
                    io::ErrorKind::NotFound => SpawnError::NotFound { command },
                    _ => SpawnError::NotExecutable { command, source },
                })
            }
            // Closed by the exec.
            _ => Ok(()),
        }
    }
}
