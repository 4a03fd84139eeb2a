//! `tfmem run -- COMMAND…`

use tokio::{runtime, sync::mpsc};

use super::{
    args::Run,
    exit::{ABOVE_LIMIT, Failure},
    output, privilege,
    stop::Patient,
};
use crate::{
    event::ExitStatus,
    live::drive::End,
    observe::snapshot,
    target::{
        guard::Guard,
        spawn::{self, SpawnError},
        warden::{self, Warden},
    },
};

/// # Errors
/// When tfmem or the command cannot be started.
pub fn run(args: Run) -> Result<u8, Failure> {
    privilege::check()?;
    privilege::trials(&[])?;
    // Both before the first thread: the guard forks, and the mask is inherited by every thread.
    let guard = Guard::start()?;
    warden::block_sigchld()?;
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(trace(args, guard))
}

async fn trace(args: Run, guard: Guard) -> Result<u8, Failure> {
    let (mut live, facts) = output::begin(&args.common, Some(guard))?;
    let child = spawn::prepare(&args.command)?;
    let pid = child.pid;
    let (messages, receiver) = mpsc::unbounded_channel();
    let warden = Warden::start(messages, |pid| snapshot::with_holders(pid).ok())?;
    live.begin_child(pid, warden)?;
    let stop = Patient::new(pid)?;
    // The exec returns here when the new program is in place, or with its error; meanwhile the child may already be
    // held at its first instruction, so the loop must run.
    let started = tokio::task::spawn_blocking(|| child.go());
    let end = live.drive(Some(pid), receiver, stop).await?;
    if let Ok(Err(error)) = started.await {
        return Err(error.into());
    }
    if output::end(live, facts, &args.common.show)? {
        return Ok(ABOVE_LIMIT);
    }
    Ok(match end {
        End::Main(Some(ExitStatus::Code(code))) => code as u8,
        End::Main(Some(ExitStatus::Signal(signal))) => 128 + signal as u8,
        End::Main(None) | End::All | End::Asked => 0,
    })
}

impl From<SpawnError> for Failure {
    fn from(error: SpawnError) -> Self {
        Self::with_status(error.status() as u8, error.to_string())
    }
}
