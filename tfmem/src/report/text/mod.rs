//! What a person reads: one screen, verdicts first.

mod devices;
mod explained;
mod handles;
pub(crate) mod page;
mod rounds;
mod table;
mod verdicts;

pub use explained::listed;
pub use page::{Style, WIDTH};
pub use verdicts::Label;

use page::{Page, Tone};

use super::model::{HandleCount, Process, Report, ReportOptions, StackCoverage};
use super::units::{bytes, count, counted, percent, plain, span_ms};

/// Processes shown in full, and processes given one line each.
const FULL: usize = 6;
const BRIEF: usize = 8;

/// The report as text.
#[must_use]
pub fn render(report: &Report, style: Style) -> String {
    let mut page = Page::new(style);
    let (mut full, mut brief): (Vec<&Process>, Vec<&Process>) =
        report.processes.iter().partition(|p| !p.verdicts.is_empty() || !p.frameworks.is_empty());
    full.sort_by_key(|p| std::cmp::Reverse(weight(p)));
    if full.len() > FULL {
        brief.splice(0..0, full.split_off(FULL));
    }
    for process in &full {
        page.blank();
        one(&mut page, process, &report.options);
    }
    if !brief.is_empty() {
        page.blank();
    }
    for process in brief.iter().take(BRIEF) {
        page.line(&in_brief(process), Tone::Plain);
    }
    if brief.len() > BRIEF {
        let rest = brief.len() - BRIEF;
        page.line(&format!("and {}; the JSON report has them", more(rest as u64)), Tone::Dim);
    }
    if report.processes.is_empty() {
        page.line("no process was seen", Tone::Plain);
    }
    page.blank();
    if dropped(report) > 0 {
        let lost = counted(dropped(report), "event");
        page.paragraph(
            "LOST",
            Tone::Bad,
            &format!(
                "{lost} did not reach tfmem: the figures above lack what they told (a larger --buffer loses less)."
            ),
        );
    }
    if report.losses.contains_key("recording_truncated") {
        page.paragraph("LOST", Tone::Bad, "the end of the recording is missing: this is how far it can be read.");
    }
    page.joined(&losses(report), Tone::Dim);
    page.finish()
}

fn more(n: u64) -> String {
    format!("{} more {}", count(n), if n == 1 { "process" } else { "processes" })
}

/// Says what this report cannot see; `true`: there is something.
fn blind(page: &mut Page, process: &Process) -> bool {
    let mut any = false;
    for library in process.frameworks.iter().filter(|f| !f.blind.is_empty()) {
        if !any {
            page.blank();
        }
        any = true;
        let name = library.library.rsplit('/').next().unwrap_or_default();
        let text = format!(
            "{} has no function that a probe for {} could be put on (a stripped build, or one that is not known): what \
             they would tell is not in this report; mappings and resident bytes are.",
            plain(name, 60),
            library.blind.join(", ")
        );
        page.paragraph("BLIND", Tone::Bad, &text);
    }
    any
}

/// There is no verdict: says how much that means.
fn good(page: &mut Page, process: &Process) {
    let (label, tone, text) = if process.attached {
        ("OK", Tone::Good, "nothing that the trace saw taken is held; what the process had before was not looked at")
    } else if process.forked {
        ("FORK", Tone::Plain, "took nothing of its own; what it inherited is counted with its parent")
    } else if in_use(process) {
        ("OK", Tone::Good, "nothing outlived its boundary")
    } else {
        ("OK", Tone::Good, "nothing is held")
    };
    page.paragraph(label, tone, text);
}

/// What is blamed decides the order; the bytes of reserves break ties.
fn weight(process: &Process) -> (u64, u64) {
    process.verdicts.iter().fold((0, 0), |(blamed, all), v| {
        let bytes = if v.cause.is_reserve() { 0 } else { v.bytes };
        (blamed.saturating_add(bytes), all.saturating_add(v.bytes))
    })
}

fn one(page: &mut Page, process: &Process, options: &ReportOptions) {
    page.headline(&headline(process));
    verdicts::render(page, process, options.min_bytes);
    let blind = blind(page, process);
    if process.verdicts.is_empty() && !blind {
        page.blank();
        good(page, process);
    }
    rounds::render(page, process);
    for (i, released) in process.released.iter().rev().take(3).rev().enumerate() {
        if i == 0 {
            page.blank();
        }
        page.paragraph(if i == 0 { "given back" } else { "" }, Tone::Good, &released.summary);
    }
    for boundary in table::telling(process) {
        table::render(page, boundary);
        if let Some(note) = table::short_wait(boundary, options.grace_ms) {
            page.line(&format!("  {note}"), Tone::Dim);
        }
    }
    page.blank();
    page.joined(&handles(process), Tone::Plain);
    handles::not_exact(page, process);
}

/// `train.py (pid 4711, TensorFlow 2.21.0): 4 sessions opened, 0 closed, in 41 s`
fn headline(process: &Process) -> String {
    let framework = match process.frameworks.iter().find(|f| f.name == "tensorflow").or(process.frameworks.first()) {
        Some(f) => {
            let name = if f.name == "tensorflow" { "TensorFlow" } else { &f.name };
            format!(
                ", {}{}",
                plain(name, 20),
                f.version.as_ref().map_or_else(String::new, |v| format!(" {}", plain(v, 20)))
            )
        }
        None => String::new(),
    };
    let state = if process.exited_at.is_some() { "in" } else { "still running after" };
    let doing = if process.frameworks.is_empty() {
        "no TensorFlow library was mapped".to_owned()
    } else if !called(process) {
        "no TensorFlow call was seen".to_owned()
    } else {
        let s = &process.handles.sessions;
        format!("{} opened, {} closed", counted(s.opened, "session"), count(s.closed))
    };
    let end = process.exit.as_deref().filter(|e| *e != "exit 0").map_or_else(String::new, |e| format!(" ({e})"));
    let span = span_ms(process.seen_ms);
    let job = process.job.as_ref().map_or_else(String::new, |j| format!(", {} {}", plain(&j.name, 20), count(j.task)));
    format!("{} (pid {}{job}{framework}): {doing}, {state} {span}{end}", name(process), process.pid)
}

/// A process that is not worth a screen.
fn in_brief(process: &Process) -> String {
    let what = if process.frameworks.is_empty() {
        "no TensorFlow library was mapped".to_owned()
    } else if process.verdicts.is_empty() {
        "nothing is held".to_owned()
    } else {
        verdicts::brief(process)
    };
    let job = process.job.as_ref().map_or_else(String::new, |j| format!(", {} {}", plain(&j.name, 20), count(j.task)));
    format!("{} (pid {}{job}): {what}; {}", name(process), process.pid, resident(process))
}

/// Whether anything of TensorFlow's was used.
fn called(process: &Process) -> bool {
    let h = &process.handles;
    let opened = |c: &HandleCount| c.opened.unwrap_or(0) > 0;
    h.sessions.opened > 0
        || [&h.graphs, &h.contexts, &h.functions, &h.resources, &h.iterators, &h.servers, &h.worker_sessions]
            .into_iter()
            .any(opened)
        || process.timeline.in_use.iter().any(|&n| n > 0)
        || in_use(process)
}

fn in_use(process: &Process) -> bool {
    let l = &process.now.layers;
    [l.pool_chunk, l.pool_region, l.heap, l.device, l.pinned].into_iter().flatten().any(|n| n > 0)
}

/// The script, the module or the program: what a person calls this process.
#[must_use]
pub fn name(process: &Process) -> String {
    let base = |text: &str| plain(text.rsplit('/').next().unwrap_or(text), 40);
    let mut words = process.cmdline.iter();
    let Some(program) = words.next().map(|p| base(p)) else {
        let comm = plain(&process.comm, 40);
        return if comm.is_empty() { "a short-lived process".to_owned() } else { comm };
    };
    if !program.starts_with("python") {
        return program;
    }
    while let Some(word) = words.next() {
        match word.as_str() {
            "-m" => return words.next().map_or(program, |m| format!("python -m {}", plain(m, 40))),
            "-c" => return "python -c".to_owned(),
            "-W" | "-X" => {
                words.next();
            }
            option if option.starts_with('-') => {}
            script => return base(script),
        }
    }
    program
}

fn handles(process: &Process) -> Vec<String> {
    let h = &process.handles;
    let mut parts = Vec::new();
    let s = &h.sessions;
    if s.opened > 0 {
        parts.push(format!(
            "sessions: {} opened, {} closed, {} deleted",
            count(s.opened),
            count(s.closed),
            count(s.deleted)
        ));
    }
    for (name, c) in [
        ("graphs", &h.graphs),
        ("eager contexts", &h.contexts),
        ("functions", &h.functions),
        ("resources", &h.resources),
        ("iterators", &h.iterators),
        ("servers", &h.servers),
        ("worker sessions", &h.worker_sessions),
        ("master sessions", &h.master_sessions),
    ] {
        if let Some(opened) = c.opened.filter(|&n| n > 0) {
            parts.push(format!(
                "{name}: {} made, {} gone",
                count(opened),
                c.closed.map_or_else(|| "?".to_owned(), count)
            ));
        }
    }
    if parts.is_empty() {
        parts.push(resident(process));
    }
    parts
}

fn resident(process: &Process) -> String {
    match process.now.rss_bytes {
        Some(rss) => format!("{} resident at the end", bytes(rss)),
        None => "its resident bytes were never read".to_owned(),
    }
}

fn dropped(report: &Report) -> u64 {
    report.losses.get("events_dropped").copied().unwrap_or(0)
}

/// Counts, but for the kinds whose name says bytes.
fn losses(report: &Report) -> Vec<String> {
    let mut parts = vec![format!("{} events, {} lost", count(report.events), count(dropped(report)))];
    for (kind, &n) in report.losses.iter().filter(|&(kind, &n)| n > 0 && kind != "events_dropped") {
        let text = plain(kind, 40).replace('_', " ");
        parts.push(match text.strip_suffix(" bytes") {
            Some(text) => format!("{text}: {}", bytes(n)),
            None => format!("{text}: {}", count(n)),
        });
    }
    parts.push(match report.coverage.stacks {
        None => "stacks not collected".to_owned(),
        Some(StackCoverage { bytes, complete, .. }) => match percent(complete, bytes) {
            Some(share) => format!("stacks {share} complete"),
            None => "no stacks".to_owned(),
        },
    });
    if let Some(cost) = &report.cost {
        parts.push(format!("tfmem used {} CPU, {}", span_ms(cost.cpu_ms), bytes(cost.peak_rss_bytes)));
    }
    parts
}
