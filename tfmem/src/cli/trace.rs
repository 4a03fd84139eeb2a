//! `tfmem trace --pid PID…`

use tokio::{runtime, sync::mpsc};

use super::{
    args::Trace,
    exit::{ABOVE_LIMIT, Failure},
    output, privilege,
    stop::Asked,
};
use crate::{doctor, target::info};

/// # Errors
/// When tfmem cannot be started or a process cannot be traced.
pub fn trace(args: Trace) -> Result<u8, Failure> {
    privilege::check()?;
    for &pid in &args.pids {
        check(pid)?;
    }
    // It follows nobody by ptrace.
    privilege::trials(&[doctor::PTRACE])?;
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(follow(args))
}

/// A process that can be traced exists, is no thread, no zombie, no kernel thread and not tfmem itself.
///
/// # Errors
/// Says which of these it is.
pub fn check(pid: u32) -> Result<(), Failure> {
    if pid == std::process::id() {
        return Err(Failure::usage("tfmem cannot trace itself"));
    }
    match info::state(pid) {
        None => return Err(Failure::usage(format!("no process has pid {pid}"))),
        Some('Z' | 'X') if !info::alive(pid) => {
            return Err(Failure::usage(format!("process {pid} has ended (zombie): it holds no memory any more")));
        }
        Some(_) => {}
    }
    if let Some(tgid) = info::process_of(pid)
        && tgid != pid
    {
        return Err(Failure::usage(format!("{pid} is a thread of process {tgid}: use --pid {tgid}")));
    }
    if info::status(pid, "VmSize:").is_none() {
        return Err(Failure::usage(format!("process {pid} has no memory of its own (a kernel thread)")));
    }
    Ok(())
}

async fn follow(args: Trace) -> Result<u8, Failure> {
    let (mut live, facts) = output::begin(&args.common, None)?;
    if let Some(count) = args.until_close {
        live.until_closes(count);
    }
    live.begin_running(&args.pids)?;
    let stop = Asked::new(args.duration)?;
    log::warn!("attached to {}; Ctrl-C ends the trace and reports", live.who());
    // Nobody is followed by ptrace here: the sender stays open and silent.
    let (_messages, receiver) = mpsc::unbounded_channel();
    live.drive(None, receiver, stop).await?;
    Ok(if output::end(live, facts, &args.common.show)? { ABOVE_LIMIT } else { 0 })
}
