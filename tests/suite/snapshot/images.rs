//! The memory of a real process, saved, damaged at random and read again: reading it ends, claims no more than there is
//! and never panics. `TFMEM_SEED=n` repeats one run.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use tfmem::{
    python::Version,
    snapshot::{Clock, Contents, Ground, heap, space::Space},
    target::memory::{Memory, Remote, Unread},
};
use tfmem_tests::{fixtures, machine, running::Running};

/// What was resident of a process, with words that are changed.
struct Image {
    pieces: Vec<(u64, Vec<u8>)>,
    /// Sorted by address.
    lies: Vec<(u64, u64)>,
    /// The memory changes under the reader: from one read to the next, others of the lies hold.
    changing: bool,
    reads: Cell<u64>,
}

impl Image {
    fn save(pid: u32, space: &Space) -> Result<Self> {
        let memory = Remote::open(pid)?;
        let mut pieces: Vec<(u64, Vec<u8>)> = Vec::new();
        for area in space.areas.iter().filter(|area| area.readable) {
            for part in space.own(area.range.clone()) {
                let bytes = memory.bytes(part.start, (part.end - part.start) as usize)?;
                match pieces.last_mut() {
                    // As in the process: a read may go over the border of two mappings.
                    Some((start, before)) if *start + before.len() as u64 == part.start => before.extend(bytes),
                    _ => pieces.push((part.start, bytes)),
                }
            }
        }
        Ok(Self { pieces, lies: Vec::new(), changing: false, reads: Cell::new(0) })
    }

    /// Some words become others that are near to something, small, huge or anything.
    fn damage(&mut self, random: &mut Random) {
        self.lies.clear();
        self.changing = random.below(2) == 0;
        for _ in 0..1 + random.below(200) {
            let at = self.any_place(random);
            let word = match random.below(6) {
                0 => random.next(),
                1 => random.below(1 << 16),
                2 => random.below(1 << 40) & !15 | random.below(8),
                3 => 0_u64.wrapping_sub(random.below(1 << 16)),
                // Into itself, or somewhere else that is there: lists become circles.
                4 => at,
                _ => self.any_place(random),
            };
            self.lies.push((at, word));
        }
        self.lies.sort_unstable();
        self.lies.dedup_by_key(|(at, _)| *at);
    }

    fn any_place(&self, random: &mut Random) -> u64 {
        let piece = random.below(self.pieces.len() as u64) as usize;
        self.pieces.get(piece).map_or(0, |(start, bytes)| start + random.below(bytes.len() as u64) / 8 * 8)
    }
}

impl Memory for Image {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), Unread> {
        let next = self.pieces.partition_point(|(start, bytes)| start + bytes.len() as u64 <= address);
        let (start, bytes) = self.pieces.get(next).ok_or(Unread)?;
        let at = address.checked_sub(*start).ok_or(Unread)? as usize;
        buffer.copy_from_slice(bytes.get(at..).and_then(|rest| rest.get(..buffer.len())).ok_or(Unread)?);
        self.reads.set(self.reads.get() + 1);
        let first = self.lies.partition_point(|&(lie, _)| lie < address);
        let end = address + buffer.len() as u64;
        for (index, &(lie, word)) in self.lies.iter().enumerate().skip(first) {
            if lie + 8 > end {
                break;
            }
            if self.changing && (index as u64 + self.reads.get()).is_multiple_of(3) {
                continue;
            }
            let at = (lie - address) as usize;
            if let Some(place) = buffer.get_mut(at..at + 8) {
                place.copy_from_slice(&word.to_le_bytes());
            }
        }
        Ok(())
    }
}

struct Random(u64);

impl Random {
    const fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    const fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// As a snapshot does. What it finds may be nonsense; it must not be more than there is.
fn read(image: &Image, ground: &mut Ground) -> Result<()> {
    let begun = Instant::now();
    ground.heap = heap::read(image, &ground.space);
    let own = ground.space.all_own_bytes();
    if let Some(heap) = &ground.heap {
        let walked: u64 = heap.arenas.iter().map(|arena| arena.walked.total()).sum();
        let claimed: u64 = heap.segments.all().iter().map(|segment| segment.range.end - segment.range.start).sum();
        ensure!(walked <= claimed.max(own) * 3, "{walked} bytes walked in {claimed}, {own} are resident");
    }
    let contents = Contents::read(image, ground, Some(Version(3, 11)), &mut Clock::default());
    ensure!(contents.read.bytes <= own * 3, "{:?} read, {own} are resident", contents.read);
    ensure!(contents.held.read.bytes <= own * 6, "{:?} read, {own} are resident", contents.held.read);
    ensure!(contents.python.used_bytes() <= own * 2, "{} bytes of Python's", contents.python.used_bytes());
    ensure!(begun.elapsed() < Duration::from_secs(60), "it took {:?}", begun.elapsed());
    Ok(())
}

#[test]
fn damaged_memory() -> Result<()> {
    if !machine::can_trace("damaged_memory") {
        return Ok(());
    }
    let program = fixtures::get()?.heap();
    let program = Running::start_ready([program.as_os_str(), "7".as_ref(), "0".as_ref()])?;
    for_a_while(program.pid(), if machine::long() { 60 } else { 3 })
}

/// The same with all of TensorFlow's objects in it.
#[test]
fn damaged_memory_of_tensorflow() -> Result<()> {
    let name = "damaged_memory_of_tensorflow";
    if !machine::long() {
        machine::skip_optional(name, "only with --full");
        return Ok(());
    }
    if !machine::can_trace(name) {
        return Ok(());
    }
    let python = machine::required_python("tf-2.21.0")?;
    let mut program = Running::start([python, machine::file("programs/snapshot_oracle.py")])?;
    program.line()?;
    for_a_while(program.pid(), 120)
}

fn for_a_while(pid: u32, seconds: u64) -> Result<()> {
    let memory = Remote::open(pid)?;
    let mut ground = Ground::read(pid, Some(&memory), &mut Clock::default())?;
    let mut image = Image::save(pid, &ground.space)?;
    read(&image, &mut ground).context("as it was saved")?;
    ensure!(ground.heap.as_ref().is_some_and(heap::Heap::is_sound), "the saved heap is not sound");
    let given = std::env::var("TFMEM_SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    let begun = Instant::now();
    for seed in given.into_iter().chain(1..) {
        image.damage(&mut Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1));
        read(&image, &mut ground).with_context(|| format!("TFMEM_SEED={seed}"))?;
        if given.is_some() || begun.elapsed() > Duration::from_secs(seconds) {
            break;
        }
    }
    Ok(())
}
