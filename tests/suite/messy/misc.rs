//! Libraries that come and go, many threads, other machines' programs, and where the report goes.

use std::{fs::OpenOptions, process::Stdio};

use anyhow::{Context as _, Result, ensure};
use tfmem::report::model::{BoundaryKind, Layer};
use tfmem_tests::{
    attach::Attach,
    fixtures::{self, FRAMEWORK, Variant},
    look, machine,
    program::Program,
    running::Running,
    trace::Trace,
};

use super::{no_losses, process};

/// `dlclose` and `dlopen` again, elsewhere.
#[test]
fn libraries_unloaded_and_loaded_again() -> Result<()> {
    if !machine::can_trace("libraries_unloaded_and_loaded_again") {
        return Ok(());
    }
    let traced = Trace::new()?.options(&["--grace", "50ms"]).run(fixtures::get()?.messy("reload"))?;
    no_losses(&traced.report)?;
    let process = look::tensorflow_process(&traced.report)?;
    let sessions = &process.handles.sessions;
    ensure!((sessions.opened, sessions.deleted) == (3, 3), "{sessions:?}");
    ensure!(look::boundaries(process, BoundaryKind::SessionDeleted).len() == 3);
    ensure!(look::survivors(look::exit(process)?, Layer::PoolChunk) == (0, 0), "all chunks were given back");
    Ok(())
}

#[test]
fn five_hundred_threads() -> Result<()> {
    if !machine::can_trace("five_hundred_threads") {
        return Ok(());
    }
    let traced =
        Trace::new()?.options(&["--min-bytes", "1", "--grace", "50ms"]).run(fixtures::get()?.messy("threads"))?;
    no_losses(&traced.report)?;
    let truth = fixtures::truth(&traced.output)?;
    let process = look::tensorflow_process(&traced.report)?;
    let found = look::survivors(look::exit(process)?, Layer::PoolChunk);
    let expected = (truth.get("chunk_bytes_in_use")?, truth.get("chunks_taken")? - truth.get("chunks_given_back")?);
    ensure!(expected.1 == 5000 && found == expected, "(bytes, chunks): {found:?}, really {expected:?}");
    Ok(())
}

/// As many events as the machine can make, for longer than the buffer lasts.
#[test]
fn a_storm_on_all_processors() -> Result<()> {
    if !machine::can_trace("a_storm_on_all_processors") {
        return Ok(());
    }
    const PAIRS: u64 = 300_000;
    let fixtures = fixtures::get()?;
    let library = fixtures.library(Variant::Plain, FRAMEWORK);
    let folder = library.parent().context("no folder")?;
    let storms = std::thread::available_parallelism()?.get();
    let storm = format!("'{}' '{}' {PAIRS} &", fixtures.storm().display(), folder.display());
    let command = format!("{} wait", [storm.as_str()].repeat(storms).join(" "));
    let traced = Trace::new()?.options(&["--grace", "50ms"]).run(["/bin/sh", "-c", &command])?;
    no_losses(&traced.report)?;
    ensure!(traced.report.events >= 2 * PAIRS * storms as u64, "{} events of {storms} storms", traced.report.events);
    Ok(())
}

/// Has no probes, and does no harm to the rest of the trace.
#[test]
fn a_32_bit_process() -> Result<()> {
    const NAME: &str = "a_32_bit_process";
    if !machine::can_trace(NAME) {
        return Ok(());
    }
    let sleep = fixtures::get()?.sleep_32_bit();
    let mut program = match Running::start([&sleep]) {
        Ok(program) => program,
        Err(error) => {
            machine::skip_optional(NAME, &format!("this kernel runs no 32-bit programs: {error:#}"));
            return Ok(());
        }
    };
    let other = Running::start_ready(fixtures::get()?.messy("loop"))?;
    let pids = [program.pid(), other.pid()];
    let traced = Attach::to(&pids, &["--duration", "200ms", "--grace", "50ms"])?.wait()?;
    ensure!(program.is_alive()?, "it ended");
    let process_32 = process(&traced.report, program.pid())?;
    ensure!(process_32.frameworks.is_empty() && process_32.now.rss_bytes.is_some(), "{process_32:?}");
    ensure!(process(&traced.report, other.pid())?.handles.sessions.deleted > 0);

    // From its beginning: held at its exec, and let go.
    let words = ["timeout".as_ref(), "0.3".as_ref(), sleep.as_os_str()];
    let traced = Trace::new()?.options(&["--grace", "50ms"]).run_to_any_status(words)?;
    ensure!(traced.output.code == 124, "status {}: {}", traced.output.code, traced.output.stderr);
    Ok(())
}

/// A full disk is an error, said once and with tfmem's own status; the program is not to blame.
#[test]
fn a_full_disk() -> Result<()> {
    if !machine::can_trace("a_full_disk") {
        return Ok(());
    }
    for format in ["text", "json"] {
        let full = OpenOptions::new().write(true).open("/dev/full")?;
        let program = Program::new(machine::tfmem()?).args(["run", "--format", format, "--", "/bin/true"]);
        let code = program.run_with(Stdio::from(full), Stdio::null())?;
        ensure!(code == 1, "--format {format}: status {code}");
        let output = Program::new(machine::tfmem()?)
            .args(["run", "--format", format, "--report-file", "/dev/full", "--", "/bin/true"])
            .run()?;
        ensure!(output.code == 1 && output.stderr.contains("No space left"), "{}: {}", output.code, output.stderr);
        ensure!(!output.stderr.contains("panicked"), "{}", output.stderr);
    }
    Ok(())
}

/// Nobody reads the report of a trace any more.
#[test]
fn a_closed_pipe_at_the_end_of_a_trace() -> Result<()> {
    if !machine::can_trace("a_closed_pipe_at_the_end_of_a_trace") {
        return Ok(());
    }
    let target = Running::start_ready(fixtures::get()?.messy("loop"))?;
    let (reader, writer) = std::io::pipe()?;
    drop(reader);
    let program =
        Program::new(machine::tfmem()?).args(["trace", "--duration", "50ms", "--pid", &target.pid().to_string()]);
    let code = program.run_with(Stdio::from(writer), Stdio::null())?;
    ensure!(code == 0, "status {code}");
    ensure!(target.end()?.code == 0, "the program failed");
    Ok(())
}
