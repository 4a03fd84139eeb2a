//! Rounds: what is alive after each boundary of one kind, and whether it grows. A leak grows with each round; what is
//! made once and kept (a pool, a cache, a trace) is constant after the first ones.

use std::collections::BTreeMap;

use super::devices;
use super::place::variable_of;
use super::record::Record;
use super::scene::{Scene, is_memory};
use crate::ledger::Ledger;
use crate::ledger::types::{BlockLayer, SessionId};
use crate::report::model::{BoundaryKind, Growth};
use crate::report::units::{bytes, count, plain};

/// Fewer rounds say nothing.
const FEWEST: usize = 5;
/// Places kept of each boundary, and places that are told.
const KEPT: usize = 48;
const TOLD: usize = 6;
/// Rounds compared with each other: of more, the last ones.
const MOST: usize = 200;
/// So many of a hundred pairs must rise.
const SURE: u64 = 90;

/// What is alive, by layer and op: bytes, and the owner of the first block.
#[derive(Clone, Debug)]
pub(super) struct Alive {
    pub layer: BlockLayer,
    pub op: u64,
    pub bytes: u64,
    pub owner: Option<SessionId>,
}

/// The places with most bytes now.
pub(super) fn alive(scene: &Scene) -> Vec<Alive> {
    let mut places: BTreeMap<(BlockLayer, u64), Alive> = BTreeMap::new();
    for a in scene.process.allocations().filter(is_memory) {
        let place = places.entry((a.layer, a.origin.op)).or_insert(Alive {
            layer: a.layer,
            op: a.origin.op,
            bytes: 0,
            owner: a.owner,
        });
        place.bytes = place.bytes.saturating_add(a.bytes);
    }
    let mut places: Vec<Alive> = places.into_values().collect();
    places.sort_by_key(|place| std::cmp::Reverse(place.bytes));
    places.truncate(KEPT);
    places
}

/// The rounds of each kind of boundary: all places together first, then those that grow.
pub(super) fn growth(records: &[Record], ledger: &Ledger, min_bytes: u64) -> Vec<Growth> {
    let mut kinds: Vec<BoundaryKind> = records.iter().map(|r| r.kind).filter(|kind| is_round(*kind)).collect();
    kinds.sort_by_key(|kind| format!("{kind:?}"));
    kinds.dedup();
    kinds.into_iter().flat_map(|kind| of_kind(records, ledger, kind, min_bytes)).collect()
}

const fn is_round(kind: BoundaryKind) -> bool {
    !matches!(kind, BoundaryKind::ProcessExit | BoundaryKind::TraceEnd)
}

fn of_kind(records: &[Record], ledger: &Ledger, kind: BoundaryKind, min_bytes: u64) -> Vec<Growth> {
    let rounds: Vec<&Record> = records.iter().filter(|r| r.kind == kind).collect();
    let rounds = rounds.get(rounds.len().saturating_sub(MOST)..).unwrap_or_default();
    if rounds.len() < FEWEST {
        return Vec::new();
    }
    let total = |r: &Record| {
        let layers = r.after_side.layers;
        layers.pool_chunk.unwrap_or(0).saturating_add(layers.heap.unwrap_or(0))
    };
    let sums: Vec<u64> = rounds.iter().map(|r| total(r)).collect();
    let all = Course::of(&sums);
    if sums.last().copied().unwrap_or(0) < min_bytes {
        return Vec::new();
    }
    let mut told = vec![Growth { summary: sentence(kind, rounds.len(), &all, None), ..all.growth(kind, None) }];
    if all.grows {
        told.extend(places(rounds, ledger, kind));
        if let Some(first) = told.get(1).cloned()
            && let Some(total) = told.first_mut()
        {
            total.owner.clone_from(&first.owner);
            total.summary = sentence(kind, rounds.len(), &all, first.place.as_deref());
        }
    }
    told
}

/// Places that grow, by what each round adds.
fn places(rounds: &[&Record], ledger: &Ledger, kind: BoundaryKind) -> Vec<Growth> {
    let mut series: BTreeMap<(BlockLayer, String), (Vec<u64>, Option<SessionId>)> = BTreeMap::new();
    for (i, record) in rounds.iter().enumerate() {
        for place in &record.alive {
            let name = ledger.op_name(place.op).map_or_else(|| "no op named".to_owned(), |op| family(op));
            let (sums, owner) =
                series.entry((place.layer, name)).or_insert_with(|| (vec![0; rounds.len()], place.owner));
            if let Some(sum) = sums.get_mut(i) {
                *sum = sum.saturating_add(place.bytes);
            }
            *owner = place.owner;
        }
    }
    let mut growing: Vec<Growth> = series
        .into_iter()
        .map(|((layer, name), (sums, owner))| (layer, name, owner, Course::of(&sums)))
        .filter(|(.., course)| course.grows)
        .map(|(layer, name, owner, course)| Growth {
            layer: Some(devices::layer(layer)),
            owner: owner.map(|id| format!("session {id} and others")),
            summary: sentence(kind, rounds.len(), &course, Some(&name)),
            ..course.growth(kind, Some(name))
        })
        .collect();
    growing.sort_by_key(|growth| std::cmp::Reverse(growth.per_round_bytes));
    growing.truncate(TOLD);
    growing
}

/// An op's name without the numbers that make it unique, and as the variable's where it is one's.
fn family(op: &str) -> String {
    let parts = |name: &str| {
        let stems =
            name.split('/').map(|part| part.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('_'));
        stems.collect::<Vec<_>>().join("/")
    };
    match variable_of(op) {
        Some(variable) => format!("variable {}", plain(&parts(variable), 60)),
        None => format!("op {}", plain(&parts(op), 80)),
    }
}

/// How a series of sums went.
struct Course {
    rounds: u64,
    first: u64,
    last: u64,
    slope: i64,
    confidence: u64,
    grows: bool,
}

impl Course {
    fn of(sums: &[u64]) -> Self {
        let (slope, confidence) = trend(sums);
        // What grew in the first rounds alone was warming up.
        let (later, sure) = trend(sums.get(sums.len() / 2..).unwrap_or_default());
        let grows = slope >= 4096 && later >= 4096 && confidence >= SURE && sure >= SURE;
        let (first, last) = (sums.first().copied().unwrap_or(0), sums.last().copied().unwrap_or(0));
        Self { rounds: sums.len() as u64, first, last, slope: if grows { later } else { slope }, confidence, grows }
    }

    fn growth(&self, kind: BoundaryKind, place: Option<String>) -> Growth {
        Growth {
            kind,
            rounds: self.rounds,
            layer: None,
            place,
            owner: None,
            first_bytes: self.first,
            last_bytes: self.last,
            per_round_bytes: self.slope,
            confidence: self.confidence,
            grows: self.grows,
            summary: String::new(),
        }
    }
}

/// The median of the slopes between all pairs, and how many of a hundred pairs rise.
fn trend(sums: &[u64]) -> (i64, u64) {
    let mut slopes: Vec<i64> = Vec::new();
    for (i, &earlier) in sums.iter().enumerate() {
        for (rounds, &later) in (1_i64..).zip(sums.iter().skip(i + 1)) {
            slopes.push(
                later.saturating_sub(earlier).cast_signed().wrapping_sub(earlier.saturating_sub(later).cast_signed())
                    / rounds,
            );
        }
    }
    slopes.sort_unstable();
    let rising = slopes.iter().filter(|&&slope| slope > 0).count();
    let share = rising * 100 / slopes.len().max(1);
    (slopes.get(slopes.len() / 2).copied().unwrap_or(0), share as u64)
}

fn sentence(kind: BoundaryKind, rounds: usize, course: &Course, place: Option<&str>) -> String {
    let what = match kind {
        BoundaryKind::SessionClosed => "closes of a session",
        BoundaryKind::SessionDeleted => "deletes of a session",
        BoundaryKind::WorkerSessionDeleted => "sessions on this worker",
        BoundaryKind::CachesCleared => "clearings of the eager context",
        BoundaryKind::ContextDeleted => "eager contexts",
        BoundaryKind::ServerStopped => "servers",
        BoundaryKind::Mark => "marks",
        _ => "returns of the boundary's function",
    };
    let rounds = count(rounds as u64);
    if course.grows {
        let place = place.map_or_else(String::new, |place| format!(", most of it {place}"));
        return format!(
            "Each round leaves {} more behind ({rounds} {what}, {} then {}{place}): it grows, and will not stop by itself.",
            bytes(course.slope.unsigned_abs()),
            bytes(course.first),
            bytes(course.last),
        );
    }
    let course = if course.last > course.first {
        "rose at first and is steady since: warm-up, no leak"
    } else {
        "does not grow"
    };
    format!("Over {rounds} {what} the memory in use {course}.")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_leak_grows_and_a_warm_up_does_not() {
        let leak: Vec<u64> = (0..10).map(|i| (3 + i * 64) * MIB).collect();
        let course = Course::of(&leak);
        assert!(course.grows && course.slope == 64 * MIB.cast_signed() && course.confidence == 100);
        let warm_up = [1, 40, 60, 64, 64, 64, 64, 64, 64, 64].map(|n| n * MIB);
        assert!(!Course::of(&warm_up).grows);
        let falls: Vec<u64> = (0..10).rev().map(|i| i * MIB).collect();
        assert!(!Course::of(&falls).grows);
        // Up and down, as a garbage collector makes it.
        let saw = [0, 10, 20, 0, 10, 20, 0, 10, 20, 0].map(|n| n * MIB);
        assert!(!Course::of(&saw).grows);
        // A leak with noise.
        let noisy = [0, 9, 11, 21, 29, 41, 48, 62, 71, 80].map(|n| n * MIB);
        assert!(Course::of(&noisy).grows);
    }

    #[test]
    fn numbered_names_are_one_place() {
        assert_eq!(family("w3/Initializer/ones"), "variable w");
        assert_eq!(family("dense_12/kernel/Assign"), "variable dense/kernel");
        assert_eq!(family("MatMul_7"), "op MatMul");
    }
}
