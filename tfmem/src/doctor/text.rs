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
    let mut above = None;
    for check in &findings.checks {
        if check.group != group {
            group = check.group;
            above = None;
            page.blank();
            page.line(group, Tone::Bold);
        }
        line(&mut page, check, &mut above);
    }
    for examined in &findings.libraries {
        page.blank();
        libraries(&mut page, examined);
    }
    page.blank();
    conclusion(&mut page, findings);
    page.finish()
}

/// `above`: the advice of the line above, which is not repeated.
fn line<'a>(page: &mut Page, check: &'a Check, above: &mut Option<&'a str>) {
    let (word, tone) = match &check.outcome {
        Outcome::Works => ("ok", Tone::Good),
        Outcome::Degraded(_) => ("limited", Tone::Doubt),
        Outcome::Missing(_) if check.required => ("missing", Tone::Bad),
        Outcome::Missing(_) => ("missing", Tone::Dim),
        Outcome::NotTried(_) => ("untried", Tone::Doubt),
    };
    // What is fine needs no reason to be asked for.
    let text = match &check.outcome {
        Outcome::Works => check.found.clone().unwrap_or_else(|| check.purpose.to_owned()),
        Outcome::NotTried(reason) => reason.clone(),
        Outcome::Degraded(reason) | Outcome::Missing(reason) => {
            format!("{reason} (for: {})", check.purpose)
        }
    };
    page.beside(&[(word, STATUS, tone), (check.name, NAME, Tone::Plain)], &text);
    let fix = check.fix.as_deref();
    if let Some(fix) = fix.filter(|_| fix != *above) {
        page.advice_at(TEXT, fix);
    }
    *above = fix;
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
        Verdict::Unable => {
            page.line("tfmem cannot trace here. What it lacks:", Tone::Bad);
            page.beside(&[], &lacking(|_| true));
        }
    }
    for examined in findings.libraries.iter().filter(|examined| examined.useless) {
        page.line(&format!("No probe can be put into {}.", examined.of), Tone::Bad);
    }
    if findings.libraries.is_empty() {
        page.line("Where probes would sit: tfmem doctor --pid PID, or --library FILE", Tone::Dim);
    }
}

fn libraries(page: &mut Page, examined: &Examined) {
    page.beside(&[], &examined.of);
    for note in &examined.notes {
        page.beside(&[("note", STATUS, Tone::Doubt)], note);
    }
    for plan in &examined.libraries {
        if plan.library.path != examined.of {
            page.blank();
            page.beside(&[], &plan.library.path);
        }
        library(page, plan);
    }
}

fn library(page: &mut Page, plan: &Plan) {
    let library = &plan.library;
    let version = library.version.as_deref().unwrap_or("version not known");
    let build = library.build_id.as_ref().map_or_else(|| "no build id".to_owned(), |id| format!("build id {id}"));
    let places = grouped(&plan.points);
    let probes = counted(plan.points.len() as u64, "probe");
    page.joined(&[format!("{} {version}", library.framework), bytes(library.size), build, probes], Tone::Plain);
    if !places.is_empty() {
        let cells = [("cost", STATUS, Tone::Dim), ("function", ENTRY, Tone::Dim)];
        page.beside(&cells, "BPF programs at file offset, + bytes from the entry");
    }
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
    // C names say more than the catalogue's, mangled ones do not.
    let name = if point.symbol.starts_with("_Z") { &point.entry } else { &point.symbol };
    let place = format!("{programs} at {:#x} +{}", point.file_offset, point.delta);
    page.beside(&[(word, STATUS, tone), (name, ENTRY, Tone::Plain)], &place);
    page.beside(&[("", STATUS, Tone::Plain)], &format!("{}: {}", point.instruction, point.why));
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
                programs.push_str(", ");
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        attach::{
            elf::Table,
            plan::{Library, Missing},
        },
        doctor::{SCHEMA, Tool, check::verdict},
    };

    fn findings(checks: Vec<Check>, libraries: Vec<Examined>) -> Findings {
        let tfmem = Tool { version: "1.2.3" };
        Findings { schema: SCHEMA, tfmem, verdict: verdict(&checks), checks, libraries }
    }

    fn point(entry: &str, symbol: &str, program: &str, cheap: bool) -> Point {
        Point {
            entry: entry.to_owned(),
            symbol: symbol.to_owned(),
            table: Table::Dynamic,
            symbol_index: 1,
            address: 0x1000,
            delta: 4,
            file_offset: 0x1004,
            program: program.to_owned(),
            ret: program.ends_with("leave"),
            cookie: 0,
            instruction: "push rbp (55)".to_owned(),
            cheap,
            why: "because".to_owned(),
        }
    }

    fn plan() -> Plan {
        Plan {
            library: Library {
                framework: "tensorflow".to_owned(),
                path: "/lib/a.so".to_owned(),
                build_id: Some("abcd".to_owned()),
                version: None,
                size: 4096,
                code: Vec::new(),
            },
            points: vec![
                point("TF_NewSession", "TF_NewSession", "call_enter", true),
                point("TF_NewSession", "TF_NewSession", "call_leave", true),
                point("Pool::Pool", "_ZN4PoolC2Ev", "call_enter", false),
            ],
            missing: vec![Missing { entry: "Pool::Extend".to_owned(), reason: "no such symbol".to_owned() }],
            annotation: None,
            annotation_missing: Some("stripped".to_owned()),
        }
    }

    #[test]
    fn all_there_is_to_say() {
        let checks = vec![
            Check { group: "Kernel", ..Check::new("kernel", "all").found("6.18") },
            Check { group: "Kernel", ..Check::new("places", "reading").limited("half of them").fix("update") },
            Check { group: "Probes", ..Check::new("uprobe", "seeing").required().missing("refused").fix("update") },
            Check {
                group: "Probes",
                ..Check::new("cookie", "telling apart").required().not_tried("no probe").fix("update")
            },
        ];
        let process = Examined {
            of: "process 7".to_owned(),
            libraries: vec![plan()],
            notes: vec!["b.so: gone".to_owned()],
            useless: false,
        };
        let text = render(&findings(checks, vec![process]), Style::default());
        let expected = "\
Kernel
  ok       kernel               6.18
  limited  places               half of them (for: reading)
                                → update

Probes
  missing  uprobe               refused (for: seeing)
                                → update
  untried  cookie               no probe

  process 7
  note     b.so: gone

  /lib/a.so
  tensorflow version not known · 4.0 KiB · build id abcd · 3 probes
  cost     function                         BPF programs at file offset, + bytes from the entry
  cheap    TF_NewSession                    call_enter, call_leave at 0x1004 +4
           push rbp (55): because
  stepped  Pool::Pool                       call_enter at 0x1004 +4
           push rbp (55): because
  missing  Pool::Extend                     no such symbol
  missing  names of ops                     stripped

tfmem cannot trace here. What it lacks:
  uprobe, cookie
";
        assert_eq!(text, expected);
    }

    #[test]
    fn the_last_lines_say_what_to_do() {
        let held = Check::new("CAP_BPF", "").required().privilege();
        let text = |checks, libraries| render(&findings(checks, libraries), Style::default());
        let ready = text(vec![held.clone()], vec![]);
        assert!(ready.contains("can trace here") && ready.contains("--library FILE"), "{ready}");
        let lacking = text(vec![held.clone().missing("not held")], vec![]);
        assert!(lacking.contains("Not allowed to trace: CAP_BPF") && lacking.contains("sudo"), "{lacking}");
        let useless = Examined { of: "/lib/b.so".to_owned(), useless: true, ..Examined::default() };
        assert!(text(vec![held], vec![useless]).contains("No probe can be put into /lib/b.so"));
    }

    #[test]
    fn a_hostile_name_controls_nothing() {
        let hostile = Examined { of: "/x\x1b[2J\n".to_owned(), ..Examined::default() };
        let text = render(&findings(vec![], vec![hostile]), Style::default());
        assert!(!text.contains('\x1b'), "{text:?}");
    }
}
