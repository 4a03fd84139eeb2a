//! Children left over, pids used again, and processes without TensorFlow.

use super::{check, verdict};
use crate::report::fail_above;
use crate::report::model::{BoundaryKind, Cause, Process, Report};
use crate::retention::testing::{MIB, report};

fn process(report: &Report, pid: u32) -> &Process {
    report.processes.iter().find(|p| p.pid == pid).expect("process")
}

const FAMILY: &str = "0 start\n1 10 process pool.py\n2 10 tensorflow 2.21.0\n\
    100 10 fork 11\n101 11 process worker.py ppid=10\n110 10 fork 12\n111 12 process worker.py ppid=10\n\
    120 11 fork 13\n121 13 process helper ppid=11\n";

#[test]
fn children_that_outlive_the_process_are_left_over() {
    let lines = FAMILY.to_owned()
        + "1000 11 look 10M 2M\n1000 13 look 3M 1M\n5000 12 exit 0\n6000 10 exit 0\n\
           8100 11 look 20M 4M\n9000 end\n";
    let r = report(&lines);
    check(&r);
    let p = process(&r, 10);
    let v = verdict(&p.verdicts, Cause::LeftoverProcess).unwrap();
    assert_eq!(v.refs.pids, [11, 13]);
    // 11 was read again after it was found; of 13 the last figure is known.
    assert_eq!(v.bytes, 24 * MIB + 4 * MIB);
    assert!(v.evidence.iter().any(|e| e.contains("pid 11 (python): 24.0 MiB resident, read 2.1 s after the end")));
    assert!(v.evidence.iter().any(|e| e.contains("pid 13 (python): 4.0 MiB resident, read 5.0 s before the end")));
    assert!(v.gives_back.contains("kill 11 13"));
    let exit = p.boundaries.last().unwrap();
    assert_eq!((exit.kind, exit.grace_ms), (BoundaryKind::ProcessExit, 2000));
    assert!(exit.survivors.is_empty() && exit.after.layers.heap == Some(0), "bytes of others are in no layer");
    assert!(process(&r, 12).verdicts.is_empty());
    assert!(fail_above(&r, 28 * MIB - 1) && !fail_above(&r, 28 * MIB));
}

#[test]
fn a_child_that_ends_within_the_grace_time_is_none() {
    let lines = FAMILY.to_owned()
        + "1000 11 look 10M 2M\n5000 12 exit 0\n6000 10 exit 0\n7000 13 exit 0\n7500 11 exit 0\n9000 end\n";
    let r = report(&lines);
    assert!(r.processes.iter().all(|p| p.verdicts.is_empty()));
}

#[test]
fn a_child_that_ends_later_is_named_at_the_boundary_and_not_blamed_in_the_end() {
    let lines = FAMILY.to_owned()
        + "1000 11 look 10M 2M\n5000 12 exit 0\n5500 13 exit 0\n6000 10 exit 0\n8500 11 exit 0\n9000 end\n";
    let r = report(&lines);
    let p = process(&r, 10);
    let exit = p.boundaries.last().unwrap();
    assert_eq!(verdict(&exit.verdicts, Cause::LeftoverProcess).unwrap().refs.pids, [11]);
    assert!(p.verdicts.is_empty());
}

#[test]
fn one_process_answers_for_a_leftover() {
    // 11 ends as well; its child 13 is left over from it, not from its grandparent.
    let lines = FAMILY.to_owned() + "1000 13 look 10M 2M\n5000 12 exit 0\n6000 10 exit 0\n6500 11 exit 0\n20000 end\n";
    let r = report(&lines);
    assert!(process(&r, 10).verdicts.is_empty());
    assert_eq!(verdict(&process(&r, 11).verdicts, Cause::LeftoverProcess).unwrap().bytes, 12 * MIB);
    assert!(!fail_above(&r, 12 * MIB));
}

#[test]
fn a_short_trace_says_how_long_it_looked() {
    let r = report(&(FAMILY.to_owned() + "6000 10 exit 0\n6300 end\n"));
    let p = process(&r, 10);
    assert_eq!(p.boundaries.last().unwrap().grace_ms, 300);
    let v = verdict(&p.verdicts, Cause::LeftoverProcess).unwrap();
    assert_eq!(v.refs.pids, [11, 12, 13]);
    assert!(v.evidence.iter().any(|e| e.contains("resident bytes were not read")));
    assert!(v.evidence.iter().any(|e| e == "alive 0.3 s after this process had ended"));
}

#[test]
fn a_pid_used_again_is_another_process() {
    let lines = "0 start\n1 10 process a.py\n2 10 tensorflow 2.21.0\n10 10 new a1\n11 10 run a1\n\
        12 10 heap 10000000 8M x\n13 10 /run\n100 10 exit 0\n200 10 process b.py started=200\n\
        300 10 heap 20000000 2M\n400 10 killed 9\n5000 end\n";
    let r = report(lines);
    check(&r);
    assert_eq!(r.processes.len(), 2);
    assert_eq!(verdict(&r.processes[0].verdicts, Cause::SessionOpen).unwrap().bytes, 8 * MIB);
    assert_eq!(verdict(&r.processes[1].verdicts, Cause::Unexplained).unwrap().bytes, 2 * MIB);
    assert_eq!(r.processes[1].exit.as_deref(), Some("signal 9"));
    assert_eq!(r.processes[1].cmdline[1], "b.py");
}

#[test]
fn an_end_that_nobody_saw_is_counted_and_still_judged() {
    let lines = "0 start\n1 10 process a.py\n2 10 tensorflow 2.21.0\n12 10 heap 10000000 8M x\n\
        900 10 process b.py started=900\n5000 end\n";
    let r = report(lines);
    check(&r);
    assert_eq!(r.processes.len(), 2);
    assert_eq!(verdict(&r.processes[0].verdicts, Cause::Unexplained).unwrap().bytes, 8 * MIB);
    assert_eq!(r.losses["process_ends_lost"], 1);
}

#[test]
fn losses_are_always_listed() {
    let r = report("0 start\n1 10 process a.py\n2 10 unheap 10\n3 10 lost events_dropped 7\n9 end\n");
    for kind in ["stacks_truncated", "frames_unresolved", "allocations_unpaired", "mapping_drift_bytes"] {
        assert_eq!(r.losses[kind], 0, "{kind}");
    }
    assert_eq!(r.losses["events_dropped"], 7);
    assert_eq!(r.losses["frees_unpaired"], 1);
    assert_eq!(r.events, 5);
}

#[test]
fn an_empty_stream_gives_an_empty_report() {
    let r = report("");
    assert!(r.processes.is_empty() && r.events == 0);
}
