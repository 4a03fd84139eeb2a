use super::*;
use crate::event::{ExitStatus, LibraryInfo};
use crate::ledger::types::{Anomalies, Ended, Totals};

fn fork(t: &mut Trace, child: u32, shares_memory: bool) {
    t.push(Body::Fork { child, shares_memory });
}

#[test]
fn a_process_is_what_it_says() {
    let mut t = Trace::new();
    t.info(ProcessInfo { ppid: 7, comm: "python".into(), started_at: 5_000, ..ProcessInfo::default() });
    let library = |probes| LibraryInfo {
        framework: "tensorflow".into(),
        version: None,
        path: "/x.so".into(),
        build_id: None,
        probes,
        missing: Vec::new(),
        blind: Vec::new(),
    };
    t.push(Body::Library(Arc::new(library(3))));
    t.push(Body::Library(Arc::new(library(5))));
    let process = t.process();
    assert_eq!((process.pid, process.ppid, process.born), (PID, 7, 5_000));
    assert_eq!(process.identity.info.as_ref().unwrap().comm, "python");
    assert_eq!(process.identity.libraries.iter().map(|l| l.probes).collect::<Vec<_>>(), [5]);
    assert!(!process.has_events() && process.alive() && !process.attached());
}

#[test]
fn a_child_has_its_parents_mappings_and_none_of_its_blocks() {
    let mut t = Trace::new();
    t.map(0x10000, 0x3000);
    t.heap(0x1000, 64);
    t.chunk(0x2000, 64);
    t.call(Call::NewSession, &[], 0x5e);
    t.enter(Call::SessionRun, &[0x5e]);
    fork(&mut t, 101, false);
    t.pid = 101;
    t.tid = 101;
    let child = t.process();
    assert_eq!((child.ppid, child.born, child.forked_from), (PID, 7, Some(PID)));
    assert_eq!(child.totals(), Totals { mapping_bytes: 0x3000, ..Totals::default() });
    assert_eq!(child.memory_map().iter().next().unwrap().born, Some(1));
    assert!(child.sessions.is_empty());

    t.heap_free(0x1000);
    t.chunk_free(0x2000);
    t.unmap(0x10000, 0x1000);
    // The call it was forked in returns here too.
    t.leave(Call::SessionRun, 0);
    assert_eq!(t.process().anomalies, Anomalies { inherited_frees: 2, ..Anomalies::default() });
    t.leave(Call::SessionRun, 0);
    assert_eq!(t.process().anomalies.unpaired_calls, 1);

    t.push(Body::Exec);
    t.heap_free(0x1000);
    assert_eq!(t.process().anomalies.unpaired_frees, 1);
    t.pid = PID;
    assert_eq!(t.process().totals().mapping_bytes, 0x3000);
    assert_eq!(t.process().sessions.open().count(), 1);
}

#[test]
fn after_vfork_the_memory_is_the_parents() {
    let mut t = Trace::new();
    t.map(0x10000, 0x3000);
    fork(&mut t, 101, true);
    t.pid = 101;
    fork(&mut t, 102, true);
    t.pid = 102;
    t.map(0x20000, 0x1000);
    t.heap(0x50, 8);
    t.snapshot(&[(0x10000, 0x1000, MappingKind::Anonymous)]);
    assert_eq!(t.process().totals(), Totals::default());
    assert!(t.process().identity.snapshot.is_some());
    t.pid = PID;
    assert_eq!((t.process().totals().mapping_bytes, t.process().totals().heap_bytes), (0x4000, 8));
    t.pid = 102;
    t.push(Body::Exec);
    t.map(0x20000, 0x1000);
    assert_eq!(t.process().totals().mapping_bytes, 0x1000);
    t.pid = PID;
    assert_eq!(t.process().totals().mapping_bytes, 0x4000);
}

#[test]
fn exec_leaves_nothing_but_counts() {
    let mut t = Trace::new();
    t.map(0x10000, 0x3000);
    t.heap(0x1000, 64);
    t.chunk(0x2000, 64);
    t.call(Call::NewSession, &[], 0x5e);
    t.enter(Call::CloseSession, &[0x5e]);
    t.push(Body::Brk { end: 0x9000 });
    t.push(Body::Exec);
    let process = t.process();
    assert_eq!(process.totals(), Totals::default());
    assert_eq!(process.allocations().count(), 0);
    assert!(process.pools.is_empty() && process.sessions.is_empty());
    assert_eq!((process.session_counts().opened, process.execs), (1, 1));
    t.leave(Call::CloseSession, 0);
    assert_eq!(t.call(Call::NewSession, &[], 0x5e), [Change::SessionOpened(2)]);
    t.push(Body::Brk { end: 0x20000 });
    assert_eq!(t.process().totals().mapping_bytes, 0);
}

#[test]
fn an_end_freezes_and_a_pid_used_again_is_another_process() {
    let mut t = Trace::new();
    t.heap(0x1000, 64);
    t.call(Call::NewSession, &[], 0x5e);
    t.enter(Call::SessionRun, &[0x5e]);
    let status = Some(ExitStatus::Signal(9));
    assert_eq!(t.push(Body::Ended { status }), [Change::ProcessEnded]);
    // What trails behind the end belongs to nobody else.
    t.push(Body::ThreadExit);
    t.leave(Call::SessionRun, 0);
    t.heap_free(0x1000);
    assert_eq!(t.push(Body::Ended { status: None }), []);
    assert_eq!(t.ledger.late_events(), 4);
    assert_eq!(t.process().ended, Some(Ended { at: 5, status }));
    assert_eq!((t.process().totals().heap_bytes, t.process().session(1).unwrap().running), (64, 1));

    t.map(0x1000, 0x1000);
    assert!(t.process().alive());
    assert_eq!(t.process().totals().heap_bytes, 0);
    let all: Vec<_> = t.ledger.processes().map(|p| (p.pid, p.ended.is_some(), p.totals().heap_bytes)).collect();
    assert_eq!(all, [(PID, true, 64), (PID, false, 0)]);

    t.ledger.forget_ended(6);
    assert_eq!(t.ledger.processes().count(), 1);
    assert!(t.process().alive());
}

#[test]
fn a_pid_is_another_process_when_an_end_was_lost() {
    let mut t = Trace::new();
    t.info(ProcessInfo { started_at: 1_000_000_000, ..ProcessInfo::default() });
    t.heap(0x10, 8);
    t.info(ProcessInfo { started_at: 1_010_000_000, ..ProcessInfo::default() });
    assert_eq!(t.ledger.processes().count(), 1);
    t.info(ProcessInfo { started_at: 9_000_000_000, ..ProcessInfo::default() });
    assert_eq!((t.ledger.processes().count(), t.process().totals().heap_bytes), (2, 0));

    // By a fork that gives the pid to somebody else.
    fork(&mut t, 101, false);
    fork(&mut t, 101, false);
    let lost: Vec<_> = t.ledger.processes().map(|p| (p.pid, p.alive(), p.anomalies.lost_ends)).collect();
    assert_eq!(lost, [(PID, false, 1), (PID, true, 0), (101, false, 1), (101, true, 0)]);
}

#[test]
fn a_fork_told_after_the_childs_own_events() {
    let mut t = Trace::new();
    t.map(0x10000, 0x1000);
    t.pid = 101;
    t.info(ProcessInfo { ppid: PID, started_at: 3, ..ProcessInfo::default() });
    t.pid = PID;
    fork(&mut t, 101, false);
    assert_eq!(t.ledger.processes().count(), 2);
    let child = t.ledger.process(101).unwrap();
    assert_eq!((child.forked_from, child.totals().mapping_bytes), (Some(PID), 0x1000));
}

#[test]
fn events_of_no_process() {
    let mut t = Trace::new();
    t.pid = 0;
    t.push(Body::TraceStart);
    t.push(Body::Lost { what: "ring".into(), count: 5 });
    t.push(Body::Lost { what: "ring".into(), count: 3 });
    t.push(Body::Lost { what: "stack".into(), count: 1 });
    assert_eq!(t.push(Body::TraceEnd), [Change::TraceEnd]);
    assert_eq!(t.ledger.processes().count(), 0);
    assert_eq!(t.ledger.events(), 5);
    let lost: Vec<_> = t.ledger.lost().iter().map(|(k, v)| (k.as_ref(), *v)).collect();
    assert_eq!(lost, [("ring", 5), ("stack", 1)]);
}
