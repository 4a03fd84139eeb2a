//! Sessions, against the program that opened them.

use tfmem::event::Body;
use tfmem::ledger::types::{Anomalies, BlockLayer};
use tfmem::ledger::{Ledger, Process};

use crate::program::{PID, Program, Session};
use crate::{apply, streams};

fn check(program: &Program, process: &Process) {
    let mut wanted: Vec<&Session> = program.sessions.iter().filter(|s| s.opened.is_some()).collect();
    wanted.sort_by_key(|s| s.id);
    assert_eq!(process.sessions.len(), wanted.len());
    for (known, s) in process.sessions.iter().zip(&wanted) {
        assert_eq!((known.id, known.handle, Some(known.opened)), (s.id, s.handle, s.opened));
        assert_eq!((known.closing, known.closed), (s.closing, s.closed));
        assert_eq!((known.deleting, known.deleted), (s.deleting, s.deleted));
        assert_eq!((known.runs, known.running), (s.runs, s.running), "session {}", s.id);
        assert_eq!(process.session(s.id), Some(known));
    }
    let count = |f: fn(&Session) -> bool| wanted.iter().filter(|s| f(s)).count() as u64;
    let counts = process.session_counts();
    assert_eq!(counts.opened, wanted.len() as u64);
    assert_eq!(counts.closed, count(|s| s.closed.is_some()));
    assert_eq!(counts.deleted, count(|s| s.deleted.is_some()));
    assert_eq!(
        (process.graphs, process.contexts, process.functions),
        (program.graphs, program.contexts, program.functions)
    );
    let reused_alive = process.anomalies.reused_alive;
    assert_eq!(process.anomalies, Anomalies { reused_alive, ..program.anomalies });
    // Chunks are never given back here, so every address handed out again counts; no session's does.
    assert_eq!(reused_alive, program.next_chunk.saturating_sub(512));
}

#[test]
fn sessions_are_what_their_program_did() {
    for (mut rng, events) in streams(240_000) {
        println!("seed {}", rng.seed);
        let (mut ledger, mut program) = (Ledger::new(), Program::new());
        for i in 0..events {
            let (tid, body, changes, owner) = program.next(&mut rng);
            let told = apply(&mut ledger, program.at, PID, tid, body.clone());
            assert_eq!(told, changes, "{body:?}");
            let process = ledger.process(PID).unwrap();
            if let (Some(owner), Body::ChunkAlloc { addr, .. }) = (owner, &body) {
                let chunk = process.allocation(BlockLayer::Chunk, *addr).unwrap();
                assert_eq!(chunk.owner, owner, "{body:?}");
            }
            if i % 256 == 0 {
                check(&program, process);
            }
        }
        check(&program, ledger.process(PID).unwrap());
        assert!(program.sessions.iter().filter(|s| s.deleted.is_some()).count() > 100);
    }
}
