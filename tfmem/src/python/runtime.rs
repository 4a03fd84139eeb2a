//! The interpreter in a process.

use std::fs::File;

use super::{Image, Layout, Unreadable};
use crate::target::maps::{self, Line};

/// A CPython that runs in a process.
#[derive(Clone, Debug)]
pub struct Runtime {
    /// The file that it came from, as the process names it.
    pub file: String,
    /// Address of `_PyRuntime`.
    pub address: u64,
    pub layout: Layout,
}

impl Runtime {
    /// Looks for an interpreter among the files that a process maps: a library, or a program with Python linked in.
    ///
    /// # Errors
    /// When there is none, or none that is known.
    pub fn find(pid: u32) -> Result<Self, Unreadable> {
        let lines = maps::read(pid).map_err(|_| Unreadable::Memory)?;
        let exe = std::fs::read_link(format!("/proc/{pid}/exe")).ok();
        let first_of_file = |line: &&Line| line.inode != 0 && line.offset == 0;
        for line in lines.iter().filter(first_of_file) {
            let is_exe = exe.as_ref().is_some_and(|exe| exe.as_os_str() == line.name.as_str());
            if !is_exe && !Image::may_be(&line.name) {
                continue;
            }
            // A file that cannot be read holds no interpreter that could be.
            let Ok(file) = File::open(line.map_file(pid)) else { continue };
            let Some(Image { base, runtime, layout, .. }) = Image::read(file, &line.name)? else { continue };
            let address = runtime.wrapping_sub(base).wrapping_add(line.start);
            return Ok(Self { file: line.name.clone(), address, layout });
        }
        Err(Unreadable::NoPython)
    }
}
