//! Causes on small ledgers, each beside what it could be mistaken for.

use super::{check, only};
use crate::event::Body;
use crate::report::model::{BoundaryKind, Cause, Process, Report, Verdict};
use crate::retention::testing::{self, MIB};

const HEAD: &str = "0 start\n1 10 process train.py\n2 10 tensorflow 2.21.0\n";
const ATTACHED: &str = "5 start\n5 10 process train.py attached started=1\n6 10 tensorflow 2.21.0\n";
const END: &str = "5001 10 exit 0\n5002 end\n";

fn report(lines: &str) -> Report {
    let report = testing::report(lines);
    check(&report);
    report
}

fn of(process: &Process, cause: Cause) -> Option<&Verdict> {
    process.verdicts.iter().find(|verdict| verdict.cause == cause)
}

/// The causes of a report with their bytes in MiB, but for what is too small to matter.
fn causes(report: &Report) -> Vec<(Cause, u64)> {
    let large = only(report).verdicts.iter().filter(|verdict| verdict.bytes >= MIB);
    large.map(|verdict| (verdict.cause, verdict.bytes / MIB)).collect()
}

fn run(lines: &str) -> Report {
    report(&format!("{HEAD}{lines}{END}"))
}

/// Attached to a process that was there before, which then runs on.
fn attached(lines: &str) -> Report {
    report(&format!("{ATTACHED}{lines}5002 end\n"))
}

#[test]
fn a_function_with_many_traces() {
    let added = "100 10 function\n".repeat(66);
    let removed = "200 10 unfunction __inference_score_7\n200 10 unfunction __inference_other_8\n";
    let held = "5000 10 holds function*64 score 250M\n5000 10 holds function*1 step 1M\n5000 10 holds graph - 13M\n";
    let r = run(&format!("{added}{removed}{held}"));
    assert_eq!(causes(&r), [(Cause::FunctionTraces, 262)]);
    let verdict = of(only(&r), Cause::FunctionTraces).unwrap();
    assert!(verdict.summary.contains("64 traces of `score`"), "{}", verdict.summary);
    assert_eq!(verdict.evidence[0], "`score`: 65 traces added, 1 removed");
}

#[test]
fn traces_of_many_functions_are_their_use() {
    let held = "5000 10 holds function*2 score 50M\n5000 10 holds function*2 step 50M\n5000 10 holds graph - 13M\n";
    assert_eq!(causes(&run(&format!("100 10 function\n{held}"))), []);
    // What TensorFlow traces itself when it loads a model has one name.
    let loaded = "5000 10 holds function*40 restored_function_body 50M\n5000 10 holds graph - 13M\n";
    assert_eq!(causes(&run(&format!("100 10 function\n{loaded}"))), []);
}

#[test]
fn traces_that_are_gone_are_a_reserve() {
    let added = "100 10 function\n".repeat(64);
    let free = "5000 10 walk 70M 320M 317M 300M\n5000 10 look 400M 20M exit in= map=10000000+400M\n";
    let r = run(&format!("{added}5000 10 holds graph - 100K\n{free}"));
    assert_eq!(causes(&r), [(Cause::HeapReserve, 317)]);
}

#[test]
fn a_graph_outlives_its_session() {
    let made = "100 10 newgraph 1000\n110 10 new a000\n120 10 close a000\n130 10 /close\n";
    let r = run(&format!("{made}5000 10 holds graph*9000 - 48M\n"));
    assert_eq!(causes(&r), [(Cause::GraphRetained, 48)]);
    let verdict = of(only(&r), Cause::GraphRetained).unwrap();
    assert!(verdict.evidence[0].contains("1 graph made, 0 deleted"), "{:?}", verdict.evidence);
    assert!(verdict.evidence[1].contains("1 session closed"), "{:?}", verdict.evidence);
    // Eager code: each function has a graph and needs it.
    assert_eq!(causes(&run("100 10 newgraph 1000\n100 10 function\n5000 10 holds graph*9000 - 48M\n")), []);
}

#[test]
fn a_variable_without_a_container_is_the_programs() {
    let block = "100 10 heap 40000000 24M Fill\n";
    let r = run(&format!("{block}5000 10 holds variable w 24M 40000000\n"));
    assert_eq!(causes(&r), [(Cause::PythonReference, 24)]);
    let r = run(&format!("{block}5000 10 holds eager:variable w 24M 40000000\n"));
    assert_eq!(causes(&r), [(Cause::StatefulResource, 24)]);
}

#[test]
fn what_was_there_before_has_its_holder() {
    let sessions = "5001 10 holds sessions*4 - 0\n5001 10 holds session:variable w 256M 1000 2000 3000 4000\n";
    let r = attached(sessions);
    assert_eq!(causes(&r), [(Cause::SessionOpen, 256)]);
    let verdict = of(only(&r), Cause::SessionOpen).unwrap();
    assert!(verdict.summary.contains("4 sessions"), "{}", verdict.summary);
    assert!(verdict.evidence[0].contains("variable \"w\" in container \"localhost\""), "{:?}", verdict.evidence);

    assert_eq!(
        causes(&attached("5001 10 holds session:queue q 64M 1000\n5001 10 holds sessions*1 - 0\n")),
        [(Cause::SessionOpen, 64)]
    );
    assert_eq!(causes(&attached("5001 10 holds server:variable w 64M 1000\n")), [(Cause::WorkerState, 64)]);
    assert_eq!(causes(&attached("5001 10 holds cache - 64M 1000\n")), [(Cause::PipelineBuffers, 64)]);
    assert_eq!(causes(&attached("5001 10 holds python - 64M 1000\n")), [(Cause::PythonReference, 64)]);
    assert_eq!(causes(&attached("5001 10 holds pool*5 mklcpu 258M\n")), [(Cause::PoolReserve, 258)]);
    assert_eq!(causes(&attached("5001 10 holds nobody - 64M 1000\n")), [(Cause::BeforeAttach, 64)]);
}

#[test]
fn a_block_of_the_ledger_counts_once() {
    // Both blocks are the holder's; one was there before.
    let block = "100 10 heap 40000000 24M Fill\n";
    let r = attached(&format!("{block}5001 10 holds python*2 - 56M 40000000 50000000\n"));
    assert_eq!(causes(&r), [(Cause::PythonReference, 56)]);
    // A whole chunk below is a little more than what was asked for: that is nobody's.
    let r = run(&format!("{block}5000 10 holds python - 25M 40000000\n"));
    assert_eq!(causes(&r), [(Cause::PythonReference, 24)]);
}

/// A session in each round; `kept` MiB of each are left behind.
fn rounds(rounds: u64, kept: impl Fn(u64) -> u64) -> Report {
    let mut lines = HEAD.to_owned();
    for i in 0..rounds {
        let (at, handle, block) = (1000 + i * 3000, 0xa000 + i * 16, 0x4000_0000 + (i << 28));
        lines += &format!("{at} 10 new {handle:x}\n{at} 10 run {handle:x}\n");
        match kept(i) {
            0 => {}
            mib => lines += &format!("{at} 10 heap {block:x} {mib}M w{i}/Initializer/ones\n"),
        }
        lines += &format!("{at} 10 /run\n{at} 10 close {handle:x}\n{at} 10 /close\n");
    }
    report(&(lines + "99999 end\n"))
}

#[test]
fn what_each_round_leaves_behind_grows() {
    let r = rounds(10, |_| 64);
    let growth = &only(&r).growth;
    assert!(growth[0].grows && growth[0].place.is_none(), "{growth:?}");
    assert_eq!((growth[0].rounds, growth[0].per_round_bytes), (10, (64 * MIB).cast_signed()));
    assert_eq!((growth[1].place.as_deref(), growth[1].grows), (Some("variable w"), true));
    assert!(growth[0].summary.contains("64.0 MiB more") && growth[0].summary.contains("variable w"), "{growth:?}");
    assert_eq!(growth[0].kind, BoundaryKind::SessionClosed);
}

#[test]
fn what_the_first_rounds_leave_behind_is_warm_up() {
    let r = rounds(10, |i| if i < 2 { 64 } else { 0 });
    let growth = &only(&r).growth;
    assert!(growth.len() == 1 && !growth[0].grows, "{growth:?}");
    assert!(growth[0].summary.contains("warm-up"), "{}", growth[0].summary);
    assert!(only(&rounds(4, |_| 64)).growth.is_empty());
}

#[test]
fn what_was_said_of_a_trim_is_compared_with_what_came() {
    let free = |ms: u64, resident: u64| {
        let look = format!("{ms} 10 look 400M 20M in= map=10000000+400M\n");
        format!("{ms} 10 walk 70M 320M {resident}M {}M\n{look}", resident * 9 / 10)
    };
    let mark = |ms: u64| format!("{ms} 10 mark m{ms}\n");
    let lines = format!("{HEAD}{}{}{}{}99999 end\n", mark(1000), free(4000, 300), mark(5000), free(8000, 30));
    let r = testing::report(&lines);
    let predictions = &only(&r).predictions;
    assert_eq!(predictions.len(), 1, "{predictions:?}");
    assert!(predictions[0].hit && predictions[0].predicted_bytes == 270 * MIB, "{predictions:?}");
}

#[test]
fn lines_of_one_look_are_one_event() {
    let events = testing::events("5 10 holds cache - 1M 10\n5 10 holds python - 1M 20\n6 10 holds cache - 1M 10\n");
    let sizes = events.iter().filter_map(|event| match &event.body {
        Body::Holders(all) => Some(all.len()),
        _ => None,
    });
    assert_eq!(sizes.collect::<Vec<_>>(), [2, 1]);
}
