//! A boundary as a small table: layers before, after, and what survived.

use std::collections::BTreeSet;

use super::devices;
use super::page::{Page, Tone};
use crate::report::model::{Boundary, BoundaryKind, Layer, Process, Side};
use crate::report::units::{bytes_or, counted, percent, percent_whole, span_ms};

/// Layers as a person calls them, from the innermost outwards.
const LAYERS: [(&str, Layer); 6] = [
    ("pool chunks in use", Layer::PoolChunk),
    ("pool regions", Layer::PoolRegion),
    ("GPU memory", Layer::Device),
    ("managed memory", Layer::Managed),
    ("page-locked memory", Layer::Pinned),
    ("heap in use", Layer::Heap),
];

/// The boundaries worth a table: the last close, and the end.
pub fn telling(process: &Process) -> Vec<&Boundary> {
    let last = |kinds: &[BoundaryKind]| process.boundaries.iter().rev().find(|b| kinds.contains(&b.kind));
    let close = last(&[BoundaryKind::SessionClosed]).or_else(|| {
        last(&[
            BoundaryKind::SessionDeleted,
            BoundaryKind::WorkerSessionDeleted,
            BoundaryKind::ContextDeleted,
            BoundaryKind::CachesCleared,
            BoundaryKind::ServerStopped,
        ])
    });
    let mark = last(&[BoundaryKind::Mark, BoundaryKind::Symbol]);
    let end = last(&[BoundaryKind::ProcessExit, BoundaryKind::TraceEnd]);
    [close, mark, end].into_iter().flatten().collect()
}

pub fn render(page: &mut Page, boundary: &Boundary) {
    page.blank();
    if is_end(boundary.kind) { ending(page, boundary) } else { closing(page, boundary) }
}

const fn is_end(kind: BoundaryKind) -> bool {
    matches!(kind, BoundaryKind::ProcessExit | BoundaryKind::TraceEnd)
}

/// Before, after and survivors of a boundary that the process lived through.
fn closing(page: &mut Page, b: &Boundary) {
    row(page, &title(b), &["before", "after", "survivors"], "", Tone::Bold);
    for (name, layer) in LAYERS {
        let (before, after) = (bytes_in(&b.before, layer), bytes_in(&b.after, layer));
        if before.unwrap_or(0) == 0 && after.unwrap_or(0) == 0 {
            continue;
        }
        let survivors =
            if layer == Layer::PoolRegion { String::new() } else { bytes_or(Some(surviving(b, layer)), "") };
        let cells = [&*bytes_or(before, "?"), &bytes_or(after, "?"), &survivors];
        row(page, name, &cells, &note(b, layer), Tone::Plain);
    }
    let rss = [&*bytes_or(b.before.rss_bytes, "?"), &bytes_or(b.after.rss_bytes, "?")];
    row(page, "resident (RSS)", &rss, &explained(&b.after), Tone::Plain);
    not_exact(page, &b.after);
    parts(page, &b.after);
    devices::render(page, &b.after);
}

/// What was there at the end, and how much of it was resident.
fn ending(page: &mut Page, b: &Boundary) {
    row(page, &title(b), &["held", "resident"], "", Tone::Bold);
    for (name, layer) in LAYERS {
        let held = bytes_in(&b.after, layer);
        if held.unwrap_or(0) == 0 {
            continue;
        }
        let bands = &b.after.bands;
        let resident = match layer {
            Layer::PoolChunk => bands.pool_in_use,
            Layer::PoolRegion => bands.pool_in_use.zip(bands.pool_free).map(|(used, free)| used.saturating_add(free)),
            Layer::Heap => bands.heap_in_use,
            _ => None,
        };
        let elsewhere = matches!(layer, Layer::Device | Layer::Managed | Layer::Pinned);
        row(
            page,
            name,
            &[&bytes_or(held, "?"), &bytes_or(resident, if elsewhere { "" } else { "?" })],
            &note(b, layer),
            Tone::Plain,
        );
    }
    row(page, "resident (RSS)", &["", &bytes_or(b.after.rss_bytes, "?")], &explained(&b.after), Tone::Plain);
    not_exact(page, &b.after);
    parts(page, &b.after);
    devices::render(page, &b.after);
}

/// Figures that are not exact, because records were lost.
fn not_exact(page: &mut Page, side: &Side) {
    for bound in &side.bounds {
        let name = match bound.layer {
            Layer::Mapping => "mappings",
            layer => LAYERS.iter().find(|(_, known)| *known == layer).map_or("memory", |(name, _)| name),
        };
        let between = match (bound.at_least_bytes, bound.at_most_bytes) {
            (Some(low), Some(high)) => {
                format!("between {} and {}", bytes_or(Some(low), ""), bytes_or(Some(high), ""))
            }
            (Some(low), None) => format!("at least {}", bytes_or(Some(low), "")),
            (None, Some(high)) => format!("at most {}", bytes_or(Some(high), "")),
            (None, None) => "not known".to_owned(),
        };
        let what = if bound.layer == Layer::Mapping { "record" } else { "allocation" };
        let lost = counted(bound.lost_allocations, what);
        let stale = match bound.maybe_freed {
            0 => String::new(),
            n => format!(", {} that may be gone", counted(n, "block")),
        };
        page.beside(&[("not exact:", 12, Tone::Bad)], &format!("{name} {between} ({lost} lost{stale})"));
    }
}

/// What the resident bytes consist of: "explained" alone would read as "somebody knows who owns all of it".
fn parts(page: &mut Page, side: &Side) {
    let bands = &side.bands;
    let pools = bands.pool_in_use.zip(bands.pool_free).map(|(used, free)| used.saturating_add(free));
    let named = [
        ("pools", pools),
        ("blocks", bands.heap_in_use),
        ("files", bands.files),
        ("free in the C heap", bands.heap_free),
        ("C heap and Python", bands.mappings_other),
    ];
    let shown: Vec<String> = named
        .into_iter()
        .filter_map(|(name, part)| part.filter(|&n| n > 0).map(|n| format!("{name} {}", bytes_or(Some(n), ""))))
        .collect();
    if !shown.is_empty() {
        page.line(&format!("    of it {}", shown.join(", ")), Tone::Dim);
    }
}

fn title(b: &Boundary) -> String {
    match b.kind {
        BoundaryKind::SessionClosed => "after the last close".to_owned(),
        BoundaryKind::SessionDeleted => "after the last delete".to_owned(),
        BoundaryKind::WorkerSessionDeleted => "after the last session".to_owned(),
        BoundaryKind::ContextDeleted => "after the context's end".to_owned(),
        BoundaryKind::CachesCleared => "after clearing caches".to_owned(),
        BoundaryKind::ServerStopped => "after the server's stop".to_owned(),
        BoundaryKind::ProcessExit => "when the process ended".to_owned(),
        BoundaryKind::TraceEnd => "when the trace ended".to_owned(),
        BoundaryKind::Mark | BoundaryKind::Symbol => format!("after {}", crate::report::units::plain(&b.label, 20)),
    }
}

fn row(page: &mut Page, name: &str, cells: &[&str], note: &str, tone: Tone) {
    let cells: Vec<String> = cells.iter().map(|c| format!("{c:>11}")).collect();
    page.line(&format!("  {name:<24} {}   {note}", cells.join(" ")), tone);
}

const fn bytes_in(side: &Side, layer: Layer) -> Option<u64> {
    match layer {
        Layer::PoolChunk => side.layers.pool_chunk,
        Layer::PoolRegion => side.layers.pool_region,
        Layer::Device => side.layers.device,
        Layer::Managed => side.layers.managed,
        Layer::Pinned => side.layers.pinned,
        _ => side.layers.heap,
    }
}

fn surviving(b: &Boundary, layer: Layer) -> u64 {
    b.survivors.iter().filter(|s| s.layer == layer).map(|s| s.bytes).fold(0, u64::saturating_add)
}

/// What a person asks next: whose it is, or how much of it is free.
fn note(b: &Boundary, layer: Layer) -> String {
    if layer == Layer::PoolRegion {
        let regions = b.after.layers.pool_region.unwrap_or(0);
        let free = regions.saturating_sub(b.after.layers.pool_chunk.unwrap_or(0));
        return percent_whole(free, regions).map_or_else(String::new, |p| format!("{p} free"));
    }
    let owners: BTreeSet<&str> =
        b.survivors.iter().filter(|s| s.layer == layer).filter_map(|s| s.owner.as_deref()).collect();
    match owners.len() {
        0 => String::new(),
        1 => owners.first().map_or_else(String::new, |o| (*o).to_owned()),
        n => counted(n as u64, "session"),
    }
}

fn explained(side: &Side) -> String {
    match (side.rss_bytes, side.bands.unexplained) {
        (Some(rss), Some(unexplained)) => percent(rss.saturating_sub(unexplained), rss)
            .map_or_else(String::new, |p| format!("explained {p}, unexplained {}", bytes_or(Some(unexplained), ""))),
        (Some(_), None) => "what it consists of was not read".to_owned(),
        (None, _) => "not looked at in time".to_owned(),
    }
}

/// How long was really waited, where that is less than asked for.
pub fn short_wait(b: &Boundary, asked_ms: u64) -> Option<String> {
    (!is_end(b.kind) && b.grace_ms < asked_ms)
        .then(|| format!("\"after\" was taken {} after the close: the end came first", span_ms(b.grace_ms)))
}
