//! Walks through heaps made up here, sound and hostile. (A real glibc is asked in the integration tests.)

use proptest::prelude::*;

use super::{
    segment::Segment,
    trim,
    walk::{Walked, Way, walk},
};
use crate::{
    event::MappingKind,
    snapshot::{space::Space, space::testing::area, window::Window},
    target::memory::{Memory, Unread},
};

const BASE: u64 = 0x10_0000;

struct Image(Vec<u8>);

impl Memory for Image {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), Unread> {
        let at = usize::try_from(address.checked_sub(BASE).ok_or(Unread)?).map_err(|_| Unread)?;
        let end = at.checked_add(buffer.len()).ok_or(Unread)?;
        buffer.copy_from_slice(self.0.get(at..end).ok_or(Unread)?);
        Ok(())
    }
}

impl Image {
    /// Chunks one after another (size in 16 bytes, in use), then the top.
    fn of(chunks: &[(u64, bool)], top: u64) -> (Self, u64) {
        let total: u64 = chunks.iter().map(|(size, _)| size * 16).sum::<u64>() + top;
        let mut image = Self(vec![0; total as usize]);
        let (mut at, mut before) = (0, true);
        for &(size, live) in chunks {
            image.put(at + 8, (size * 16) | u64::from(before));
            if !live {
                image.put(at + size * 16, size * 16);
            }
            (at, before) = (at + size * 16, live);
        }
        image.put(at + 8, top | u64::from(before));
        (image, BASE + at)
    }

    fn put(&mut self, at: u64, word: u64) {
        self.0[at as usize..at as usize + 8].copy_from_slice(&word.to_le_bytes());
    }

    fn space(&self) -> Space {
        Space::of(vec![area(BASE..BASE + self.0.len() as u64, MappingKind::Heap, "[heap]")])
    }

    fn walk(&self, top: u64) -> (Walked, Segment) {
        let end = BASE + self.0.len() as u64;
        let space = self.space();
        let mut window = Window::new(self, &space);
        window.allow(self.0.len() as u64);
        let mut segment = Segment::new(BASE..end, 0);
        (walk(&mut window, &mut segment, Way { from: BASE, end, top }), segment)
    }
}

fn chunks() -> impl Strategy<Value = Vec<(u64, bool)>> {
    prop::collection::vec((2_u64..600, any::<bool>()), 20..120)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn every_byte_of_a_sound_heap(chunks in chunks()) {
        let (image, top) = Image::of(&chunks, 0x2000);
        let (walked, segment) = image.walk(top);
        let bytes = |wanted| chunks.iter().filter(|(_, live)| *live == wanted).map(|(size, _)| size * 16).sum::<u64>();
        prop_assert_eq!((walked.in_use, walked.free, walked.top, walked.lost), (bytes(true), bytes(false), 0x2000, 0));
        let live = segment.chunks().filter(|chunk| chunk.live).count();
        prop_assert_eq!(live, chunks.iter().filter(|(_, live)| *live).count());
        // All of it is resident here: what is free is trimmable but for heads and pages that are shared.
        let free = trim::free(&image.space(), &segment, true);
        prop_assert_eq!(free.resident, bytes(false) + 0x2000);
        prop_assert!(free.trimmable <= free.resident);
    }

    /// One header is torn: the rest of the heap is found again.
    #[test]
    fn a_torn_header_costs_little(chunks in chunks(), place in any::<prop::sample::Index>(), junk in any::<u64>()) {
        let (mut image, top) = Image::of(&chunks, 0x2000);
        let torn = place.index(chunks.len());
        let at: u64 = chunks[..torn].iter().map(|(size, _)| size * 16).sum();
        image.put(at + 8, junk);
        let (walked, _) = image.walk(top);
        prop_assert_eq!(walked.total(), image.0.len() as u64);
    }

    /// Whatever lies there: it ends, and every byte is counted once.
    #[test]
    fn hostile_memory(words in prop::collection::vec(prop_oneof![
        any::<u64>(), (0_u64..64).prop_map(|n| (n * 16) | 1), (0_u64..4096).prop_map(|n| n * 16)
    ], 2..1024), top in any::<u64>()) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let image = Image(bytes[..bytes.len() / 16 * 16].to_vec());
        let (walked, segment) = image.walk(top);
        prop_assert_eq!(walked.total(), image.0.len() as u64);
        for chunk in segment.chunks() {
            prop_assert_eq!(segment.chunk(chunk.end() - 1), Some(chunk));
        }
    }
}

#[test]
fn a_foreign_piece_behind_a_fencepost() {
    let chunks = [(4, true), (6, false)];
    let (mut image, _) = Image::of(&chunks, 0x2000);
    // The old top became a chunk, two fenceposts and 0x400 bytes of somebody else's follow, then new chunks.
    let fence = 10 * 16;
    image.put(fence + 8, 0x10);
    image.put(fence, 6 * 16);
    image.put(fence + 16 + 8, 0x10 | 1);
    let mut at = fence + 32 + 0x400;
    for _ in 0..20 {
        image.put(at + 8, 0x40 | 1);
        at += 0x40;
    }
    let rest = image.0.len() as u64 - at;
    image.put(at + 8, rest | 1);
    let (walked, _) = image.walk(BASE + at);
    assert_eq!(walked.in_use, 64 + 20 * 0x40);
    assert_eq!((walked.free, walked.top, walked.lost), (96, rest, 0), "{walked:?}");
    assert_eq!((walked.fenceposts, walked.foreign), (32, 0x400));
}
