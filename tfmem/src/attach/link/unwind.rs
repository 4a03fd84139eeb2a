//! What the BPF unwinder knows: tables of files, places of code of processes.

use std::{
    collections::VecDeque,
    os::fd::{AsFd as _, AsRawFd as _},
};

use anyhow::{Context as _, Result, bail, ensure};
use aya::{
    Ebpf, EbpfLoader,
    maps::{Array, Map, MapData},
};
use memmap2::{MmapMut, MmapOptions};
use tfmem_common::{
    config,
    python::Python,
    unwind::{MOST_RANGES, Range, Ranges, Table, block},
};

use super::take;
use crate::unwind::table::index::Index;

/// How stacks are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stacks {
    #[default]
    Off,
    /// By the files' unwind tables.
    Dwarf,
    /// By frame pointers alone.
    FramePointers,
    /// As [`Stacks::Dwarf`], and each new stack is walked a second time from a copy of its memory.
    Copy,
}

/// Rows and blocks of all files together (8 bytes each). A Python with TensorFlow needs some 300,000 of each at most.
const ROWS: u32 = 1 << 20;
const BLOCKS: u32 = 1 << 19;
const FILES: u32 = 4096;
/// Processes with code of their own (24 KiB each); one that forked shares its parent's until it maps something.
const PROCESSES: u32 = 128;
const RETURNS: u32 = 8192;
const SENT: u32 = 65_536;
/// Walks that are remembered (2.6 KiB each): a few for each thread that allocates.
const WALKS: u32 = 2048;

impl Stacks {
    /// As the programs know it.
    pub(super) const fn number(self) -> u32 {
        match self {
            Self::Off => config::STACKS_OFF,
            Self::Dwarf => config::STACKS_DWARF,
            Self::FramePointers => config::STACKS_FP,
            Self::Copy => config::STACKS_COPY,
        }
    }

    /// Tells the programs how stacks are taken, and makes room.
    pub(super) fn prepare<'a>(self, loader: &mut EbpfLoader<'a>, number: &'a u32) {
        loader.override_global("STACKS", number, true);
        let sizes = [
            ("UNWIND_ROWS", ROWS),
            ("UNWIND_BLOCKS", BLOCKS),
            ("UNWIND_FILES", FILES),
            ("UNWIND_RANGES", PROCESSES),
            ("RETURNS", RETURNS),
            ("STACKS_SENT", SENT),
            ("WALKS", WALKS),
        ];
        if self != Self::Off {
            for (name, size) in sizes {
                loader.map_max_entries(name, size);
            }
        }
    }
}

/// The unwinder's maps.
pub struct Unwind {
    rows: Words,
    blocks: Words,
    files: Array<MapData, Table>,
    ranges: Array<MapData, Ranges>,
    /// Numbers of `ranges` that nobody uses, the longest unused first: a program may still be reading one.
    free: VecDeque<u32>,
}

/// An array of words that is written without a system call for each.
struct Words {
    memory: MmapMut,
    used: usize,
    // Keeps the map while it is mapped.
    _map: MapData,
}

impl Words {
    fn open(ebpf: &mut Ebpf, name: &str, size: u32) -> Result<Self> {
        let Map::Array(map) = take(ebpf, name)? else { bail!("`{name}` is no array") };
        // SAFETY: the memory is the map's, which is of plain words; only we write to it, and BPF reads whole words.
        let memory = unsafe { MmapOptions::new().len(size as usize * 8).map_mut(map.fd().as_fd().as_raw_fd()) };
        let memory = memory.with_context(|| format!("map the memory of `{name}`"))?;
        Ok(Self { memory, used: 0, _map: map })
    }

    /// Adds words; returns where they begin. `None`: no room.
    fn add(&mut self, words: impl ExactSizeIterator<Item = u64>) -> Option<u32> {
        let begin = self.used;
        let end = begin.checked_add(words.len())?;
        let place = self.memory.get_mut(begin * 8..end * 8)?;
        for (place, word) in place.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_ne_bytes());
        }
        self.used = end;
        u32::try_from(begin).ok()
    }
}

impl Unwind {
    pub(super) fn open(ebpf: &mut Ebpf) -> Result<Self> {
        Ok(Self {
            rows: Words::open(ebpf, "UNWIND_ROWS", ROWS)?,
            blocks: Words::open(ebpf, "UNWIND_BLOCKS", BLOCKS)?,
            files: Array::try_from(take(ebpf, "UNWIND_FILES")?)?,
            ranges: Array::try_from(take(ebpf, "UNWIND_RANGES")?)?,
            free: (1..PROCESSES).collect(),
        })
    }

    /// Files have numbers below this.
    pub const MOST_FILES: u32 = FILES;

    /// Gives the kernel a file's table.
    ///
    /// # Errors
    /// When there is no room for it.
    pub fn add_table(&mut self, file: u32, rows: &[u64], index: &Index) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        let base = self.rows.add(rows.iter().copied()).context("no room for its rows")?;
        let moved = index.blocks.iter().map(|&at| block((at as u32).wrapping_add(base), (at >> 32) as u32));
        let begin = self.blocks.add(moved).context("no room for its index")?;
        let table = Table {
            index: begin,
            first_block: index.first_block,
            blocks: index.blocks.len() as u32,
            shift: index.shift,
        };
        self.files.set(file, table, 0).context("no room for another file")
    }

    /// Notes where the code of a process is, and its Python; returns the number to put into its settings.
    ///
    /// # Errors
    /// When there is no room for another process, or for its code.
    pub fn add_ranges(&mut self, list: &[Range], python: Python) -> Result<u32> {
        ensure!(list.len() <= MOST_RANGES, "{} places of code are more than fit", list.len());
        let number = self.free.pop_front().context("no room for the code of another process")?;
        let mut ranges =
            Box::new(Ranges { count: list.len() as u32, _pad: 0, python, ranges: [Range::default(); MOST_RANGES] });
        for (place, range) in ranges.ranges.iter_mut().zip(list) {
            *place = *range;
        }
        self.ranges.set(number, *ranges, 0).context("note the code of a process")?;
        Ok(number)
    }

    /// Nobody has this number in its settings any more.
    pub fn free_ranges(&mut self, number: u32) {
        if number != 0 {
            self.free.push_back(number);
        }
    }
}
