//! A graph of TensorFlow 1 that nobody deleted: the default graph that was never reset, or one that a tensor or an
//! operation in some variable of the program keeps. Closing sessions does not touch it.

use super::{Claimed, Rule, held};
use crate::event::{Holder, HolderKind};
use crate::ledger::types::Allocation;
use crate::report::model::{Cause, Verdict};
use crate::report::units::{bytes, count, counted};
use crate::retention::scene::Scene;

pub(super) const RULE: Rule = Rule { cause: Cause::GraphRetained, claims, verdicts };

/// Less is not told from what TensorFlow's own registry of ops takes.
const LEAST: u64 = 16 << 20;

/// Not where eager code has functions: each has a graph, and needs it.
pub(super) fn applies(scene: &Scene) -> bool {
    let graphs = scene.process.graphs;
    // From Python, newer versions do not make graphs through the C API: none is counted then.
    let made = graphs.opened == 0 || graphs.opened > graphs.closed;
    let described =
        scene.holders.of_kind(HolderKind::Graph).fold(0, |sum: u64, holder| sum.saturating_add(holder.bytes));
    let eager = scene.process.functions.opened > 0 || scene.holders.of_kind(HolderKind::Function).next().is_some();
    made && !eager && described >= LEAST
}

fn claims(scene: &Scene, a: &Allocation) -> bool {
    held::is_held(scene, a, Cause::GraphRetained)
}

fn verdicts(scene: &Scene, claimed: &Claimed) -> Vec<Verdict> {
    let more: Vec<(&Holder, u64)> = held::beside(scene, Cause::GraphRetained);
    let sum = more.iter().fold(claimed.bytes, |sum, (_, held)| sum.saturating_add(*held));
    if sum == 0 || sum < scene.min_bytes {
        return Vec::new();
    }
    let graphs = scene.process.graphs;
    let alive = graphs.opened.saturating_sub(graphs.closed);
    let mut evidence = Vec::new();
    if graphs.opened > 0 {
        evidence.push(format!("Graph: {} made, {} deleted", counted(graphs.opened, "graph"), count(graphs.closed)));
    }
    let sessions = scene.process.sessions.iter().filter(|s| s.closed.is_some()).count() as u64;
    if sessions > 0 {
        evidence.push(format!("{} closed: that does not delete a graph", counted(sessions, "session")));
    }
    let blocks: u64 = more.iter().filter(|(h, _)| h.blocks.is_empty()).map(|(h, _)| h.count).sum();
    evidence.push(format!("definitions of nodes, attributes and constants, in {}", counted(blocks, "block")));
    evidence.push(
        "found by reading the definitions in the process' memory; up to 6 MiB of it may be TensorFlow's registry of ops"
            .to_owned(),
    );
    vec![Verdict {
        cause: Cause::GraphRetained,
        bytes: sum,
        summary: format!(
            "{} is held by {} whose nodes and constants live on until the graph is deleted.",
            bytes(sum),
            if alive > 0 { counted(alive, "graph") } else { "graphs".to_owned() }
        ),
        evidence,
        gives_back:
            "`tf.compat.v1.reset_default_graph()` after each round (or build in `with tf.Graph().as_default():`), \
                     and drop every tensor and operation that is kept in a list or a global: each keeps its whole graph"
                .to_owned(),
        refs: claimed.refs(),
    }]
}
