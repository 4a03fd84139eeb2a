//! Elements that a tf.data pipeline keeps: a cache, a shuffle buffer, what was fetched ahead.

use super::stateful_resource::is_resource;
use super::{Claimed, Rule, held};
use crate::event::{Holder, HolderKind};
use crate::ledger::types::Allocation;
use crate::report::model::{Cause, Verdict};
use crate::retention::scene::Scene;

pub(super) const RULE: Rule = Rule { cause: Cause::PipelineBuffers, claims, verdicts };

fn claims(scene: &Scene, a: &Allocation) -> bool {
    held::is_held(scene, a, is_pipeline)
}

pub(super) fn is_pipeline(holder: &Holder) -> bool {
    holder.kind == HolderKind::Pipeline && !is_resource(holder)
}

fn verdicts(scene: &Scene, claimed: &Claimed) -> Vec<Verdict> {
    let unseen = held::unseen(scene, is_pipeline);
    let count = claimed.groups.iter().map(|group| group.count).chain(unseen.iter().map(|(_, unseen)| unseen.count));
    let count: u64 = count.sum();
    let more: Vec<_> = unseen.into_iter().map(|(holder, unseen)| (holder, unseen.bytes)).collect();
    held::verdict(
        scene,
        claimed,
        &more,
        Cause::PipelineBuffers,
        |sum, _| format!("{sum} in {count} elements is kept by a tf.data pipeline."),
        "drop the iterator and the dataset that it came from (`del`); a cache that need not be in memory can be in a file \
         (`cache(filename)`)",
    )
}
