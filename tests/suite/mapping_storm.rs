//! A program that changes its memory map in every way there is, from several threads at once.

use anyhow::{Result, ensure};
use tfmem::attach::memory::Backend;
use tfmem_tests::{
    machine,
    mapping_storm::{self, Storm},
};

/// What came late on a busy machine, and did no harm where all is exact.
const LATE: &str = "events_late";

fn ensure_exact(storm: &Storm) -> Result<()> {
    let wrong = (storm.own.difference(&storm.ledger), storm.own.difference(&storm.naive));
    let sizes = (&storm.own, &storm.ledger, &storm.naive);
    ensure!(wrong == (0, 0), "bytes wrong in (ledger, naive model): {wrong:?} of {sizes:?}; {:?}", storm.losses);
    ensure!(
        storm.wrong_in_children == 0,
        "{} bytes wrong in {} children; {:?}",
        storm.wrong_in_children,
        storm.children,
        storm.losses
    );
    Ok(())
}

#[test]
fn the_ledger_ends_with_the_programs_own_map() -> Result<()> {
    if !machine::can_trace("the_ledger_ends_with_the_programs_own_map") {
        return Ok(());
    }
    for seed in if machine::long() { 1..=3 } else { 1..=1 } {
        let storm = mapping_storm::run(seed, 1_000_000, false, Backend::Tracepoint)?;
        for (call, count) in storm.done.iter().filter(|(call, _)| *call != "attach_segment") {
            ensure!(*count > 0, "seed {seed}: no {call}");
        }
        ensure!(storm.own.bytes() > 1 << 20 && storm.children > 0, "a breeze: {:?}", storm.own);
        ensure_exact(&storm)?;
        ensure!(storm.losses.keys().all(|kind| kind == LATE), "seed {seed}: {:?}", storm.losses);
    }
    Ok(())
}

/// Looks alone: what they show is what the ledger has, whatever came and went between them.
#[test]
fn polled_it_ends_with_the_same() -> Result<()> {
    if !machine::can_trace("polled_it_ends_with_the_same") {
        return Ok(());
    }
    let storm = mapping_storm::run(5, 60_000, true, Backend::Poll)?;
    ensure!(storm.segments > 0 && storm.children > 0, "a breeze: {:?}", storm.own);
    ensure_exact(&storm)?;
    ensure!(storm.losses.keys().all(|kind| kind == LATE), "{:?}", storm.losses);
    Ok(())
}

/// What no event tells of is not taken for a loss, nor for something of the program's own.
#[test]
fn segments_of_system_v_change_nothing_else() -> Result<()> {
    if !machine::can_trace("segments_of_system_v_change_nothing_else") {
        return Ok(());
    }
    let storm = mapping_storm::run(9, 12_000, true, Backend::Tracepoint)?;
    ensure!(storm.segments > 0, "none is attached");
    ensure_exact(&storm)
}
