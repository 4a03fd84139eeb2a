//! Why memory is still there: small rules, each in a file of its own, all listed here.
//!
//! The first rule that claims a survivor gets it, so no byte has two causes. A rule may also speak of memory that is no
//! survivor (the free part of a pool). [`leftover`] is not in the list: it is about other processes, and known only a
//! grace time after the end.

mod before_attach;
mod function_traces;
mod gpu_reserve;
mod graph_retained;
mod heap_reserve;
mod held;
pub(super) mod leftover;
mod pipeline_buffers;
mod pool_reserve;
mod python_reference;
mod session_not_deleted;
mod session_open;
mod stateful_resource;
mod unexplained;
mod words;
mod worker_state;

use super::scene::Scene;
use super::survivors::Group;
use crate::ledger::types::Allocation;
use crate::report::model::{Cause, Refs, Verdict};

pub(super) struct Rule {
    pub cause: Cause,
    claims: fn(&Scene, &Allocation) -> bool,
    pub verdicts: fn(&Scene, &Claimed) -> Vec<Verdict>,
}

/// What a rule claimed: its groups (the largest first) and the rows of the report they are in.
pub(super) struct Claimed<'a> {
    pub groups: Vec<&'a Group>,
    pub rows: Vec<usize>,
    pub bytes: u64,
}

/// In order of precedence. The last one claims whatever is left.
pub(super) static RULES: [Rule; 14] = [
    before_attach::RULE,
    session_open::RULE,
    worker_state::RULE,
    session_not_deleted::RULE,
    stateful_resource::RULE,
    pipeline_buffers::RULE,
    function_traces::RULE,
    graph_retained::RULE,
    python_reference::RULE,
    pool_reserve::RULE,
    gpu_reserve::DEVICE,
    gpu_reserve::PINNED,
    heap_reserve::RULE,
    unexplained::RULE,
];

/// The cause of a survivor.
pub(super) fn of(scene: &Scene, allocation: &Allocation) -> Cause {
    RULES.iter().find(|r| (r.claims)(scene, allocation)).map_or(Cause::Unexplained, |r| r.cause)
}

/// Named causes first, then reserves and what nobody explains; within these the largest first.
pub(super) fn order(verdicts: &mut [Verdict]) {
    let named = |v: &Verdict| !v.cause.is_reserve() && v.cause != Cause::Unexplained;
    verdicts.sort_by_key(|v| (!named(v), std::cmp::Reverse(v.bytes), v.cause));
}

impl Claimed<'_> {
    fn refs(&self) -> Refs {
        Refs { survivors: self.rows.clone(), ..Refs::default() }
    }
}
