//! The whole world of a guest: the probe suite as its first process, tfmem, the fixtures and the libraries they need.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};

use crate::process::Program;

/// Where the suite finds things (`tests/probes/init.rs` says so to itself).
const SUITE: &str = "init";
const TFMEM: &str = "tfmem";
const FIXTURES: &str = "fixtures";
/// Larger ones are those with everything linked in, which need no kernel matrix.
const LARGEST_FIXTURE: u64 = 32 << 20;

/// What goes in.
pub struct Contents<'a> {
    pub suite: &'a Path,
    pub tfmem: &'a Path,
    pub fixtures: &'a Path,
}

/// Writes it to `output`, by way of `folder`.
pub fn write(contents: &Contents<'_>, folder: &Path, output: &Path) -> Result<()> {
    let mut archive = Archive::default();
    let mut programs = Vec::new();
    for (program, name) in [(contents.suite, SUITE), (contents.tfmem, TFMEM)] {
        let small = folder.join(name);
        Program::new("strip").arg("-o").arg(&small).arg(program).run()?;
        archive.file(name, &small)?;
        programs.push(program.to_owned());
    }
    for path in files(contents.fixtures)? {
        if path.metadata()?.len() <= LARGEST_FIXTURE {
            let inside = path.strip_prefix(contents.fixtures).unwrap_or(&path);
            archive.file(&Path::new(FIXTURES).join(inside).to_string_lossy(), &path)?;
            programs.push(path);
        }
    }
    for library in libraries(&programs)? {
        if !library.starts_with(contents.fixtures) {
            archive.file(&library.to_string_lossy(), &library)?;
        }
    }
    for folder in ["proc", "sys", "dev", "tmp", "run"] {
        archive.folder(Path::new(folder));
    }
    fs::write(output, archive.finish()).with_context(|| format!("cannot write {}", output.display()))
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    Ok(found)
}

/// All that the dynamic linker would load, itself included.
fn libraries(programs: &[PathBuf]) -> Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    for program in programs {
        // No answer: nothing to link.
        let Some(text) = Program::new("ldd").arg(program).output() else { continue };
        ensure!(!text.contains("not found"), "{} misses libraries: {text}", program.display());
        let paths = text.split_whitespace().filter(|word| word.starts_with('/'));
        found.extend(paths.map(PathBuf::from));
    }
    Ok(found)
}

/// `cpio -H newc`, which is what the kernel unpacks.
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    folders: BTreeSet<PathBuf>,
    inodes: BTreeMap<String, u32>,
}

const FOLDER: u32 = 0o040_755;
const REGULAR: u32 = 0o100_000;

impl Archive {
    fn file(&mut self, inside: &str, path: &Path) -> Result<()> {
        let data = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let mode = path.metadata()?.permissions().mode() & 0o777;
        let inside = inside.trim_start_matches('/');
        if self.inodes.contains_key(inside) {
            return Ok(());
        }
        if let Some(parent) = Path::new(inside).parent() {
            self.folder(parent);
        }
        self.entry(inside, REGULAR | mode, &data)
    }

    fn folder(&mut self, folder: &Path) {
        if folder.as_os_str().is_empty() || !self.folders.insert(folder.to_owned()) {
            return;
        }
        if let Some(parent) = folder.parent() {
            self.folder(parent);
        }
        // A folder has no data that could be too long.
        let _ = self.entry(&folder.to_string_lossy(), FOLDER, &[]);
    }

    fn entry(&mut self, name: &str, mode: u32, data: &[u8]) -> Result<()> {
        let inode = u32::try_from(self.inodes.len() + 1)?;
        self.inodes.insert(name.to_owned(), inode);
        let (size, name_size) = (u32::try_from(data.len())?, u32::try_from(name.len() + 1)?);
        // inode, mode, uid, gid, links, time, size, device, special device (two each), length of the name, check sum
        let fields = [inode, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        self.bytes.extend(fields.iter().flat_map(|field| format!("{field:08X}").into_bytes()));
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(data);
        self.pad();
        Ok(())
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        // Nothing that could be too long.
        let _ = self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_come_before_what_is_in_them() {
        let mut archive = Archive::default();
        archive.folder(Path::new("lib/x86/deep"));
        archive.folder(Path::new("lib/x86"));
        let text = String::from_utf8_lossy(&archive.finish()).into_owned();
        let at = |name: &str| text.find(name).unwrap_or(usize::MAX);
        assert!(at("lib\0") < at("lib/x86\0") && at("lib/x86\0") < at("lib/x86/deep\0"), "{text:?}");
        assert!(at("lib/x86/deep\0") < at("TRAILER!!!"), "{text:?}");
        assert_eq!(text.matches("070701").count(), 4);
    }
}
