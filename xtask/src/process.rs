//! Running other programs, with errors that name them.

use std::{
    ffi::{OsStr, OsString},
    fmt,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Command, ExitStatus, Stdio},
};

use anyhow::{Context as _, Result, bail};

/// A command with what a person would have typed.
pub struct Program {
    command: Command,
}

impl Program {
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self { command: Command::new(program) }
    }

    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.command.args(args);
        self
    }

    pub fn current_dir(mut self, dir: &Path) -> Self {
        self.command.current_dir(dir);
        self
    }

    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    pub fn env_remove(mut self, name: &str) -> Self {
        self.command.env_remove(name);
        self
    }

    /// Runs with our own input and output, and hands back how it ended.
    pub fn status(mut self) -> Result<ExitStatus> {
        self.command.status().with_context(|| format!("cannot run {self}"))
    }

    /// Runs with our own input and output; anything but success is an error.
    pub fn run(self) -> Result<()> {
        let line = self.to_string();
        let status = self.status()?;
        if !status.success() {
            bail!("{line}: {status}");
        }
        Ok(())
    }

    /// Runs silently and returns what it wrote to its standard output, trimmed; `None` when it failed or is not there.
    pub fn output(mut self) -> Option<String> {
        let output = self.command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    }

    /// Runs with our own input and error output and returns what it wrote to its standard output; anything but success is
    /// an error.
    pub fn stdout(mut self) -> Result<String> {
        let output = self.command.stderr(Stdio::inherit()).output().with_context(|| format!("cannot run {self}"))?;
        if !output.status.success() {
            bail!("{self}: {}", output.status);
        }
        String::from_utf8(output.stdout).with_context(|| format!("{self} did not write text"))
    }

    /// Runs and passes its standard output on while `look` sees each line of it.
    pub fn watch(mut self, mut look: impl FnMut(&str)) -> Result<ExitStatus> {
        let mut child = self.command.stdout(Stdio::piped()).spawn().with_context(|| format!("cannot run {self}"))?;
        let mut reader = BufReader::new(child.stdout.take().context("no pipe to the child")?);
        let mut line = Vec::new();
        let mut stdout = std::io::stdout();
        while reader.read_until(b'\n', &mut line)? > 0 {
            stdout.write_all(&line)?;
            stdout.flush()?;
            look(String::from_utf8_lossy(&line).trim_end());
            line.clear();
        }
        child.wait().with_context(|| format!("cannot wait for {self}"))
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<OsString> =
            std::iter::once(self.command.get_program()).chain(self.command.get_args()).map(OsStr::to_owned).collect();
        write!(f, "`{}`", words.join(OsStr::new(" ")).display())
    }
}

/// Tools want to know who they run as; `id` is on every system.
pub fn is_root() -> bool {
    Program::new("id").arg("-u").output().as_deref() == Some("0")
}
