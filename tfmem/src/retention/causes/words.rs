//! Sentences that several rules say the same way.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Claimed;
use crate::ledger::types::{BlockLayer, SessionId};
use crate::report::model::PythonOf;
use crate::report::units::{bytes, count, counted, plain};
use crate::retention::place::{region_text, variable_of};
use crate::retention::scene::Scene;
use crate::retention::survivors::{Group, file_name, python};

/// Places named in the evidence.
const PLACES: usize = 3;
/// Ids of sessions named one by one.
const IDS: usize = 8;
/// Places that are compared; the groups of any others are small.
const MAX_PLACES: usize = 64;

/// Owners of what was claimed, in order of opening.
pub(super) fn owners(claimed: &Claimed) -> BTreeSet<SessionId> {
    claimed.groups.iter().filter_map(|g| g.key.owner).collect()
}

/// `sessions 1, 2, 3 and 9 more`.
pub(super) fn sessions(scene: &Scene, ids: &BTreeSet<SessionId>) -> String {
    if ids.iter().any(|&id| scene.process.worker_sessions.find(id).is_some()) {
        return named(scene, ids);
    }
    let noun = if ids.len() == 1 { "session" } else { "sessions" };
    let first: Vec<String> = ids.iter().take(IDS).map(|id| count(*id)).collect();
    let more = ids.len().saturating_sub(IDS);
    let rest = if more > 0 { format!(" and {} more", count(more as u64)) } else { String::new() };
    format!("{noun} {}{rest}", first.join(", "))
}

/// The same where some are known by their handle only.
fn named(scene: &Scene, ids: &BTreeSet<SessionId>) -> String {
    let first: Vec<String> = ids.iter().take(IDS).map(|&id| scene.owner_name(id)).collect();
    let more = ids.len().saturating_sub(IDS);
    let rest = if more > 0 { format!(" and {} more", count(more as u64)) } else { String::new() };
    format!("{}{rest}", first.join(", "))
}

/// The places with most bytes: `64.0 MiB in each of 4 sessions: variable w (op w/Initializer/zeros), heap`.
pub(super) fn places(scene: &Scene, claimed: &Claimed) -> Vec<String> {
    let mut places: Vec<Place> = Vec::new();
    for group in &claimed.groups {
        let python = python(scene, &group.key);
        let same = |p: &&mut Place| {
            p.op == group.key.op
                && p.python == python
                && p.region == group.key.region
                && p.layer == group.key.layer
                && p.pool == group.key.pool
                && p.library == group.key.library
        };
        let known = places.len();
        match places.iter_mut().find(same) {
            Some(place) => place.add(group),
            // Groups come the largest first, so the places that count are among the first ones.
            None if known < MAX_PLACES => places.push(Place { python, ..Place::of(group) }),
            None => {}
        }
    }
    places.sort_by_key(|p| std::cmp::Reverse(p.bytes));
    places.iter().take(PLACES).map(|p| p.text(scene)).collect()
}

/// Groups that differ in their owner alone.
struct Place {
    op: Option<Arc<str>>,
    region: [u8; 8],
    /// The user's line of Python.
    python: Option<(String, Option<PythonOf>)>,
    layer: BlockLayer,
    pool: Option<u64>,
    library: Option<Arc<str>>,
    bytes: u64,
    blocks: u64,
    owners: Vec<(Option<SessionId>, u64)>,
}

impl Place {
    fn of(group: &Group) -> Self {
        Self {
            op: group.key.op.clone(),
            region: group.key.region,
            python: None,
            layer: group.key.layer,
            pool: group.key.pool,
            library: group.key.library.clone(),
            bytes: group.bytes,
            blocks: group.count,
            owners: vec![(group.key.owner, group.bytes)],
        }
    }

    fn add(&mut self, group: &Group) {
        self.bytes = self.bytes.saturating_add(group.bytes);
        self.blocks += group.count;
        self.owners.push((group.key.owner, group.bytes));
    }

    fn text(&self, scene: &Scene) -> String {
        let what = self.op.as_deref().map_or_else(
            || "no op named".to_owned(),
            |op| {
                let shown = plain(op, 80);
                // Most are outputs, which says nothing.
                let region = region_text(self.region).filter(|r| r != "output");
                let region = region.map_or_else(String::new, |r| format!(", {}", plain(&r, 8)));
                match variable_of(op) {
                    Some(variable) => format!("variable {} (op {shown}{region})", plain(variable, 60)),
                    None if region.is_empty() => format!("op {shown}"),
                    None => format!("op {shown} ({})", &region[2..]),
                }
            },
        );
        let layer = match (self.layer, self.pool) {
            (BlockLayer::Chunk, Some(pool)) => format!("pool \"{}\"", plain(&scene.pool_name(pool), 40)),
            (BlockLayer::Chunk, None) => "a pool".to_owned(),
            (BlockLayer::Heap, _) => "the heap".to_owned(),
            (BlockLayer::Device, _) => "memory of a GPU outside TensorFlow's pools".to_owned(),
            (BlockLayer::Pinned, _) => "page-locked host memory".to_owned(),
            (BlockLayer::Managed, _) => "managed memory".to_owned(),
        };
        let asked = self.library.as_deref().map(|path| format!(", asked for by {}", plain(&file_name(path), 60)));
        let layer = format!("{layer}{}", asked.unwrap_or_default());
        let (first, rest) = match self.owners.split_first() {
            Some(((_, first), rest)) => (*first, rest),
            None => (0, &[][..]),
        };
        let owned = self.owners.iter().all(|(owner, _)| owner.is_some());
        let how_much = if owned && !rest.is_empty() && rest.iter().all(|(_, n)| *n == first) {
            format!("{} in each of {}", bytes(first), counted(self.owners.len() as u64, "session"))
        } else if owned && rest.is_empty() {
            let owner = self.owners.first().and_then(|(o, _)| *o).unwrap_or(0);
            format!("{} in {}", bytes(self.bytes), scene.owner_name(owner))
        } else if owned {
            format!("{} in {}", bytes(self.bytes), counted(self.owners.len() as u64, "session"))
        } else {
            format!("{} in {}", bytes(self.bytes), counted(self.blocks, "block"))
        };
        let made = match &self.python {
            Some((line, None)) => format!(", made at {}", plain(line, 120)),
            Some((line, Some(PythonOf::Launch))) => format!(", in a step begun at {}", plain(line, 120)),
            None => String::new(),
        };
        format!("{how_much}: {what}, in {layer}{made}")
    }
}
