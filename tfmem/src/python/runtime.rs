//! The interpreter in a process.

use std::fs::File;

use object::{Object as _, ObjectSegment as _, ObjectSymbol as _, ReadCache};

use super::{
    Layout, Memory as _, Remote, Unreadable,
    layout::{OFFSETS_BYTES, Version},
};
use crate::target::maps::{self, Line};

type Symbol<'data, 'file> = object::Symbol<'data, 'file, &'data ReadCache<File>>;

/// A CPython that runs in a process.
#[derive(Clone, Debug)]
pub struct Runtime {
    /// The file that it came from, as the process names it.
    pub file: String,
    /// Address of `_PyRuntime`.
    pub address: u64,
    pub layout: Layout,
}

/// Names of files that can hold an interpreter begin so: others are not opened for it.
const NAMES: [&str; 2] = ["python", "libpython"];

impl Runtime {
    /// Looks for an interpreter among the files that a process maps: a library, or a program with Python linked in.
    ///
    /// # Errors
    /// When there is none, or none that is known.
    pub fn find(pid: u32) -> Result<Self, Unreadable> {
        let lines = maps::read(pid).map_err(|_| Unreadable::Memory)?;
        let memory = Remote::open(pid).map_err(|_| Unreadable::Memory)?;
        let exe = std::fs::read_link(format!("/proc/{pid}/exe")).ok();
        let first_of_file = |line: &&Line| line.inode != 0 && line.offset == 0;
        for line in lines.iter().filter(first_of_file) {
            let name = line.name.rsplit('/').next().unwrap_or_default();
            let is_exe = exe.as_ref().is_some_and(|exe| exe.as_os_str() == line.name.as_str());
            if !is_exe && !NAMES.iter().any(|known| name.starts_with(known)) {
                continue;
            }
            // A file that cannot be read holds no interpreter that could be.
            let Ok(Some(symbols)) = Symbols::read(pid, line) else { continue };
            return symbols.runtime(&memory, line);
        }
        Err(Unreadable::NoPython)
    }
}

/// Addresses of what is looked for, as they are in the file.
struct Symbols {
    /// Address at which the file's first byte would be mapped.
    base: u64,
    runtime: u64,
    version: Option<u64>,
}

impl Symbols {
    /// `None`: no interpreter in this file.
    fn read(pid: u32, line: &Line) -> anyhow::Result<Option<Self>> {
        let file = ReadCache::new(File::open(line.map_file(pid))?);
        let elf = object::File::parse(&file)?;
        // Exported from most builds; else in the full table, where it was not stripped.
        let find = |name: &str| {
            let named = |symbol: &Symbol| symbol.is_definition() && symbol.name() == Ok(name);
            elf.dynamic_symbols().find(named).or_else(|| elf.symbols().find(named)).map(|symbol| symbol.address())
        };
        let Some(runtime) = find("_PyRuntime") else { return Ok(None) };
        let base = elf.segments().map(|segment| segment.address()).min().unwrap_or(0) & !0xfff;
        Ok(Some(Self { base, runtime, version: find("Py_Version") }))
    }

    fn runtime(&self, memory: &Remote, line: &Line) -> Result<Runtime, Unreadable> {
        let at = |address: u64| address.wrapping_sub(self.base).wrapping_add(line.start);
        let address = at(self.runtime);
        let layout = match Layout::said(&memory.bytes(address, OFFSETS_BYTES)?)? {
            Some(layout) => layout,
            None => Layout::of(self.version(memory, line, &at)?)?,
        };
        Ok(Runtime { file: line.name.clone(), address, layout })
    }

    /// `Py_Version` from 3.11 on, else by the file's name.
    fn version(&self, memory: &Remote, line: &Line, at: &dyn Fn(u64) -> u64) -> Result<Version, Unreadable> {
        match self.version {
            Some(address) => {
                let hex = memory.int(at(address))?;
                Ok(Version((hex >> 24) as u8, (hex >> 16) as u8))
            }
            None => named(&line.name).ok_or(Unreadable::NoPython),
        }
    }
}

/// The version in `…/libpython3.9.so.1.0` or `…/python3.10`.
fn named(path: &str) -> Option<Version> {
    let rest = path.rsplit('/').next()?.split_once("python")?.1;
    let mut parts = rest.split(|c: char| !c.is_ascii_digit());
    Some(Version(parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_in_names() {
        assert_eq!(named("/usr/lib/libpython3.9.so.1.0"), Some(Version(3, 9)));
        assert_eq!(named("/opt/python3.10/bin/python3.10"), Some(Version(3, 10)));
        assert_eq!(named("/usr/bin/python3"), None);
        assert_eq!(named("/usr/bin/perl5.36"), None);
    }
}
