//! Runs a program with a time limit and keeps what it printed.

use std::{
    ffi::{OsStr, OsString},
    fs,
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use tempfile::TempDir;

/// Far above what any of them takes: a tracer that hangs must fail the test, not the whole run.
const LIMIT: Duration = Duration::from_secs(180);

pub struct Program {
    command: Command,
    words: Vec<OsString>,
    limit: Duration,
}

pub struct Output {
    /// Exit status, or 128 + signal
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Program {
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        let mut command = Command::new(&program);
        command
            .stdin(Stdio::null())
            // cargo's: a traced program is to find its libraries as it would without us.
            .env_remove("LD_LIBRARY_PATH")
            // A group of its own, to end it with all its children when it hangs.
            .process_group(0);
        Self { command, words: vec![program.as_ref().to_owned()], limit: LIMIT }
    }

    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.words.push(arg.as_ref().to_owned());
        self.command.arg(arg);
        self
    }

    #[must_use]
    pub fn args(self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        args.into_iter().fold(self, Self::arg)
    }

    #[must_use]
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// For one that has much to do: another limit than the usual one.
    #[must_use]
    pub const fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Runs it to its end. Output goes through files: a child that outlives the program may hold a pipe open.
    pub fn run(self) -> Result<Output> {
        let folder = TempDir::new()?;
        let (stdout, stderr) = (folder.path().join("stdout"), folder.path().join("stderr"));
        let line = self.line();
        let code = self.run_with(Stdio::from(fs::File::create(&stdout)?), Stdio::from(fs::File::create(&stderr)?));
        let read = |path| anyhow::Ok(String::from_utf8_lossy(&fs::read(path)?).into_owned());
        let (stdout, stderr) = (read(stdout)?, read(stderr)?);
        match code {
            Ok(code) => Ok(Output { code, stdout, stderr }),
            Err(error) => bail!("{line}: {error:#}\n--- stdout\n{stdout}\n--- stderr\n{stderr}"),
        }
    }

    /// Runs it to its end with the given outputs.
    pub fn run_with(mut self, stdout: Stdio, stderr: Stdio) -> Result<i32> {
        let line = self.line();
        let mut child =
            self.command.stdout(stdout).stderr(stderr).spawn().with_context(|| format!("cannot run {line}"))?;
        let limit = self.limit;
        // The descriptors in it are the child's alone from here on.
        drop(self);
        Ok(code(wait(&mut child, limit)?))
    }

    fn line(&self) -> String {
        self.words.join(OsStr::new(" ")).to_string_lossy().into_owned()
    }
}

fn wait(child: &mut Child, limit: Duration) -> Result<ExitStatus> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if start.elapsed() > limit {
            killpg(Pid::from_raw(i32::try_from(child.id())?), Signal::SIGKILL)?;
            child.wait()?;
            bail!("still running after {} s", limit.as_secs());
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}
