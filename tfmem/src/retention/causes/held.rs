//! What the rules share that know the holder of a survivor.

use super::words::places;
use super::{Claimed, function_traces, graph_retained};
use crate::event::{Holder, HolderKind, Scope};
use crate::ledger::types::Allocation;
use crate::report::model::{Cause, Verdict};
use crate::report::units::{bytes, counted};
use crate::retention::holders::shown;
use crate::retention::scene::Scene;
use crate::retention::watch::is_unfollowed;

/// Holders named one by one.
const NAMED: usize = 4;
/// Where the knowledge comes from.
const FOUND: &str = "found by following references, in the process' memory, back from the data";

/// Why what this one holds is still there.
pub(super) fn cause(scene: &Scene, holder: &Holder) -> Option<Cause> {
    match holder.kind {
        HolderKind::Pipeline => Some(Cause::PipelineBuffers),
        HolderKind::Variable | HolderKind::Table | HolderKind::Resource => {
            Some(match (&holder.container, holder.scope) {
                // Nobody but a Python object has it.
                (None, _) => Cause::PythonReference,
                (Some(_), Some(Scope::Server)) => Cause::WorkerState,
                (Some(_), Some(Scope::Session)) => Cause::SessionOpen,
                (Some(_), _) => Cause::StatefulResource,
            })
        }
        HolderKind::Handle | HolderKind::Python => Some(Cause::PythonReference),
        HolderKind::Function | HolderKind::Graph if function_traces::applies(scene) => Some(Cause::FunctionTraces),
        HolderKind::Function | HolderKind::Graph if graph_retained::applies(scene) => Some(Cause::GraphRetained),
        _ => None,
    }
}

/// Whether the holder of an allocation has this cause.
pub(super) fn is_held(scene: &Scene, a: &Allocation, why: Cause) -> bool {
    scene.holders.of(a).and_then(|number| scene.holders.get(number)).and_then(|holder| cause(scene, holder))
        == Some(why)
}

/// Holders with this cause and the bytes that they hold beside the ledger's.
pub(super) fn beside<'a>(scene: &'a Scene, why: Cause) -> Vec<(&'a Holder, u64)> {
    // What a holder has beside the ledger is not of one session: at the end alone, or where nothing else is known.
    if !scene.is_end() && !is_unfollowed(scene.process) {
        return Vec::new();
    }
    scene.holders.unseen().filter(|(holder, _)| cause(scene, holder) == Some(why)).collect()
}

/// How many buffers were claimed, and are beside the ledger's.
pub(super) fn buffers(claimed: &Claimed, more: &[(&Holder, u64)]) -> u64 {
    let known: u64 = claimed.groups.iter().map(|group| group.count).sum();
    known + more.iter().map(|(holder, _)| holder.count).sum::<u64>()
}

/// What is said of holders.
pub(super) struct Told {
    pub bytes: u64,
    pub holders: u64,
    pub evidence: Vec<String>,
}

/// The holders of what was claimed, and of `more` (holder and bytes beside the ledger's).
pub(super) fn told(scene: &Scene, claimed: &Claimed, more: &[(&Holder, u64)]) -> Told {
    let mut all: Vec<(String, u64)> = Vec::new();
    let mut add = |what: String, held: u64| match all.iter_mut().find(|(known, _)| *known == what) {
        Some((_, sum)) => *sum = sum.saturating_add(held),
        None => all.push((what, held)),
    };
    for group in &claimed.groups {
        if let Some(holder) = group.key.holder.and_then(|number| scene.holders.get(number)) {
            add(shown(holder), group.bytes);
        }
    }
    more.iter().for_each(|(holder, held)| add(shown(holder), *held));
    let sum = more.iter().fold(claimed.bytes, |sum, (_, held)| sum.saturating_add(*held));
    all.sort_by_key(|(_, held)| std::cmp::Reverse(*held));
    let mut evidence: Vec<String> =
        all.iter().take(NAMED).map(|(what, held)| format!("{}: {what}", bytes(*held))).collect();
    if all.len() > NAMED {
        evidence.push(format!("and {}", counted((all.len() - NAMED) as u64, "more holder")));
    }
    if !all.is_empty() {
        evidence.push(FOUND.to_owned());
    }
    Told { bytes: sum, holders: all.len() as u64, evidence }
}

/// A verdict on what was claimed and on `more`: `summary` gets the bytes and the number of holders.
pub(super) fn verdict(
    scene: &Scene,
    claimed: &Claimed,
    more: &[(&Holder, u64)],
    cause: Cause,
    summary: impl FnOnce(&str, u64) -> String,
    gives_back: &str,
) -> Vec<Verdict> {
    let Told { bytes: sum, holders, mut evidence } = told(scene, claimed, more);
    if sum == 0 || sum < scene.min_bytes {
        return Vec::new();
    }
    let from = evidence.pop();
    evidence.extend(places(scene, claimed));
    evidence.extend(from);
    vec![Verdict {
        cause,
        bytes: sum,
        summary: summary(&bytes(sum), holders),
        evidence,
        gives_back: gives_back.to_owned(),
        refs: claimed.refs(),
    }]
}
