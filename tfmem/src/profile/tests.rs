#![allow(clippy::expect_used, reason = "tests fail by panicking")]

use super::*;
use crate::retention::testing::report;

/// Two sessions, one closed; its 16 MiB survive.
const SCRIPT: &str = "0 start\n1 10 process /srv/jobs/train.py\n2 10 tensorflow 2.21.0\n3 10 pool f00 mklcpu\n\
    4 10 extend f00 10000000 256M\n1000 10 new a1\n1010 10 run a1\n1020 10 chunk f00 11000000 16M w/Initializer/zeros\n\
    1021 10 heap 51000000 3M MatMul:temp\n1030 10 /run\n2000 10 close a1\n2001 10 /close\n9000 10 exit 0\n9001 end\n";

#[test]
fn rows_are_the_survivors_that_are_asked_for() {
    let report = report(SCRIPT);
    let all = Profile::of(&report, &Selection::default()).expect("profile");
    assert_eq!((all.total(Weight::Bytes), all.total(Weight::Count)), (19 << 20, 2));
    assert_eq!(all.without_stack(), 19 << 20);
    assert!(all.subject.contains("train.py (10)"), "{}", all.subject);
    let heap = Selection { layer: Some(Layer::Heap), ..Selection::default() };
    let heap = Profile::of(&report, &heap).expect("profile");
    assert_eq!(heap.total(Weight::Bytes), 3 << 20);
    assert!(heap.subject.contains("layer heap"), "{}", heap.subject);
    let names: Vec<&str> = heap.rows[0].frames.iter().map(|frame| frame.name.as_str()).collect();
    assert_eq!(names, [NO_STACK, "MatMul"]);
}

#[test]
fn a_boundary_that_is_not_there_is_an_error_that_names_those_that_are() {
    let report = report(SCRIPT);
    for selection in [
        Selection { which: Which::Id(77), ..Selection::default() },
        Selection { pid: Some(11), ..Selection::default() },
    ] {
        let error = Profile::of(&report, &selection).expect_err("no such boundary").to_string();
        assert_eq!(error.contains("process ended"), selection.pid.is_none(), "{error}");
    }
}

#[test]
fn figures_that_do_not_fit_are_an_error() {
    let mut report = report(SCRIPT);
    let boundary = report.processes[0].boundaries.last_mut().expect("a boundary");
    for survivor in &mut boundary.survivors {
        survivor.bytes = u64::MAX / 2;
    }
    let error = Profile::of(&report, &Selection::default()).expect_err("too large");
    assert_eq!(error, ProfileError::TooLarge);
}

#[test]
fn stacks_are_followed_from_the_outermost_to_the_op() {
    let mut report = report(SCRIPT);
    let frames = ["inner", "outer"].map(|name| Frame::named(FrameKind::Native, name)).to_vec();
    report.stacks.insert("1".to_owned(), frames);
    let boundary = report.processes[0].boundaries.last_mut().expect("a boundary");
    boundary.survivors[0].stack = Some("1".to_owned());
    boundary.survivors[1].stack = Some("gone".to_owned());
    let profile = Profile::of(&report, &Selection::default()).expect("profile");
    let names: Vec<&str> = profile.rows[0].frames.iter().map(|frame| frame.name.as_str()).collect();
    assert_eq!(names, ["outer", "inner", "w/Initializer/zeros"]);
    assert_eq!(profile.without_stack(), 3 << 20);
}

#[test]
fn a_difference_is_by_what_is_read_not_by_addresses() {
    let row = |name: &str, address, bytes| Row {
        pid: 1,
        frames: vec![Frame { address: Some(address), ..Frame::named(FrameKind::Native, name) }],
        layer: Layer::Heap,
        cause: Some(Cause::Unexplained),
        owner: None,
        bytes,
        count: 1,
        has_stack: true,
    };
    let before = Profile { rows: vec![row("a", 1, 10), row("gone", 2, 5)], ..Profile::default() };
    let after = Profile { rows: vec![row("a", 7, 30), row("new", 3, 2)], ..Profile::default() };
    let difference = difference(&before, &after, Weight::Bytes);
    let figures: Vec<(u64, u64)> = difference.changes.iter().map(|change| (change.before, change.after)).collect();
    assert_eq!(figures, [(10, 30), (5, 0), (0, 2)]);
    let summary = difference.summary();
    assert!(summary.contains("15 B → 32 B (+22 B, −5 B)") && summary.contains("5 B of stacks"), "{summary}");
}
