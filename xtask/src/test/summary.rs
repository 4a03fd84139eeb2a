//! What ran, how it went and what was left out.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::process::Program;

#[derive(Default)]
pub struct Summary {
    steps: Vec<Step>,
    tests: Counts,
    /// `SKIP name: why`, as the tests print it
    skips: Vec<String>,
    /// Of these, whole steps
    steps_skipped: u64,
}

struct Step {
    name: &'static str,
    passed: bool,
    took: Duration,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: u64,
    failed: u64,
}

impl Summary {
    /// Runs one step; the counts and skips of a test runner are added up on the way.
    pub fn step(&mut self, name: &'static str, program: Program) -> Result<()> {
        println!("\n==> {name}: {program}");
        let start = Instant::now();
        let status = program.watch(|line| {
            if let Some(counts) = parse_result(line) {
                self.tests.passed += counts.passed;
                self.tests.failed += counts.failed;
            }
            // Written past the runner's capture, so it may stand behind the runner's own `test name ... `.
            if let Some(at) = line.find("SKIP ") {
                self.skips.push(line[at..].to_owned());
            }
        })?;
        self.steps.push(Step { name, passed: status.success(), took: start.elapsed() });
        Ok(())
    }

    /// A step that cannot be done here.
    pub fn skip(&mut self, name: &str, why: &str) {
        self.skips.push(format!("SKIP {name}: {why}"));
        self.steps_skipped += 1;
    }

    pub fn print(&self) {
        println!("\n==> summary");
        for Step { name, passed, took } in &self.steps {
            println!("{:<6} {name} ({:.0} s)", if *passed { "ok" } else { "FAILED" }, took.as_secs_f64());
        }
        self.skips.iter().for_each(|line| println!("{line}"));
        // A skipped test returns early and counts as passed for the runner.
        let skipped = self.skips.len() as u64;
        let passed = self.tests.passed.saturating_sub(skipped - self.steps_skipped);
        println!("\n{passed} passed, {} failed, {skipped} skipped", self.tests.failed);
    }

    pub fn ran(&self) -> u64 {
        self.tests.passed + self.tests.failed
    }

    pub fn failed(&self) -> bool {
        self.steps.iter().any(|step| !step.passed)
    }

    pub fn skipped_required(&self) -> bool {
        self.skips.iter().any(|line| !line.contains("(optional)"))
    }
}

/// `test result: ok. 12 passed; 0 failed; 0 ignored; …`
fn parse_result(line: &str) -> Option<Counts> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    let count = |what: &str| counts.split("; ").find_map(|part| part.strip_suffix(what)?.trim().parse::<u64>().ok());
    Some(Counts { passed: count("passed")?, failed: count("failed")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_runners_last_line() {
        let line = "test result: FAILED. 12 passed; 3 failed; 0 ignored; 0 measured; 1 filtered out; finished in 0.01s";
        assert_eq!(parse_result(line), Some(Counts { passed: 12, failed: 3 }));
        assert_eq!(parse_result("test a::b ... ok"), None);
    }

    #[test]
    fn only_required_skips_count() {
        let mut summary = Summary { skips: vec!["SKIP a (optional): no Python 3.13".to_owned()], ..Summary::default() };
        assert!(!summary.skipped_required());
        summary.skips.push("SKIP b: not root".to_owned());
        assert!(summary.skipped_required());
    }
}
