//! Elements that a tf.data pipeline keeps: a cache, a shuffle buffer, what was fetched ahead.

use super::{Claimed, Rule, held};
use crate::event::HolderKind;
use crate::ledger::types::Allocation;
use crate::report::model::{Cause, Verdict};
use crate::retention::scene::Scene;

pub(super) const RULE: Rule = Rule { cause: Cause::PipelineBuffers, claims, verdicts };

fn claims(scene: &Scene, a: &Allocation) -> bool {
    held::is_held(scene, a, |holder| holder.kind == HolderKind::Pipeline)
}

fn verdicts(scene: &Scene, claimed: &Claimed) -> Vec<Verdict> {
    let count: u64 = claimed.groups.iter().map(|group| group.count).sum();
    held::verdict(
        scene,
        claimed,
        &[],
        Cause::PipelineBuffers,
        |sum, _| format!("{sum} in {count} elements is kept by a tf.data pipeline."),
        "drop the iterator and the dataset that it came from (`del`); a cache that need not be in memory can be in a file \
         (`cache(filename)`)",
    )
}
