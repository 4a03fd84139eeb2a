//! A tensor that a Python object holds. Whether anything still uses that object is not known from here.

use super::{Claimed, Rule, held};
use crate::ledger::types::Allocation;
use crate::report::model::{Cause, Verdict};
use crate::report::units::counted;
use crate::retention::scene::Scene;

pub(super) const RULE: Rule = Rule { cause: Cause::PythonReference, claims, verdicts };

fn claims(scene: &Scene, a: &Allocation) -> bool {
    held::is_held(scene, a, Cause::PythonReference)
}

fn verdicts(scene: &Scene, claimed: &Claimed) -> Vec<Verdict> {
    let more = held::beside(scene, Cause::PythonReference);
    let count = held::buffers(claimed, &more);
    held::verdict(
        scene,
        claimed,
        &more,
        Cause::PythonReference,
        |sum, _| format!("{sum} in {} is held by Python objects.", counted(count, "tensor")),
        "drop the references to them (`del`); where objects refer to each other in a circle, `gc.collect()`",
    )
}
