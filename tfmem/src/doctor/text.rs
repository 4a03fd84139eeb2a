//! The findings for a person: one line a check, what to do under it; then the probes of the libraries asked for.

use super::{
    Findings,
    check::{Check, Outcome, Verdict},
    library::Examined,
};
use crate::{
    attach::plan::{Layout, Plan, Point},
    report::{
        text::{
            Style,
            page::{Page, Tone},
        },
        units::{bytes, counted},
    },
};

const STATUS: usize = 9;
const NAME: usize = 21;
/// Column of the text beside them.
const TEXT: usize = 2 + STATUS + NAME;

#[must_use]
pub fn render(findings: &Findings, style: Style) -> String {
    let mut page = Page::new(style);
    let mut group = "";
    for check in &findings.checks {
        if check.group != group {
            group = check.group;
            page.blank();
            page.line(group, Tone::Bold);
        }
        line(&mut page, check);
    }
    for examined in &findings.libraries {
        page.blank();
        libraries(&mut page, examined);
    }
    page.blank();
    conclusion(&mut page, findings);
    page.finish()
}

fn line(page: &mut Page, check: &Check) {
    let (word, tone) = match &check.outcome {
        Outcome::Works => ("ok", Tone::Good),
        Outcome::Degraded(_) => ("limited", Tone::Doubt),
        Outcome::Missing(_) if check.required => ("missing", Tone::Bad),
        Outcome::Missing(_) => ("missing", Tone::Dim),
        Outcome::NotTried(_) => ("untried", Tone::Doubt),
    };
    let said = match &check.outcome {
        Outcome::Works => check.found.as_deref(),
        Outcome::Degraded(reason) | Outcome::Missing(reason) | Outcome::NotTried(reason) => Some(reason.as_str()),
    };
    let text = said.map_or_else(|| check.purpose.to_owned(), |said| format!("{}: {said}", check.purpose));
    page.beside(&[(word, STATUS, tone), (check.name, NAME, Tone::Plain)], &text);
    if let Some(fix) = &check.fix {
        page.advice_at(TEXT, fix);
    }
}

fn conclusion(page: &mut Page, findings: &Findings) {
    let lacking = |wanted: fn(&Check) -> bool| -> String {
        let lacking = findings.checks.iter().filter(|check| check.required && !check.allows() && wanted(check));
        lacking.map(|check| check.name).collect::<Vec<_>>().join(", ")
    };
    match findings.verdict {
        Verdict::Ready => page.line("tfmem can trace here.", Tone::Good),
        Verdict::NeedsPrivilege => {
            page.line(&format!("Not allowed to trace: {}.", lacking(|check| check.privilege)), Tone::Bad);
            page.line("What was not tried may work with them: sudo tfmem doctor", Tone::Plain);
        }
        Verdict::Unable => page.line(&format!("tfmem cannot trace here: {}.", lacking(|_| true)), Tone::Bad),
    }
    if findings.libraries.is_empty() {
        page.line("Where probes would sit: tfmem doctor --pid PID, or --library FILE", Tone::Dim);
    }
}

fn libraries(page: &mut Page, examined: &Examined) {
    page.line(&examined.of, Tone::Bold);
    for note in &examined.notes {
        page.beside(&[("note", STATUS, Tone::Doubt)], note);
    }
    for plan in &examined.libraries {
        page.blank();
        library(page, plan);
    }
}

fn library(page: &mut Page, plan: &Plan) {
    let library = &plan.library;
    let version = library.version.as_deref().unwrap_or("version not known");
    let build = library.build_id.as_ref().map_or_else(|| "no build id".to_owned(), |id| format!("build id {id}"));
    page.line(&format!("  {}", library.path), Tone::Bold);
    let places = grouped(&plan.points);
    let probes = counted(plan.points.len() as u64, "probe");
    page.joined(&[format!("{} {version}", library.framework), bytes(library.size), build, probes], Tone::Plain);
    for (point, programs) in &places {
        place(page, point, programs);
    }
    for missing in &plan.missing {
        page.beside(&[("missing", STATUS, Tone::Doubt), (&missing.entry, ENTRY, Tone::Plain)], &missing.reason);
    }
    let (word, tone, text) = annotation(plan);
    page.beside(&[(word, STATUS, tone), ("names of ops", ENTRY, Tone::Plain)], &text);
}

/// Column of the catalogue's names.
const ENTRY: usize = 33;

fn place(page: &mut Page, point: &Point, programs: &str) {
    let (word, tone) = if point.cheap { ("cheap", Tone::Good) } else { ("stepped", Tone::Doubt) };
    let place = format!("{programs} at file offset {:#x} (+{})", point.file_offset, point.delta);
    page.beside(&[(word, STATUS, tone), (&point.entry, ENTRY, Tone::Plain)], &place);
    page.beside(
        &[("", STATUS, Tone::Plain), ("", ENTRY, Tone::Plain)],
        &format!("{}: {}", point.instruction, point.why),
    );
}

/// One place each, with all programs that sit there.
fn grouped(points: &[Point]) -> Vec<(&Point, String)> {
    let mut places: Vec<(&Point, String)> = Vec::new();
    for point in points {
        let same = |(other, _): &&mut (&Point, String)| {
            (other.file_offset, &other.entry, &other.symbol) == (point.file_offset, &point.entry, &point.symbol)
        };
        match places.iter_mut().find(same) {
            Some((_, programs)) => {
                programs.push_str(" and ");
                programs.push_str(&point.program);
            }
            None => places.push((point, point.program.clone())),
        }
    }
    places
}

fn annotation(plan: &Plan) -> (&'static str, Tone, String) {
    match (&plan.annotation, &plan.annotation_missing) {
        (Some(annotation), _) => {
            let fields = match annotation.layout {
                Layout::CStr => "pointers to text",
                Layout::View => "string views",
            };
            let place = format!(
                "TensorFlow's own note of the op that allocates, at {:#x} of the library's thread-local block; {fields}",
                annotation.symbol_offset
            );
            ("ok", Tone::Good, place)
        }
        (None, Some(why)) => ("missing", Tone::Doubt, why.clone()),
        (None, None) => ("–", Tone::Dim, "not kept by this library".to_owned()),
    }
}
