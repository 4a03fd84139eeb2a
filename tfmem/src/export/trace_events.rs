//! Chrome's trace events, which Perfetto's viewer reads: counters of each process over time, boundaries as marks.
//!
//! <https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>. Times are the boot clock's, in µs.

use std::io::{self, Write};

use serde_json::{Map, Value, json};

use crate::profile::{unix_ns, word};
use crate::report::{
    model::{Boundary, Layers, Process, Report, Timeline},
    text,
    units::plain,
};

/// # Errors
/// What the writer says.
pub fn write(report: &Report, pid: Option<u32>, out: &mut impl Write) -> io::Result<()> {
    let clock = Clock::of(report);
    let chosen = report.processes.iter().filter(|process| pid.is_none_or(|pid| process.pid == pid));
    let events: Vec<Value> = chosen.flat_map(|process| of_process(process, clock)).collect();
    let losses: Map<String, Value> =
        report.losses.iter().filter(|&(_, &n)| n > 0).map(|(kind, &n)| (kind.clone(), n.into())).collect();
    let about = json!({ "tool": format!("tfmem {}", report.tfmem.version), "losses": losses });
    let file = json!({ "traceEvents": events, "displayTimeUnit": "ms", "otherData": about });
    serde_json::to_writer(&mut *out, &file)?;
    out.write_all(b"\n")
}

/// Dates of the report as times of the boot clock.
#[derive(Clone, Copy)]
struct Clock {
    started_at: Option<u64>,
    started_ns: u64,
}

impl Clock {
    fn of(report: &Report) -> Self {
        Self { started_at: unix_ns(&report.started_at), started_ns: report.started_ns }
    }

    fn ns(self, date: &str) -> Option<u64> {
        let at = i128::from(unix_ns(date)?) - i128::from(self.started_at?) + i128::from(self.started_ns);
        u64::try_from(at).ok()
    }
}

fn of_process(process: &Process, clock: Clock) -> Vec<Value> {
    let name = format!("{} ({})", text::name(process), process.pid);
    let mut events =
        vec![json!({ "ph": "M", "name": "process_name", "pid": process.pid, "tid": 0, "args": { "name": name } })];
    let mut timed = timeline(process.pid, &process.timeline);
    for boundary in &process.boundaries {
        timed.extend(of_boundary(process.pid, boundary, clock));
    }
    timed.sort_by_key(|&(at, _)| at);
    events.extend(timed.into_iter().map(|(_, event)| event));
    events
}

type Timed = (u64, Value);

fn counter(pid: u32, at: u64, name: &str, figures: &Map<String, Value>) -> Option<Timed> {
    if figures.is_empty() {
        return None;
    }
    Some((at, json!({ "ph": "C", "name": name, "pid": pid, "tid": 0, "ts": us(at), "args": figures })))
}

/// Where nobody looked there is no figure, not a zero.
fn timeline(pid: u32, timeline: &Timeline) -> Vec<Timed> {
    let mut events = Vec::new();
    for (k, &at) in timeline.edges.iter().enumerate() {
        let one = |name: &str, bytes: Option<u64>| bytes.map(|bytes| Map::from_iter([(name.to_owned(), bytes.into())]));
        let bands = timeline
            .bands
            .iter()
            .filter_map(|band| Some((plain(&band.band, 60), Value::from((*band.bytes.get(k)?)?))))
            .collect();
        events.extend(counter(pid, at, "resident bytes by band", &bands));
        let in_use = one("bytes", timeline.in_use.get(k).copied());
        events.extend(in_use.and_then(|figures| counter(pid, at, "chunks and blocks in use", &figures)));
        let rss = one("bytes", timeline.rss.get(k).copied().flatten());
        events.extend(rss.and_then(|figures| counter(pid, at, "resident (RSS)", &figures)));
        for device in &timeline.devices {
            let name = format!("device {}", device.index);
            let bytes = one("bytes", device.nvml.get(k).copied().flatten());
            events.extend(bytes.and_then(|figures| counter(pid, at, &name, &figures)));
        }
    }
    events
}

/// A mark, and the layers before and after: they are counted at boundaries alone.
fn of_boundary(pid: u32, boundary: &Boundary, clock: Clock) -> Vec<Timed> {
    let mut events = Vec::new();
    if let Some(at) = clock.ns(&boundary.at) {
        let survivors = boundary.survivors.iter().fold(0, |sum: u64, s| sum.saturating_add(s.bytes));
        let args = json!({
            "boundary": boundary.id, "kind": word(boundary.kind), "survivors_bytes": survivors,
            "grace_ms": boundary.grace_ms,
        });
        let label = plain(&boundary.label, 200);
        let event = json!({
            "ph": "i", "s": "p", "cat": "boundary", "name": label, "pid": pid, "tid": 0, "ts": us(at), "args": args,
        });
        events.push((at, event));
    }
    for (date, side) in [(&boundary.at, &boundary.before), (&boundary.after_at, &boundary.after)] {
        let at = clock.ns(date);
        events.extend(at.and_then(|at| counter(pid, at, "bytes by layer (nested)", &layers(&side.layers))));
    }
    events
}

fn layers(layers: &Layers) -> Map<String, Value> {
    let figures = serde_json::to_value(layers).unwrap_or_default();
    let figures = figures.as_object().cloned().unwrap_or_default();
    figures.into_iter().filter(|(_, bytes)| !bytes.is_null()).collect()
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}
