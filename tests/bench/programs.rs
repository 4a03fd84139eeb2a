//! Real programs with and without tfmem.

use std::{path::Path, time::Instant};

use anyhow::{Result, ensure};
use tfmem_tests::{machine, program::Program};

use crate::figure::{Figure, median};

const SCRIPTS: &[(&str, &str)] =
    &[("a Keras fit", "programs/keras_fit.py"), ("a loop of TF1 sessions", "programs/session_loop.py")];

pub fn measure(rounds: usize) -> Result<Vec<Figure>> {
    let python = machine::required_python("tf-2.15.1")?;
    let mut figures = Vec::new();
    for (name, script) in SCRIPTS {
        let script = machine::file(script);
        let (mut bare, mut traced) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            bare.push(own_seconds(Program::new(&python).arg(&script))?);
            traced.push(own_seconds(under_tfmem(&python, &script)?)?);
        }
        let bare = Figure::new(format!("{name}, untraced"), "s", median(&mut bare));
        let traced = Figure::new(format!("{name}, tfmem"), "s", median(&mut traced)).against(&bare).goal("≤ 1.03 ×");
        figures.extend([bare, traced]);
    }
    Ok(figures)
}

fn under_tfmem(python: &Path, script: &Path) -> Result<Program> {
    Ok(Program::new(machine::tfmem()?).args(["run", "--report-file", "/dev/null", "--"]).arg(python).arg(script))
}

/// Wall time of the script's own work, as it says it: importing TensorFlow is not what is measured.
fn own_seconds(program: Program) -> Result<f64> {
    let begun = Instant::now();
    let output = program.env("TF_CPP_MIN_LOG_LEVEL", "3").run()?;
    ensure!(output.code == 0, "the script failed: {}", output.stderr);
    let said = output.stdout.lines().find_map(|line| line.strip_prefix("SECONDS ")?.parse().ok());
    Ok(said.unwrap_or_else(|| begun.elapsed().as_secs_f64()))
}
