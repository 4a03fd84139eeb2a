//! Exports and flame graphs of a report with stacks of every kind and hostile names in it (`report.json`, made by
//! hand). `TFMEM_BLESS=1` writes the golden files anew.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod browser;
mod command;
mod flame;
mod pprof;
mod wire;

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::Value;
use tfmem::{
    export::{folded, speedscope, trace_events},
    profile::{Profile, Selection, Weight, Which},
    report::model::Report,
};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/exports")
}

fn report() -> Report {
    serde_json::from_slice(&fs::read(folder().join("report.json")).unwrap()).unwrap()
}

fn profile(which: Which) -> Profile {
    Profile::of(&report(), &Selection { which, ..Selection::default() }).unwrap()
}

/// Bytes and blocks of the report's last boundary, added up here.
fn sums() -> (u64, u64) {
    let report = report();
    let survivors = &report.processes[0].boundaries[1].survivors;
    (survivors.iter().map(|s| s.bytes).sum(), survivors.iter().map(|s| s.count).sum())
}

fn golden(name: &str, actual: &str) {
    let path = folder().join("golden").join(name);
    if std::env::var_os("TFMEM_BLESS").is_some() {
        fs::write(path, actual).unwrap();
    } else if fs::read_to_string(&path).unwrap_or_default() != actual {
        let beside = std::env::temp_dir().join(name);
        fs::write(&beside, actual).unwrap();
        panic!("not as it was (TFMEM_BLESS=1 accepts it): diff {} {}", path.display(), beside.display());
    }
}

#[test]
fn the_hand_made_report_keeps_to_the_schema() {
    let schema: Value = serde_json::from_str(tfmem::report::json::SCHEMA).unwrap();
    let document: Value = serde_json::from_slice(&fs::read(folder().join("report.json")).unwrap()).unwrap();
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let errors: Vec<String> = validator.iter_errors(&document).map(|e| format!("{e} at {}", e.instance_path)).collect();
    assert!(errors.is_empty(), "{errors:#?}");
}

#[test]
fn folded_stacks_are_as_they_were_and_add_up() {
    let mut out = Vec::new();
    folded::write(&profile(Which::End), Weight::Bytes, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let sum: u64 = text.lines().map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
    assert_eq!(sum, sums().0);
    golden("end.folded", &text);
    let counts = folded::lines(&profile(Which::End), Weight::Count);
    let sum: u64 = counts.iter().map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum();
    assert_eq!(sum, sums().1);
}

#[test]
fn speedscope_is_as_it_was_and_adds_up() {
    let mut out = Vec::new();
    speedscope::write(&profile(Which::End), &mut out).unwrap();
    let document: Value = serde_json::from_slice(&out).unwrap();
    let frames = document["shared"]["frames"].as_array().unwrap().len() as u64;
    for (profile, sum) in document["profiles"].as_array().unwrap().iter().zip([sums().0, sums().1]) {
        let weights = profile["weights"].as_array().unwrap();
        assert_eq!(weights.iter().map(|w| w.as_u64().unwrap()).sum::<u64>(), sum);
        assert_eq!(profile["endValue"], sum);
        let samples = profile["samples"].as_array().unwrap();
        assert_eq!(samples.len(), weights.len());
        let inside = |sample: &Value| sample.as_array().unwrap().iter().all(|n| n.as_u64().unwrap() < frames);
        assert!(samples.iter().all(inside));
    }
    golden("end.speedscope.json", &format!("{}\n", serde_json::to_string_pretty(&document).unwrap()));
}

#[test]
fn trace_events_are_as_they_were() {
    let mut out = Vec::new();
    trace_events::write(&report(), None, &mut out).unwrap();
    let document: Value = serde_json::from_slice(&out).unwrap();
    let events = document["traceEvents"].as_array().unwrap();
    let marks: Vec<&Value> = events.iter().filter(|event| event["ph"] == "i").collect();
    assert_eq!(marks.len(), 2);
    // The boundary at the end lies where the timeline has its edge.
    let edges = &report().processes[0].timeline.edges;
    let at = marks[1]["ts"].as_f64().unwrap();
    assert!(edges.iter().any(|&edge| (edge as f64 / 1000.0 - at).abs() < 1.0), "{at}");
    let times: Vec<f64> = events.iter().filter_map(|event| event["ts"].as_f64()).collect();
    assert!(times.is_sorted() && !times.is_empty());
    golden("perfetto.json", &format!("{}\n", serde_json::to_string_pretty(&document).unwrap()));
    let mut none = Vec::new();
    trace_events::write(&report(), Some(1), &mut none).unwrap();
    let none: Value = serde_json::from_slice(&none).unwrap();
    assert_eq!(none["traceEvents"].as_array().unwrap().len(), 0);
}
