//! Whose code is where, for the unwinder in the kernel: files get a number and a table, processes a list of places.
//!
//! A held process waits for the tables of what it mapped. Where nobody is held they are made by a thread: until then the
//! kernel tries the frame pointer in such code, and counts it.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    time::Instant,
};

use tfmem_common::{python::Python, unwind::Range, wire::Copy};

use super::{oracle::Oracle, python::Names};
use crate::{
    attach::{
        elf::Elf,
        link::{Programs, Stacks as Mode, Unwind},
    },
    event::{Body, CodeFile, Event, Stack},
    python::{Image, Layout},
    target::{clock, maps::Line},
    unwind::table::{Table, cache::Cache, index::Index},
};

/// A file's identity as `/proc/PID/maps` shows it.
type FileKey = ((u32, u32), u64);

#[derive(Debug)]
struct File {
    number: u32,
    /// Executable segments: place in the file, address, size.
    code: Vec<(u64, u64, u64)>,
    python: Option<Image>,
}

/// A table that was made, for the file of this number.
struct Made {
    file: u32,
    name: String,
    table: Option<Table>,
}

#[derive(Clone, Default)]
struct Known {
    number: u32,
    ranges: Vec<Range>,
    python: Python,
    layout: Option<Layout>,
}

pub struct Stacks {
    mode: Mode,
    cache: Cache,
    files: BTreeMap<FileKey, Option<File>>,
    next: u32,
    processes: BTreeMap<u32, Known>,
    /// How many processes have a number of the kernel's list.
    shared: BTreeMap<u32, u32>,
    maker: Option<Sender<(u32, String, Elf)>>,
    made: Option<Receiver<Made>>,
    /// Files and processes that there was no room for.
    refused: u64,
    oracle: Oracle,
    names: Names,
    /// Pythons that are not known.
    strangers: u64,
    /// Programs that were given a Python.
    generations: u32,
}

impl Stacks {
    pub fn new(mode: Mode, cache: Option<&Path>) -> Self {
        Self {
            mode,
            cache: cache.map_or_else(Cache::open, Cache::at),
            files: BTreeMap::new(),
            next: 1,
            processes: BTreeMap::new(),
            shared: BTreeMap::new(),
            maker: None,
            made: None,
            refused: 0,
            oracle: Oracle::default(),
            names: Names::default(),
            strangers: 0,
            generations: 0,
        }
    }

    /// A page of the memory of a stack that comes next.
    pub fn copied(&mut self, copy: &Copy) {
        self.oracle.add(copy);
    }

    /// Compares a stack with what another unwinder makes of its memory, where that was sent.
    pub fn check(&mut self, pid: u32, stack: &Stack) {
        if let Some(known) = self.processes.get(&pid) {
            self.oracle.check(stack, &known.ranges);
        }
    }

    pub const fn oracle(&self) -> &Oracle {
        &self.oracle
    }

    /// Gives the frames of Python code their names. `None`: the stack has none.
    pub fn name(&mut self, at: u64, pid: u32, stack: &Stack) -> Option<(Stack, Vec<Event>)> {
        let layout = self.processes.get(&pid).and_then(|known| known.layout.as_ref());
        self.names.name(at, pid, layout, stack)
    }

    /// Of Python: versions that are not known, code objects that were gone, and those that could not be read.
    pub const fn nameless(&self) -> [(&'static str, u64); 3] {
        [
            ("python_versions_unknown", self.strangers),
            ("python_code_gone", self.names.gone),
            ("python_code_unreadable", self.names.unreadable),
        ]
    }

    pub fn are_off(&self) -> bool {
        self.mode == Mode::Off
    }

    /// Tables or lists that the kernel has not.
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// Notes the code that a process maps (`lines`: all its executable mappings of files). `wait`: it stands still, and
    /// goes on when the tables are there.
    pub fn map(&mut self, programs: &mut Programs, pid: u32, lines: &[Line], wait: bool) -> Vec<Event> {
        let mut events = Vec::new();
        if self.mode == Mode::Off {
            return events;
        }
        let (mut ranges, mut found) = (Vec::new(), None);
        for line in lines {
            self.file(programs, pid, line, wait, &mut events);
            if let Some(Some(file)) = self.files.get(&(line.dev, line.inode)) {
                let range = range(file, line);
                ranges.extend(range);
                found = found.or_else(|| python(file, &range?));
            }
        }
        ranges.sort_unstable_by_key(|range| range.start);
        let (mut python, layout) = found.unwrap_or_default();
        let known = self.processes.get(&pid);
        python.generation = match known.map(|known| known.python.generation) {
            Some(generation) if generation != 0 => generation,
            _ => {
                self.generations += 1;
                self.generations
            }
        };
        if known.is_none_or(|known| known.ranges != ranges || known.python != python) {
            self.set(programs, pid, Known { number: 0, ranges, python, layout });
        }
        events
    }

    /// A file that was not seen before gets its number, and sooner or later its table.
    fn file(&mut self, programs: &mut Programs, pid: u32, line: &Line, wait: bool, events: &mut Vec<Event>) {
        let key = (line.dev, line.inode);
        if self.files.contains_key(&key) {
            return;
        }
        let found = Elf::open(&line.map_file(pid)).inspect_err(|error| log::debug!("{}: {error}", line.name)).ok();
        let Some(elf) = found.filter(|_| self.next < Unwind::MOST_FILES) else {
            self.refused += u64::from(self.next >= Unwind::MOST_FILES);
            self.files.insert(key, None);
            return;
        };
        let number = self.next;
        self.next += 1;
        let code = elf.code_ranges();
        let info = CodeFile { file: number, path: line.name.clone(), build_id: elf.build_id(), code: code.clone() };
        events.push(Event::of(clock::boot_ns(), 0, 0, Body::CodeFile(Arc::new(info))));
        let python = self.image(pid, line);
        self.files.insert(key, Some(File { number, code, python }));
        if self.mode == Mode::Copy {
            self.oracle.add_file(number, &elf);
        }
        if self.mode == Mode::FramePointers {
            return;
        }
        if wait {
            let made = make(&self.cache, number, line.name.clone(), &elf);
            self.upload(programs, &made);
        } else if !self.ask(number, line.name.clone(), elf) {
            self.refused += 1;
        }
    }

    /// The interpreter that a file holds.
    fn image(&mut self, pid: u32, line: &Line) -> Option<Image> {
        let is_exe = || std::fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe.as_os_str() == &*line.name);
        if !Image::may_be(&line.name) && !is_exe() {
            return None;
        }
        let file = std::fs::File::open(line.map_file(pid)).ok()?;
        let image = Image::read(file, &line.name);
        image.unwrap_or_else(|error| {
            log::warn!("{}: stacks have no Python frames: {error}", line.name);
            self.strangers += 1;
            None
        })
    }

    /// Has a table made by the thread.
    fn ask(&mut self, number: u32, name: String, elf: Elf) -> bool {
        if self.maker.is_none() {
            let (maker, asked) = channel::<(u32, String, Elf)>();
            let (sender, made) = channel();
            let cache = self.cache.clone();
            let spawned = std::thread::Builder::new().name("unwind tables".into()).spawn(move || {
                for (number, name, elf) in asked {
                    if sender.send(make(&cache, number, name, &elf)).is_err() {
                        return;
                    }
                }
            });
            if spawned.is_err() {
                return false;
            }
            (self.maker, self.made) = (Some(maker), Some(made));
        }
        self.maker.as_ref().is_some_and(|maker| maker.send((number, name, elf)).is_ok())
    }

    /// Gives the kernel the tables that were made meanwhile.
    pub fn take_made(&mut self, programs: &mut Programs) {
        let made: Vec<Made> = self.made.iter().flat_map(Receiver::try_iter).collect();
        for made in &made {
            self.upload(programs, made);
        }
    }

    fn upload(&mut self, programs: &mut Programs, made: &Made) {
        let (Some(table), Some(unwind)) = (&made.table, programs.unwind()) else { return };
        if let Err(error) = unwind.add_table(made.file, &table.rows, &Index::of(&table.rows)) {
            log::warn!("{}: its stacks are walked by frame pointers: {error:#}", made.name);
            self.refused += 1;
        }
    }

    fn set(&mut self, programs: &mut Programs, pid: u32, known: Known) {
        let (Some(mut process), Some(unwind)) = (programs.tracked(pid), programs.unwind()) else { return };
        match unwind.add_ranges(&known.ranges, known.python) {
            Ok(number) => {
                process.ranges = number;
                if let Err(error) = programs.track(pid, process) {
                    log::warn!("process {pid}: {error:#}");
                }
                let old = self.processes.insert(pid, Known { number, ..known });
                *self.shared.entry(number).or_default() += 1;
                self.leave(programs, old.as_ref());
            }
            Err(error) => {
                log::warn!("process {pid}: stacks end where code is new: {error:#}");
                self.refused += 1;
            }
        }
    }

    /// A child has its parent's code.
    pub fn forked(&mut self, parent: u32, child: u32) {
        if let Some(known) = self.processes.get(&parent) {
            let known = known.clone();
            self.names.forked(parent, child);
            *self.shared.entry(known.number).or_default() += 1;
            self.processes.insert(child, known);
        }
    }

    /// The process ended or became another program.
    pub fn forget(&mut self, programs: &mut Programs, pid: u32) {
        let old = self.processes.remove(&pid);
        self.leave(programs, old.as_ref());
        self.names.forget(pid);
    }

    fn leave(&mut self, programs: &mut Programs, known: Option<&Known>) {
        let Some(&Known { number, .. }) = known else { return };
        if let Some(count) = self.shared.get_mut(&number) {
            *count -= 1;
            if *count == 0 {
                self.shared.remove(&number);
                if let Some(unwind) = programs.unwind() {
                    unwind.free_ranges(number);
                }
            }
        }
    }
}

fn make(cache: &Cache, file: u32, name: String, elf: &Elf) -> Made {
    let begun = Instant::now();
    let table = match cache.table(elf) {
        Ok(table) => table.map(|table| table.compact()),
        Err(error) => {
            log::warn!("{name}: its stacks are walked by frame pointers: {error}");
            None
        }
    };
    if let Some(table) = &table {
        log::debug!("{name}: {} unwind rows in {:.0?}, {:?}", table.rows.len(), begun.elapsed(), table.found);
    }
    Made { file, name, table }
}

/// The place of a mapping's code; `None`: the mapping shows none of the file's code.
fn range(file: &File, line: &Line) -> Option<Range> {
    let page = |value: u64| value & !4095;
    let (offset, address, _) = file
        .code
        .iter()
        .find(|(offset, _, size)| line.offset >= page(*offset) && line.offset < offset.saturating_add(*size))?;
    Some(Range {
        start: line.start,
        address: u32::try_from(page(*address).wrapping_add(line.offset - page(*offset))).ok()?,
        pages: u32::try_from(line.len() >> 12).ok()?,
        file: file.number,
        _pad: 0,
    })
}

/// The Python in a file that is mapped at a place.
fn python(file: &File, range: &Range) -> Option<(Python, Option<Layout>)> {
    let image = file.python.as_ref()?;
    let bias = range.start.wrapping_sub(u64::from(range.address));
    Some((image.for_kernel(bias, file.number)?, Some(image.layout)))
}
