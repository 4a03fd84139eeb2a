//! What a server keeps after its sessions, and the user's own boundaries.

use super::{boundary, only};
use crate::report::model::{BoundaryKind, Cause};
use crate::retention::testing::{MIB, report};

const HANDLE: &str = "00112233445566aa";

/// A worker with a session that made a variable and one block of another op, and a step of nobody's.
fn worker(end: &str) -> String {
    format!(
        "0 start\n\
         0 7 process worker.py\n\
         1 7 tensorflow 2.15.1\n\
         10 7 server 900\n\
         20 7 graph {HANDLE}\n\
         21 7 heap 1000 1M const\n\
         22 7 /graph\n\
         30 7 step 5 {HANDLE}\n\
         31 7/8 stepheap 100000 64M w/Initializer/zeros 5\n\
         32 7/8 stepheap 9000000 8M MatMul 5\n\
         33 7/8 stepheap 20000000 4M v/Initializer/zeros 6\n\
         {end}"
    )
}

#[test]
fn variables_outlive_their_session_on_a_server() {
    let r =
        report(&worker(&format!("50 7 ungraph {HANDLE}\n51 7 unheap 1000\n52 7 /ungraph\n5000 7 exit 0\n6000 end")));
    let p = only(&r);
    let b = boundary(p, BoundaryKind::WorkerSessionDeleted, 0);
    assert_eq!(b.handle.as_deref(), Some(HANDLE));
    assert_eq!(b.label, format!("worker session {HANDLE} ended"));
    let sums: Vec<(Cause, u64)> = b.verdicts.iter().map(|v| (v.cause, v.bytes / MIB)).collect();
    assert_eq!(sums, [(Cause::WorkerState, 64), (Cause::Unexplained, 8)], "what is no variable is not claimed");
    assert!(b.verdicts[0].evidence.iter().any(|e| e.contains("variable w")), "{:?}", b.verdicts[0].evidence);
    assert!(b.verdicts[0].evidence.iter().any(|e| e.contains(HANDLE)), "{:?}", b.verdicts[0].evidence);
    // At the end the step of nobody's is there too, and unexplained.
    let sums: Vec<(Cause, u64)> = p.verdicts.iter().map(|v| (v.cause, v.bytes / MIB)).collect();
    assert_eq!(sums, [(Cause::WorkerState, 64), (Cause::Unexplained, 12)]);
    assert_eq!(p.released.iter().map(|r| r.bytes / MIB).collect::<Vec<_>>(), [1]);
    assert_eq!(p.handles.worker_sessions.closed, Some(1));
    assert_eq!(p.handles.servers.opened, Some(1));
}

#[test]
fn a_session_that_its_client_left_open_is_said_to_be_open() {
    let r = report(&worker("5000 7 exit 0\n6000 end"));
    let p = only(&r);
    let v = p.verdicts.iter().find(|v| v.cause == Cause::SessionOpen).expect("session_open");
    assert_eq!(v.bytes / MIB, 73);
    assert!(v.gives_back.contains("the process that opened it"), "{}", v.gives_back);
    assert!(v.evidence.iter().any(|e| e.contains(HANDLE)), "{:?}", v.evidence);
    assert!(p.verdicts.iter().all(|v| v.cause != Cause::WorkerState));
}

#[test]
fn what_a_reset_gave_back_is_blamed_on_nobody() {
    let r = report(&worker(&format!(
        "50 7 ungraph {HANDLE}\n51 7 /ungraph\n3000 7 cleanup\n3001 7 unheap 100000\n5000 7 exit 0\n6000 end"
    )));
    assert!(only(&r).verdicts.iter().all(|v| v.cause != Cause::WorkerState));
    // Not all of it: what is left is said to be left in spite of it.
    let r = report(&worker(&format!("50 7 ungraph {HANDLE}\n51 7 /ungraph\n3000 7 cleanup\n5000 7 exit 0\n6000 end")));
    let v = only(&r).verdicts.iter().find(|v| v.cause == Cause::WorkerState).expect("worker_state");
    assert!(v.evidence.iter().any(|e| e.contains("were cleared 1 time")), "{:?}", v.evidence);
}

#[test]
fn a_session_heard_of_again_within_the_grace_time_has_no_boundary() {
    let r = report(&worker(&format!(
        "50 7 ungraph {HANDLE}\n51 7 /ungraph\n500 7 graph {HANDLE}\n501 7 /graph\n5000 7 exit 0\n6000 end"
    )));
    assert!(only(&r).boundaries.iter().all(|b| b.kind != BoundaryKind::WorkerSessionDeleted));
}

#[test]
fn a_server_told_to_stop_is_a_boundary() {
    let r = report(&worker(&format!(
        "50 7 ungraph {HANDLE}\n51 7 /ungraph\n60 7 stop 900\n61 7 /stop\n5000 7 exit 0\n6000 end"
    )));
    let b = boundary(only(&r), BoundaryKind::ServerStopped, 0);
    assert_eq!(b.label, "server 1 told to stop");
    assert_eq!(b.verdicts.iter().map(|v| v.bytes / MIB).collect::<Vec<_>>(), [64, 9]);
}

#[test]
fn marks_end_the_span_since_the_last_one() {
    let r = report(
        "0 start\n0 7 process a.py\n1 7 tensorflow 2.15.1\n10 7 heap 1000 1M\n20 7 mark one\n30 7 heap 200000 2M\n\
         40 7 heap 600000 4M\n50 7 mark two\n60 7 unheap 600000\n70 7 heap a00000 8M\n5000 7 exit 0\n6000 end",
    );
    let p = only(&r);
    let sums = |n| boundary(p, BoundaryKind::Mark, n).survivors.iter().map(|s| s.bytes / MIB).sum::<u64>();
    assert_eq!([sums(0), sums(1)], [1, 2]);
    assert_eq!(boundary(p, BoundaryKind::Mark, 1).label, "two");
    assert_eq!(boundary(p, BoundaryKind::Mark, 1).handle, None);
}

#[test]
fn a_named_function_is_a_boundary_when_it_returns() {
    let r = report(
        "0 start\n0 7 process a.py\n0 7 symbol 1000 lib:f\n0 7 symbol 1001 lib:g never\n10 7 heap 1000 1M\n\
         20 7 call 1000\n21 7 heap 200000 2M\n22 7 return 1000\n30 7 heap 600000 4M\n40 7 call 1001\n5000 7 exit 0\n\
         6000 end",
    );
    let p = only(&r);
    let (f, g) = (boundary(p, BoundaryKind::Symbol, 0), boundary(p, BoundaryKind::Symbol, 1));
    assert_eq!((f.label.as_str(), g.label.as_str()), ("lib:f", "lib:g"));
    let sum = |b: &crate::report::model::Boundary| b.survivors.iter().map(|s| s.bytes / MIB).sum::<u64>();
    assert_eq!((sum(f), sum(g)), (3, 7));
    assert_eq!(f.before.layers.heap, Some(MIB), "the call itself began before");
}

/// A function that is left without a return must not pile up.
#[test]
fn calls_without_returns_are_bounded() {
    let calls: String = (0..10_000).map(|i| format!("{i} 7 call 1000\n")).collect();
    let r = report(&format!("0 start\n0 7 process a.py\n0 7 symbol 1000 lib:f\n{calls}20000 7 exit 0\n30000 end"));
    assert_eq!(only(&r).boundaries.len(), 1);
}
