//! Survivors in groups: what a person can act on is "64 MiB, variable w, session 3", not one line for each block.

use std::collections::BTreeMap;
use std::mem::take;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::causes::{self, Claimed};
use super::devices;
use super::holders;
use super::own_code;
use super::place::{place, region_text};
use super::record::{Row, bounds};
use super::scene::Scene;
use super::stacks;
use crate::event::{Addr, StackId};
use crate::ledger::types::{BlockLayer, SessionId};
use crate::report::model::{Cause, PythonOf, Survivor, Verdict};
use crate::report::units::counted;

/// What the blocks of a group have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub layer: BlockLayer,
    pub cause: Cause,
    pub owner: Option<SessionId>,
    pub pool: Option<Addr>,
    pub op: Option<Arc<str>>,
    pub region: [u8; 8],
    /// Who holds it, by number in the scene.
    pub holder: Option<usize>,
    pub stack: Option<StackId>,
    /// Where the step began in which it was allocated.
    pub launch: Option<StackId>,
    /// The GPU that it is on, as the program numbers it.
    pub device: Option<u32>,
    /// The library that asked the GPU's driver for it.
    pub library: Option<Arc<str>>,
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

/// Survivors of a boundary, grouped, with the verdicts on them. No byte is in two groups.
pub(super) fn judge(scene: &Scene) -> (Vec<Row>, Vec<Verdict>) {
    let mut groups = group(scene);
    let rows = rows(scene, &mut groups);
    let mut verdicts = Vec::new();
    for rule in &causes::RULES {
        let mine: Vec<&Group> = groups.iter().filter(|g| g.key.cause == rule.cause).collect();
        let refs = rows.iter().enumerate().filter(|(_, r)| r.survivor.cause == rule.cause).map(|(i, _)| i).collect();
        let bytes = mine.iter().map(|g| g.bytes).fold(0, u64::saturating_add);
        verdicts.extend((rule.verdicts)(scene, &Claimed { groups: mine, rows: refs, bytes }));
    }
    doubt(scene, &rows, &mut verdicts);
    causes::order(&mut verdicts);
    (rows, verdicts)
}

/// Frees that were lost leave blocks among the survivors that are gone: a verdict on such a layer says how many.
fn doubt(scene: &Scene, rows: &[Row], verdicts: &mut [Verdict]) {
    for bound in bounds(scene.process).iter().filter(|b| b.maybe_freed > 0) {
        let of_layer = |&row: &usize| rows.get(row).is_some_and(|r| r.survivor.layer == bound.layer);
        for verdict in verdicts.iter_mut().filter(|v| v.refs.survivors.iter().any(of_layer)) {
            let sentence = format!(
                "not exact: {} of this layer {} lost, so up to as many of its blocks may be gone",
                counted(bound.maybe_freed, "free"),
                if bound.maybe_freed == 1 { "was" } else { "were" }
            );
            verdict.evidence.push(sentence);
        }
    }
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
            region: a.origin.region,
            holder: scene.holders.of(&a),
            stack: a.stack,
            launch: a.launch,
            device: scene.device(&a),
            library: scene.process.gpu.asked_by(a.layer, a.addr).cloned(),
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

type Rank<'a> = (
    (BlockLayer, Cause, Option<SessionId>, Option<Addr>),
    (Option<&'a str>, [u8; 8], Option<usize>, Option<StackId>, Option<StackId>),
    (Option<u32>, Option<&'a str>),
);

fn rank(key: &Key) -> Rank<'_> {
    (
        (key.layer, key.cause, key.owner, key.pool),
        (key.op.as_deref(), key.region, key.holder, key.stack, key.launch),
        (key.device, key.library.as_deref()),
    )
}

/// A row for each group that is large enough, and one for all others of a cause and layer, so that the sums of both
/// stay exact. The rows take the ranges of the groups.
fn rows(scene: &Scene, groups: &mut [Group]) -> Vec<Row> {
    let large = groups.iter().take(scene.max_rows).take_while(|g| g.bytes >= scene.min_bytes).count();
    let (shown, small) = groups.split_at_mut(large);
    let mut rows: Vec<Row> = Vec::with_capacity(large + 8);
    for group in shown {
        let ranges = take(&mut group.ranges);
        rows.push(row(scene, group, ranges));
    }
    let mut by_cause: BTreeMap<(Cause, BlockLayer), Vec<&mut Group>> = BTreeMap::new();
    for group in small {
        by_cause.entry((group.key.cause, group.key.layer)).or_default().push(group);
    }
    rows.extend(by_cause.into_values().filter_map(|list| folded(scene, list)));
    rows
}

/// A single group keeps its name.
fn folded(scene: &Scene, groups: Vec<&mut Group>) -> Option<Row> {
    let n = groups.len() as u64;
    let mut all = groups.into_iter();
    let first = all.next()?;
    let mut ranges = take(&mut first.ranges);
    if n == 1 {
        return Some(row(scene, first, ranges));
    }
    let mut sum = first.clone();
    for g in all {
        sum.bytes = sum.bytes.saturating_add(g.bytes);
        sum.count += g.count;
        sum.oldest = sum.oldest.min(g.oldest);
        ranges.append(&mut g.ranges);
    }
    sum.key = Key {
        owner: None,
        pool: None,
        op: None,
        region: [0; 8],
        holder: None,
        stack: None,
        launch: None,
        device: None,
        library: None,
        ..sum.key
    };
    let mut row = row(scene, &sum, ranges);
    row.survivor.folded_groups = Some(n);
    Some(row)
}

pub(super) fn file_name(path: &str) -> String {
    path.rsplit('/').next().unwrap_or(path).to_owned()
}

fn session(scene: &Scene, id: SessionId) -> String {
    match scene.process.session(id) {
        None if scene.process.worker_sessions.find(id).is_none() => "session that failed to open".to_owned(),
        _ => scene.owner_name(id),
    }
}

fn holder(scene: &Scene, group: &Group) -> Option<String> {
    Some(holders::shown(scene.holders.get(group.key.holder?)?))
}

/// The user's own line of Python, and whose it is: the allocating thread's, or that of the one that began its step.
pub(super) fn python(scene: &Scene, key: &Key) -> Option<(String, Option<PythonOf>)> {
    let stacks = scene.ledger.stacks();
    if let Some(own) = key.stack.filter(|&id| own_code::has_python(stacks, id)) {
        return Some((own_code::line(stacks, own)?, None));
    }
    Some((own_code::line(stacks, key.launch?)?, Some(PythonOf::Launch)))
}

fn row(scene: &Scene, group: &Group, ranges: Vec<(Addr, u64)>) -> Row {
    let mut place = place(group.key.op.as_deref(), region_text(group.key.region));
    place.native = group.key.library.as_deref().map(file_name);
    (place.python, place.python_of) = python(scene, &group.key).map_or((None, None), |(line, of)| (Some(line), of));
    let survivor = Survivor {
        layer: devices::layer(group.key.layer),
        bytes: group.bytes,
        resident_bytes: None,
        count: group.count,
        folded_groups: None,
        oldest_age_ms: scene.after.saturating_sub(group.oldest) / 1_000_000,
        cause: group.key.cause,
        owner: group.key.owner.map(|id| session(scene, id)).or_else(|| holder(scene, group)),
        pool: group.key.pool.map(|pool| scene.pool_name(pool)),
        device: group.key.device,
        place,
        stack: group.key.stack.map(stacks::name),
    };
    Row { survivor, ranges }
}
