//! What the rules share that know the holder of a survivor.

use super::Claimed;
use super::words::places;
use crate::event::Holder;
use crate::ledger::types::Allocation;
use crate::report::model::{Cause, Verdict};
use crate::report::units::{bytes, counted};
use crate::retention::holders::{Unseen, shown};
use crate::retention::scene::Scene;
use crate::retention::watch::is_unfollowed;

/// Holders named one by one.
const NAMED: usize = 4;

/// Whether the holder of an allocation is of this kind.
pub(super) fn is_held(scene: &Scene, a: &Allocation, kind: fn(&Holder) -> bool) -> bool {
    scene.holders.of(a).and_then(|number| scene.holders.get(number)).is_some_and(kind)
}

/// What holders of a kind have beside the ledger's: of a process as a whole, so where the whole process is judged, or
/// where nothing else is known of it. One that is small stays with what nobody is named for.
pub(super) fn unseen<'a>(scene: &'a Scene, kind: fn(&Holder) -> bool) -> Vec<(&'a Holder, Unseen)> {
    if !scene.is_end() && !is_unfollowed(scene.process) {
        return Vec::new();
    }
    let large = |unseen: &Unseen| unseen.bytes > 0 && unseen.bytes >= scene.min_bytes;
    scene.holders.unseen().filter(|(holder, unseen)| kind(holder) && large(unseen)).collect()
}

/// A verdict on what was claimed and on `more` (holder and bytes beside the ledger's): `summary` gets the bytes and the
/// number of holders.
pub(super) fn verdict(
    scene: &Scene,
    claimed: &Claimed,
    more: &[(&Holder, u64)],
    cause: Cause,
    summary: impl FnOnce(&str, u64) -> String,
    gives_back: &str,
) -> Vec<Verdict> {
    let mut all: Vec<(usize, String, u64)> = Vec::new();
    for group in &claimed.groups {
        let Some(number) = group.key.holder else { continue };
        match all.iter_mut().find(|(known, ..)| *known == number) {
            Some((.., sum)) => *sum = sum.saturating_add(group.bytes),
            None => all.extend(scene.holders.get(number).map(|holder| (number, shown(holder), group.bytes))),
        }
    }
    all.extend(more.iter().map(|(holder, held)| (usize::MAX, shown(holder), *held)));
    let sum = more.iter().fold(claimed.bytes, |sum, (_, held)| sum.saturating_add(*held));
    if sum == 0 || sum < scene.min_bytes {
        return Vec::new();
    }
    all.sort_by_key(|(.., held)| std::cmp::Reverse(*held));
    let mut evidence: Vec<String> =
        all.iter().take(NAMED).map(|(_, what, held)| format!("{}: {what}", bytes(*held))).collect();
    if all.len() > NAMED {
        evidence.push(format!("and {}", counted((all.len() - NAMED) as u64, "more holder")));
    }
    evidence.extend(places(scene, claimed));
    let before =
        scene.holders.unseen().filter(|(holder, _)| more.iter().any(|(other, _)| std::ptr::eq(*other, *holder)));
    let before = before.fold(0, |sum: u64, (_, unseen)| sum.saturating_add(unseen.bytes));
    if before > 0 && scene.attached() && !is_unfollowed(scene.process) {
        evidence.push(format!("{} of it was there before the trace began", bytes(before)));
    }
    evidence.push("found by following references, in the process' memory, back from the data".to_owned());
    vec![Verdict {
        cause,
        bytes: sum,
        summary: summary(&bytes(sum), all.len() as u64),
        evidence,
        gives_back: gives_back.to_owned(),
        refs: claimed.refs(),
    }]
}
