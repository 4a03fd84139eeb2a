//! Where the probes of one library go: pure data, made from the catalogue and the file.

mod annotation;
mod calls;
mod chunks;
mod gpu;
mod matches;
mod user;
mod version;

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::elf::{self, Elf, Symbol, Table};
use super::entry;
use crate::catalogue::{self, ENTRIES, Entry, Pattern, Program};

pub use annotation::{Annotation, Layout};
pub use user::{UserPoints, user_points};

/// A function larger than this is not searched for jumps back to its start.
const LARGEST_FUNCTION: u64 = 256 << 10;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub library: Library,
    pub points: Vec<Point>,
    /// Entries of the catalogue that a library of this family should have and this one has not.
    pub missing: Vec<Missing>,
    pub annotation: Option<Annotation>,
    /// Why there is no annotation, where one could be expected.
    pub annotation_missing: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Library {
    pub framework: String,
    pub path: String,
    pub build_id: Option<String>,
    pub version: Option<String>,
    pub size: u64,
    /// Executable segments: place in the file, address.
    pub code: Vec<(u64, u64)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// Name of the catalogue's entry.
    pub entry: String,
    /// Mangled.
    pub symbol: String,
    pub table: Table,
    pub symbol_index: u32,
    /// Address of the function in the file's own address space.
    pub address: u64,
    /// The probe's place, counted from the function's entry.
    pub delta: u64,
    /// The probe's place in the file: what the kernel wants.
    pub file_offset: u64,
    /// BPF program.
    pub program: String,
    /// Fires when the function returns.
    pub ret: bool,
    /// Attach cookie.
    pub cookie: u64,
    /// The instruction that carries the probe.
    pub instruction: String,
    pub cheap: bool,
    /// Why this place.
    pub why: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    pub entry: String,
    pub reason: String,
}

impl Plan {
    /// How far the file's own addresses are moved in a process that maps the file's byte `offset` at `start`.
    #[must_use]
    pub fn load_bias(&self, start: u64, offset: u64) -> Option<u64> {
        let (_, vaddr) = self.library.code.iter().find(|(at, _)| at & !4095 == offset)?;
        Some(start.wrapping_sub(vaddr & !4095))
    }

    /// Does the library have anything worth a probe?
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// Does this plan fit this file? A plan from elsewhere (a cache, another container) must not put a probe into
    /// the middle of an instruction: a build id is only a claim, and a wrong probe kills the traced process. So each
    /// point is looked up again by its index, and its instruction chosen again; only the searches are saved. Nor may
    /// it leave out what the file has, or a library could be hidden by another that claims its build id.
    #[must_use]
    pub fn fits(&self, elf: &Elf) -> bool {
        if gpu::is_driver(elf) {
            return gpu::is_plan(self, elf);
        }
        let annotation = self.annotation.as_ref().is_none_or(|a| a.fits(elf));
        let sensible = self.points.len() <= 4 * ENTRIES.len();
        annotation
            && sensible
            && self.is_complete(elf)
            && self.reports_chunks_as(elf)
            && self.points.iter().all(|point| {
                let Some(entry) = ENTRIES.iter().find(|e| e.name == point.entry) else { return false };
                let program_known = (!point.ret && point.program == entry.program.enter())
                    || (point.ret && Some(point.program.as_str()) == entry.program.leave());
                let Ok(Some(symbol)) = elf.symbol_at(point.table, point.symbol_index, &point.symbol) else {
                    return false;
                };
                let Some(place) = place(elf, &symbol, entry.registers) else { return false };
                let cookie_known = || entry.spellings.iter().any(|s| entry.cookie(s) == point.cookie);
                program_known
                    && (entry.program.reports_chunks() || cookie_known())
                    && symbol.function
                    && symbol.value == point.address
                    && place.file_offset == point.file_offset
                    && place.choice.delta == point.delta
            })
    }
}

/// Reads the library and says where its probes go. `path` may lead through `/proc/PID/root` or `/proc/PID/map_files`.
pub fn resolve(path: &Path) -> elf::Result<Plan> {
    resolve_in(&Elf::open(path)?, path)
}

/// The same for a file already open.
pub fn resolve_in(elf: &Elf, path: &Path) -> elf::Result<Plan> {
    if gpu::is_driver(elf) {
        return gpu::plan(elf, path);
    }
    let found = matches::find(elf)?;
    let version = version::of(elf, path);
    let mut plan = Plan {
        library: Library {
            framework: catalogue::FRAMEWORK.to_owned(),
            path: path.to_string_lossy().into_owned(),
            build_id: elf.build_id(),
            version,
            size: elf.len(),
            code: elf.code_segments(),
        },
        points: Vec::new(),
        missing: Vec::new(),
        annotation: None,
        annotation_missing: None,
    };
    plan.missing.extend(found.missing);
    let chunks = || ENTRIES.iter().zip(&found.hits).filter(|(entry, _)| entry.program.reports_chunks());
    let hidden = chunks().any(|(_, hits)| hits.iter().any(|hit| hit.symbol.table == Table::Full));
    plan.find_reporters(elf, hidden)?;
    for (entry, hits) in ENTRIES.iter().zip(&found.hits).filter(|(entry, _)| !entry.program.reports_chunks()) {
        for hit in hits {
            plan.add(elf, entry, entry.cookie(hit.spelling), &hit.name, &hit.symbol);
        }
    }
    plan.find_annotation(elf)?;
    Ok(plan)
}

impl Plan {
    /// Has every entry whose symbol the file exports a point?
    fn is_complete(&self, elf: &Elf) -> bool {
        let exported = |entry: &Entry| {
            entry.spellings.iter().any(|spelling| match spelling.pattern {
                Pattern::Exact(name) => elf.lookup(name).is_ok_and(|s| s.is_some_and(|s| s.function)),
                Pattern::Prefix(_) => false,
            })
        };
        let has_points = |entry: &Entry| {
            let has = |program: &str| self.points.iter().any(|p| p.entry == entry.name && p.program == program);
            has(entry.program.enter()) && entry.program.leave().is_none_or(has)
        };
        let excused = |entry: &Entry| entry.program.reports_chunks() || !entry.wrapper_of.is_empty();
        ENTRIES.iter().all(|entry| has_points(entry) || excused(entry) || !exported(entry))
    }

    /// Does the file's code still say that exactly these functions report chunks?
    fn reports_chunks_as(&self, elf: &Elf) -> bool {
        let programs = [Program::Chunk, Program::ChunkShort, Program::ChunkGivenBack].map(Program::enter);
        let own: Vec<&Point> = self.points.iter().filter(|p| programs.contains(&p.program.as_str())).collect();
        let hidden = own.iter().any(|p| p.table == Table::Full);
        let list = match chunks::find(elf, hidden) {
            Ok(chunks::Reporters::Found(list)) => list,
            Ok(_) => Vec::new(),
            Err(_) => return false,
        };
        list.len() == own.len()
            && list.iter().all(|r| {
                own.iter().any(|p| (r.program.enter(), r.symbol.value, r.cookie) == (&*p.program, p.address, p.cookie))
            })
    }

    /// The functions that report chunks, or why there are none.
    fn find_reporters(&mut self, elf: &Elf, hidden: bool) -> elf::Result<()> {
        let Some(long) = ENTRIES.iter().find(|e| e.program == Program::Chunk) else { return Ok(()) };
        match chunks::find(elf, hidden)? {
            chunks::Reporters::NoPools => {}
            chunks::Reporters::Found(list) => {
                self.missing.retain(|missing| missing.entry != long.name);
                for reporter in list {
                    let Some(entry) = ENTRIES.iter().find(|e| e.program == reporter.program) else { continue };
                    self.add(elf, entry, reporter.cookie, reporter.name, &reporter.symbol);
                }
            }
            chunks::Reporters::Unknown(reason) => {
                if !self.missing.iter().any(|missing| missing.entry == long.name) {
                    self.missing.push(Missing { entry: long.name.to_owned(), reason });
                }
            }
        }
        Ok(())
    }

    /// Is what this entry of the catalogue tells seen, when the kernel refused these symbols? All of its probes must be
    /// in: half of a pair tells nothing. Whichever functions report the chunks of pools, they tell the same.
    #[must_use]
    pub fn tells(&self, name: &str, refused: &[(String, String)]) -> bool {
        let entry = |name: &str| ENTRIES.iter().find(|e| e.name == name);
        let reports_chunks = |name: &str| entry(name).is_some_and(|e| e.program.reports_chunks());
        let same = |point: &&Point| point.entry == name || (reports_chunks(name) && reports_chunks(&point.entry));
        let mut points = self.points.iter().filter(same).peekable();
        points.peek().is_some() && points.all(|point| refused.iter().all(|(symbol, _)| *symbol != point.symbol))
    }

    /// Why the chunks of this library's pools cannot be seen, where it has pools.
    #[must_use]
    pub fn chunks_unseen(&self) -> Option<&Missing> {
        let long = ENTRIES.iter().find(|e| e.program == Program::Chunk)?;
        self.missing.iter().find(|missing| missing.entry == long.name)
    }

    /// A remembered plan, used for a file at another place.
    pub(super) fn rebase(&mut self, elf: &Elf, path: &Path) {
        self.library.path = path.to_string_lossy().into_owned();
        self.library.size = elf.len();
        self.library.version = version::of(elf, path);
    }

    fn add(&mut self, elf: &Elf, entry: &Entry, cookie: u64, name: &str, symbol: &Symbol) {
        let Some(place) = place(elf, symbol, entry.registers) else {
            let reason = format!("{name} is not in an executable part of the file");
            self.missing.push(Missing { entry: entry.name.to_owned(), reason });
            return;
        };
        // The return probe shares the entry's place, so that one trap serves both. The kernel finds the return address
        // by the stack pointer alone (`arch_uretprobe_hijack_return_addr`), which is at the chosen instruction what it
        // is at the entry. Measured on 6.18 with a function like 2.21's AlignedMalloc: the pair costs 2.5 µs at +7,
        // 16 µs at the entry, with the right results.
        let programs = [Some((entry.program.enter(), false)), entry.program.leave().map(|program| (program, true))];
        for (program, ret) in programs.into_iter().flatten() {
            let point = place.point(entry.name, (name, symbol), (program, ret), cookie);
            let same =
                |p: &&Point| (p.file_offset, p.cookie, &p.program) == (point.file_offset, point.cookie, &point.program);
            if !self.points.iter().any(|p| same(&p)) {
                self.points.push(point);
            }
        }
    }
}

struct Place {
    file_offset: u64,
    choice: entry::Choice,
}

impl Place {
    /// The point for a program there, at the entry or (`ret`) the return.
    fn point(&self, entry: &str, (name, symbol): (&str, &Symbol), (program, ret): (&str, bool), cookie: u64) -> Point {
        Point {
            entry: entry.to_owned(),
            symbol: name.to_owned(),
            table: symbol.table,
            symbol_index: symbol.index,
            address: symbol.value,
            delta: self.choice.delta,
            file_offset: self.file_offset,
            program: program.to_owned(),
            ret,
            cookie,
            instruction: self.choice.instruction.clone(),
            cheap: self.choice.cheap,
            why: self.choice.why.clone(),
        }
    }
}

fn place(elf: &Elf, symbol: &Symbol, registers: u8) -> Option<Place> {
    let start = elf.code_offset(symbol.value)?;
    let reach = if symbol.size == 0 { entry::REACH as u64 } else { symbol.size.min(entry::REACH as u64) };
    let head = elf.at(symbol.value, reach).ok()?;
    let body = || elf.at(symbol.value, symbol.size.clamp(reach, LARGEST_FUNCTION)).unwrap_or_default();
    let choice = entry::choose(&head, registers, body);
    Some(Place { file_offset: start.checked_add(choice.delta)?, choice })
}
