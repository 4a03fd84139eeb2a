//! Counts of handles after a loss.

use super::{check, only};
use crate::event::{Body, Event, Missed, MissedTotal};
use crate::report::model::{HandleBound, HandleClass};
use crate::report::text;
use crate::retention::testing::{events, facts, report};
use crate::retention::{Analysis, Options};

const SESSIONS: &str = "0 start\n1 10 process train.py\n5 10 tensorflow 2.21.0\n\
    100 10 new a1\n200 10 new a2\n300 10 close a1\n301 10 /close\n";

#[test]
fn without_a_loss_counts_are_exact() {
    let r = report(&(SESSIONS.to_owned() + "400 10 exit 0\n3000 end\n"));
    check(&r);
    assert!(only(&r).handles.bounds.is_empty());
}

#[test]
fn each_lost_call_may_have_opened_or_closed_one() {
    let mut analysis = Analysis::new(Options::default());
    let mut all = events(&(SESSIONS.to_owned() + "400 10 exit 0\n3000 end\n"));
    let end = all.iter().position(|event| event.at >= 400_000_000).unwrap();
    let total = MissedTotal { records: 3, bytes: 0, unsized_records: 3 };
    let body = Body::Missed { what: Missed::Call, total };
    all.insert(end, Event { at: 350_000_000, pid: 10, tid: 10, stack: None, body });
    for event in &all {
        analysis.feed(event);
    }
    let r = analysis.finish(facts());
    check(&r);
    let bounds = &only(&r).handles.bounds;
    let sessions = HandleBound {
        class: HandleClass::Sessions,
        opened_at_least: 2,
        opened_at_most: 5,
        closed_at_least: 1,
        closed_at_most: 4,
        lost_calls: 3,
    };
    assert_eq!(bounds.first(), Some(&sessions));
    assert_eq!(bounds.len(), 7);
    let page = text::render(&r, text::Style::default());
    assert!(page.contains("sessions: 2 to 5 opened, 1 to 4 closed (3 records of calls lost)"), "{page}");
    assert!(!page.contains("functions: 0 to"), "{page}");
}
