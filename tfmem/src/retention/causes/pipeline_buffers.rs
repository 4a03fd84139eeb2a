//! Elements that a tf.data pipeline keeps: a cache, a shuffle buffer, what was fetched ahead.

use super::{Claimed, Rule, held};
use crate::ledger::types::Allocation;
use crate::report::model::{Cause, Verdict};
use crate::report::units::counted;
use crate::retention::scene::Scene;

pub(super) const RULE: Rule = Rule { cause: Cause::PipelineBuffers, claims, verdicts };

fn claims(scene: &Scene, a: &Allocation) -> bool {
    held::is_held(scene, a, Cause::PipelineBuffers)
}

fn verdicts(scene: &Scene, claimed: &Claimed) -> Vec<Verdict> {
    let more = held::beside(scene, Cause::PipelineBuffers);
    let count = held::buffers(claimed, &more);
    held::verdict(
        scene,
        claimed,
        &more,
        Cause::PipelineBuffers,
        |sum, _| format!("{sum} in {} is kept by a tf.data pipeline.", counted(count, "element")),
        "drop the iterator and the dataset that it came from (`del`); a cache that need not be in memory can be in a file \
         (`cache(filename)`)",
    )
}
