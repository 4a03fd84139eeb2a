//! Functions that the user named as boundaries (`--boundary LIB:SYMBOL`).

use crate::{
    attach::{elf::Elf, link::Programs, plan::user_points},
    event::{Body, Event},
    target::{clock, maps::Line},
};

/// What the user asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// End of the file's path.
    pub library: String,
    /// As it is in the symbol table.
    pub symbol: String,
}

impl Symbol {
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}:{}", self.library, self.symbol)
    }

    /// Whole parts of a path match, and the end of a file's name (`libc.so.6`, `.so.2`).
    fn is_in(&self, path: &str) -> bool {
        let path = path.strip_suffix(" (deleted)").unwrap_or(path);
        let Some(before) = path.strip_suffix(self.library.as_str()) else { return false };
        let in_folders = self.library.contains('/') && !self.library.starts_with('/');
        !in_folders || before.is_empty() || before.ends_with('/')
    }
}

#[derive(Debug)]
struct Wanted {
    symbol: Symbol,
    mapped: bool,
    attached: bool,
    called: bool,
}

#[derive(Debug, Default)]
pub struct Symbols {
    wanted: Vec<Wanted>,
    /// To be told to the ledger.
    told: Vec<Event>,
}

impl Symbols {
    pub fn new(symbols: Vec<Symbol>) -> Self {
        let wanted = symbols
            .into_iter()
            .map(|symbol| Wanted { symbol, mapped: false, attached: false, called: false })
            .collect();
        Self { wanted, told: Vec::new() }
    }

    /// A file is mapped for the first time: puts probes in where the user wants them.
    pub fn judge(&mut self, programs: &mut Programs, pid: u32, line: &Line) {
        for (number, wanted) in (Body::FIRST_USER_CALL..).zip(&mut self.wanted) {
            if !wanted.symbol.is_in(&line.name) {
                continue;
            }
            wanted.mapped = true;
            let name = wanted.symbol.name();
            let path = line.map_file(pid);
            let found = match Elf::open(&path).and_then(|elf| user_points(&elf, &wanted.symbol.symbol, number)) {
                Ok(Some(found)) => found,
                Ok(None) => {
                    log::warn!("boundary {name}: {} has no function of this name", line.name);
                    continue;
                }
                Err(error) => {
                    log::warn!("boundary {name}: {}: {error}", line.name);
                    continue;
                }
            };
            let refused = programs.attach_points(&path, &found.points);
            for (symbol, error) in &refused {
                log::warn!("boundary {name}: no probe on {symbol}: {error}");
            }
            wanted.attached |= refused.is_empty();
            log::info!("boundary {name}: in {}", line.name);
            let body = Body::UserSymbol { number, name: name.into(), entry_only: found.entry_only };
            self.told.push(Event { at: clock::boot_ns(), pid: 0, tid: 0, stack: None, body });
        }
    }

    pub fn called(&mut self, number: u16) {
        let index = usize::from(number.saturating_sub(Body::FIRST_USER_CALL));
        if let Some(wanted) = self.wanted.get_mut(index) {
            wanted.called = true;
        }
    }

    pub fn take_told(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.told)
    }

    /// Boundaries that never came, and why.
    pub fn say_unseen(&self) {
        for wanted in self.wanted.iter().filter(|w| !w.called) {
            let name = wanted.symbol.name();
            if !wanted.mapped {
                log::warn!("boundary {name}: never seen: no traced process mapped a file of this name");
            } else if wanted.attached {
                log::warn!("boundary {name}: never seen: no traced process called it");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_named_by_the_end_of_their_path() {
        let is_in =
            |library: &str, path: &str| Symbol { library: library.to_owned(), symbol: String::new() }.is_in(path);
        assert!(is_in("libc.so.6", "/usr/lib/x86_64-linux-gnu/libc.so.6"));
        assert!(is_in("/opt/a/libx.so", "/opt/a/libx.so (deleted)"));
        assert!(is_in("a/libx.so", "/opt/a/libx.so"));
        assert!(!is_in("a/libx.so", "/opt/ba/libx.so"));
        assert!(!is_in("/opt/a/libx.so", "/chroot/libx.so"));
        assert!(!is_in("libx.so", "/opt/a/libx.so.1"));
    }
}
