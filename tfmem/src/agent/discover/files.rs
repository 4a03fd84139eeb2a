//! Which files are TensorFlow's: each is looked at once, whoever maps it.

use std::{
    collections::HashMap,
    path::Path,
    time::{Duration, Instant},
};

use super::perf::{File, Mapped};
use crate::{
    attach::{cache::Cache, elf},
    catalogue,
    live::code_of,
    target::maps::Line,
};

/// What was found in a file holds for so long: the number of a file that was deleted can be another one's.
const VALID: Duration = Duration::from_secs(600);
/// Files that are remembered.
const MOST: usize = 16_384;

#[derive(Debug)]
pub struct Files {
    cache: Cache,
    known: HashMap<File, (bool, Instant)>,
    examined: u64,
}

impl Files {
    pub fn new(cache: Option<&Path>) -> Self {
        Self { cache: cache.map_or_else(Cache::open, Cache::at), known: HashMap::new(), examined: 0 }
    }

    /// Files whose symbols were looked at.
    pub const fn examined(&self) -> u64 {
        self.examined
    }

    /// The kernel told of a mapping: is it TensorFlow's?
    pub fn told(&mut self, mapped: Mapped) -> bool {
        if let Some(known) = self.remembered(mapped.file) {
            return known;
        }
        let lines = code_of(mapped.pid);
        let line = lines.iter().find(|line| (line.start..line.end).contains(&mapped.start));
        // It has ended, or the mapping is gone.
        line.is_some_and(|line| self.examine(mapped.pid, line, mapped.file))
    }

    /// Is anything that the process maps TensorFlow's?
    pub fn seen(&mut self, pid: u32) -> bool {
        let mut any = false;
        for line in code_of(pid) {
            let file = File { dev: line.dev, inode: line.inode, generation: 0 };
            any |= self.remembered(file).unwrap_or_else(|| self.examine(pid, &line, file));
        }
        any
    }

    fn remembered(&self, file: File) -> Option<bool> {
        self.known.get(&file).filter(|(_, since)| since.elapsed() < VALID).map(|&(ours, _)| ours)
    }

    fn examine(&mut self, pid: u32, line: &Line, file: File) -> bool {
        if self.known.len() >= MOST {
            self.known.clear();
        }
        self.examined += 1;
        let path = line.reachable(pid);
        let ours = match elf::interesting(&path) {
            Ok(found) => {
                found || catalogue::family_by_name(&line.name).is_some() || elf::nameless(&path).unwrap_or(false)
            }
            Err(error) => {
                log::debug!("{}: {error}", line.name);
                false
            }
        };
        if ours {
            // Whoever puts the probes in finds the plan in the cache, and need not search.
            if let Err(error) = self.cache.resolve(&path) {
                log::debug!("{}: {error}", line.name);
            }
        }
        self.known.insert(file, (ours, Instant::now()));
        ours
    }
}
