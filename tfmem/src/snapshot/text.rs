//! A snapshot as a person reads it.

use super::{
    diff::{Diff, Group, Row},
    model::{Holder, Pool, Process, Snapshot},
    objects::Kind,
};
use crate::report::{
    text::{
        Style,
        page::{Page, Tone},
    },
    units::{bytes, count, counted, percent_whole, plain, span_ms},
};

/// Holders, files and changes that are shown; the JSON has all.
const HOLDERS: usize = 12;
const FILES: usize = 5;
const CHANGES: usize = 12;
/// Below this a part of memory is not worth a line.
const SMALL: u64 = 64 << 10;

#[must_use]
pub fn render(snapshot: &Snapshot, style: Style) -> String {
    let mut page = Page::new(style);
    for process in &snapshot.processes {
        page.blank();
        one(&mut page, process);
    }
    page.blank();
    let took = span_ms(snapshot.took_ms);
    page.joined(&[format!("taken in {took}"), format!("tfmem used {}", bytes(snapshot.own_peak_bytes))], Tone::Dim);
    page.finish()
}

fn one(page: &mut Page, process: &Process) {
    let python = process.python.as_ref().map(|python| format!(", Python {}", python.version)).unwrap_or_default();
    page.headline(&format!(
        "{} (pid {}{python}, malloc of {}): {} resident",
        plain(&process.comm, 40),
        process.pid,
        process.heap.allocator,
        bytes(process.rss_bytes)
    ));
    page.blank();
    resident(page, process);
    heap(page, process);
    for pool in &process.pools {
        pool_line(page, pool);
    }
    holders(page, &process.holders);
    objects(page, process);
    checks(page, process);
}

fn row(page: &mut Page, amount: u64, text: &str, tone: Tone) {
    page.line(&format!("  {:>12}  {text}", bytes(amount)), tone);
}

fn resident(page: &mut Page, process: &Process) {
    page.line("      resident", Tone::Bold);
    for part in process.resident.iter().filter(|part| part.bytes >= SMALL) {
        row(page, part.bytes, &plain(&part.what, 70), Tone::Plain);
    }
    row(page, process.unexplained_bytes, "unexplained", Tone::Doubt);
    for file in process.mappings.iter().take(FILES).filter(|file| file.resident_bytes >= SMALL) {
        row(page, file.resident_bytes, &format!("of it {}", plain(&file.what, 70)), Tone::Dim);
    }
}

fn heap(page: &mut Page, process: &Process) {
    page.blank();
    let Some(figures) = &process.heap.figures else { return };
    let arenas = counted(process.heap.arenas.len() as u64, "arena");
    let not = figures.free_resident_bytes.saturating_sub(figures.trimmable_bytes);
    page.paragraph(
        "heap",
        Tone::Bold,
        &format!(
            "{} in use and {} free in {arenas}; {} in {}. Of what is free {} is resident: malloc_trim would give back \
             {}, not {}.",
            bytes(figures.in_use_bytes),
            bytes(figures.free_bytes),
            bytes(figures.mapped_chunk_bytes),
            counted(figures.mapped_chunks, "large block"),
            bytes(figures.free_resident_bytes),
            bytes(figures.trimmable_bytes),
            bytes(not),
        ),
    );
    let mut why: Vec<(u64, &str)> = Vec::new();
    for arena in &process.heap.arenas {
        let Some(because) = &arena.not_trimmable_because else { continue };
        match why.iter_mut().find(|(_, known)| known == because) {
            Some((bytes, _)) => *bytes += arena.not_trimmable_bytes,
            None => why.push((arena.not_trimmable_bytes, because)),
        }
    }
    for (amount, because) in why.iter().filter(|(amount, _)| *amount >= SMALL) {
        page.paragraph("", Tone::Plain, &format!("{} stays: {because}", bytes(*amount)));
    }
}

fn pool_line(page: &mut Page, pool: &Pool) {
    let name = pool.name.as_deref().map_or_else(|| "no name".to_owned(), |name| plain(name, 40));
    let text = match &pool.refused {
        Some(why) => format!("\"{name}\": not read: {why}"),
        None => {
            let free = pool.free_bytes;
            let fragmented = percent_whole(free - pool.largest_free_bytes.min(free), free);
            format!(
                "\"{name}\": {} in use, {} free in {} (largest free chunk {}, {} of the free bytes in smaller ones), {} \
                 resident",
                bytes(pool.in_use_bytes),
                bytes(free),
                counted(pool.regions, "region"),
                bytes(pool.largest_free_bytes),
                fragmented.as_deref().unwrap_or("nothing"),
                bytes(pool.resident_bytes)
            )
        }
    };
    page.paragraph("pool", Tone::Bold, &text);
}

impl Holder {
    /// What it is called.
    #[must_use]
    pub fn title(&self) -> String {
        let name = self.name.as_deref().map(|name| format!(" \"{name}\"")).unwrap_or_default();
        let container = self.container.as_deref().map(|name| format!(" in container \"{name}\"")).unwrap_or_default();
        let class =
            if self.class == "-" || self.class.is_empty() { String::new() } else { format!(" ({})", self.class) };
        format!("{}{name}{container}{class}", self.owner)
    }
}

fn holders(page: &mut Page, holders: &[Holder]) {
    let shown: Vec<&Holder> = holders.iter().filter(|holder| holder.bytes > 0).take(HOLDERS).collect();
    if shown.is_empty() {
        return;
    }
    page.blank();
    page.line("         bytes  held by", Tone::Bold);
    for holder in &shown {
        let blocks = counted(holder.count, if holder.owner == "table" { "block" } else { "buffer" });
        let doubt = if holder.complete { "" } else { "; others may hold it too" };
        row(page, holder.bytes, &format!("{}: {blocks}{doubt}", plain(&holder.title(), 130)), Tone::Plain);
        if !holder.chain.is_empty() {
            let chain: Vec<String> = holder.chain.iter().map(|step| plain(step, 60)).collect();
            page.advice_at(16, &format!("<- {}", chain.join(" <- ")));
        }
    }
    if holders.len() > shown.len() {
        page.line(&format!("                and {} more", count((holders.len() - shown.len()) as u64)), Tone::Dim);
    }
}

fn objects(page: &mut Page, process: &Process) {
    let mut kinds: Vec<(Kind, u64)> = Vec::new();
    // Descriptions are there by the thousand; what they take is told under `held by`.
    let told = |kind| !matches!(kind, Kind::Other | Kind::Definition);
    for class in process.classes.iter().filter(|class| told(class.kind)) {
        match kinds.iter_mut().find(|(kind, _)| *kind == class.kind) {
            Some((_, count)) => *count += class.count,
            None => kinds.push((class.kind, class.count)),
        }
    }
    if kinds.is_empty() {
        return;
    }
    kinds.sort_unstable();
    page.blank();
    let text: Vec<String> = kinds.iter().map(|&(kind, number)| format!("{} {}", kind.noun(), count(number))).collect();
    page.paragraph("alive", Tone::Bold, &text.join(", "));
}

fn checks(page: &mut Page, process: &Process) {
    page.blank();
    for check in &process.checks {
        let (word, tone) = if check.ok { ("ok", Tone::Good) } else { ("FAILED", Tone::Bad) };
        let figures = if check.ok {
            count(check.found)
        } else {
            format!("expected {}, found {}", count(check.expected), count(check.found))
        };
        page.paragraph(word, tone, &format!("{}: {figures}", check.name));
    }
    for note in &process.notes {
        page.paragraph("note", Tone::Doubt, note);
    }
}

#[must_use]
pub fn diff(diff: &Diff, style: Style) -> String {
    let mut page = Page::new(style);
    for process in &diff.processes {
        page.blank();
        page.headline(&format!(
            "{} (pid {}): {} resident, {} before",
            plain(&process.comm, 40),
            process.pid,
            bytes(process.after_rss_bytes),
            bytes(process.before_rss_bytes)
        ));
        for (group, title) in [
            (Group::Resident, "resident"),
            (Group::Pool, "pools"),
            (Group::Holder, "holders"),
            (Group::Class, "classes"),
        ] {
            let rows: Vec<&Row> = process.rows.iter().filter(|row| row.group == group).collect();
            if rows.is_empty() {
                continue;
            }
            page.blank();
            page.line(&format!("  {title:<12}      before       after"), Tone::Bold);
            for row in rows.iter().take(CHANGES) {
                change(&mut page, row);
            }
            if rows.len() > CHANGES {
                page.line(&format!("  and {} more", count((rows.len() - CHANGES) as u64)), Tone::Dim);
            }
        }
    }
    page.finish()
}

fn change(page: &mut Page, row: &Row) {
    let grown = row.after_bytes > row.before_bytes;
    let sign = if grown { '+' } else { '-' };
    let delta = format!("{sign}{}", bytes(row.after_bytes.abs_diff(row.before_bytes)));
    let counts = if row.before_count == row.after_count {
        String::new()
    } else {
        format!(" ({} -> {})", count(row.before_count), count(row.after_count))
    };
    page.line(
        &format!(
            "  {delta:>12} {:>11} {:>11}  {}{counts}",
            bytes(row.before_bytes),
            bytes(row.after_bytes),
            plain(&row.what, 60)
        ),
        if grown { Tone::Bad } else { Tone::Good },
    );
}
