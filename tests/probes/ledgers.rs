//! What tfmem makes of fixtures: the same on every kernel.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use tfmem::attach::{link::has_kprobes, memory::Backend};
use tfmem_tests::{
    fixtures::{self, Fixtures, Variant},
    machine, mapping_storm,
    program::Program,
};

use crate::{Part, line::Line};

type Command = fn(&Fixtures) -> Vec<PathBuf>;

const SCENARIOS: &[(&str, Command)] = &[
    ("sessions", |fixtures| fixtures.driver("sessions", Variant::Plain)),
    ("sessions, names inlined", |fixtures| fixtures.driver("sessions", Variant::Inlined)),
    ("sessions, no names", |fixtures| fixtures.driver("sessions", Variant::Stripped)),
    ("constructor of a library opened later", |fixtures| fixtures.driver("load", Variant::Early)),
    ("constructor of a linked library", |fixtures| fixtures.linked_driver("load")),
    ("loaded again and again", |fixtures| fixtures.messy("reload")),
    ("many threads", |fixtures| fixtures.messy("threads")),
    ("fork", |fixtures| fixtures.messy("fork")),
    ("vfork", |fixtures| fixtures.messy("vfork")),
];

/// Scenarios that are traced by kprobes too, where there are some.
const KPROBED: &[&str] = &["sessions", "constructor of a library opened later", "many threads", "vfork"];

const BY_TRACEPOINTS: &[&str] = &["--mm", "tracepoint"];
const BY_KPROBES: &[&str] = &["--mm", "kprobe"];
const BY_PERF_EVENTS: &[&str] = &["--mm", "tracepoint", "--attach", "perf"];

const STORM_SEED: u64 = 3;

/// `storm`: calls of a mapping storm.
pub fn parts(storm: u64) -> Vec<Part> {
    let scenarios = SCENARIOS.iter().map(|&(name, command)| {
        Part::new(format!("ledger: {name}"), move || {
            let ledger = trace(&command(fixtures::get()?), BY_TRACEPOINTS)?;
            Ok(vec![Line::Ledger { scenario: name.to_owned(), ledger }])
        })
    });
    let by_tracepoints = Part::new("ledger: mapping storm", move || {
        let ledger = mapping_storm(Backend::Tracepoint, storm)?;
        Ok(vec![Line::Ledger { scenario: "mapping storm".to_owned(), ledger }])
    });
    let polled = Part::new("poll: mapping storm", move || {
        mapping_storm(Backend::Poll, storm)?;
        Ok(Vec::new())
    });
    let same = SCENARIOS.iter().filter(|(name, _)| KPROBED.contains(name)).map(|&(name, command)| {
        Part::new(format!("kprobes: {name}"), move || {
            if has_kprobes() { the_same(&command(fixtures::get()?), BY_KPROBES) } else { Ok(Vec::new()) }
        })
    });
    let by_kprobes = Part::new("kprobes: mapping storm", move || {
        if has_kprobes() {
            mapping_storm(Backend::Kprobe, storm)?;
        }
        Ok(Vec::new())
    });
    let by_perf_events = Part::new("perf events: sessions", || {
        the_same(&fixtures::get()?.driver("sessions", Variant::Plain), BY_PERF_EVENTS)
    });
    scenarios.chain([by_tracepoints]).chain(same).chain([by_kprobes, polled, by_perf_events]).collect()
}

/// Another way of following the memory map, or of attaching, makes the same ledger.
fn the_same(command: &[PathBuf], way: &[&str]) -> Result<Vec<Line>> {
    let (one, other) = (trace(command, BY_TRACEPOINTS)?, trace(command, way)?);
    ensure!(one == other, "as usual: {one}\nby {way:?}: {other}");
    Ok(Vec::new())
}

/// Which ranges there are differs from run to run; whether all three know the same ones does not.
fn mapping_storm(how: Backend, calls: u64) -> Result<Value> {
    let mut storm = mapping_storm::run(STORM_SEED, calls, true, how)?;
    // What came late and is exact all the same has done no harm.
    storm.losses.remove(LATE);
    let ledger = json!({
        "wrong_in_ledger": storm.own.difference(&storm.ledger),
        "wrong_in_naive_model": storm.own.difference(&storm.naive),
        "wrong_in_children": storm.wrong_in_children,
        "children": storm.children > 0,
        "segments": storm.segments,
        "losses": storm.losses,
    });
    let exact = ["wrong_in_ledger", "wrong_in_naive_model", "wrong_in_children"].iter().all(|key| ledger[key] == 0);
    ensure!(exact && storm.losses.is_empty(), "{ledger}");
    Ok(ledger)
}

/// On a machine that stands still for a while events can come too late; then the report says so, and the run is made
/// again. Where that happens each time, the rest is compared all the same: to be late is the machine's, not the kernel's.
const ATTEMPTS: u32 = 3;
const LATE: &str = "events_late";

fn trace(command: &[PathBuf], how: &[&str]) -> Result<Value> {
    let mut ledger = trace_once(command, how)?;
    for _ in 1..ATTEMPTS {
        if !ledger["losses"][LATE].is_null() {
            ledger = trace_once(command, how)?;
        }
    }
    if let Some(losses) = ledger["losses"].as_object_mut() {
        losses.remove(LATE);
    }
    Ok(ledger)
}

fn trace_once(command: &[PathBuf], how: &[&str]) -> Result<Value> {
    let folder = TempDir::new()?;
    let path = folder.path().join("report.json");
    let output = Program::new(machine::tfmem()?)
        .arg("run")
        .args(how)
        .args(["--format", "json", "--min-bytes", "1", "--grace", "60s", "--report-file"])
        .arg(&path)
        .arg("--")
        .args(command)
        .run()?;
    ensure!(output.code == 0, "status {}: {}", output.code, output.stderr);
    Ok(ledger(&serde_json::from_slice(&std::fs::read(path)?)?))
}

/// The report without times, process numbers, resident pages and what only this machine has.
fn ledger(report: &Value) -> Value {
    let none = Vec::new();
    let list = |value: &Value| value.as_array().unwrap_or(&none).clone();
    let process = |process: &Value| {
        let handles = process["handles"].as_object().into_iter().flatten();
        let counts = handles.map(|(name, handle)| {
            let count = |field: &str| handle[field].clone();
            (name.clone(), json!([count("opened"), count("closed"), count("deleted")]))
        });
        json!({
            "comm": process["comm"],
            "exit": process["exit"],
            "forked": process["forked"],
            "frameworks": sorted(list(&process["frameworks"]).iter().map(|f| pick(f, &["name", "version", "probes", "blind"]))),
            "handles": counts.collect::<serde_json::Map<_, _>>(),
            "layers": pick(&process["now"]["layers"], &["pool_region", "pool_chunk", "heap"]),
            "boundaries": list(&process["boundaries"]).iter().map(boundary).collect::<Vec<_>>(),
        })
    };
    let losses = report["losses"].as_object().into_iter().flatten().filter(|(_, count)| **count != 0);
    json!({
        "processes": sorted(list(&report["processes"]).iter().map(process)),
        "losses": losses.map(|(name, count)| (name.clone(), count.clone())).collect::<serde_json::Map<_, _>>(),
    })
}

fn boundary(boundary: &Value) -> Value {
    let all = |field: &str, keep: &dyn Fn(&&Value) -> bool, fields: &[&str]| {
        sorted(boundary[field].as_array().into_iter().flatten().filter(keep).map(|value| pick(value, fields)))
    };
    // What is mapped beside TensorFlow's own is the C library's business.
    let of_tensorflow = |value: &&Value| value["layer"] != "mapping";
    // So is what it keeps of what was freed: its own start-up differs with the kernel's auxiliary vector.
    let known = |value: &&Value| value["cause"] != "unexplained" && value["cause"] != "heap_reserve";
    json!({
        "kind": boundary["kind"],
        "label": boundary["label"],
        "pools": all("pools", &|_| true, &["name", "regions", "regions_bytes", "in_use_bytes", "largest_free_bytes"]),
        "survivors": all("survivors", &of_tensorflow, &["layer", "bytes", "count", "cause", "owner", "pool", "where"]),
        "verdicts": all("verdicts", &known, &["cause", "bytes"]),
    })
}

fn pick(value: &Value, fields: &[&str]) -> Value {
    let field = |&field: &&str| (field.to_owned(), without_address(&value[field]));
    fields.iter().map(field).collect::<serde_json::Map<_, _>>().into()
}

/// A pool whose name nobody saw is called by its address.
fn without_address(value: &Value) -> Value {
    match value.as_str() {
        Some(name) if name.starts_with("pool@0x") => "pool@".into(),
        _ => value.clone(),
    }
}

/// In an order that does not depend on who came first.
fn sorted(values: impl Iterator<Item = Value>) -> Vec<Value> {
    let mut values: Vec<Value> = values.collect();
    values.sort_by_key(Value::to_string);
    values
}
