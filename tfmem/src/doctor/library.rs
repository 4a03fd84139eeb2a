//! Where probes would sit in a library, or in all libraries of a process.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use serde::Serialize;

use crate::{
    attach::{
        elf::{self, ElfError},
        plan::{self, Plan},
    },
    python::{Place, Remote, Runtime, Unreadable},
    target::maps::{self, Line},
};

/// What was found in one file or one process.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Examined {
    /// `process 4711`, or the file's path.
    pub of: String,
    pub libraries: Vec<Plan>,
    /// Why there is nothing, or not everything.
    pub notes: Vec<String>,
    /// A file that was asked for by name has no place for a probe.
    #[serde(skip)]
    pub useless: bool,
}

/// A file that cannot be examined, in a sentence for a person.
///
/// # Errors
/// See above.
pub fn named(path: &Path) -> Result<Examined, String> {
    let of = path.display().to_string();
    let plan = plan::resolve(path).map_err(|error| format!("{of}: {}", sentence(&error)))?;
    let mut examined = Examined { of, ..Examined::default() };
    if plan.is_empty() {
        examined.useless = true;
        let nameless = elf::nameless(path).unwrap_or(false);
        examined.notes.push(if nameless { NAMELESS } else { NO_SYMBOLS }.to_owned());
    }
    if !plan.is_empty() || !plan.missing.is_empty() {
        examined.libraries.push(plan);
    }
    Ok(examined)
}

const NO_SYMBOLS: &str = "none of the functions that tfmem knows has a name here, so no probe can be put in: this is not \
                          one of TensorFlow's libraries, or it was stripped of its names";

const NAMELESS: &str = "a program with TensorFlow linked in that was stripped of its names: no probe can be put in, so \
                        sessions, pools and ops are not seen; its memory map, resident bytes and processes are. To see \
                        the rest, link it without `-s` and do not `strip` it";

fn sentence(error: &ElfError) -> String {
    match error {
        ElfError::NotElf => "this is no library: not an ELF file".to_owned(),
        ElfError::NotAFile => "this is no library: not a regular file".to_owned(),
        ElfError::Foreign(what) => format!("made for another machine ({what}): tfmem traces 64-bit x86 programs"),
        other => other.to_string(),
    }
}

/// The libraries of interest that a process maps.
#[must_use]
pub fn mapped(pid: u32) -> Examined {
    let mut examined = Examined { of: format!("process {pid}"), ..Examined::default() };
    let lines = match maps::read(pid) {
        Ok(lines) => lines,
        Err(error) => {
            examined.notes.push(format!("its mappings cannot be read: {error}"));
            return examined;
        }
    };
    let mut seen = BTreeSet::new();
    let code = lines.iter().filter(|line| line.executable && line.inode != 0);
    for line in code.filter(|line| seen.insert((line.dev, line.inode))) {
        match probes(pid, line) {
            Ok(Some(plan)) => examined.libraries.push(plan),
            Ok(None) => {}
            Err(why) => examined.notes.push(format!("{}: {why}", line.name)),
        }
    }
    examined.notes.extend(interpreter(pid));
    if examined.libraries.is_empty() {
        examined.notes.push(
            "it maps no file with TensorFlow's functions (yet): nothing would be seen but its memory map".to_owned(),
        );
    }
    examined
}

/// Whether the process runs Python whose frames can be read, and where its main thread is now.
fn interpreter(pid: u32) -> Option<String> {
    let runtime = match Runtime::find(pid) {
        Ok(runtime) => runtime,
        Err(Unreadable::NoPython) => return None,
        Err(error) => return Some(format!("its Python cannot be read: {error}")),
    };
    let version = runtime.layout.version;
    Some(match main_thread(pid, &runtime) {
        Ok(Some(place)) => {
            let line = place.line.map_or_else(|| "?".to_owned(), |line| line.to_string());
            format!("CPython {version}; its oldest thread is in {} ({}:{line})", place.function, place.file)
        }
        Ok(None) => format!("CPython {version}; its oldest thread runs no Python code now"),
        Err(error) => format!("CPython {version}; its frames could not be read this time: {error}"),
    })
}

fn main_thread(pid: u32, runtime: &Runtime) -> Result<Option<Place>, Unreadable> {
    let memory = Remote::open(pid).map_err(|_| Unreadable::Memory)?;
    // New threads are put at the front.
    let Some(main) = runtime.layout.threads(&memory, runtime.address)?.pop() else { return Ok(None) };
    let (frames, _) = runtime.layout.frames(&memory, main.state, 1)?;
    Ok(runtime.layout.places(&memory, &frames)?.into_iter().next())
}

fn probes(pid: u32, line: &Line) -> Result<Option<Plan>, String> {
    let path = reach(pid, line)?;
    // Most mapped files are no business of ours, and what cannot be read as a library here is none.
    if !elf::interesting(&path).unwrap_or(false) {
        return if elf::nameless(&path).unwrap_or(false) { Err(NAMELESS.to_owned()) } else { Ok(None) };
    }
    let mut plan = plan::resolve(&path).map_err(|error| sentence(&error))?;
    plan.library.path.clone_from(&line.name);
    Ok(Some(plan))
}

/// A path to the very file that is mapped. Only root may use the kernel's own; for our own processes the path in
/// their root does as well, while the file is still there.
fn reach(pid: u32, line: &Line) -> Result<PathBuf, String> {
    let sure = line.map_file(pid);
    let Err(error) = fs::metadata(&sure) else { return Ok(sure) };
    let plain = Path::new("/proc").join(pid.to_string()).join("root").join(line.name.trim_start_matches('/'));
    match fs::metadata(&plain) {
        Ok(meta) if meta.ino() == line.inode => Ok(plain),
        _ => Err(format!("cannot be reached: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_are_no_libraries_get_a_sentence() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notes.txt");
        fs::write(&path, "x".repeat(100)).unwrap();
        assert!(named(&path).unwrap_err().contains("not an ELF file"));
        assert!(named(dir.path()).unwrap_err().contains("not a regular file"));
        assert!(named(Path::new("/no/such/file")).unwrap_err().contains("/no/such/file"));
    }

    #[test]
    fn a_process_without_tensorflow_is_said() {
        let found = mapped(std::process::id());
        assert!(found.libraries.is_empty());
        assert!(found.notes.iter().any(|note| note.contains("no file with TensorFlow's functions")), "{found:?}");
        assert!(!mapped(u32::MAX).notes.is_empty());
    }
}
