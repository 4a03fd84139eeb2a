//! TensorFlow's BFC pools, to the byte. No offset of any version is written down: which words of the object are its
//! lists of regions and chunks shows in that they fit together, and they must do so in exactly one way.
//!
//! Equal in all versions read (2.12 to 2.21): a chunk has 64 bytes (size, requested size, allocation's number or -1,
//! address, the chunk before and behind by number, …), a region 48 (address, size, end, handles of its chunks, …);
//! behind the list of chunks follow two words, then the statistics (count, bytes in use, …).

use zerocopy::IntoBytes as _;

use super::text_in;
use crate::target::memory::Memory;

/// One pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    pub name: Option<String>,
    pub regions: Vec<(u64, u64)>,
    /// Chunks in all regions, by address.
    pub chunks: Vec<PoolChunk>,
    /// What the pool's own statistics say is in use.
    pub said_in_use: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolChunk {
    pub start: u64,
    pub size: u64,
    pub in_use: bool,
}

/// Why a pool could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    #[error("the object could not be read")]
    Unread,
    #[error("no words in it fit together as a pool's lists")]
    NoLayout,
    #[error("its words fit together in {0} ways, so that none can be trusted")]
    Ambiguous(usize),
}

const OBJECT: u64 = 8192;
const CHUNK_WORDS: usize = 8;
const REGION_WORDS: usize = 6;
const NONE: u64 = u64::MAX;
const MOST_REGIONS: u64 = 65_536;
const MOST_CHUNKS: u64 = 1 << 20;

impl Pool {
    /// Reads the pool whose object lies at `object` and has `size` bytes.
    ///
    /// # Errors
    /// When it does not add up.
    pub fn read(memory: &impl Memory, object: u64, size: u64) -> Result<Self, Refused> {
        let mut words = vec![0_u64; (size.min(OBJECT) / 8) as usize];
        memory.read(object, words.as_mut_bytes()).map_err(|_| Refused::Unread)?;
        let lists = |item: u64, most: u64| {
            let triples = words.windows(3).enumerate().filter_map(move |(at, triple)| match *triple {
                [begin, end, room] if is_list(begin, end, room, item, most) => Some((at, begin, end)),
                _ => None,
            });
            triples.collect::<Vec<_>>()
        };
        let mut found: Vec<(usize, Self)> = Vec::new();
        let chunk_lists = lists(CHUNK_WORDS as u64 * 8, MOST_CHUNKS);
        for (_, begin, end) in lists(REGION_WORDS as u64 * 8, MOST_REGIONS) {
            let Some(regions) = regions(memory, begin, end) else { continue };
            for &(at, begin, end) in &chunk_lists {
                if let Some(chunks) = chunks(memory, &regions, begin, end) {
                    let regions = regions.iter().map(|region| (region.start, region.size)).collect();
                    found.push((at, Self { regions, chunks, ..Self::default() }));
                }
            }
        }
        match (found.pop(), found.len()) {
            (None, _) => Err(Refused::NoLayout),
            (Some((at, mut pool)), 0) => {
                pool.name = name(memory, object, words.len());
                // Three words of the list, two others, the count of allocations.
                pool.said_in_use = words.get(at + 6).copied().unwrap_or(0);
                Ok(pool)
            }
            (Some(_), others) => Err(Refused::Ambiguous(others + 1)),
        }
    }

    #[must_use]
    pub fn region_bytes(&self) -> u64 {
        self.regions.iter().map(|(_, size)| size).sum()
    }

    #[must_use]
    pub fn in_use(&self) -> u64 {
        self.chunks.iter().filter(|chunk| chunk.in_use).map(|chunk| chunk.size).sum()
    }

    #[must_use]
    pub fn largest_free(&self) -> u64 {
        self.chunks.iter().filter(|chunk| !chunk.in_use).map(|chunk| chunk.size).max().unwrap_or(0)
    }

    /// The chunk that holds an address.
    #[must_use]
    pub fn chunk(&self, address: u64) -> Option<&PoolChunk> {
        let next = self.chunks.partition_point(|chunk| chunk.start + chunk.size <= address);
        self.chunks.get(next).filter(|chunk| chunk.start <= address)
    }
}

const fn is_list(begin: u64, end: u64, room: u64, item: u64, most: u64) -> bool {
    let sane = begin != 0 && begin.is_multiple_of(8) && begin < end && end <= room;
    sane && (end - begin).is_multiple_of(item) && (room - begin).is_multiple_of(item) && (end - begin) / item <= most
}

struct Region {
    start: u64,
    size: u64,
    /// Number of its first chunk.
    first: u64,
}

fn words(memory: &impl Memory, begin: u64, end: u64) -> Option<Vec<u64>> {
    let mut words = vec![0_u64; ((end - begin) / 8) as usize];
    memory.read(begin, words.as_mut_bytes()).ok()?;
    Some(words)
}

fn regions(memory: &impl Memory, begin: u64, end: u64) -> Option<Vec<Region>> {
    // The first one tells most lists that are none, before all is read.
    is_region(&words(memory, begin, begin + REGION_WORDS as u64 * 8)?).then_some(())?;
    let words = words(memory, begin, end)?;
    let regions = words.chunks_exact(REGION_WORDS).map(|region| {
        let &[start, size, _, handles, ..] = region else { return None };
        is_region(region).then_some(())?;
        Some(Region { start, size, first: memory.word(handles).ok()? })
    });
    regions.collect()
}

fn is_region(words: &[u64]) -> bool {
    matches!(*words, [start, size, end, ..] if start != 0 && size != 0 && start.checked_add(size) == Some(end))
}

/// The chunks of all regions, if each region is one unbroken list of them, and no list has one twice.
fn chunks(memory: &impl Memory, regions: &[Region], begin: u64, end: u64) -> Option<Vec<PoolChunk>> {
    let first = regions.first()?;
    let count = (end - begin) / (CHUNK_WORDS as u64 * 8);
    // As above: one look before all is read.
    (first.first < count).then_some(())?;
    (memory.word(begin + first.first * 64 + 24).ok()? == first.start).then_some(())?;
    let words = words(memory, begin, end)?;
    let chunk = |number: u64| words.get(usize::try_from(number).ok()?.checked_mul(CHUNK_WORDS)?..)?.get(..CHUNK_WORDS);
    let mut chunks = Vec::new();
    for region in regions {
        let (mut number, mut before, mut at) = (region.first, NONE, region.start);
        let end = region.start + region.size;
        while at < end {
            let &[size, _, allocation, start, prev, next, ..] = chunk(number)? else { return None };
            let fits = start == at && prev == before && size != 0 && size <= end - at;
            // Each chunk is in one list: more of them than there are would be a list in a circle.
            (fits && (chunks.len() as u64) < count).then_some(())?;
            chunks.push(PoolChunk { start, size, in_use: allocation != NONE });
            (before, number, at) = (number, next, at + size);
        }
        (number == NONE).then_some(())?;
    }
    chunks.sort_unstable_by_key(|chunk| chunk.start);
    Some(chunks)
}

/// The first string in the object is its name.
fn name(memory: &impl Memory, object: u64, words: usize) -> Option<String> {
    let sane = |name: &String| name.len() > 1 && name.chars().all(|c| c.is_ascii_graphic());
    (1..words as u64).find_map(|at| text_in::std_string(memory, object + at * 8).filter(sane))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::target::memory::Unread;

    struct Image(Vec<u64>);

    impl Memory for Image {
        fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), Unread> {
            let bytes = self.0.as_bytes();
            let at = usize::try_from(address).map_err(|_| Unread)?;
            let end = at.checked_add(buffer.len()).ok_or(Unread)?;
            buffer.copy_from_slice(bytes.get(at..end).ok_or(Unread)?);
            Ok(())
        }
    }

    const OBJECT_AT: u64 = 64;
    const LISTS_AT: u64 = 100;

    /// A pool with these regions of chunks (size, in use); chunk numbers in reverse, as a pool reuses them.
    fn image(regions: &[Vec<(u64, bool)>], shift: usize) -> Image {
        let mut words = vec![0_u64; 4096];
        let count: usize = regions.iter().map(Vec::len).sum();
        let chunks_at = 400;
        let mut number = count;
        let mut in_use = 0;
        for (index, region) in regions.iter().enumerate() {
            let mut at = 0x7000_0000 + index as u64 * 0x100_0000;
            let handle_at = 300 + index;
            words[handle_at] = number as u64 - 1;
            let size: u64 = region.iter().map(|(size, _)| size).sum();
            let place = LISTS_AT as usize + index * REGION_WORDS;
            words[place..place + 4].copy_from_slice(&[at, size, at + size, handle_at as u64 * 8]);
            for (nth, &(size, used)) in region.iter().enumerate() {
                number -= 1;
                let prev = if nth == 0 { NONE } else { number as u64 + 1 };
                let next = if nth + 1 == region.len() { NONE } else { number as u64 - 1 };
                let id = if used { 7 } else { NONE };
                let place = chunks_at + number * CHUNK_WORDS;
                words[place..place + 6].copy_from_slice(&[size, size, id, at, prev, next]);
                at += size;
                in_use += if used { size } else { 0 };
            }
        }
        let object = OBJECT_AT as usize / 8 + shift;
        let list = |at: usize, len: usize| [at as u64 * 8, (at + len) as u64 * 8, (at + len) as u64 * 8];
        words[object..object + 3].copy_from_slice(&list(LISTS_AT as usize, regions.len() * REGION_WORDS));
        words[object + 4..object + 7].copy_from_slice(&list(chunks_at, count * CHUNK_WORDS));
        words[object + 10] = in_use;
        Image(words)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn random_pools(regions in prop::collection::vec(prop::collection::vec((1_u64..4096, any::<bool>()), 1..20), 1..5),
                        shift in 0_usize..8) {
            let pool = Pool::read(&image(&regions, shift), OBJECT_AT, 256).unwrap();
            let all: Vec<_> = regions.iter().flatten().collect();
            prop_assert_eq!(pool.region_bytes(), all.iter().map(|(size, _)| size).sum::<u64>());
            prop_assert_eq!(pool.in_use(), all.iter().filter(|(_, used)| *used).map(|(size, _)| size).sum::<u64>());
            prop_assert_eq!((pool.chunks.len(), pool.said_in_use), (all.len(), pool.in_use()));
        }

        /// One word is wrong: refused or unchanged, never a panic, never without an end.
        #[test]
        fn damaged_pools(at in 0_usize..2000, junk in prop_oneof![any::<u64>(), 0_u64..5000]) {
            let mut image = image(&[vec![(256, true), (512, false), (256, true)], vec![(1024, false)]], 0);
            image.0[at] = junk;
            if let Ok(pool) = Pool::read(&image, OBJECT_AT, 256) {
                prop_assert_eq!(pool.chunks.iter().map(|chunk| chunk.size).sum::<u64>(), pool.region_bytes());
            }
        }
    }

    #[test]
    fn what_is_no_pool_is_refused() {
        assert_eq!(Pool::read(&Image(vec![0; 512]), OBJECT_AT, 256), Err(Refused::NoLayout));
        assert_eq!(Pool::read(&Image(vec![0; 4]), OBJECT_AT, 256), Err(Refused::Unread));
    }
}
