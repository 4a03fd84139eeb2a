//! `/proc/PID/maps`, parsed.

use std::{fs, io, os::unix::fs::MetadataExt as _, path::PathBuf};

use crate::event::{Addr, MappingKind};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub start: Addr,
    pub end: Addr,
    pub readable: bool,
    pub writable: bool,
    pub executable: bool,
    pub shared: bool,
    pub offset: u64,
    /// As printed: `major:minor` in hex.
    pub dev: (u32, u32),
    pub inode: u64,
    /// Path, `[heap]`, … or empty. A deleted file's path ends in ` (deleted)`.
    pub name: String,
}

impl Line {
    #[must_use]
    pub const fn len(&self) -> u64 {
        self.end - self.start
    }

    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.end == self.start
    }

    #[must_use]
    pub fn kind(&self) -> MappingKind {
        match self.name.as_str() {
            "[heap]" => MappingKind::Heap,
            name if name.starts_with("[stack") => MappingKind::Stack,
            name if name.starts_with("[v") => MappingKind::Kernel,
            _ if self.inode != 0 && self.shared => MappingKind::Shared,
            _ if self.inode != 0 => MappingKind::File,
            _ if self.shared => MappingKind::Shared,
            _ => MappingKind::Anonymous,
        }
    }

    /// A path that leads to the very file that is mapped, whatever mount namespace or deletion hides its name.
    #[must_use]
    pub fn map_file(&self, pid: u32) -> PathBuf {
        PathBuf::from(format!("/proc/{pid}/map_files/{:x}-{:x}", self.start, self.end))
    }

    /// The same for one who may not follow such links (they need `CAP_SYS_ADMIN` or `CAP_CHECKPOINT_RESTORE`): by the
    /// process's own root, where the name there still leads to the file that is mapped.
    #[must_use]
    pub fn reachable(&self, pid: u32) -> PathBuf {
        let exact = self.map_file(pid);
        if fs::metadata(&exact).is_ok() {
            return exact;
        }
        let path = PathBuf::from(format!("/proc/{pid}/root{}", self.name));
        let same = fs::metadata(&path).is_ok_and(|found| found.ino() == self.inode);
        if same { path } else { exact }
    }
}

/// # Errors
/// When the process is gone or may not be read. Lines that make no sense are left out.
pub fn read(pid: u32) -> io::Result<Vec<Line>> {
    Ok(fs::read(format!("/proc/{pid}/maps"))?.split(|&byte| byte == b'\n').filter_map(parse).collect())
}

fn parse(line: &[u8]) -> Option<Line> {
    let line = String::from_utf8_lossy(line);
    let mut rest = line.as_ref();
    let mut next = || {
        let (field, tail) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = tail;
        field
    };
    let (start, end) = next().split_once('-')?;
    let flags = next().as_bytes().to_vec();
    let offset = u64::from_str_radix(next(), 16).ok()?;
    let (major, minor) = next().split_once(':')?;
    let (major, minor) = (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
    let inode = next().parse().ok()?;
    let flag = |place: usize, wanted: u8| flags.get(place) == Some(&wanted);
    let (start, end) = (Addr::from_str_radix(start, 16).ok()?, Addr::from_str_radix(end, 16).ok()?);
    (start <= end).then(|| Line {
        start,
        end,
        readable: flag(0, b'r'),
        writable: flag(1, b'w'),
        executable: flag(2, b'x'),
        shared: flag(3, b's'),
        offset,
        dev: (major, minor),
        inode,
        name: rest.trim_start().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_file_with_spaces() {
        let line = parse(b"7f00-8f00 r-xp 00001000 fd:01 77                    /a b/c (deleted)").unwrap();
        assert_eq!((line.start, line.end, line.offset, line.inode), (0x7f00, 0x8f00, 0x1000, 77));
        assert_eq!(line.name, "/a b/c (deleted)");
        assert_eq!(line.dev, (0xfd, 1));
        assert!(line.executable && line.readable && !line.shared);
        assert_eq!(line.kind(), MappingKind::File);
    }

    #[test]
    fn kinds_by_name() {
        let kind = |name: &str| parse(format!("1000-2000 rw-p 0 00:00 0 {name}").as_bytes()).unwrap().kind();
        assert_eq!(kind("[heap]"), MappingKind::Heap);
        assert_eq!(kind("[stack]"), MappingKind::Stack);
        assert_eq!(kind("[vdso]"), MappingKind::Kernel);
        assert_eq!(kind(""), MappingKind::Anonymous);
        assert_eq!(kind("[anon:glibc: malloc]"), MappingKind::Anonymous);
    }

    #[test]
    fn garbage_is_left_out() {
        assert_eq!(parse(b"nonsense"), None);
        assert_eq!(parse(b""), None);
        assert_eq!(parse(b"2000-1000 rw-p 0 00:00 0"), None);
    }

    #[test]
    fn our_own_maps_can_be_read() {
        let lines = read(std::process::id()).unwrap();
        assert!(lines.iter().any(|line| line.kind() == MappingKind::Stack));
        assert!(lines.is_sorted_by_key(|line| line.start));
    }
}
