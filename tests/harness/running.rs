//! A program that runs beside the test, which reads what it says and sends it signals.

use std::{
    ffi::OsStr,
    io::{BufRead as _, BufReader, Read as _},
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    process::{Child, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use nix::{
    sys::signal::{Signal, kill, killpg},
    unistd::Pid,
};

use super::program::Output;

const LIMIT: Duration = Duration::from_secs(120);

pub struct Running {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Running {
    pub fn start(command: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<Self> {
        let mut words = command.into_iter();
        let program = words.next().context("no command")?;
        let mut child = Command::new(&program)
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .env_remove("LD_LIBRARY_PATH")
            .env("TF_CPP_MIN_LOG_LEVEL", "3")
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot run {}", program.as_ref().display()))?;
        let said = BufReader::new(child.stdout.take().context("no pipe")?);
        Ok(Self { child, said })
    }

    /// The same, after it said that it is ready.
    pub fn start_ready(command: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Result<Self> {
        let mut running = Self::start(command)?;
        running.expect("ready")?;
        Ok(running)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its next line.
    pub fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.said.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    pub fn expect(&mut self, expected: &str) -> Result<()> {
        let line = self.line()?;
        ensure!(line == expected, "the program said {line:?}, expected {expected:?}");
        Ok(())
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill(Pid::from_raw(i32::try_from(self.pid())?), signal)?)
    }

    pub fn is_alive(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Its end, and what it had not said before.
    pub fn wait(mut self) -> Result<Output> {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if start.elapsed() > LIMIT {
                bail!("process {} is still running", self.pid());
            }
            thread::sleep(Duration::from_millis(5));
        };
        let mut stdout = String::new();
        self.said.read_to_string(&mut stdout)?;
        let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
        Ok(Output { code, stdout, stderr: String::new() })
    }

    /// Asks it to end.
    pub fn end(self) -> Result<Output> {
        self.signal(Signal::SIGTERM)?;
        self.wait()
    }
}

/// A test that fails leaves nothing running.
impl Drop for Running {
    fn drop(&mut self) {
        if let (Ok(None), Ok(group)) = (self.child.try_wait(), i32::try_from(self.child.id())) {
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
            let _ = self.child.wait();
        }
    }
}
