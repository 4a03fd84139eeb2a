//! Orders by a Unix socket: one line of JSON in, one answer in JSON out. Only root and the members of one group may;
//! the kernel says who connected (`SO_PEERCRED`), whatever the rights of the socket's file have become.

use std::{
    fs::{self, DirBuilder, Permissions},
    io,
    os::unix::{
        fs::{DirBuilderExt as _, PermissionsExt as _},
        net::UnixStream as Probe,
    },
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use nix::unistd::{Gid, Group, Uid, User};
use serde::{Deserialize, Serialize};
use tokio::{
    net::{UnixListener, UnixStream},
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::timeout,
};

use crate::live::line::read_line;

const PATIENCE: Duration = Duration::from_secs(2);
/// A snapshot of a large process takes its time; one who does not read its answer is not waited for that long.
const LONGEST: Duration = Duration::from_secs(300);
const LONGEST_LINE: usize = 4096;
/// Connections that wait for an answer.
const WAITING: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    Status,
    Processes,
    /// Trace a process in full for a while; `null`: as long as configured.
    Escalate {
        pid: u32,
        for_ms: Option<u64>,
    },
    /// What a process holds right now, read from outside.
    Snapshot {
        pid: u32,
    },
    /// The report of its last full tracing, or of what is known without.
    Report {
        pid: u32,
    },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Ok(serde_json::Value),
    Error(String),
}

/// An order, and where its answer goes.
pub type Asked = (Request, oneshot::Sender<Answer>);

/// The open socket. Dropping it removes its file.
#[derive(Debug)]
pub struct Control {
    path: PathBuf,
    task: JoinHandle<()>,
}

/// Who may give orders beside root.
#[derive(Clone, Copy, Debug)]
struct Allowed {
    us: Uid,
    group: Option<Gid>,
}

impl Control {
    /// Listens; call inside a tokio runtime.
    ///
    /// # Errors
    /// When an agent runs already, or the socket cannot be made.
    pub fn listen(path: &Path, group: Option<&str>, orders: mpsc::Sender<Asked>) -> Result<Self> {
        let group = group.map(group_of).transpose()?;
        let shown = path.display();
        if let Some(folder) = path.parent() {
            let made = DirBuilder::new().recursive(true).mode(0o755).create(folder);
            made.with_context(|| format!("make {}", folder.display()))?;
        }
        if Probe::connect(path).is_ok() {
            bail!("an agent runs already: it answers at {shown}");
        }
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => bail!("{shown}: {error}"),
            _ => {}
        }
        let listener = UnixListener::bind(path).with_context(|| format!("listen at {shown}"))?;
        let mode = if group.is_some() { 0o660 } else { 0o600 };
        nix::unistd::chown(path, None, group).with_context(|| format!("give {shown} to its group"))?;
        fs::set_permissions(path, Permissions::from_mode(mode)).with_context(|| format!("rights of {shown}"))?;
        let allowed = Allowed { us: nix::unistd::geteuid(), group };
        let task = tokio::spawn(accept(listener, allowed, orders));
        Ok(Self { path: path.to_owned(), task })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.task.abort();
        let _ = fs::remove_file(&self.path);
    }
}

fn group_of(name: &str) -> Result<Gid> {
    match Group::from_name(name)? {
        Some(group) => Ok(group.gid),
        None => bail!("no group is called `{name}`"),
    }
}

async fn accept(listener: UnixListener, allowed: Allowed, orders: mpsc::Sender<Asked>) {
    let room = std::sync::Arc::new(tokio::sync::Semaphore::new(WAITING));
    while let Ok(place) = room.clone().acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let orders = orders.clone();
                tokio::spawn(async move {
                    let _ = timeout(LONGEST, serve(&stream, allowed, orders)).await;
                    drop(place);
                });
            }
            Err(_) => tokio::time::sleep(PATIENCE).await,
        }
    }
}

async fn serve(stream: &UnixStream, allowed: Allowed, orders: mpsc::Sender<Asked>) {
    let answer = match stream.peer_cred() {
        Ok(peer) if allowed.admits(peer.uid(), peer.gid()) => match timeout(PATIENCE, request(stream)).await {
            Ok(Ok(line)) => order(&line, orders).await,
            _ => return,
        },
        _ => Answer::Error("only root and the configured group may give orders".to_owned()),
    };
    let mut text = serde_json::to_vec(&answer).unwrap_or_default();
    text.push(b'\n');
    let _ = write_all(stream, &text).await;
}

async fn order(line: &[u8], orders: mpsc::Sender<Asked>) -> Answer {
    let request = match serde_json::from_slice::<Request>(line) {
        Ok(request) => request,
        Err(error) => return Answer::Error(format!("not understood: {error}")),
    };
    let (sender, answer) = oneshot::channel();
    if orders.send((request, sender)).await.is_err() {
        return Answer::Error("the agent is ending".to_owned());
    }
    answer.await.unwrap_or_else(|_| Answer::Error("the agent is ending".to_owned()))
}

impl Allowed {
    fn admits(self, uid: u32, gid: u32) -> bool {
        uid == 0 || uid == self.us.as_raw() || self.group.is_some_and(|group| belongs(uid, gid, group))
    }
}

/// By its group at the moment, or as one of its user's groups.
fn belongs(uid: u32, gid: u32, group: Gid) -> bool {
    if gid == group.as_raw() {
        return true;
    }
    let Ok(Some(user)) = User::from_uid(Uid::from_raw(uid)) else { return false };
    let Ok(name) = std::ffi::CString::new(user.name) else { return false };
    nix::unistd::getgrouplist(&name, user.gid).is_ok_and(|groups| groups.contains(&group))
}

/// A line that is too long is an error.
async fn request(stream: &UnixStream) -> io::Result<Vec<u8>> {
    let line = read_line(stream, LONGEST_LINE + 1).await?;
    if line.len() > LONGEST_LINE && !line.contains(&b'\n') {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(line)
}

async fn write_all(stream: &UnixStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.writable().await?;
        match stream.try_write(bytes) {
            Ok(n) => bytes = bytes.get(n..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Gives an order to the agent that listens at `path`, and waits for its answer.
///
/// # Errors
/// When nobody listens there, we may not, or the order cannot be followed.
pub fn ask(path: &Path, request: &Request) -> Result<serde_json::Value> {
    use std::io::{Read as _, Write as _};
    let shown = path.display();
    let mut stream = Probe::connect(path).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => {
            anyhow::anyhow!("{shown}: only root and the agent's group may give orders: sudo tfmem agent ctl …")
        }
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            anyhow::anyhow!("no agent runs: nobody answers at {shown}; `tfmem agent --config FILE` starts one")
        }
        _ => anyhow::anyhow!("{shown}: {error}"),
    })?;
    stream.set_read_timeout(Some(LONGEST))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    stream.write_all(&line).with_context(|| format!("{shown}"))?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).with_context(|| format!("{shown}"))?;
    match serde_json::from_slice(&answer).with_context(|| format!("{shown}: the answer is not understood"))? {
        Answer::Ok(value) => Ok(value),
        Answer::Error(error) => bail!("{error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_and_one_group_are_admitted() {
        let us = Uid::from_raw(4000);
        let allowed = Allowed { us, group: Some(Gid::from_raw(77)) };
        assert!(allowed.admits(0, 0) && allowed.admits(4000, 5) && allowed.admits(4001, 77));
        assert!(!allowed.admits(4001, 78));
        assert!(!Allowed { us, group: None }.admits(4001, 77));
    }

    #[test]
    fn orders_go_in_and_answers_come_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sub/agent.sock");
        let (sender, mut orders) = mpsc::channel::<Asked>(4);
        let (ready, begun) = std::sync::mpsc::channel();
        let place = path.clone();
        let server = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let control = Control::listen(&place, None, sender.clone()).unwrap();
                ready.send(Control::listen(&place, None, sender).unwrap_err().to_string()).unwrap();
                while let Some((request, answer)) = orders.recv().await {
                    let last = request == Request::Processes;
                    let reply = match request {
                        Request::Status => Answer::Ok("x".repeat(1 << 20).into()),
                        other => Answer::Error(format!("{other:?}")),
                    };
                    let _ = answer.send(reply);
                    if last {
                        break;
                    }
                }
                drop(control);
            });
        });
        assert!(begun.recv().unwrap().contains("runs already"));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(ask(&path, &Request::Status).unwrap().as_str().map(str::len), Some(1 << 20));
        let error = ask(&path, &Request::Escalate { pid: 7, for_ms: None }).unwrap_err();
        assert!(error.to_string().contains("pid: 7"));
        for line in ["", "nonsense\n", "{\"order\":\"shutdown\"}\n"] {
            let mut stream = Probe::connect(&path).unwrap();
            io::Write::write_all(&mut stream, line.as_bytes()).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut answer = String::new();
            io::Read::read_to_string(&mut stream, &mut answer).unwrap();
            assert!(answer.contains("not understood"), "{line:?}");
        }
        assert!(ask(&path, &Request::Processes).is_err());
        server.join().unwrap();
        assert!(!path.exists());
        assert!(ask(&path, &Request::Status).unwrap_err().to_string().contains("no agent runs"));
    }
}
