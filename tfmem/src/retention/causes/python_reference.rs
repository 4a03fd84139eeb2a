//! A tensor that a Python object holds. Whether anything still uses that object is not known from here.

use super::stateful_resource::is_resource;
use super::{Claimed, Rule, held};
use crate::event::{Holder, HolderKind};
use crate::ledger::types::Allocation;
use crate::report::model::{Cause, Verdict};
use crate::report::units::counted;
use crate::retention::scene::Scene;

pub(super) const RULE: Rule = Rule { cause: Cause::PythonReference, claims, verdicts };

fn claims(scene: &Scene, a: &Allocation) -> bool {
    held::is_held(scene, a, is_python)
}

pub(super) fn is_python(holder: &Holder) -> bool {
    matches!(holder.kind, HolderKind::Python | HolderKind::Handle) && !is_resource(holder)
}

fn verdicts(scene: &Scene, claimed: &Claimed) -> Vec<Verdict> {
    let unseen = held::unseen(scene, is_python);
    let count = claimed.groups.iter().map(|group| group.count).chain(unseen.iter().map(|(_, unseen)| unseen.count));
    let count: u64 = count.sum();
    let more: Vec<_> = unseen.into_iter().map(|(holder, unseen)| (holder, unseen.bytes)).collect();
    held::verdict(
        scene,
        claimed,
        &more,
        Cause::PythonReference,
        |sum, _| format!("{sum} in {} is held by Python objects.", counted(count, "tensor")),
        "drop the references to them (`del`); where objects refer to each other in a circle, `gc.collect()`",
    )
}
