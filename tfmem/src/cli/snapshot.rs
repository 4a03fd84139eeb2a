//! `tfmem snapshot`

use std::{
    fs,
    io::{self, IsTerminal as _, Write as _},
    path::Path,
    time::{Instant, SystemTime},
};

use anyhow::Context as _;

use super::{
    args::{Format, Snapshot},
    exit::Failure,
    trace,
};
use crate::{
    live::facts,
    report::text::Style,
    snapshot::{
        diff::{self, Diff},
        model, take, text,
    },
    target::info,
};

/// # Errors
/// When a process cannot be looked at, or a file is no snapshot.
pub fn snapshot(args: &Snapshot) -> Result<u8, Failure> {
    if let [before, after] = args.diff.as_slice() {
        let diff = diff::diff(&read(before)?, &read(after)?);
        print(args, &diff, |diff: &Diff, style| text::diff(diff, style))?;
        return Ok(0);
    }
    for &pid in &args.pids {
        trace::check(pid)?;
    }
    print(args, &look(args)?, |snapshot: &model::Snapshot, style| text::render(snapshot, style))?;
    Ok(0)
}

fn look(args: &Snapshot) -> Result<model::Snapshot, Failure> {
    let (began, taken_at) = (Instant::now(), SystemTime::now());
    let mut processes = Vec::new();
    for &pid in &args.pids {
        processes.push(take(pid).map_err(|error| failure(pid, &error))?);
        let children = if args.children { info::descendants(pid) } else { Vec::new() };
        for child in children {
            match take(child) {
                Ok(process) => processes.push(process),
                // Children come and go; what is asked for by its number does not.
                Err(error) => log::warn!("{}", failure(child, &error).message()),
            }
        }
    }
    Ok(model::Snapshot {
        schema: model::NAME.to_owned(),
        tfmem: model::Version { version: env!("CARGO_PKG_VERSION").to_owned() },
        host: facts::host(),
        taken_at: humantime::format_rfc3339_millis(taken_at).to_string(),
        took_ms: began.elapsed().as_millis() as u64,
        own_peak_bytes: facts::cost().map_or(0, |cost| cost.peak_rss_bytes),
        processes,
    })
}

fn failure(pid: u32, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Failure::usage(format!(
            "process {pid} may not be read: run tfmem as root, or as the same user with CAP_SYS_PTRACE (or with 0 in \
             /proc/sys/kernel/yama/ptrace_scope)"
        )),
        io::ErrorKind::NotFound => Failure::usage(format!("process {pid} has ended")),
        _ if info::state(pid).is_none() => Failure::usage(format!("process {pid} has ended")),
        _ => Failure::from(anyhow::anyhow!("process {pid} cannot be read: {error}")),
    }
}

fn read(path: &Path) -> Result<model::Snapshot, Failure> {
    let shown = path.display();
    let text = fs::read(path).map_err(|error| Failure::usage(format!("cannot read {shown}: {error}")))?;
    let snapshot: model::Snapshot = serde_json::from_slice(&text).map_err(|error| {
        Failure::usage(format!("{shown} is no snapshot of `tfmem snapshot --format json`: {error}"))
    })?;
    if snapshot.schema != model::NAME {
        return Err(Failure::usage(format!("{shown} is a {}, expected a {}", snapshot.schema, model::NAME)));
    }
    Ok(snapshot)
}

fn print<T: serde::Serialize>(args: &Snapshot, found: &T, render: impl Fn(&T, Style) -> String) -> Result<(), Failure> {
    let stdout = io::stdout();
    let colour = args.color.wanted(stdout.is_terminal());
    let text = match args.format {
        Format::Json => serde_json::to_string_pretty(found).context("write the snapshot")? + "\n",
        Format::Text => render(found, Style { colour, ..Style::default() }),
    };
    let mut out = stdout.lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // The reader had enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other.context("write the snapshot")?),
    }
}
