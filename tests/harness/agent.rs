//! A running `tfmem agent`, and what it says.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use tempfile::TempDir;
use tfmem::target::maps;

use super::{
    machine,
    program::{Output, Program},
};

const LIMIT: Duration = Duration::from_secs(60);

pub struct Agent {
    child: Child,
    folder: TempDir,
    address: SocketAddr,
}

impl Agent {
    /// With a short grace time, any port, and what `more` says (whole tables).
    pub fn start(more: &str) -> Result<Self> {
        Self::start_in(TempDir::new()?, more)
    }

    /// The same in a folder that an earlier one had.
    pub fn start_in(folder: TempDir, more: &str) -> Result<Self> {
        Self::start_by(&[], folder, more)
    }

    /// The same by a program that starts another one.
    pub fn start_by(by: &[&str], folder: TempDir, more: &str) -> Result<Self> {
        let path = folder.path().join("agent.toml");
        fs::write(&path, configuration(folder.path(), more))?;
        let stderr = fs::File::create(folder.path().join("stderr"))?;
        let tfmem = machine::tfmem()?;
        let mut words = by.iter().map(AsRef::as_ref).chain([tfmem.as_os_str()]);
        let child = Command::new(words.next().context("no program")?)
            .args(words)
            .args(["-v", "agent", "--config"])
            .arg(&path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()?;
        let mut agent = Self { child, folder, address: SocketAddr::from(([127, 0, 0, 1], 0)) };
        agent.wait_for("the agent watches", |agent| {
            ensure!(agent.child.try_wait()?.is_none(), "it ended: {}", agent.stderr()?);
            Ok(agent.stderr()?.contains("the agent watches").then_some(()))
        })?;
        let stderr = agent.stderr()?;
        let address = stderr.split("metrics at http://").nth(1).and_then(|rest| rest.split('/').next());
        agent.address = address.context("no address")?.parse()?;
        Ok(agent)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("agent.sock")
    }

    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn stderr(&self) -> Result<String> {
        Ok(fs::read_to_string(self.folder.path().join("stderr"))?)
    }

    /// Another configuration, and the signal to take it.
    pub fn reload(&self, more: &str) -> Result<()> {
        fs::write(self.folder.path().join("agent.toml"), configuration(self.folder.path(), more))?;
        self.signal(Signal::SIGHUP)
    }

    pub fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill(Pid::from_raw(i32::try_from(self.pid())?), signal)?)
    }

    pub fn ctl(&self, words: &[&str]) -> Result<Output> {
        Program::new(machine::tfmem()?).args(["agent", "ctl", "--socket"]).arg(self.socket()).args(words).run()
    }

    /// The answer to an order, as JSON.
    pub fn ask(&self, words: &[&str]) -> Result<Value> {
        let output = self.ctl(&[words, &["--format", "json"]].concat())?;
        ensure!(output.code == 0, "{words:?}: status {}: {}", output.code, output.stderr);
        Ok(serde_json::from_str(&output.stdout)?)
    }

    /// A process, if it is followed.
    pub fn process(&self, pid: u32) -> Result<Option<Value>> {
        let all = self.ask(&["processes"])?;
        let rows = all.as_array().context("no list")?;
        Ok(rows.iter().find(|row| row["pid"] == pid).cloned())
    }

    pub fn metrics(&self) -> Result<String> {
        get(self.address, "/metrics")
    }

    /// The value of the first series of this name whose labels hold all of these.
    pub fn metric(&self, name: &str, labels: &[&str]) -> Result<Option<f64>> {
        let page = self.metrics()?;
        let line = page.lines().find(|line| {
            line.split(['{', ' ']).next() == Some(name) && labels.iter().all(|label| line.contains(label))
        });
        line.map(|line| Ok(line.rsplit(' ').next().context("no value")?.parse()?)).transpose()
    }

    /// Asks again until there is an answer; how long that took.
    pub fn wait_for<T>(
        &mut self,
        what: &str,
        mut ask: impl FnMut(&mut Self) -> Result<Option<T>>,
    ) -> Result<(T, Duration)> {
        let start = Instant::now();
        loop {
            if let Some(found) = ask(self)? {
                return Ok((found, start.elapsed()));
            }
            if start.elapsed() > LIMIT {
                bail!("{what}: not after {} s; {}", LIMIT.as_secs(), self.stderr()?);
            }
            sleep(Duration::from_millis(20));
        }
    }

    /// Ends it as a service manager does.
    pub fn end(mut self) -> Result<(TempDir, String)> {
        self.signal(Signal::SIGTERM)?;
        let (status, _) = self.wait_for("its end", |agent| Ok(agent.child.try_wait()?))?;
        let stderr = self.stderr()?;
        ensure!(status.code() == Some(0) && !stderr.contains("panicked"), "{status}: {stderr}");
        Ok((std::mem::replace(&mut self.folder, TempDir::new()?), stderr))
    }

    /// Ends it as nobody should.
    pub fn kill(mut self) -> Result<TempDir> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(std::mem::replace(&mut self.folder, TempDir::new()?))
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn configuration(folder: &Path, more: &str) -> String {
    let folder = folder.display();
    // Each table may stand in the file once.
    let table = |name: &str, keys: &str| {
        let own = format!("[{name}]\n");
        if more.contains(&own) { String::new() } else { format!("{own}{keys}\n") }
    };
    table("trace", "grace = \"100ms\"\nmin_bytes = \"4kiB\"\ntotals_every = \"500ms\"")
        + &table("metrics", "listen = \"127.0.0.1:0\"")
        // What is tested is not the machine's speed.
        + &table("limits", "cpu = \"400%\"\ncpu_hard = \"400%\"\nmemory = \"1GiB\"")
        + &format!("[control]\nsocket = \"{folder}/agent.sock\"\n[spool]\nfolder = \"{folder}/spool\"\n")
        + more
}

/// A page, without any client of ours.
pub fn get(address: SocketAddr, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
    ensure!(head.starts_with("HTTP/1.1 200"), "{head}");
    Ok(body.to_owned())
}

/// Bytes of code that are not as in its file, in the libraries of this name that a process maps: the probes.
pub fn probes_in(pid: u32, library: &str) -> Result<usize> {
    let memory = fs::File::open(format!("/proc/{pid}/mem"))?;
    let mut probes = 0;
    for line in maps::read(pid)?.iter().filter(|line| line.executable && line.name.ends_with(library)) {
        let mut live = vec![0; usize::try_from(line.len())?];
        memory.read_exact_at(&mut live, line.start)?;
        let file = fs::read(line.map_file(pid))?;
        let code = file.get(usize::try_from(line.offset)?..).context("not in the file")?;
        probes += live.iter().zip(code).filter(|(live, file)| live != file).count();
    }
    Ok(probes)
}
