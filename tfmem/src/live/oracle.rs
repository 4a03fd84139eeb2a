//! Stacks walked a second time (`--stacks copy`), from a copy of their memory, by another unwinder: framehop, on its own
//! reading of the files.

use std::{collections::BTreeMap, sync::Arc};

use framehop::{
    ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder as _,
    x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64},
};
use tfmem_common::{
    python::is_code,
    unwind::{MOST_WORDS, Range, frame},
    wire::Copy,
};

use crate::{attach::elf::Elf, event::Stack};

/// More stacks under way than there can be: what is older was dropped.
const MOST_WAITING: usize = 1024;

type Bytes = Arc<[u8]>;

#[derive(Default)]
pub struct Oracle {
    /// Unwind information by file: its address and bytes.
    files: BTreeMap<u32, (u64, Bytes)>,
    /// Memory of stacks that are still to come, by their numbers.
    waiting: BTreeMap<u64, Memory>,
    /// The places of code for which the unwinder is made.
    ranges: Vec<Range>,
    modules: BTreeMap<(u32, u64), Module<Bytes>>,
    unwinder: UnwinderX86_64<Bytes>,
    cache: CacheX86_64,
    /// Stacks that were compared to their end, and those that could be in part (framehop knows nothing of code made at
    /// run time, of probed returns and of frames found through memory).
    pub checked: u64,
    pub in_part: u64,
    pub unlike: u64,
}

#[derive(Default)]
struct Memory {
    registers: [u64; 3],
    pages: BTreeMap<u64, Box<[u64; 512]>>,
}

impl Memory {
    fn word(&self, address: u64) -> Option<u64> {
        self.pages
            .get(&(address & !4095))?
            .get((address & 4095) as usize / 8)
            .copied()
            .filter(|_| address.is_multiple_of(8))
    }
}

impl Oracle {
    pub fn add_file(&mut self, number: u32, elf: &Elf) {
        let read = || {
            let frames = elf.frames().ok().flatten()?;
            Some((frames.address, elf.frames_at(frames, 0, frames.size).ok()?.into()))
        };
        if let Some(file) = read() {
            self.files.insert(number, file);
        }
    }

    pub fn add(&mut self, copy: &Copy) {
        if self.waiting.len() >= MOST_WAITING {
            self.waiting.pop_first();
        }
        let memory = self.waiting.entry(copy.id).or_default();
        memory.registers = [copy.pc, copy.sp, copy.bp];
        memory.pages.insert(copy.address, Box::new(copy.words));
    }

    pub fn check(&mut self, stack: &Stack, ranges: &[Range]) {
        let Some(memory) = self.waiting.remove(&stack.id.get()) else { return };
        if self.ranges != ranges {
            self.prepare(ranges);
        }
        let [pc, sp, bp] = memory.registers;
        let mut read = |address| memory.word(address).ok_or(());
        let registers = UnwindRegsX86_64::new(pc, sp, bp);
        let mut frames = self.unwinder.iter_frames(pc, registers, &mut self.cache, &mut read);
        for (number, &ours) in native(&stack.frames).enumerate() {
            match frames.next() {
                Ok(Some(address)) => match place(&self.ranges, address) {
                    Some(theirs) if theirs == ours => {}
                    // The address behind a system call is exact to it, and ours is the call's.
                    Some(theirs) if number == 0 && theirs == ours + 1 => {}
                    Some(theirs) => {
                        log::debug!("frame {number} of {:x?} is {theirs:x} to framehop", stack.frames);
                        self.unlike += 1;
                        return;
                    }
                    None => {
                        self.in_part += 1;
                        return;
                    }
                },
                Ok(None) | Err(_) => {
                    log::debug!("framehop ends at frame {number} of {:x?}", stack.frames);
                    self.in_part += 1;
                    return;
                }
            }
        }
        // We may end where the last frame that fits is.
        let more = stack.frames.len() < MOST_WORDS && matches!(frames.next(), Ok(Some(_)));
        self.unlike += u64::from(more);
        self.checked += u64::from(!more);
    }

    fn prepare(&mut self, ranges: &[Range]) {
        self.ranges = ranges.to_vec();
        self.unwinder = UnwinderX86_64::new();
        self.cache = CacheX86_64::new();
        for range in ranges {
            let Some(file) = self.files.get(&range.file) else { continue };
            let module = self.modules.entry((range.file, range.start)).or_insert_with(|| module(range, file));
            self.unwinder.add_module(module.clone());
        }
    }
}

/// Without the frames of Python code, which are two words each.
fn native(frames: &[u64]) -> impl Iterator<Item = &u64> {
    let mut words = frames.iter();
    std::iter::from_fn(move || {
        let mut word = words.next()?;
        while is_code(*word) {
            words.next()?;
            word = words.next()?;
        }
        Some(word)
    })
}

/// A file's unwind information where it is mapped. framehop makes an index over it, which takes a while.
fn module(range: &Range, (address, bytes): &(u64, Bytes)) -> Module<Bytes> {
    let sections = ExplicitModuleSectionInfo {
        eh_frame_svma: Some(*address..address.saturating_add(bytes.len() as u64)),
        eh_frame: Some(bytes.clone()),
        ..ExplicitModuleSectionInfo::default()
    };
    let base = range.start.wrapping_sub(u64::from(range.address));
    let end = range.start.saturating_add(u64::from(range.pages) << 12);
    Module::new(range.file.to_string(), range.start..end, base, sections)
}

/// An address of the process as a frame; `None`: it is no file's code.
fn place(ranges: &[Range], address: FrameAddress) -> Option<u64> {
    let address = address.address_for_lookup();
    let behind = ranges.partition_point(|range| range.start <= address);
    let range = ranges.get(behind.checked_sub(1)?)?;
    let inside = address - range.start;
    (inside < u64::from(range.pages) << 12).then(|| frame(range.file, u64::from(range.address) + inside))
}
