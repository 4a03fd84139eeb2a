//! A file that holds an interpreter: where its parts are, read from the file alone.

use std::fs::File;

use object::{Object as _, ObjectSegment as _, ObjectSymbol as _, ReadCache, read::elf::ElfFile64};

use super::{
    Layout, Unreadable,
    layout::{OFFSETS_BYTES, Version},
};

/// Files that can hold an interpreter have names that begin so: others are not searched in full.
const NAMES: [&str; 2] = ["python", "libpython"];

/// Addresses are the file's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Where the file's first byte would be mapped.
    pub base: u64,
    /// Of `_PyRuntime`.
    pub runtime: u64,
    pub layout: Layout,
    /// The interpreter's loop, from where to where, and the part of it that the compiler put elsewhere. Zeroes: not
    /// known.
    pub eval: [[u64; 2]; 2],
}

impl Image {
    /// May a file of this name hold one?
    #[must_use]
    pub fn may_be(path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or_default();
        NAMES.iter().any(|known| name.starts_with(known))
    }

    /// `None`: it holds no interpreter. `path`: its name where it is mapped.
    ///
    /// # Errors
    /// When it holds one that is not known.
    pub fn read(file: File, path: &str) -> Result<Option<Self>, Unreadable> {
        let file = ReadCache::new(file);
        // What is no ELF file holds none either.
        let Ok(elf) = ElfFile64::<object::LittleEndian, _>::parse(&file) else { return Ok(None) };
        let exported = |name: &str| elf.dynamic_symbols().find(|s| s.is_definition() && s.name() == Ok(name));
        // Exported from most builds; else in the full table, where it was not stripped.
        let inner = |name: &str| {
            let found = || elf.symbols().find(|s| s.is_definition() && s.name() == Ok(name));
            Self::may_be(path).then(found).flatten()
        };
        let find = |name: &str| exported(name).or_else(|| inner(name)).map(|s| (s.address(), s.size()));
        let Some((runtime, _)) = find("_PyRuntime") else { return Ok(None) };
        let data = |address: u64, size: u64| {
            let part = elf.segments().find_map(|segment| segment.data_range(address, size).ok().flatten());
            part.ok_or(Unreadable::Memory)
        };
        let version = || match find("Py_Version") {
            Some((address, _)) => data(address, 4).map(|hex| Version(hex[3], hex[2])),
            None => named(path).ok_or(Unreadable::NoPython),
        };
        // `_PyRuntime` of older versions has no bytes in the file.
        let layout = match data(runtime, OFFSETS_BYTES as u64).ok().map(Layout::said).transpose()?.flatten() {
            Some(layout) => layout,
            None => Layout::of(version()?)?,
        };
        let range =
            |found: Option<(u64, u64)>| found.map_or([0; 2], |(start, size)| [start, start.saturating_add(size)]);
        let eval = range(find("_PyEval_EvalFrameDefault"));
        let cold = if layout.tells_runs() { None } else { inner("_PyEval_EvalFrameDefault.cold") };
        let base = elf.segments().map(|segment| segment.address()).min().unwrap_or(0) & !0xfff;
        Ok(Some(Self { base, runtime, layout, eval: [eval, range(cold.map(|s| (s.address(), s.size())))] }))
    }

    /// What the kernel is told of a process's interpreter. `bias`: distance of the process's addresses from the file's;
    /// `file`: the file's number in frames.
    #[must_use]
    pub fn for_kernel(&self, bias: u64, file: u32) -> Option<tfmem_common::python::Python> {
        let mut python = self.layout.for_kernel(bias.wrapping_add(self.runtime))?;
        python.eval_file = file;
        for (place, range) in python.eval.iter_mut().zip(self.eval) {
            *place = range.map(|address| u32::try_from(address).unwrap_or(0));
        }
        Some(python)
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

    #[test]
    fn other_files_hold_no_interpreter() {
        let own = std::env::current_exe().unwrap();
        assert_eq!(Image::read(File::open(own).unwrap(), "/bin/tests"), Ok(None));
        assert_eq!(Image::read(File::open("/proc/self/maps").unwrap(), "/usr/bin/python3.9"), Ok(None));
        assert!(Image::may_be("/usr/lib/libpython3.12.so.1.0") && !Image::may_be("/usr/lib/libc.so.6"));
    }
}
