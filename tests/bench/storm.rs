//! The program that calls what is probed as fast as it can, on request.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use anyhow::{Context as _, Result};
use tfmem_common::config::{ANNOTATION_VIEW, Annotation};
use tfmem_tests::fixtures::{FRAMEWORK, Fixtures, Variant};

pub struct Storm {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// Where its thread notes the op that it works for.
    pub annotation: Annotation,
}

impl Storm {
    pub fn start(fixtures: &Fixtures) -> Result<Self> {
        let folder = |variant| Some(fixtures.library(variant, FRAMEWORK).parent()?.to_owned());
        let mut child = Command::new(fixtures.storm())
            .arg("serve")
            .arg(folder(Variant::Plain).context("no folder")?)
            .arg(folder(Variant::Inlined).context("no folder")?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let requests = child.stdin.take().context("no pipe")?;
        let answers = BufReader::new(child.stdout.take().context("no pipe")?);
        let mut storm = Self { child, requests, answers, annotation: Annotation::default() };
        let line = storm.line()?;
        let mut words = line.split_whitespace().skip(1).map(str::parse::<u64>);
        let (Some(Ok(module_slot)), Some(Ok(offset))) = (words.next(), words.next()) else {
            anyhow::bail!("the storm said {line:?}")
        };
        storm.annotation = Annotation { module_slot, offset: u32::try_from(offset)?, layout: ANNOTATION_VIEW };
        Ok(storm)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Nanoseconds for each of `count` calls.
    pub fn call(&mut self, what: &str, count: u64) -> Result<f64> {
        writeln!(self.requests, "{what} {count}")?;
        let line = self.line()?;
        line.parse().with_context(|| format!("the storm said {line:?}"))
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
