//! The commands themselves: what they write where, and what they say when they cannot.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use super::{folder, sums};

fn tfmem(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tfmem")).args(args).output().unwrap()
}

fn input(name: &str) -> String {
    let recordings = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings");
    let folder = if name.ends_with(".tfmem") { recordings } else { folder() };
    folder.join(name).display().to_string()
}

/// The sum of folded stacks.
fn folded(args: &[&str]) -> u64 {
    let out = tfmem(&[&["export", "--format", "folded", "-o", "-"], args].concat());
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8(out.stdout).unwrap();
    text.lines().map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

#[test]
fn reports_and_recordings_are_read() {
    assert_eq!(folded(&[&input("report.json")]), sums().0);
    assert_eq!(folded(&[&input("report.json"), "--weight", "count"]), sums().1);
    assert_eq!(folded(&[&input("report.json"), "--layer", "heap"]), 65_536 + 777);
    assert_eq!(folded(&[&input("report.json"), "--boundary", "last"]), 50_001_000);
    // What the recorded process held at its end, group by group: the report's own sum.
    let report = tfmem(&["report", "--format", "json", &input("case01.tfmem")]);
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).unwrap();
    let boundaries = report["processes"][0]["boundaries"].as_array().unwrap();
    let survivors = boundaries.last().unwrap()["survivors"].as_array().unwrap();
    let sum: u64 = survivors.iter().map(|s| s["bytes"].as_u64().unwrap()).sum();
    assert_eq!(folded(&[&input("case01.tfmem")]), sum);
}

/// The largest allocation of the recorded program is there at its peak; all that was ever taken is no less.
#[test]
fn other_moments_than_boundaries() {
    let recording = input("case01.tfmem");
    let [peak, end, all] = [&["--live", "peak"][..], &["--live", "1h"], &["--all"]]
        .map(|args| folded(&[&[recording.as_str()], args].concat()));
    assert!(peak > 0 && end < peak && peak <= all, "{peak} {end} {all}");
    let one = |layer| folded(&[&recording, "--all", "--layer", layer]);
    assert_eq!(one("pool_chunk") + one("heap"), all);
}

#[test]
fn pictures_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.svg");
    let (file, report, recording) = (out.display().to_string(), input("report.json"), input("case01.tfmem"));
    for args in [
        vec!["flame", &report, "-o", &file],
        vec!["flame", &recording, "-o", &file],
        vec!["flame", &report, "-o", &file, "--diff-boundary", "last", "--weight", "count"],
        vec!["flame", &report, "-o", &file, "--diff", &recording],
        vec!["flame", &recording, "-o", &file, "--live", "peak"],
        vec!["flame", &recording, "-o", &file, "--all", "--diff", &recording],
    ] {
        let done = tfmem(&args);
        assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
        assert!(fs::read_to_string(&out).unwrap().starts_with("<?xml"), "{args:?}");
        fs::remove_file(&out).unwrap();
    }
}

#[test]
fn what_cannot_be_done_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| -> PathBuf { folder.path().join(name) };
    let (svg, nonsense, other) = (path("out.svg"), path("nonsense"), path("other.json"));
    fs::write(&nonsense, b"nonsense").unwrap();
    fs::write(&other, b"{\"schema\": \"another/1\"}").unwrap();
    let report = input("report.json");
    let [svg, nonsense, other] = [svg, nonsense, other].map(|path| path.display().to_string());
    for (args, said) in [
        (vec!["flame", &report, "-o", &svg, "--boundary", "77"], "process ended"),
        (vec!["flame", &report, "-o", &svg, "--pid", "1"], "there are: none"),
        (vec!["flame", &report, "-o", &svg, "--layer", "device"], "no survivors"),
        (vec!["flame", &report, "-o", &svg, "--layer", "chunk"], "pool_chunk"),
        (vec!["flame", &report, "-o", &svg, "--boundary", "first"], "expected a boundary's number"),
        (vec!["flame", &report, "-o", &svg, "--live", "peak"], "only a recording"),
        (vec!["flame", &report, "-o", &svg, "--live", "never"], "since the trace began"),
        (vec!["flame", &report, "-o", &svg, "--live", "1s", "--boundary", "1"], "cannot be used with"),
        (vec!["flame", &nonsense, "-o", &svg], "cannot read"),
        (vec!["flame", &other, "-o", &svg], "cannot read"),
        (vec!["flame", "/nowhere", "-o", &svg], "cannot read"),
        (vec!["export", &report, "--format", "svg", "-o", &svg], "speedscope"),
    ] {
        let out = tfmem(&args);
        let text = String::from_utf8(out.stderr).unwrap();
        assert!(out.status.code() == Some(2) && text.contains(said), "{args:?}: {:?} {text}", out.status);
        assert!(!Path::new(&svg).exists(), "{args:?}");
    }
}
