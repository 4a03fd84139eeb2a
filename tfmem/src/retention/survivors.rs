//! Survivors in groups: what a person can act on is "64 MiB, variable w, session 3", not one line for each block.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::causes::{self, Claimed};
use super::place::{place, region_of};
use super::record::Row;
use super::scene::Scene;
use crate::event::Addr;
use crate::ledger::types::{BlockLayer, SessionId};
use crate::report::model::{Cause, Layer, Survivor, Verdict};

/// Rows of a boundary; smaller groups are folded into one row for each cause and layer.
const MAX_ROWS: usize = 200;

/// What the blocks of a group have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub layer: BlockLayer,
    pub cause: Cause,
    pub owner: Option<SessionId>,
    pub pool: Option<Addr>,
    pub op: Option<Arc<str>>,
    pub region: Option<String>,
}

#[derive(Clone, Debug)]
pub(super) struct Group {
    pub key: Key,
    pub bytes: u64,
    pub count: u64,
    /// Birth of the oldest and the youngest block.
    pub oldest: u64,
    pub youngest: u64,
    pub ranges: Vec<(Addr, u64)>,
}

impl Group {
    pub fn layer(&self) -> Layer {
        match self.key.layer {
            BlockLayer::Chunk => Layer::PoolChunk,
            BlockLayer::Heap => Layer::Heap,
        }
    }
}

/// Survivors of a boundary, grouped, with the verdicts on them. No byte is in two groups.
pub(super) fn judge(scene: &Scene) -> (Vec<Row>, Vec<Verdict>) {
    let groups = group(scene);
    let (shown, folded): (Vec<Group>, Vec<Group>) = split(groups.clone(), scene.min_bytes);
    let mut rows: Vec<Row> = shown.into_iter().map(|g| row(scene, g)).collect();
    rows.extend(fold(scene, folded));
    let mut verdicts = Vec::new();
    for rule in &causes::RULES {
        let mine: Vec<&Group> = groups.iter().filter(|g| g.key.cause == rule.cause).collect();
        let refs = rows.iter().enumerate().filter(|(_, r)| r.survivor.cause == rule.cause).map(|(i, _)| i).collect();
        let bytes = mine.iter().map(|g| g.bytes).fold(0, u64::saturating_add);
        verdicts.extend((rule.verdicts)(scene, &Claimed { groups: mine, rows: refs, bytes }));
    }
    causes::order(&mut verdicts);
    (rows, verdicts)
}

/// All survivors in groups, the largest first.
fn group(scene: &Scene) -> Vec<Group> {
    // Names are looked up once for each op, not for each block.
    let mut names: FxHashMap<u64, Option<Arc<str>>> = FxHashMap::default();
    let mut groups: FxHashMap<Key, Group> = FxHashMap::default();
    for a in scene.survivors() {
        let op = names.entry(a.origin.op).or_insert_with(|| scene.op_name(&a)).clone();
        let key = Key {
            layer: a.layer,
            cause: causes::of(scene, &a),
            owner: a.owner,
            pool: a.pool,
            op,
            region: region_of(&a.origin),
        };
        let group = groups.entry(key).or_insert_with_key(|key| Group {
            key: key.clone(),
            bytes: 0,
            count: 0,
            oldest: a.born,
            youngest: a.born,
            ranges: Vec::new(),
        });
        group.bytes = group.bytes.saturating_add(a.bytes);
        group.count += 1;
        group.oldest = group.oldest.min(a.born);
        group.youngest = group.youngest.max(a.born);
        group.ranges.push((a.addr, a.bytes));
    }
    let mut groups: Vec<Group> = groups.into_values().collect();
    // The order must not hang on the hash: the same events give the same report.
    groups.sort_by(|a, b| {
        b.bytes.cmp(&a.bytes).then_with(|| a.oldest.cmp(&b.oldest)).then_with(|| rank(&a.key).cmp(&rank(&b.key)))
    });
    groups
}

type Rank<'a> = (BlockLayer, Cause, Option<SessionId>, Option<Addr>, Option<&'a str>, Option<&'a str>);

fn rank(key: &Key) -> Rank<'_> {
    (key.layer, key.cause, key.owner, key.pool, key.op.as_deref(), key.region.as_deref())
}

/// Groups with a row of their own, and groups to fold.
fn split(groups: Vec<Group>, min_bytes: u64) -> (Vec<Group>, Vec<Group>) {
    let (mut shown, mut folded): (Vec<Group>, Vec<Group>) = groups.into_iter().partition(|g| g.bytes >= min_bytes);
    if shown.len() > MAX_ROWS {
        folded.extend(shown.split_off(MAX_ROWS));
    }
    (shown, folded)
}

/// One row for each cause and layer, so that the sums of both stay exact. A single group keeps its name.
fn fold(scene: &Scene, groups: Vec<Group>) -> Vec<Row> {
    let mut by_cause: Vec<((Cause, BlockLayer), Vec<Group>)> = Vec::new();
    for group in groups {
        let key = (group.key.cause, group.key.layer);
        match by_cause.iter_mut().find(|(k, _)| *k == key) {
            Some((_, list)) => list.push(group),
            None => by_cause.push((key, vec![group])),
        }
    }
    by_cause.sort_by_key(|(key, _)| *key);
    by_cause.into_iter().filter_map(|(_, list)| folded(scene, list)).collect()
}

fn folded(scene: &Scene, groups: Vec<Group>) -> Option<Row> {
    let n = groups.len() as u64;
    let mut all = groups.into_iter();
    let mut sum = all.next()?;
    if n == 1 {
        return Some(row(scene, sum));
    }
    for g in all {
        sum.bytes = sum.bytes.saturating_add(g.bytes);
        sum.count += g.count;
        sum.oldest = sum.oldest.min(g.oldest);
        sum.ranges.extend(g.ranges);
    }
    sum.key = Key { owner: None, pool: None, op: None, region: None, ..sum.key };
    let mut row = row(scene, sum);
    row.survivor.folded_groups = Some(n);
    Some(row)
}

fn row(scene: &Scene, group: Group) -> Row {
    let survivor = Survivor {
        layer: group.layer(),
        bytes: group.bytes,
        resident_bytes: None,
        count: group.count,
        folded_groups: None,
        oldest_age_ms: scene.after.saturating_sub(group.oldest) / 1_000_000,
        cause: group.key.cause,
        owner: group.key.owner.map(|id| format!("session {id}")),
        pool: group.key.pool.map(|pool| scene.pool_name(pool)),
        device: None,
        place: place(group.key.op.as_deref(), group.key.region),
        stack: None,
    };
    Row { survivor, ranges: group.ranges }
}
