//! A training that is looked at again and again, and never learns of it.

use std::{thread::sleep, time::Duration};

use anyhow::{Context as _, Result, ensure};
use nix::sys::signal::Signal;
use tfmem_tests::{attach::Attach, machine, running::Running};

use super::{Places, process};

/// 10 times (100 with `--full`). Its losses and weights are, to the last bit, those of a training that was left alone.
#[test]
fn a_training_comes_out_the_same() -> Result<()> {
    if !machine::can_trace("a_training_comes_out_the_same") {
        return Ok(());
    }
    let rounds = if machine::long() { 100 } else { 10 };
    let mut training = start(0)?;
    let pid = training.pid();
    let mut places = None;
    for round in 0..rounds {
        let attach = Attach::to(&[pid], &["--grace", "10ms"])?;
        let places = match &places {
            Some(places) => places,
            // tfmem has read the symbols by now: it does so faster than a test.
            None => places.insert(Places::of(pid)?),
        };
        places.all_are_in()?;
        sleep(Duration::from_millis(200));
        let traced = attach.interrupt()?;
        let seen = process(&traced.report, pid)?;
        ensure!(seen.attached && seen.exited_at.is_none(), "{seen:?}");
        ensure!(traced.report.events > 100, "round {round}: {} events of a training", traced.report.events);
        places.none_is_left().with_context(|| format!("after round {round}"))?;
    }
    training.signal(Signal::SIGUSR1)?;
    let disturbed = result(&mut training)?;
    let epochs = disturbed.split(' ').next().context("no number of epochs")?.parse()?;
    ensure!(epochs > rounds, "only {epochs} epochs in {rounds} rounds");
    let alone = result(&mut start(epochs)?)?;
    ensure!(alone == disturbed, "left alone: {alone}; attached to: {disturbed}");
    Ok(())
}

fn start(epochs: u32) -> Result<Running> {
    let python = machine::required_python("tf-2.21.0")?;
    let (script, epochs) = (machine::file("programs/training.py"), epochs.to_string());
    Running::start_ready([python.as_os_str(), script.as_os_str(), epochs.as_ref()])
}

fn result(training: &mut Running) -> Result<String> {
    let line = training.line()?;
    ensure!(line.split(' ').count() == 2, "the training said {line:?}");
    Ok(line)
}
