//! A resource that lives in a container of TensorFlow's, under a name: a variable, a table. No session's close and no
//! Python object's end takes it away.

use super::{Claimed, Rule, held};
use crate::ledger::types::Allocation;
use crate::report::model::{Cause, Verdict};
use crate::report::units::counted;
use crate::retention::scene::Scene;

pub(super) const RULE: Rule = Rule { cause: Cause::StatefulResource, claims, verdicts };

fn claims(scene: &Scene, a: &Allocation) -> bool {
    held::is_held(scene, a, Cause::StatefulResource)
}

fn verdicts(scene: &Scene, claimed: &Claimed) -> Vec<Verdict> {
    // What hangs on a table was taken from malloc directly.
    let more = held::beside(scene, Cause::StatefulResource);
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
