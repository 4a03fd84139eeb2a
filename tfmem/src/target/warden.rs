//! Follows the processes of `tfmem run` with `PTRACE_SEIZE`: their end is seen while all their memory is still there,
//! and a process that BPF stopped at a mapping stands in our hands until its probes are in.
//!
//! One thread does all of it, as ptrace demands. Every thread and every child is followed from its first instruction
//! (as `strace -f` does): a stop of ours is then a stop of that one thread, which neither the program's other threads
//! nor its parent can see. Signals for the program pass through untouched.

use std::{
    collections::{HashMap, HashSet},
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

use super::{clock, info, ptrace};
use crate::{event::ExitStatus, observe::snapshot::Seen};

#[derive(Debug)]
enum Command {
    /// Follow this process; answered when done.
    Seize(u32, Sender<io::Result<()>>),
    /// The library that thread `tid` of `pid` mapped is judged: let it go on.
    Release {
        pid: u32,
        tid: u32,
    },
    /// The process was looked at: let its threads end.
    GoOn(u32),
    End,
}

#[derive(Debug)]
pub enum Message {
    /// The process is at its end; this is what it looked like with all its memory still there.
    Exiting {
        pid: u32,
        at: u64,
        seen: Option<Box<Seen>>,
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
        look: impl Fn(u32) -> Option<Seen> + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let children = SignalFd::with_flags(&sigchld(), SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        let wake = Arc::new(EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?);
        let (commands, receiver) = mpsc::channel();
        let back = (commands.clone(), wake.clone());
        let worker = Worker { commands: receiver, back, messages, look: Arc::new(look), sets: Sets::default() };
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

impl Drop for Warden {
    /// Everything that is followed is let go.
    fn drop(&mut self) {
        self.send(Command::End);
    }
}

struct Worker {
    commands: Receiver<Command>,
    /// For helpers that look at a process at its end.
    back: (Sender<Command>, Arc<EventFd>),
    messages: UnboundedSender<Message>,
    look: Look,
    sets: Sets,
}

type Look = Arc<dyn Fn(u32) -> Option<Seen> + Send + Sync>;

/// Threads, by tid.
#[derive(Debug, Default)]
struct Sets {
    /// In a signal-delivery-stop for our own stop signal, which is swallowed at release.
    held: HashSet<u32>,
    /// Released before the stop was seen here.
    released: HashSet<u32>,
    /// Processes that were looked at at their end.
    looked: HashSet<u32>,
    /// Threads that wait at their end while their process is looked at.
    waiting: HashMap<u32, Vec<u32>>,
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
            while let Ok(command) = self.commands.try_recv() {
                if !self.obey(command) {
                    // Nobody is left to command: detaching (by ending) lets everything go.
                    return;
                }
            }
            while let Some((tid, status)) = ptrace::wait_any() {
                self.seen(tid, status);
            }
        }
    }

    /// `false`: end.
    fn obey(&mut self, command: Command) -> bool {
        match command {
            Command::Seize(pid, answer) => {
                let _ = answer.send(ptrace::seize(pid));
            }
            Command::Release { pid, tid } => self.release(pid, tid),
            Command::GoOn(pid) => {
                for tid in self.sets.waiting.remove(&pid).unwrap_or_default() {
                    ptrace::go_on(tid, 0);
                }
            }
            Command::End => return false,
        }
        true
    }

    fn release(&mut self, pid: u32, tid: u32) {
        if self.sets.held.remove(&tid) {
            ptrace::go_on(tid, 0);
        } else if ptrace::is_traced_by_us(tid) {
            self.sets.released.insert(tid);
        } else {
            // Somebody else traces the thread, so that our stop signal stopped the whole process.
            ptrace::signal(pid, libc::SIGCONT);
        }
    }

    fn seen(&mut self, tid: u32, status: ptrace::Status) {
        match status {
            ptrace::Status::Ended(status) => {
                self.sets.forget(tid);
                // Threads end too; the loop knows which of these are processes.
                let _ = self.messages.send(Message::Ended { pid: tid, status, at: clock::boot_ns() });
            }
            ptrace::Status::Exiting => self.exiting(tid),
            ptrace::Status::GroupStop => ptrace::listen(tid),
            ptrace::Status::Trap => ptrace::go_on(tid, 0),
            ptrace::Status::Signal(signal) => self.signal(tid, signal),
        }
    }

    /// A thread ends. When the process ends with it, it is looked at while all its memory is still there, by a helper:
    /// nobody else must wait for that.
    fn exiting(&mut self, tid: u32) {
        let Some(pid) = info::process_of(tid) else { return ptrace::go_on(tid, 0) };
        if let Some(waiting) = self.sets.waiting.get_mut(&pid) {
            return waiting.push(tid);
        }
        if self.sets.looked.contains(&pid) || !info::ending(pid, tid) {
            return ptrace::go_on(tid, 0);
        }
        self.sets.looked.insert(pid);
        self.sets.waiting.insert(pid, vec![tid]);
        let (look, messages, (commands, wake)) = (self.look.clone(), self.messages.clone(), self.back.clone());
        let helper = std::thread::Builder::new().name("last look".into()).spawn(move || {
            // By the thread that stands still: the main thread may be gone already, and its memory with it.
            let seen = look(tid).map(Box::new);
            // The process stood still meanwhile: what was seen holds until it goes on.
            let _ = messages.send(Message::Exiting { pid, at: clock::boot_ns(), seen });
            if commands.send(Command::GoOn(pid)).is_ok() {
                let _ = wake.write(1);
            }
        });
        if helper.is_err() {
            self.sets.waiting.remove(&pid);
            ptrace::go_on(tid, 0);
        }
    }

    fn signal(&mut self, tid: u32, signal: i32) {
        if signal != libc::SIGSTOP || ptrace::sender(tid) != Some(ptrace::Sender::Kernel) {
            ptrace::go_on(tid, signal);
        } else if self.sets.released.remove(&tid) {
            ptrace::go_on(tid, 0);
        } else {
            self.sets.held.insert(tid);
        }
    }
}

impl Sets {
    fn forget(&mut self, tid: u32) {
        for set in [&mut self.held, &mut self.released, &mut self.looked] {
            set.remove(&tid);
        }
        self.waiting.remove(&tid);
    }
}
