//! What ends a trace from outside: Ctrl-C, a termination signal, a time limit.

use std::{io, time::Duration};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::{Instant, sleep_until},
};

use crate::live::drive::Stop;

/// For `trace`: the first signal or the end of the time.
#[derive(Debug)]
pub struct Asked {
    interrupt: Signal,
    terminate: Signal,
    until: Option<Instant>,
}

impl Asked {
    /// # Errors
    /// When signals cannot be handled.
    pub fn new(duration: Option<Duration>) -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            until: duration.map(|duration| Instant::now() + duration),
        })
    }
}

impl Stop for Asked {
    async fn wait(&mut self) {
        let time = async {
            match self.until {
                Some(until) => sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            () = time => {}
        }
    }
}

/// For `run`: Ctrl-C reaches the program too (same terminal), so the first one is left to it; a second one ends the
/// trace with a report and leaves the program alone. A termination signal is passed on.
#[derive(Debug)]
pub struct Patient {
    interrupt: Signal,
    terminate: Signal,
    child: u32,
    interrupts: u32,
}

impl Patient {
    /// # Errors
    /// When signals cannot be handled.
    pub fn new(child: u32) -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            child,
            interrupts: 0,
        })
    }
}

impl Stop for Patient {
    async fn wait(&mut self) {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => {
                    self.interrupts += 1;
                    if self.interrupts > 1 {
                        return;
                    }
                    log::warn!("waiting for the program to end; Ctrl-C again ends the trace and reports");
                }
                _ = self.terminate.recv() => crate::target::ptrace::signal(self.child, libc::SIGTERM),
            }
        }
    }
}
