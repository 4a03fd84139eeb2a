//! A small heap made up here: an object, a part that points to it in its very last word, an object that holds the part.

use std::sync::Arc;

use super::{Found, Met, owner, search};
use crate::{
    event::MappingKind,
    snapshot::{
        clusters::Clusters,
        heap::{Heap, Mapped, Segment},
        nearby::Nearby,
        objects::{Classes, Kind, Static},
        pointers::Pointers,
        pymalloc::Pools,
        scan::{self, Reader, Sources},
        space::{Space, testing::area},
    },
    target::memory::{Memory, Unread},
};

const BASE: u64 = 0x10_0000;
const LEN: u64 = 0x2000;

struct Image(Vec<u64>);

impl Memory for Image {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), Unread> {
        let bytes: Vec<u8> = self.0.iter().flat_map(|word| word.to_le_bytes()).collect();
        let at = address.checked_sub(BASE).ok_or(Unread)? as usize;
        buffer.copy_from_slice(bytes.get(at..).and_then(|rest| rest.get(..buffer.len())).ok_or(Unread)?);
        Ok(())
    }
}

#[test]
fn pointers_count_where_somebody_uses_the_memory() {
    let mut image = Image(vec![0; LEN as usize / 8]);
    let mut segment = Segment::new(BASE..BASE + LEN, 0);
    // Object, part, holder, a free chunk, the rest.
    for (start, live) in [(0, true), (0x40, true), (0x80, true), (0x100, false), (0x200, true)] {
        segment.add(BASE + start, live);
    }
    let object = BASE + 0x10;
    let mut put = |at: u64, word: u64| image.0[(at / 8) as usize] = word;
    // The part's last word lies where the next chunk begins.
    put(0x80, object);
    // The holder points into the part.
    put(0xa0, BASE + 0x60);
    // In a free chunk: nobody's.
    put(0x120, object);
    let space = Space::of(vec![area(BASE..BASE + LEN, MappingKind::Heap, "[heap]")]);
    let mut heap = Heap::default();
    assert!(heap.segments.add(segment));
    let (mapped, python) = (Mapped::default(), Pools::of(None));
    let classes = Classes::new(Static::new(&image, &space, 0), &space);
    let memory = Nearby::new(&image);
    let all = BASE..BASE + LEN;
    let sources = Sources { plain: vec![all.clone()], ..Sources::default() };
    let targets = Clusters::of([all]);
    // By the list of pointers, and through memory itself where there are too many for it.
    for most in [100, 1] {
        let mut met = Met { plain: Pointers::up_to(most), ..Met::default() };
        Reader::new(&image, &space).each(&sources.plain, &[], |start, words| {
            scan::pointers(start, words, &targets, &mut met.plain);
        });
        assert_eq!(met.plain.is_full(), most == 1);
        let found = Found {
            memory: &memory,
            space: &space,
            heap: &heap,
            mapped: &mapped,
            python: &python,
            classes: &classes,
            data: &[],
            sources: &sources,
            pointers: &met,
        };
        let name: Arc<str> = "Buffer".into();
        let (graph, read) = search(&found, &[(Kind::Buffer, name, object)], &[64]);
        assert_eq!((read.lost, read.bytes > 0), (0, most == 1));
        let references = |node: usize| graph.nodes[node].references.iter().map(|reference| reference.at - BASE);
        assert_eq!(references(0).collect::<Vec<_>>(), [0x80]);
        assert_eq!(references(1).collect::<Vec<_>>(), [0xa0]);
        // Both are without a class: the nearer one is named.
        let owner = owner(&memory, &graph, 0, 1).unwrap();
        assert_eq!((owner.what.as_str(), owner.chain), ("block without a class", vec!["[56]+48".to_owned()]));
    }
}
