//! A resource that lives in a container of TensorFlow's, under a name: a variable, a table. No session's close and no
//! Python object's end takes it away.

use super::{Claimed, Rule, held};
use crate::event::{Holder, HolderKind};
use crate::ledger::types::Allocation;
use crate::report::model::{Cause, Verdict};
use crate::report::units::counted;
use crate::retention::scene::Scene;
use crate::retention::watch::is_unfollowed;

pub(super) const RULE: Rule = Rule { cause: Cause::StatefulResource, claims, verdicts };

fn claims(scene: &Scene, a: &Allocation) -> bool {
    held::is_held(scene, a, is_resource)
}

pub(super) fn is_resource(holder: &Holder) -> bool {
    matches!(holder.kind, HolderKind::Variable | HolderKind::Table) || holder.container.is_some()
}

fn verdicts(scene: &Scene, claimed: &Claimed) -> Vec<Verdict> {
    // What hangs on a table was taken from malloc directly.
    let mut more: Vec<(&Holder, u64)> = if scene.is_end() || is_unfollowed(scene.process) {
        scene.holders.tables().filter(|table| table.name.is_some()).map(|table| (table, table.bytes)).collect()
    } else {
        Vec::new()
    };
    more.extend(held::unseen(scene, is_resource).into_iter().map(|(holder, unseen)| (holder, unseen.bytes)));
    held::verdict(
        scene,
        claimed,
        &more,
        Cause::StatefulResource,
        |sum, n| {
            format!(
                "{sum} is held by {} of TensorFlow's that {} on under a name.",
                counted(n, "resource"),
                if n == 1 { "lives" } else { "live" }
            )
        },
        "destroy the resource (`tf.raw_ops.DestroyResourceOp`), reset its container (`tf.compat.v1.Session.reset`), or \
         make it without a name (`experimental_is_anonymous=True`) and drop the last reference",
    )
}
