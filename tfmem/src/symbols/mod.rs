//! Names of places in code: function, source line, what was inlined there; and when there is no name, why not.
//!
//! Files are read in parts (`attach::elf`), never mapped: they belong to the traced program, and one that is cut short
//! while it is mapped would kill tfmem. Of TensorFlow's library (1 GB) the symbols' records are read once (16 bytes are
//! kept of each function), and the names of those functions that are asked for.

mod demangle;
mod lines;
mod perf_map;
mod report;

use std::collections::HashMap;
use std::path::PathBuf;

pub use demangle::demangle;
pub use perf_map::PerfMap;
pub use report::{name, name_here, name_stacks_here};

use self::lines::Lines;
use crate::attach::elf::{Elf, ElfError, Functions};
use crate::report::model::{Frame, FrameKind, Unknown};

/// Where distributions put debugging information that they split off.
const DEBUG_FOLDER: &str = "/usr/lib/debug/.build-id";

/// A file with code, as the traced program knows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CodeFile {
    /// Its path there.
    pub name: String,
    pub build_id: Option<String>,
}

/// Files that were opened, with what is known of them.
#[derive(Debug, Default)]
pub struct Symbols {
    files: HashMap<CodeFile, Result<File, Unknown>>,
}

#[derive(Debug)]
struct File {
    elf: Elf,
    functions: Functions,
    /// Debugging information, of the file itself or split off.
    lines: Option<Lines>,
}

impl Symbols {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A file that is open already: while it is mapped, `/proc/PID/map_files` has files that are deleted, and those of
    /// containers.
    pub fn add(&mut self, file: CodeFile, elf: Elf) {
        self.files.entry(file).or_insert_with(|| Ok(File::new(elf)));
    }

    /// What is at each of the addresses (as the file's own symbols count), innermost first where functions were
    /// inlined. `paths`: where the file may be found; the first with the right build id is it.
    pub fn frames(&mut self, file: &CodeFile, paths: &[PathBuf], addresses: &[u64]) -> Vec<Vec<Frame>> {
        let opened = self.files.entry(file.clone()).or_insert_with(|| open(file, paths));
        let mut out = vec![Vec::new(); addresses.len()];
        // In order of address, so that a function's name is read once.
        let mut order: Vec<usize> = (0..addresses.len()).collect();
        order.sort_unstable_by_key(|&i| addresses[i]);
        let mut last = None;
        for i in order {
            let address = addresses[i];
            out[i] = match opened {
                Ok(opened) => opened.frames(file, address, &mut last),
                Err(reason) => vec![unnamed(file, address, *reason)],
            };
        }
        out
    }
}

/// A function's number and its name.
type Named = (usize, String);

impl File {
    fn new(elf: Elf) -> Self {
        let debug = elf.build_id().and_then(|id| split_off(&id));
        let known = functions(&elf);
        let lines = Lines::of(&elf).or_else(|| Lines::of(debug.as_ref()?));
        // Names that were stripped may be with the debugging information.
        match debug.map(|debug| (functions(&debug), debug)) {
            Some((more, debug)) if more.len() > known.len() => Self { elf: debug, functions: more, lines },
            _ => Self { elf, functions: known, lines },
        }
    }

    fn frames(&self, file: &CodeFile, address: u64, last: &mut Option<Named>) -> Vec<Frame> {
        let symbol = self.functions.at(address);
        let mut frames = self.lines.as_ref().map(|lines| lines.frames(address)).unwrap_or_default();
        if frames.is_empty() {
            // Room for one: there may be a million.
            frames = vec![Frame::named(FrameKind::Native, "")];
        }
        for frame in &mut frames {
            frame.module = Some(file.name.clone());
            frame.address = Some(address);
            frame.build_id.clone_from(&file.build_id);
        }
        // The outermost is the function that the symbol is of: its name is there when the lines have none.
        if let Some(outermost) = frames.last_mut().filter(|frame| frame.name.is_empty()) {
            match symbol.and_then(|symbol| self.symbol_name(symbol, last)) {
                Some(name) => outermost.name = name,
                None => {
                    outermost.name = place_name(Some(&file.name), address);
                    outermost.unknown =
                        Some(if self.functions.is_empty() { Unknown::Stripped } else { Unknown::NoSymbol });
                }
            }
        }
        frames
    }

    fn symbol_name(&self, number: usize, last: &mut Option<Named>) -> Option<String> {
        if let Some((known, name)) = last
            && *known == number
        {
            return Some(name.clone());
        }
        let name = self.elf.function_name(&self.functions, number).ok().filter(|name| !name.is_empty())?;
        let name = demangle(&String::from_utf8_lossy(&name));
        *last = Some((number, name.clone()));
        Some(name)
    }
}

/// A damaged table is as good as none.
fn functions(elf: &Elf) -> Functions {
    elf.functions().inspect_err(|error| log::debug!("symbols: {error}")).unwrap_or_default()
}

fn open(file: &CodeFile, paths: &[PathBuf]) -> Result<File, Unknown> {
    let mut reason = Unknown::FileGone;
    for path in paths {
        match Elf::open(path) {
            Ok(elf) if file.build_id.is_none() || elf.build_id() == file.build_id => return Ok(File::new(elf)),
            Ok(_) => reason = Unknown::FileReplaced,
            Err(ElfError::Open(error)) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                log::debug!("{}: {error}", path.display());
                reason = Unknown::FileUnreadable;
            }
        }
    }
    // The file itself may be gone, and what was split off it still there.
    let split_off = file.build_id.as_deref().and_then(split_off);
    split_off.map(File::new).ok_or(reason)
}

/// Debugging information that was split off the file with this build id.
fn split_off(build_id: &str) -> Option<Elf> {
    let hex = build_id.len() > 2 && build_id.bytes().all(|b| b.is_ascii_hexdigit());
    let (folder, rest) = hex.then(|| build_id.split_at(2))?;
    let elf = Elf::open(&PathBuf::from(format!("{DEBUG_FOLDER}/{folder}/{rest}.debug"))).ok()?;
    (elf.build_id().as_deref() == Some(build_id)).then_some(elf)
}

/// `libx.so+0x1234`
#[must_use]
pub fn place_name(module: Option<&str>, address: u64) -> String {
    match module.and_then(|module| module.rsplit('/').next()) {
        Some(short) => format!("{short}+{address:#x}"),
        None => format!("{address:#x}"),
    }
}

fn unnamed(file: &CodeFile, address: u64, reason: Unknown) -> Frame {
    Frame {
        module: Some(file.name.clone()),
        address: Some(address),
        build_id: file.build_id.clone(),
        unknown: Some(reason),
        ..Frame::named(FrameKind::Native, place_name(Some(&file.name), address))
    }
}
