//! What could not be sent, on disk within a limit: the oldest goes first, and is counted.

use std::{
    collections::VecDeque,
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use super::What;

#[derive(Debug)]
pub struct Spool {
    folder: PathBuf,
    limit: u64,
    /// Oldest first: number, kind, bytes.
    waiting: VecDeque<(u64, What, u64)>,
    bytes: u64,
    next: u64,
}

impl Spool {
    /// Takes up what an earlier agent left.
    ///
    /// # Errors
    /// When the folder cannot be made or read.
    pub fn open(folder: &Path, limit: u64) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let mut found = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(parsed) = name.to_str().and_then(parse) else {
                // A file that was not finished.
                if name.to_str().is_some_and(|name| name.ends_with(UNFINISHED)) {
                    fs::remove_file(entry.path())?;
                }
                continue;
            };
            found.push((parsed.0, parsed.1, entry.metadata()?.len()));
        }
        found.sort_by_key(|&(number, ..)| number);
        let bytes = found.iter().map(|&(.., bytes)| bytes).sum();
        let next = found.last().map_or(1, |&(number, ..)| number + 1);
        Ok(Self { folder: folder.to_owned(), limit, waiting: found.into(), bytes, next })
    }

    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Keeps a message. What had to go for it: the kinds, itself perhaps.
    ///
    /// # Errors
    /// When the disk does not take it.
    pub fn push(&mut self, what: What, body: &[u8]) -> io::Result<Vec<What>> {
        let len = body.len() as u64;
        if len > self.limit {
            return Ok(vec![what]);
        }
        let mut dropped = Vec::new();
        while self.bytes + len > self.limit {
            match self.pop() {
                Some(what) => dropped.push(what),
                None => break,
            }
        }
        let path = self.path(self.next, what);
        let unfinished = path.with_extension(UNFINISHED);
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
        if let Err(error) = file.write_all(body).and_then(|()| fs::rename(&unfinished, &path)) {
            let _ = fs::remove_file(&unfinished);
            return Err(error);
        }
        self.waiting.push_back((self.next, what, len));
        self.bytes += len;
        self.next += 1;
        Ok(dropped)
    }

    /// The oldest message. One that cannot be read is none.
    pub fn front(&mut self) -> Option<(What, Vec<u8>)> {
        while let Some(&(number, what, _)) = self.waiting.front() {
            match fs::read(self.path(number, what)) {
                Ok(body) => return Some((what, body)),
                Err(error) => {
                    log::warn!("the spool: {error}");
                    self.pop();
                }
            }
        }
        None
    }

    /// Forgets the oldest.
    pub fn pop(&mut self) -> Option<What> {
        let (number, what, bytes) = self.waiting.pop_front()?;
        self.bytes = self.bytes.saturating_sub(bytes);
        let _ = fs::remove_file(self.path(number, what));
        Some(what)
    }

    fn path(&self, number: u64, what: What) -> PathBuf {
        self.folder.join(format!("{number:016x}.{}", what.name()))
    }
}

const UNFINISHED: &str = "unfinished";

fn parse(name: &str) -> Option<(u64, What)> {
    let (number, what) = name.split_once('.')?;
    (number.len() == 16).then_some(())?;
    Some((u64::from_str_radix(number, 16).ok()?, What::of(what)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_first_and_the_limit_holds() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(&folder.path().join("spool"), 30).unwrap();
        assert!(spool.push(What::Metrics, &[1; 10]).unwrap().is_empty());
        assert!(spool.push(What::Findings, &[2; 10]).unwrap().is_empty());
        assert!(spool.push(What::Metrics, &[3; 10]).unwrap().is_empty());
        assert_eq!(spool.push(What::Metrics, &[4; 15]).unwrap(), [What::Metrics, What::Findings]);
        assert_eq!(spool.bytes(), 25);
        assert_eq!(spool.push(What::Findings, &[5; 31]).unwrap(), [What::Findings], "larger than all");
        assert_eq!(spool.front(), Some((What::Metrics, vec![3; 10])));
        let on_disk: u64 =
            fs::read_dir(folder.path().join("spool")).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum();
        assert_eq!(on_disk, 25);
    }

    #[test]
    fn what_an_earlier_agent_left_is_taken_up() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(folder.path(), 1000).unwrap();
        spool.push(What::Findings, b"first").unwrap();
        spool.push(What::Metrics, b"second").unwrap();
        fs::write(folder.path().join("0000000000000009.unfinished"), "x").unwrap();
        fs::write(folder.path().join("README"), "x").unwrap();
        let mut spool = Spool::open(folder.path(), 1000).unwrap();
        assert_eq!(spool.front(), Some((What::Findings, b"first".to_vec())));
        assert_eq!(spool.pop(), Some(What::Findings));
        spool.push(What::Metrics, b"third").unwrap();
        // Somebody cleaned up.
        fs::remove_file(folder.path().join("0000000000000002.metrics")).unwrap();
        assert_eq!(spool.front(), Some((What::Metrics, b"third".to_vec())));
        spool.pop();
        assert!(spool.is_empty() && spool.front().is_none() && spool.bytes() == 0);
        assert!(!folder.path().join("0000000000000009.unfinished").exists());
    }
}
