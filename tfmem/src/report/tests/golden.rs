//! The text of reports, letter by letter. `TFMEM_BLESS=1` writes the files anew.

use std::path::Path;

use super::samples;
use crate::report::text::{Style, WIDTH, render};

#[test]
fn the_text_is_as_it_was() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/report_golden");
    let bless = std::env::var_os("TFMEM_BLESS").is_some();
    let mut wrong = Vec::new();
    for (name, report) in samples() {
        let actual = render(&report, Style::default());
        let golden = folder.join(format!("{name}.txt"));
        if bless {
            std::fs::write(&golden, &actual).expect("write");
        } else if std::fs::read_to_string(&golden).unwrap_or_default() != actual {
            let beside = std::env::temp_dir().join(format!("tfmem-{name}.txt"));
            std::fs::write(&beside, &actual).expect("write");
            wrong.push(format!("diff {} {}\n{actual}", golden.display(), beside.display()));
        }
    }
    assert!(wrong.is_empty(), "not as it was (TFMEM_BLESS=1 accepts it):\n{}", wrong.join("\n"));
}

#[test]
fn every_style_keeps_to_the_page() {
    for (name, report) in samples() {
        let plain = render(&report, Style::default());
        for line in plain.lines() {
            assert!(line.chars().count() <= WIDTH, "{name}: {line}");
            assert_eq!(line, line.trim_end(), "{name}");
        }
        assert!(plain.ends_with('\n') && !plain.ends_with("\n\n"));
        assert!(!plain.contains('\x1b'));
        assert!(render(&report, Style { ascii: true, colour: false }).is_ascii(), "{name}");
        let coloured = render(&report, Style { ascii: false, colour: true });
        assert!(coloured.contains("\x1b["), "{name}");
        let mut bare = String::new();
        let mut rest = coloured.as_str();
        while let Some((before, after)) = rest.split_once('\x1b') {
            bare += before;
            rest = after.split_once('m').expect("colour").1;
        }
        assert_eq!(bare + rest, plain, "{name}: colour changes nothing but colour");
    }
}

#[test]
fn unexplained_memory_is_printed_however_much_else_there_is() {
    let (_, mut report) = samples().swap_remove(2);
    let verdicts = &mut report.processes[0].verdicts;
    let first = verdicts[0].clone();
    verdicts.splice(0..0, std::iter::repeat_n(first, 20));
    let text = render(&report, Style::default());
    assert!(text.contains("UNEXPLAINED"), "{text}");
    assert!(text.contains("more verdicts"), "{text}");
}

#[test]
fn names_out_of_the_program_cannot_change_the_terminal() {
    let (_, mut report) = samples().swap_remove(0);
    let p = &mut report.processes[0];
    p.cmdline[1] = "\x1b]0;owned\x07.py".to_owned();
    p.verdicts[0].summary = "a\x1b[2Jb".to_owned();
    p.verdicts[0].evidence = vec!["\u{202e}c\r\n".to_owned()];
    report.losses.insert("\x1b[31m".to_owned(), 1);
    let text = render(&report, Style::default());
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
}
