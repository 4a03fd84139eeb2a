//! Probes in libraries as uprobe-multi links (Linux 6.6): one link is one program at many places of a file, and when it
//! goes, the kernel waits once for all of them. A perf event for each place, the older way, waits for each.
//!
//! aya 0.14 has no such links, and loads no programs for them. So the object is read once more here, against the maps
//! that aya has made.

use std::{
    collections::{HashMap, HashSet},
    ffi::CString,
    io,
    os::{
        fd::{AsFd as _, AsRawFd as _, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::Path,
};

use anyhow::{Context as _, Result, bail};
use aya::{Ebpf, maps::Map};
use aya_obj::{Function, Object, ProgramSection, copy_instructions};

use super::{
    Refused, Spot, last_lines,
    sys::{self, Btf, ProgramCode},
};

/// Programs for uprobe-multi links, and the links.
pub struct Multi {
    programs: HashMap<String, Loadable>,
    btf: Option<OwnedFd>,
    links: Vec<OwnedFd>,
    // The programs' code names them by their numbers.
    _maps: Vec<OwnedFd>,
}

struct Loadable {
    code: Function,
    license: CString,
    at_return: bool,
    /// Once it is loaded.
    fd: Option<OwnedFd>,
}

/// Has the kernel uprobe-multi links? By asking for one on a folder, which those that have them find no file to probe.
///
/// # Errors
/// What it says instead.
pub(super) fn supported() -> io::Result<()> {
    // r0 = 0; exit
    const EMPTY: [u8; 16] = [0xb7, 0, 0, 0, 0, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0];
    let instructions = copy_instructions(&EMPTY).map_err(io::Error::other)?;
    let code = ProgramCode { name: "nothing", license: c"GPL", instructions: &instructions, btf: None };
    let program = sys::load_program(&code, &mut [])?;
    match sys::link(program.as_fd(), c"/", &[0], &[0], false) {
        Err(error) if error.raw_os_error() != Some(libc::EBADF) => Err(error),
        _ => Ok(()),
    }
}

impl Multi {
    pub(super) fn open(object: &[u8], ebpf: &Ebpf) -> Result<Self> {
        let mut object = Object::parse(object)?;
        object.programs.retain(|_, program| at_return(&program.section).is_some());
        let btf = load_btf(&mut object)?;
        let fds: HashMap<&str, OwnedFd> =
            ebpf.maps().map(|(name, map)| Ok((name, descriptor(name, map)?))).collect::<Result<_>>()?;
        let maps = std::mem::take(&mut object.maps);
        let made =
            maps.iter().filter_map(|(name, map)| fds.get(name.as_str()).map(|fd| (name.as_str(), fd.as_raw_fd(), map)));
        let sections: HashSet<usize> = object.functions.keys().map(|&(section, _)| section).collect();
        object.relocate_maps(made, &sections)?;
        object.relocate_calls(&sections)?;
        object.sanitize_functions(aya::features());
        let mut programs = HashMap::new();
        for (name, program) in &object.programs {
            let code = object.functions.get(&program.function_key()).context("a program without code")?.clone();
            let at_return = at_return(&program.section) == Some(true);
            programs.insert(name.clone(), Loadable { code, license: program.license.clone(), at_return, fd: None });
        }
        Ok(Self { programs, btf, links: Vec::new(), _maps: fds.into_values().collect() })
    }

    /// Is it one of ours?
    pub(super) fn has(&self, name: &str) -> bool {
        self.programs.contains_key(name)
    }

    /// Loads a program; returns the verifier's count of instructions.
    pub(super) fn load(&mut self, name: &str) -> Result<Option<u32>, Refused> {
        let Some(program) = self.programs.get_mut(name) else { return Err(Refused::of("no such program")) };
        let Function { instructions, func_info, line_info, func_info_rec_size, line_info_rec_size, .. } = &program.code;
        let btf = self.btf.as_ref().map(|fd| Btf {
            fd: fd.as_fd(),
            functions: (func_info.func_info_bytes(), *func_info_rec_size),
            lines: (line_info.line_info_bytes(), *line_info_rec_size),
        });
        let code = ProgramCode { name, license: &program.license, instructions, btf };
        let loaded = sys::load_program(&code, &mut []).map_err(|error| explained(&code, &error))?;
        program.fd = Some(loaded);
        Ok(self.figure(name, "verified_insns").and_then(|count| u32::try_from(count).ok()))
    }

    /// Puts a loaded program at places of a file. Returns what the kernel refused: the place's number, and why.
    pub(super) fn attach(&mut self, path: &Path, name: &str, spots: &[Spot]) -> Vec<(usize, String)> {
        let mut refused = Vec::new();
        match CString::new(path.as_os_str().as_bytes()) {
            Ok(path) => self.attach_some(&path, name, spots, 0, &mut refused),
            Err(error) => refused.extend((0..spots.len()).map(|number| (number, error.to_string()))),
        }
        refused
    }

    /// The kernel takes all places or none, and does not say which was wrong: halves are tried, and halves of them.
    fn attach_some(
        &mut self,
        path: &CString,
        name: &str,
        spots: &[Spot],
        first: usize,
        refused: &mut Vec<(usize, String)>,
    ) {
        match self.link(path, name, spots) {
            Ok(link) => self.links.push(link),
            Err(error) if spots.len() <= 1 => refused.push((first, error.to_string())),
            Err(_) => {
                let middle = spots.len() / 2;
                let (one, other) = spots.split_at(middle);
                self.attach_some(path, name, one, first, refused);
                self.attach_some(path, name, other, first + middle, refused);
            }
        }
    }

    fn link(&self, path: &CString, name: &str, spots: &[Spot]) -> io::Result<OwnedFd> {
        let program = self.programs.get(name).and_then(|program| Some((program.fd.as_ref()?, program.at_return)));
        let Some((fd, at_return)) = program else { return Err(io::Error::other("the program is not loaded")) };
        let (offsets, cookies): (Vec<u64>, Vec<u64>) = spots.iter().copied().unzip();
        sys::link(fd.as_fd(), path, &offsets, &cookies, at_return)
    }

    /// The links from this number on, which are to be closed: the kernel waits at each until nobody runs its program any more.
    pub(super) fn take_links_from(&mut self, first: usize) -> Vec<OwnedFd> {
        self.links.split_off(first.min(self.links.len()))
    }

    /// How many there are.
    pub(super) const fn links(&self) -> usize {
        self.links.len()
    }

    /// What the kernel says of a loaded program.
    pub(super) fn figure(&self, name: &str, what: &str) -> Option<u64> {
        let fd = self.programs.get(name)?.fd.as_ref()?.as_raw_fd();
        let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
        text.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix(':')?.trim().parse().ok())
    }
}

/// Does a program of this section sit at the return? `None`: it is none for libraries.
const fn at_return(section: &ProgramSection) -> Option<bool> {
    match section {
        ProgramSection::UProbe { .. } => Some(false),
        ProgramSection::URetProbe { .. } => Some(true),
        _ => None,
    }
}

fn load_btf(object: &mut Object) -> Result<Option<OwnedFd>> {
    let Some(features) = aya::features().btf() else { return Ok(None) };
    let Some(btf) = object.fixup_and_sanitize_btf(features)? else { return Ok(None) };
    sys::load_btf(&btf.to_bytes()).map(Some).context("load the object's type information")
}

/// Another descriptor of the map: aya's own goes to whoever reads the map.
fn descriptor(name: &str, map: &Map) -> Result<OwnedFd> {
    let (Map::Array(data)
    | Map::PerCpuArray(data)
    | Map::HashMap(data)
    | Map::LruHashMap(data)
    | Map::PerCpuHashMap(data)
    | Map::RingBuf(data)) = map
    else {
        bail!("`{name}` is a kind of map that tfmem does not use")
    };
    Ok(data.fd().as_fd().try_clone_to_owned()?)
}

/// Asks once more, for the verifier's words.
fn explained(code: &ProgramCode<'_>, error: &io::Error) -> Refused {
    const LOG_BYTES: usize = 1 << 20;
    let mut log = vec![0; LOG_BYTES];
    let _ = sys::load_program(code, &mut log);
    let end = log.iter().position(|&byte| byte == 0).unwrap_or(LOG_BYTES);
    let text = String::from_utf8_lossy(log.get(..end).unwrap_or_default());
    Refused { error: error.to_string(), log: last_lines(&text) }
}
