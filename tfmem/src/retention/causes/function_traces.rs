//! A `tf.function` that is traced again and again: each trace keeps its graph, its constants and what was made from them
//! for as long as the function object lives.

use super::{Claimed, Rule, held};
use crate::event::{Holder, HolderKind};
use crate::ledger::types::Allocation;
use crate::report::model::{Cause, Verdict};
use crate::report::units::{bytes, count, counted, plain};
use crate::retention::scene::Scene;

pub(super) const RULE: Rule = Rule { cause: Cause::FunctionTraces, claims, verdicts };

/// A few traces of a function are its use: one for each shape and type. So many are none.
const MANY: u64 = 8;
/// Functions named one by one.
const NAMED: usize = 3;

/// Functions with many traces, those with most bytes first.
fn retraced<'a>(scene: &'a Scene) -> Vec<&'a Holder> {
    // What TensorFlow traces itself when it loads a model or makes a pipeline is one each, under one name.
    let own =
        |name: &str| ["restored_function_body", "signature_wrapper", "Dataset_"].iter().any(|own| name.contains(own));
    let many = |holder: &&Holder| holder.count >= MANY && !holder.name.as_deref().is_some_and(own);
    let mut found: Vec<&Holder> = scene.holders.of_kind(HolderKind::Function).filter(many).collect();
    found.sort_by_key(|holder| std::cmp::Reverse((holder.bytes, holder.count)));
    found
}

/// What graphs and functions hold is these traces'.
pub(super) fn applies(scene: &Scene) -> bool {
    !retraced(scene).is_empty()
}

fn claims(scene: &Scene, a: &Allocation) -> bool {
    held::is_held(scene, a, Cause::FunctionTraces)
}

fn verdicts(scene: &Scene, claimed: &Claimed) -> Vec<Verdict> {
    let functions = retraced(scene);
    let Some(worst) = functions.first() else { return Vec::new() };
    let traces: u64 = functions.iter().map(|holder| holder.count).sum();
    let all: u64 = scene.holders.of_kind(HolderKind::Function).map(|holder| holder.count).sum();
    let own: u64 = functions.iter().map(|holder| holder.bytes).sum();
    // What is made from a trace's definition is told of all functions together.
    let made: u64 = scene.holders.of_kind(HolderKind::Graph).filter(|h| h.blocks.is_empty()).map(|h| h.bytes).sum();
    let made = (u128::from(made) * u128::from(traces) / u128::from(all.max(1))) as u64;
    let sum = own.saturating_add(made).saturating_add(claimed.bytes);
    if sum < scene.min_bytes {
        return Vec::new();
    }
    let mut evidence: Vec<String> = functions.iter().take(NAMED).map(|holder| sentence(scene, holder)).collect();
    evidence.push(format!("a trace takes about {}; its constants are in each", bytes(sum / traces.max(1))));
    let handles = scene.process.functions;
    if handles.opened > 0 {
        evidence.push(format!(
            "of all functions, with those for gradients, {} were added to the eager context and {} removed",
            count(handles.opened),
            count(handles.closed)
        ));
    }
    evidence.push("found by reading the functions' definitions in the process' memory".to_owned());
    let name = name(worst);
    vec![Verdict {
        cause: Cause::FunctionTraces,
        bytes: sum,
        summary: format!(
            "{} is held by {} of `{name}`{}, which TensorFlow keeps as long as the function lives.",
            bytes(sum),
            counted(traces, "trace"),
            if functions.len() > 1 { " and other functions" } else { "" }
        ),
        evidence,
        gives_back: format!(
            "call `{name}` with tensors instead of Python numbers and objects (`tf.constant(…)`), or give it an \
             `input_signature`; make the `tf.function` once, outside of the loop; `del` the function gives its traces back"
        ),
        refs: claimed.refs(),
    }]
}

fn name(holder: &Holder) -> String {
    plain(holder.name.as_deref().unwrap_or("?"), 60)
}

/// ``` `score`: 64 traces added, 0 removed ```
fn sentence(scene: &Scene, holder: &Holder) -> String {
    let removed =
        holder.name.as_deref().and_then(|name| scene.process.functions_removed.get(name)).copied().unwrap_or(0);
    if scene.attached() {
        return format!("`{}`: {} alive", name(holder), counted(holder.count, "trace"));
    }
    format!("`{}`: {} added, {} removed", name(holder), counted(holder.count + removed, "trace"), count(removed))
}
