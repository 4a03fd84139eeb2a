//! Marks set by hand while a trace runs: `tfmem mark` finds the tracer by its socket in [`FOLDER`].
//!
//! A stream socket: the kernel tells who connected, and the other side hears whether the mark was set. One line goes
//! in (`PID LABEL`), one word comes back.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::{
    net::{UnixListener, UnixStream},
    sync::{mpsc, oneshot},
    time::timeout,
};

use super::line::read_line;

/// Sockets of running traces, `PID-OF-TRACER.sock`. Root's alone.
pub const FOLDER: &str = "/run/tfmem";
/// Answers.
pub const DONE: &str = "marked";
pub const NOT_MINE: &str = "not traced";
/// Bytes of a label.
pub const LONGEST_LABEL: usize = 200;

/// One who connects and says nothing is not waited for.
const PATIENCE: Duration = Duration::from_secs(1);
const LONGEST_REQUEST: usize = 256;
/// Requests that may wait; further ones wait in the socket.
const WAITING: usize = 16;

/// A mark to be set, if we trace this process; the answer goes to the one who asked.
pub struct Request {
    pub pid: u32,
    pub label: Arc<str>,
    pub answer: oneshot::Sender<bool>,
}

/// The open socket. Dropping it removes its file.
pub struct Marks {
    path: PathBuf,
    requests: mpsc::Receiver<Request>,
    task: tokio::task::JoinHandle<()>,
}

impl Marks {
    /// Listens; call inside a tokio runtime.
    ///
    /// # Errors
    /// When the folder or the socket cannot be made: marks are then not possible, the trace is.
    pub fn listen(folder: &Path) -> io::Result<Self> {
        own_folder(folder)?;
        let path = folder.join(format!("{}.sock", std::process::id()));
        // A tracer that had our pid and was killed.
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        let (sender, requests) = mpsc::channel(WAITING);
        let task = tokio::spawn(async move {
            loop {
                match listener.accept().await {
                    Ok((stream, _)) => drop(tokio::spawn(serve(stream, sender.clone()))),
                    // Out of descriptors: others may be closed meanwhile.
                    Err(_) => tokio::time::sleep(PATIENCE).await,
                }
            }
        });
        Ok(Self { path, requests, task })
    }

    /// The next request.
    pub async fn next(&mut self) -> Option<Request> {
        self.requests.recv().await
    }
}

impl Drop for Marks {
    fn drop(&mut self) {
        self.task.abort();
        let _ = fs::remove_file(&self.path);
    }
}

/// Made by us with nobody else's rights, or found so.
fn own_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let meta = fs::symlink_metadata(folder)?;
    if meta.is_dir() && meta.uid() == nix::unistd::geteuid().as_raw() && meta.mode() & 0o077 == 0 {
        return Ok(());
    }
    Err(io::Error::other(format!("{} is not ours alone", folder.display())))
}

async fn serve(stream: UnixStream, sender: mpsc::Sender<Request>) {
    let ours = stream.peer_cred().is_ok_and(|peer| peer.uid() == 0 || peer.uid() == nix::unistd::geteuid().as_raw());
    if !ours {
        return;
    }
    let Ok(Ok(request)) = timeout(PATIENCE, read_line(&stream, LONGEST_REQUEST)).await else { return };
    let Some((pid, label)) = std::str::from_utf8(&request).ok().and_then(parse) else { return };
    let (answer, heard) = oneshot::channel();
    if sender.send(Request { pid, label: Arc::from(label), answer }).await.is_err() {
        return;
    }
    let word = if matches!(heard.await, Ok(true)) { DONE } else { NOT_MINE };
    // A word fits into any socket's buffer; one who does not wait for the answer does not need it.
    let _ = stream.try_write(word.as_bytes());
}

fn parse(text: &str) -> Option<(u32, &str)> {
    let (pid, label) = text.lines().next()?.split_once(' ')?;
    check_label(label).ok()?;
    Some((pid.parse().ok()?, label))
}

/// # Errors
/// Says what is wrong with a label.
pub fn check_label(label: &str) -> Result<(), String> {
    if label.trim().is_empty() {
        return Err("the label is empty".to_owned());
    }
    if label.len() > LONGEST_LABEL {
        return Err(format!("the label has more than {LONGEST_LABEL} bytes"));
    }
    if label.chars().any(char::is_control) {
        return Err("the label holds control characters".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_a_pid_and_a_label() {
        assert_eq!(parse("12 after warm up\n"), Some((12, "after warm up")));
        for bad in ["", "12", "12 ", "x y", "-1 y", "12 a\x1bb", "99999999999 y", &format!("1 {}", "x".repeat(300))] {
            assert_eq!(parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_folder_of_others_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let folder = base.path().join("tfmem");
        own_folder(&folder).unwrap();
        own_folder(&folder).unwrap();
        fs::set_permissions(&folder, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        assert!(own_folder(&folder).is_err());
        let link = base.path().join("link");
        std::os::unix::fs::symlink(base.path(), &link).unwrap();
        assert!(own_folder(&link).is_err());
    }
}
