//! Follows the processes of `tfmem run` with `PTRACE_SEIZE`: their end is seen while all their memory is still there,
//! and a process that BPF stopped at a mapping stands in our hands until its probes are in.
//!
//! One thread does all of it, as ptrace demands. Signals for the program pass through untouched.

use std::{
    collections::HashSet,
    io,
    os::fd::AsFd as _,
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        eventfd::{EfdFlags, EventFd},
        signal::{SigSet, Signal},
        signalfd::{SfdFlags, SignalFd},
    },
};
use tokio::sync::mpsc::UnboundedSender;

use super::{clock, ptrace};
use crate::event::{ExitStatus, Snapshot};

#[derive(Debug)]
enum Command {
    /// Follow this process; answered when done.
    Seize(u32, Sender<io::Result<()>>),
    /// The library that thread `tid` of `pid` mapped is judged: let it go on.
    Release { pid: u32, tid: u32 },
}

#[derive(Debug)]
pub enum Message {
    /// The process is at its end; this is what it looked like with all its memory still there.
    Exiting {
        pid: u32,
        at: u64,
        snapshot: Option<Snapshot>,
    },
    Ended {
        pid: u32,
        status: ExitStatus,
        at: u64,
    },
}

/// Our side of the warden.
#[derive(Debug)]
pub struct Warden {
    commands: Sender<Command>,
    wake: Arc<EventFd>,
}

/// `SIGCHLD` must be blocked in every thread before the warden starts: it reads the signal from a descriptor.
///
/// # Errors
/// When the mask cannot be set.
pub fn block_sigchld() -> io::Result<()> {
    Ok(sigchld().thread_block()?)
}

fn sigchld() -> SigSet {
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGCHLD);
    mask
}

impl Warden {
    /// `look` is called for a process at its very end.
    ///
    /// # Errors
    /// When the thread or its descriptors cannot be made.
    pub fn start(
        messages: UnboundedSender<Message>,
        look: impl Fn(u32) -> Option<Snapshot> + Send + 'static,
    ) -> io::Result<Self> {
        let children = SignalFd::with_flags(&sigchld(), SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        let wake = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?);
        let (commands, receiver) = mpsc::channel();
        let worker = Worker { commands: receiver, messages, look: Box::new(look), sets: Sets::default() };
        let woken = wake.clone();
        std::thread::Builder::new().name("warden".into()).spawn(move || worker.run(&woken, &children))?;
        Ok(Self { commands, wake })
    }

    /// Follows a process and waits until it is so.
    ///
    /// # Errors
    /// When the process is gone or somebody else traces it.
    pub fn seize(&self, pid: u32) -> io::Result<()> {
        let (answer, answered) = mpsc::channel();
        self.send(Command::Seize(pid, answer));
        answered.recv().unwrap_or_else(|_| Err(io::Error::other("the warden is gone")))
    }

    /// Lets a process go on that BPF stopped at a mapping.
    pub fn release(&self, pid: u32, tid: u32) {
        self.send(Command::Release { pid, tid });
    }

    fn send(&self, command: Command) {
        // A warden that is gone has let everything go: the kernel detaches a dead thread's tracees.
        if self.commands.send(command).is_ok() {
            let _ = self.wake.write(1);
        }
    }
}

struct Worker {
    commands: Receiver<Command>,
    messages: UnboundedSender<Message>,
    look: Box<dyn Fn(u32) -> Option<Snapshot> + Send>,
    sets: Sets,
}

#[derive(Debug, Default)]
struct Sets {
    seized: HashSet<u32>,
    /// In a signal-delivery-stop for our own stop signal, which is swallowed at release.
    held: HashSet<u32>,
    /// Stopped as a whole process: the stop signal came before the seizing, or to another thread.
    group_stopped: HashSet<u32>,
    /// Released before the stop was seen here.
    released: HashSet<u32>,
}

impl Worker {
    fn run(mut self, wake: &EventFd, children: &SignalFd) {
        loop {
            let mut fds =
                [PollFd::new(wake.as_fd(), PollFlags::POLLIN), PollFd::new(children.as_fd(), PollFlags::POLLIN)];
            if let Err(error) = poll(&mut fds, PollTimeout::NONE)
                && error != nix::Error::EINTR
            {
                log::error!("the warden cannot wait: {error}");
                return;
            }
            let _ = wake.read();
            while matches!(children.read_signal(), Ok(Some(_))) {}
            loop {
                match self.commands.try_recv() {
                    Ok(command) => self.obey(command),
                    Err(mpsc::TryRecvError::Empty) => break,
                    // Nobody is left to command: detaching (by ending) lets everything go.
                    Err(mpsc::TryRecvError::Disconnected) => return,
                }
            }
            while let Some((pid, status)) = ptrace::wait_any() {
                self.seen(pid, status);
            }
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::Seize(pid, answer) => {
                let result = ptrace::seize(pid);
                if result.is_ok() {
                    self.sets.seized.insert(pid);
                }
                let _ = answer.send(result);
            }
            Command::Release { pid, tid } => self.release(pid, tid),
        }
    }

    fn release(&mut self, pid: u32, tid: u32) {
        if pid != tid || !self.sets.seized.contains(&pid) || self.sets.group_stopped.contains(&pid) {
            // The whole process stands (or is about to): a continue signal also cancels a stop still pending.
            ptrace::signal(pid, libc::SIGCONT);
        } else if self.sets.held.remove(&pid) {
            ptrace::go_on(pid, 0);
        } else {
            self.sets.released.insert(pid);
        }
    }

    fn seen(&mut self, pid: u32, status: ptrace::Status) {
        match status {
            ptrace::Status::Ended(status) => {
                self.sets.forget(pid);
                let _ = self.messages.send(Message::Ended { pid, status, at: clock::boot_ns() });
            }
            ptrace::Status::Exiting => {
                let snapshot = (self.look)(pid);
                // The process stood still meanwhile: what was seen holds until it goes on.
                let at = clock::boot_ns();
                let _ = self.messages.send(Message::Exiting { pid, at, snapshot });
                ptrace::go_on(pid, 0);
            }
            ptrace::Status::GroupStop => self.group_stop(pid),
            ptrace::Status::Trap => ptrace::go_on(pid, 0),
            ptrace::Status::Signal(signal) => self.signal(pid, signal),
        }
    }

    fn group_stop(&mut self, pid: u32) {
        if self.sets.released.remove(&pid) {
            ptrace::signal(pid, libc::SIGCONT);
        } else {
            self.sets.group_stopped.insert(pid);
        }
        ptrace::listen(pid);
    }

    fn signal(&mut self, pid: u32, signal: i32) {
        match ptrace::sender(pid) {
            Some(ptrace::Sender::Kernel) if signal == libc::SIGSTOP => {
                if self.sets.released.remove(&pid) {
                    ptrace::go_on(pid, 0);
                } else {
                    self.sets.held.insert(pid);
                }
            }
            Some(ptrace::Sender::Ourselves) if signal == libc::SIGCONT => {
                self.sets.group_stopped.remove(&pid);
                ptrace::go_on(pid, 0);
            }
            _ => {
                self.sets.group_stopped.remove(&pid);
                ptrace::go_on(pid, signal);
            }
        }
    }
}

impl Sets {
    fn forget(&mut self, pid: u32) {
        for set in [&mut self.seized, &mut self.held, &mut self.group_stopped, &mut self.released] {
            set.remove(&pid);
        }
    }
}
