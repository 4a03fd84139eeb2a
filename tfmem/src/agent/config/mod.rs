//! The agent's configuration: one TOML file. Every mistake is an error that names the line.
//!
//! `docs/fleet.md` describes each key; `packaging/agent.toml` is an example, which the tests read.

mod check;
pub mod units;

use std::{
    fmt, fs,
    net::SocketAddr,
    ops::Range,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use toml::Spanned;

pub use check::read_headers;
pub use units::{Bytes, Share, Time};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    pub host: Host,
    pub trace: Trace,
    pub escalation: Escalation,
    pub limits: Limits,
    pub metrics: Metrics,
    pub otlp: Option<Otlp>,
    pub pprof: Option<Pprof>,
    pub spool: Spool,
    pub control: Control,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Host {
    /// What this host is called; the kernel's host name without.
    pub name: Option<String>,
    /// What the hosts have in common: a label of everything that is sent.
    pub cluster: Option<String>,
    /// Where the symbols of libraries that were read once are kept.
    pub cache: Option<PathBuf>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Trace {
    /// How long after a close memory may take to come back.
    pub grace: Time,
    /// The kernel's event buffer.
    pub buffer: Bytes,
    /// Groups of survivors below this size are one row.
    pub min_bytes: Bytes,
    /// Resident totals of each process are read this often.
    pub totals_every: Time,
    /// How new libraries are noticed.
    pub discovery: Discovery,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Discovery {
    /// The kernel's perf events, or `/proc` where these are not to be had.
    Auto,
    /// The kernel tells of each mapping of code.
    Perf,
    /// `/proc` is read twice a second.
    Poll,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Escalation {
    /// How long a process is traced in full.
    #[serde(rename = "for")]
    pub time: Time,
    /// Processes that may be so at the same time.
    pub at_once: u32,
    /// By rule a process is not chosen again before this time.
    pub rest: Time,
    pub rule: Vec<Rule>,
}

/// A process is chosen when its resident memory after a boundary grew this often in a row, by so much in all. Boundaries
/// that one look serves count as one.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    pub boundaries: u32,
    pub grew_by: Bytes,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Of one core, averaged over a minute: above it the agent looks less often.
    pub cpu: Share,
    /// Averaged over ten seconds: above it full tracing ends at once.
    pub cpu_hard: Share,
    /// Resident memory of the agent.
    pub memory: Bytes,
    /// File descriptors.
    pub files: u32,
    /// Bytes sent to all endpoints in a minute.
    pub pushed_in_a_minute: Bytes,
    /// Processes that are followed.
    pub processes: u32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Metrics {
    /// Where `/metrics` is served; nowhere without.
    pub listen: Option<Spanned<SocketAddr>>,
    /// Processes with series of their own; the others are summed up as one.
    pub processes: u32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Otlp {
    /// `http://HOST:4318` or `https://…`: `/v1/metrics` and `/v1/logs` are added.
    pub endpoint: Spanned<String>,
    #[serde(default = "half_a_minute")]
    pub every: Time,
    #[serde(default = "ten_seconds")]
    pub timeout: Time,
    /// Certificates (PEM) that the endpoint's is checked against, instead of the usual ones.
    pub ca: Option<Spanned<PathBuf>>,
    /// A file whose lines are headers (`Authorization: Bearer …`); it is read before each push.
    pub headers_file: Option<Spanned<PathBuf>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PprofKind {
    Pyroscope,
    Parca,
}

/// Where the reports of full tracing go as profiles.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pprof {
    pub kind: PprofKind,
    pub endpoint: Spanned<String>,
    #[serde(default = "ten_seconds")]
    pub timeout: Time,
    pub ca: Option<Spanned<PathBuf>>,
    pub headers_file: Option<Spanned<PathBuf>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Spool {
    pub folder: PathBuf,
    /// Bytes on disk; the oldest are dropped and counted.
    pub limit: Bytes,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Control {
    pub socket: PathBuf,
    /// A group whose members may give orders, beside root.
    pub group: Option<Spanned<String>>,
}

const fn half_a_minute() -> Time {
    Time::secs(30)
}

const fn ten_seconds() -> Time {
    Time::secs(10)
}

impl Default for Trace {
    fn default() -> Self {
        Self {
            grace: Time::secs(2),
            buffer: Bytes::mib(2),
            min_bytes: Bytes::mib(1),
            totals_every: Time::secs(10),
            discovery: Discovery::Auto,
        }
    }
}

impl Default for Escalation {
    fn default() -> Self {
        Self {
            time: Time::secs(60),
            at_once: 2,
            rest: Time::secs(3600),
            rule: vec![Rule { boundaries: 5, grew_by: Bytes::mib(256) }],
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            cpu: Share::percent(1),
            cpu_hard: Share::percent(5),
            memory: Bytes::mib(64),
            files: 4096,
            pushed_in_a_minute: Bytes::mib(16),
            processes: 1000,
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self { listen: None, processes: 200 }
    }
}

impl Default for Spool {
    fn default() -> Self {
        Self { folder: "/var/lib/tfmem/spool".into(), limit: Bytes::mib(256) }
    }
}

impl Default for Control {
    fn default() -> Self {
        Self { socket: "/run/tfmem-agent/agent.sock".into(), group: None }
    }
}

/// What is wrong with a configuration, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    pub file: PathBuf,
    /// Counted from 1; `None`: the file as a whole.
    pub place: Option<(usize, usize)>,
    pub what: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        if let Some((line, column)) = self.place {
            write!(f, ":{line}:{column}")?;
        }
        write!(f, ": {}", self.what)
    }
}

/// Reads and checks a configuration.
///
/// # Errors
/// Names the first mistake.
pub fn read(path: &Path) -> Result<Config, Mistake> {
    let mistake = |place, what| Mistake { file: path.to_owned(), place, what };
    let text = fs::read_to_string(path).map_err(|error| mistake(None, format!("cannot be read: {error}")))?;
    parse(&text).map_err(|(span, what)| mistake(span.map(|span| place(&text, span.start)), what))
}

/// A mistake with the place in the text where it is.
type Misplaced = (Option<Range<usize>>, String);

fn parse(text: &str) -> Result<Config, Misplaced> {
    let config: Config = toml::from_str(text).map_err(|error| (error.span(), error.message().to_owned()))?;
    check::all(&config, text)?;
    Ok(config)
}

/// Line and column of a byte, both from 1.
fn place(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |rest| rest.chars().count()) + 1;
    (line, column)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mistake(text: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent.toml");
        fs::write(&path, text).unwrap();
        read(&path).unwrap_err().to_string().replace(&format!("{}/", folder.path().display()), "")
    }

    #[test]
    fn nothing_has_to_be_said() {
        let config = parse("").unwrap();
        assert_eq!(config.limits.cpu, Share::percent(1));
        assert_eq!(config.limits.memory, Bytes::mib(64));
        assert!(config.otlp.is_none() && config.metrics.listen.is_none());
    }

    #[test]
    fn the_example_is_right() {
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/agent.toml");
        let config = read(&example).unwrap();
        assert!(config.metrics.listen.is_some());
    }

    #[test]
    fn an_unknown_key_names_its_line() {
        assert_eq!(
            mistake("[limits]\ncpu = \"1%\"\nmemroy = \"64MiB\"\n"),
            "agent.toml:3:1: unknown field `memroy`, expected one of `cpu`, `cpu_hard`, `memory`, `files`, \
             `pushed_in_a_minute`, `processes`"
        );
        assert!(mistake("[limit]\ncpu = \"1%\"\n").starts_with("agent.toml:1:2: unknown field `limit`"));
        assert!(mistake("[otlp]\nendpoint = \"http://a:1\"\ntoken = \"x\"\n").starts_with("agent.toml:3:1: unknown"));
    }

    #[test]
    fn a_wrong_unit_names_its_line() {
        assert_eq!(
            mistake("[trace]\n\ngrace = \"2 parsecs\"\n"),
            "agent.toml:3:9: `2 parsecs` is no time: write it as \"10s\" or \"5min\""
        );
        assert_eq!(mistake("[limits]\nmemory = \"64\"\n"), "agent.toml:2:10: `64` is no size: write it as \"64MiB\"");
        assert!(mistake("[limits]\nmemory = 64\n").starts_with("agent.toml:2:10: invalid type: integer `64`"));
        assert!(mistake("[limits]\ncpu = \"2\"\n").starts_with("agent.toml:2:7: `2` is no share"));
        assert!(mistake("[[escalation.rule]]\nboundaries = 3\n").starts_with("agent.toml:1:1: missing field"));
    }

    #[test]
    fn what_cannot_work_names_its_line() {
        assert_eq!(
            mistake("[otlp]\nendpoint = \"https://a:4318\"\nca = \"/nowhere/ca.pem\"\n"),
            "agent.toml:3:6: /nowhere/ca.pem: cannot be read: No such file or directory (os error 2)"
        );
        let folder = tempfile::tempdir().unwrap();
        let pem = folder.path().join("ca.pem");
        fs::write(&pem, "no certificate").unwrap();
        let text = format!("[otlp]\nendpoint = \"https://a:4318\"\nca = \"{}\"\n", pem.display());
        assert!(mistake(&text).starts_with("agent.toml:3:6: ") && mistake(&text).contains("holds no certificate"));
        assert!(mistake("[otlp]\nendpoint = \"a:4318\"\n").starts_with("agent.toml:2:12: `a:4318` is no http"));
        assert!(mistake("[control]\ngroup = \"no-such-group-x\"\n").starts_with("agent.toml:2:9: no group"));
        assert!(mistake("[metrics]\nlisten = \"9464\"\n").starts_with("agent.toml:2:10: "));
        assert!(mistake("[trace]\nbuffer = \"1kB\"\n").starts_with("agent.toml:2:"));
        assert!(mistake("a = [1\n").starts_with("agent.toml:"));
    }

    #[test]
    fn a_secret_is_not_repeated() {
        let text = mistake("[otlp]\nendpoint = \"https://user:hunter2@a:4318\"\n");
        assert!(text.starts_with("agent.toml:2:12: ") && !text.contains("hunter2"), "{text}");
    }
}
