//! The ways of following the memory map that are chosen by hand.

use anyhow::{Result, ensure};
use tfmem::attach::link::has_kprobes;
use tfmem_tests::{
    fixtures::{self, Variant},
    look, machine,
    program::Program,
    trace::Trace,
};

#[test]
fn a_way_that_the_kernel_does_not_have_is_refused_in_words() -> Result<()> {
    const NAME: &str = "a_way_that_the_kernel_does_not_have_is_refused_in_words";
    if !machine::can_trace(NAME) {
        return Ok(());
    }
    if has_kprobes() {
        machine::skip_optional(NAME, "this kernel has kprobes");
        return Ok(());
    }
    let output = Program::new(machine::tfmem()?).args(["run", "--mm", "kprobe", "--", "/bin/echo", "ran"]).run()?;
    ensure!(output.code == 2, "status {}", output.code);
    for said in ["--mm kprobe", "not compiled in", "CONFIG_KPROBE_EVENTS=y", "Without --mm it would be tracepoint"] {
        ensure!(output.stderr.contains(said), "nothing about {said:?}: {}", output.stderr);
    }
    ensure!(!output.stdout.contains("ran"), "nothing runs that cannot be traced as asked");
    Ok(())
}

/// Where there are kprobes: the same figures as by the way that is taken without a word.
#[test]
fn kprobes_see_the_same() -> Result<()> {
    const NAME: &str = "kprobes_see_the_same";
    if !machine::can_trace(NAME) {
        return Ok(());
    }
    if !has_kprobes() {
        machine::skip_optional(NAME, "this kernel has no kprobes; `cargo xtask vm` does it on others");
        return Ok(());
    }
    let driver = fixtures::get()?.driver("sessions", Variant::Plain);
    let layers = |how| -> Result<_> {
        let traced = Trace::new()?.options(&["--mm", how]).run(&driver)?;
        Ok(look::tensorflow_process(&traced.report)?.now.layers)
    };
    let (one, other) = (layers("tracepoint")?, layers("kprobe")?);
    ensure!(one == other, "{one:?} {other:?}");
    Ok(())
}

#[test]
fn polling_says_what_it_cannot_see() -> Result<()> {
    if !machine::can_trace("polling_says_what_it_cannot_see") {
        return Ok(());
    }
    // Two seconds, so that a reading falls in between; 64 MiB that no event tells of.
    let script = "import mmap, os, time; time.sleep(0.5); kept = mmap.mmap(-1, 64 << 20); time.sleep(2); os._exit(0)";
    let python = machine::required_python("tf-2.21.0")?;
    let traced = Trace::new()?.options(&["--mm", "poll"]).run([python.as_os_str(), "-c".as_ref(), script.as_ref()])?;
    let report = &traced.report;
    ensure!(report.capabilities.get("mm").is_some_and(|mm| mm == "poll"), "{:?}", report.capabilities);
    let untold = report.losses.get("mapping_untold_bytes").copied().unwrap_or(0);
    ensure!(untold >= 64 << 20, "{untold} bytes untold");
    ensure!(report.losses.get("mapping_drift_bytes").is_none_or(|&drift| drift == 0), "{:?}", report.losses);
    let mapped = report.processes.iter().filter_map(|process| process.now.layers.mapping).max().unwrap_or(0);
    ensure!(mapped >= 64 << 20, "{mapped} bytes mapped");
    ensure!(traced.output.stderr.contains("polled once a second"), "{}", traced.output.stderr);
    Ok(())
}
