//! What the agent sends away, to endpoints that take it and to those that do not.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use tfmem_tests::{agent::Agent, fixtures, machine, running::Running};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Takes,
    /// Reads and never answers.
    Hangs,
    /// 429, to be tried again in a second.
    Later,
    /// 503
    Unavailable,
    /// Closes in the middle.
    Resets,
    /// 400
    Refuses,
}

/// Path and body of each request.
type Requests = Vec<(String, Vec<u8>)>;

/// A server that is in a mood.
struct Endpoint {
    address: SocketAddr,
    mood: Arc<Mutex<Mood>>,
    /// What it took.
    taken: Arc<Mutex<Requests>>,
}

impl Endpoint {
    fn start() -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        let (mood, taken) = (Arc::new(Mutex::new(Mood::Takes)), Arc::new(Mutex::new(Vec::new())));
        let (moods, takes) = (mood.clone(), taken.clone());
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (moods, takes) = (moods.clone(), takes.clone());
                // One that goes away is no failure of the test.
                thread::spawn(move || drop(answer(&stream, &moods, &takes)));
            }
        });
        Ok(Self { address, mood, taken })
    }

    fn set(&self, mood: Mood) -> Result<()> {
        *self.mood.lock().ok().context("poisoned")? = mood;
        Ok(())
    }

    fn taken(&self, path: &str) -> Result<usize> {
        Ok(self.taken.lock().ok().context("poisoned")?.iter().filter(|(of, _)| of == path).count())
    }
}

fn answer(stream: &TcpStream, mood: &Mutex<Mood>, taken: &Mutex<Requests>) -> Result<()> {
    let mut reader = BufReader::new(stream);
    loop {
        let mut request = String::new();
        if reader.read_line(&mut request)? == 0 {
            return Ok(());
        }
        let path = request.split(' ').nth(1).context("no path")?.to_owned();
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
            if line.trim().is_empty() {
                break;
            }
        }
        let mood = *mood.lock().ok().context("poisoned")?;
        if mood == Mood::Resets {
            bail!("enough");
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let (status, more) = match mood {
            Mood::Takes => ("200 OK", ""),
            Mood::Later => ("429 Too Many Requests", "Retry-After: 1\r\n"),
            Mood::Unavailable => ("503 Service Unavailable", ""),
            Mood::Refuses => ("400 Bad Request", ""),
            Mood::Hangs | Mood::Resets => {
                thread::sleep(Duration::from_secs(5));
                return Ok(());
            }
        };
        if mood == Mood::Takes {
            taken.lock().ok().context("poisoned")?.push((path, body));
        }
        let mut out = stream;
        write!(out, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n{more}\r\n")?;
    }
}

fn configuration(address: SocketAddr) -> String {
    format!("[otlp]\nendpoint = \"http://{address}\"\nevery = \"300ms\"\ntimeout = \"1s\"\n")
}

#[test]
fn endpoints_that_do_not_take_anything_block_nothing() -> Result<()> {
    if !machine::can_trace("endpoints_that_do_not_take_anything_block_nothing") {
        return Ok(());
    }
    let endpoint = Endpoint::start()?;
    let mut agent = Agent::start(&configuration(endpoint.address))?;
    let program = Running::start_ready(fixtures::get()?.messy("loop"))?;
    let pid = program.pid();
    agent.wait_for("the process", |agent| agent.process(pid))?;
    let arrived = |path: &'static str, least: usize| {
        let endpoint = &endpoint;
        move |_: &mut Agent| Ok((endpoint.taken(path)? >= least).then_some(()))
    };
    agent.wait_for("metrics", arrived("/v1/metrics", 2))?;
    for mood in [Mood::Hangs, Mood::Later, Mood::Unavailable, Mood::Resets, Mood::Refuses] {
        endpoint.set(mood)?;
        let outcome = if mood == Mood::Refuses { "dropped_refused" } else { "failed" };
        let name = if mood == Mood::Refuses { "tfmem_agent_export_dropped_total" } else { "tfmem_agent_export_total" };
        let labels = ["tfmem_export=\"metrics\"", outcome];
        let before = agent.metric(name, &labels)?.unwrap_or(0.0);
        let boundaries = count(&agent, pid)?;
        let failed = |agent: &mut Agent| Ok(agent.metric(name, &labels)?.filter(|&n| n > before));
        agent.wait_for("that it is counted", failed)?;
        // Everything else goes on.
        let asked = Instant::now();
        agent.wait_for("boundaries", |agent| Ok((count(agent, pid)? > boundaries).then_some(())))?;
        ensure!(asked.elapsed() < Duration::from_secs(10), "{mood:?}: {:?}", asked.elapsed());
        ensure!(agent.ask(&["status"])?["healthy"] == true, "{mood:?}");
        endpoint.set(Mood::Takes)?;
        let taken = endpoint.taken("/v1/metrics")?;
        agent.wait_for("that it recovers", arrived("/v1/metrics", taken + 1))?;
    }
    agent.wait_for("an empty spool", |agent| {
        Ok(agent.metric("tfmem_agent_spool_bytes", &[])?.filter(|&bytes| bytes == 0.0))
    })?;
    agent.end()?;
    Ok(())
}

fn count(agent: &Agent, pid: u32) -> Result<u64> {
    let process = agent.process(pid)?.context("it is followed no more")?;
    process["boundaries"].as_u64().context("no count")
}

#[test]
fn what_nobody_took_is_sent_after_a_restart() -> Result<()> {
    if !machine::can_trace("what_nobody_took_is_sent_after_a_restart") {
        return Ok(());
    }
    // Nobody listens there.
    let closed = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?;
    let mut agent = Agent::start(&configuration(closed))?;
    agent
        .wait_for("a spool", |agent| Ok(agent.metric("tfmem_agent_spool_bytes", &[])?.filter(|&bytes| bytes > 0.0)))?;
    let (folder, _) = agent.end()?;
    let waiting = std::fs::read_dir(folder.path().join("spool/otlp"))?.count();
    ensure!(waiting > 0);
    let endpoint = Endpoint::start()?;
    let mut agent = Agent::start_in(folder, &configuration(endpoint.address))?;
    agent.wait_for("all of it", |_| Ok((endpoint.taken("/v1/metrics")? > waiting).then_some(())))?;
    agent.end()?;
    Ok(())
}
