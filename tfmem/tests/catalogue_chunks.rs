//! Which functions report the chunks of pools, read from libraries compiled in several ways.

#![allow(clippy::unwrap_used, reason = "a test may stop")]

mod catalogue_support;

use std::path::Path;

use catalogue_support::{POOL, Pool, compile, pool, source};
use tfmem::attach::{
    elf::Elf,
    plan::{self, Plan},
};
use tfmem_common::cookie::PoolLayout;

/// `None` where there is no compiler.
fn plan_of(dir: &Path, name: &str, made: &Pool, flags: &[&str]) -> Option<Plan> {
    let flags: Vec<&str> = ["-shared"].iter().chain(flags).copied().collect();
    let path = compile(dir, name, &source(&[], &pool(made, true)), &flags)?;
    let plan = plan::resolve(&path).unwrap();
    assert!(plan.fits(&Elf::open(&path).unwrap()), "{plan:#?}");
    Some(plan)
}

fn programs(plan: &Plan) -> Vec<&str> {
    let mut list: Vec<_> = plan.points.iter().map(|p| p.program.as_str()).filter(|p| p.starts_with("chunk")).collect();
    list.sort_unstable();
    list
}

#[test]
fn the_long_form_is_enough_where_both_directions_reach_it() {
    let dir = tempfile::tempdir().unwrap();
    let ways: [(&str, &[&str]); 4] = [
        ("lazy.so", &[]),
        ("cet.so", &["-fcf-protection=full"]),
        ("no-plt.so", &["-fno-plt"]),
        ("bound.so", &["-Wl,-Bsymbolic"]),
    ];
    for (name, flags) in ways {
        let Some(plan) = plan_of(dir.path(), name, &POOL, flags) else { return };
        assert_eq!(programs(&plan), ["chunk"], "{name}");
        assert_eq!(plan.chunks_unseen(), None, "{name}");
    }
    let direct = Pool { taken: "long", ..POOL };
    assert_eq!(programs(&plan_of(dir.path(), "direct.so", &direct, &[]).unwrap()), ["chunk"]);
}

#[test]
fn where_it_is_inlined_its_callers_are_probed() {
    let dir = tempfile::tempdir().unwrap();
    let made = Pool { given_back: "none", passes_on: false, ..POOL };
    let Some(plan) = plan_of(dir.path(), "both.so", &made, &[]) else { return };
    assert_eq!(programs(&plan), ["chunk_given_back", "chunk_short"]);
    let short = plan.points.iter().find(|p| p.program == "chunk_short").unwrap();
    assert_eq!(PoolLayout::unpack(short.cookie), PoolLayout { regions: 1392, chunks: 1416 });
    assert_eq!(plan.chunks_unseen(), None);

    // One direction only: each is reported by exactly one function.
    let made = Pool { passes_on: false, ..POOL };
    assert_eq!(programs(&plan_of(dir.path(), "taken.so", &made, &[]).unwrap()), ["chunk", "chunk_short"]);
    let made = Pool { given_back: "none", ..POOL };
    assert_eq!(programs(&plan_of(dir.path(), "back.so", &made, &[]).unwrap()), ["chunk", "chunk_given_back"]);
    let made = Pool { given_back: "short", passes_on: false, ..POOL };
    assert_eq!(programs(&plan_of(dir.path(), "short.so", &made, &[]).unwrap()), ["chunk_short"]);
}

#[test]
fn what_cannot_be_proven_is_said_and_not_probed() {
    let dir = tempfile::tempdir().unwrap();
    let ways = [
        ("taken.so", Pool { taken: "none", ..POOL }, "AllocateRawInternal calls neither"),
        ("back.so", Pool { given_back: "none", internal_called: false, ..POOL }, "DeallocateRaw does not call it"),
        ("layout.so", Pool { passes_on: false, chunks: 1440, ..POOL }, "where a pool keeps its chunks"),
    ];
    for (name, made, why) in ways {
        let Some(plan) = plan_of(dir.path(), name, &made, &["-Wl,--build-id"]) else { return };
        assert!(programs(&plan).is_empty(), "{name}: {:?}", plan.points);
        let reason = &plan.chunks_unseen().unwrap().reason;
        assert!(reason.contains(why) && reason.ends_with("the chunks of pools cannot be seen"), "{name}: {reason}");
    }
}

#[test]
fn a_plan_for_other_code_does_not_fit() {
    let dir = tempfile::tempdir().unwrap();
    let inlined = Pool { given_back: "none", passes_on: false, ..POOL };
    let Some(mut plan) = plan_of(dir.path(), "a.so", &inlined, &[]) else { return };
    let elf = Elf::open(&dir.path().join("a.so")).unwrap();
    let sound = plan.clone();
    for point in plan.points.iter_mut().filter(|p| p.program == "chunk_short") {
        point.cookie = PoolLayout { regions: 8, chunks: 16 }.pack();
    }
    assert!(!plan.fits(&elf), "another layout");
    let mut plan = sound;
    plan.points.retain(|p| p.program != "chunk_given_back");
    assert!(!plan.fits(&elf), "chunks that never come back");
}
