//! Whole heaps that lie: rings that do not close, heaps that claim anything, lists in circles. Reading them ends, counts
//! each byte once, and never panics.

use proptest::prelude::*;

use super::read;
use crate::{
    event::MappingKind,
    snapshot::{space::Space, space::testing::area},
    target::memory::{Memory, Unread},
};

const LIBRARY: u64 = 0x10_0000;
const HEAP: u64 = 0x20_0000;
const THREAD: u64 = 0x400_0000;
const STATE: u64 = LIBRARY + 0x200;
const THREAD_STATE: u64 = THREAD + 48;

/// Three pieces of memory.
struct Image([(u64, Vec<u64>); 3]);

impl Image {
    /// A main arena with chunks of 64 bytes in use, and a thread's arena with one.
    fn sound() -> Self {
        let mut image = Self([(LIBRARY, vec![0; 0x200]), (HEAP, vec![0; 0x1000]), (THREAD, vec![0; 0x1000])]);
        image.state(STATE, HEAP + 0x4000, THREAD_STATE, 0x8000);
        image.state(THREAD_STATE, THREAD + 0x1000, STATE, 0x8000);
        for (at, word) in [(THREAD, THREAD_STATE), (THREAD + 8, 0), (THREAD + 16, 0x8000)] {
            image.put(at, word);
        }
        for at in (HEAP..HEAP + 0x4000).step_by(0x40) {
            image.put(at + 8, 0x41);
        }
        image.put(HEAP + 0x4008, 0x4001);
        let first = THREAD + 0x8d0;
        image.put(first + 8, (THREAD + 0x1000 - first) | 5);
        image.put(THREAD + 0x1008, 0x7001);
        image
    }

    fn state(&mut self, at: u64, top: u64, next: u64, system: u64) {
        self.put(at + 96, top);
        for bin in 0..127 {
            let own = at + 112 + bin * 16 - 16;
            self.put(at + 112 + bin * 16, own);
            self.put(at + 112 + bin * 16 + 8, own);
        }
        for (offset, word) in [(2160, next), (2184, system), (2192, system)] {
            self.put(at + offset, word);
        }
    }

    fn put(&mut self, at: u64, word: u64) {
        let piece = self.0.iter_mut().find(|(start, words)| (*start..*start + words.len() as u64 * 8).contains(&at));
        let (start, words) = piece.unwrap();
        words[((at - *start) / 8) as usize] = word;
    }

    fn space(&self) -> Space {
        let kinds =
            [(MappingKind::File, "/lib/libc.so.6"), (MappingKind::Heap, "[heap]"), (MappingKind::Anonymous, "")];
        let pieces = self.0.iter().zip(kinds);
        let range = |(start, words): &(u64, Vec<u64>)| *start..*start + words.len() as u64 * 8;
        Space::of(pieces.map(|(piece, (kind, name))| area(range(piece), kind, name)).collect())
    }
}

impl Memory for Image {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), Unread> {
        for (start, words) in &self.0 {
            let Some(at) = address.checked_sub(*start) else { continue };
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let Some(from) = bytes.get(at as usize..).and_then(|rest| rest.get(..buffer.len())) else { continue };
            buffer.copy_from_slice(from);
            return Ok(());
        }
        Err(Unread)
    }
}

#[test]
fn a_sound_heap_of_two_arenas() {
    let image = Image::sound();
    let heap = read(&image, &image.space()).unwrap();
    assert!(heap.is_sound() && heap.arenas.len() == 2, "{:?}", heap.arenas);
    let seen = heap.seen().unwrap();
    assert_eq!((seen.in_use, seen.free), (0x4000 + 0x1000 - 0x8d0, 0x4000 + 0x7000));
}

fn word() -> impl Strategy<Value = u64> {
    let near = |base: u64| (0_u64..0x1000).prop_map(move |n| base + n * 8);
    prop_oneof![any::<u64>(), 0_u64..0x1_0000, near(LIBRARY), near(HEAP), near(THREAD), Just(STATE), Just(THREAD_STATE)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn lies(lies in prop::collection::vec((0_usize..3, any::<prop::sample::Index>(), word()), 1..40)) {
        let mut image = Image::sound();
        for (piece, place, word) in lies {
            let words = &mut image.0[piece].1;
            let place = place.index(words.len());
            words[place] = word;
        }
        let space = image.space();
        if let Some(heap) = read(&image, &space) {
            let _ = heap.seen();
            for arena in &heap.arenas {
                prop_assert!(arena.walked.total() <= space.all_own_bytes() * 2, "{:?}", arena);
            }
            for chunk in heap.segments.all().iter().flat_map(super::Segment::chunks) {
                prop_assert_eq!(heap.segments.chunk(chunk.data()).map(|found| found.start), Some(chunk.start));
            }
        }
    }
}
