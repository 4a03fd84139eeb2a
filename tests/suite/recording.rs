//! A trace in a file: the same report again, and what is left when tfmem, the disk or the file fails.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    sys::signal::{Signal, kill, killpg},
    unistd::Pid,
};
use serde_json::Value;
use tempfile::TempDir;
use tfmem::{event::Event, recording::reader::Reader, target::clock};
use tfmem_tests::{
    fixtures::{self, Variant},
    machine,
    program::{Output, Program},
};

const NOBODY: u32 = 65534;

/// A folder that others may look into, with a copy of tfmem that they may run.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Result<Self> {
        let folder = TempDir::new()?;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        fs::copy(machine::tfmem()?, folder.path().join("tfmem"))?;
        Ok(Self { folder })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A trace that is recorded; the report is in `live.json`.
    fn trace(&self) -> Program {
        Program::new(self.path("tfmem"))
            .args(["run", "--format", "json", "--report-file"])
            .arg(self.path("live.json"))
            .arg("-o")
            .arg(self.path("trace"))
    }

    /// `tfmem report`, as somebody without any privilege.
    fn report(&self, recording: &Path, options: &[&str]) -> Result<Output> {
        let nobody = format!("--reuid={NOBODY}");
        Program::new("setpriv")
            .args([nobody.as_str(), "--regid=65534", "--clear-groups", "--inh-caps=-all", "--"])
            .arg(self.path("tfmem"))
            .arg("report")
            .arg(recording)
            .args(options)
            .run()
    }
}

/// Live and replayed, letter by letter.
fn ensure_same_report(command: impl IntoIterator<Item = impl AsRef<OsStr>>, env: &[(&str, &str)]) -> Result<()> {
    let place = Place::new()?;
    let user = NOBODY.to_string();
    let program = env.iter().fold(place.trace(), |program, (name, value)| program.env(name, value));
    // As if by sudo: the file belongs to who called it.
    let traced = program.env("SUDO_UID", &user).env("SUDO_GID", &user).arg("--").args(command).run()?;
    ensure!(traced.code == 0, "status {}: {}", traced.code, traced.stderr);
    let recording = place.path("trace");
    let found = recording.metadata()?;
    ensure!(found.mode() & 0o777 == 0o600 && found.uid() == NOBODY, "{:o} of {}", found.mode(), found.uid());

    let replayed = place.report(&recording, &["--format", "json"])?;
    ensure!(replayed.code == 0 && replayed.stderr.is_empty(), "status {}: {}", replayed.code, replayed.stderr);
    let live = fs::read_to_string(place.path("live.json"))?;
    ensure!(live == replayed.stdout, "not the same report:\n{live}\n---\n{}", replayed.stdout);
    let report: Value = serde_json::from_str(&live)?;
    ensure!(report["cost"]["cpu_ms"].is_u64(), "the cost is not in the recording");
    println!("{} bytes for {} events", found.len(), report["events"]);
    Ok(())
}

#[test]
fn a_recording_of_a_fixture_gives_the_same_report() -> Result<()> {
    if !machine::can_trace("a_recording_of_a_fixture_gives_the_same_report") {
        return Ok(());
    }
    ensure_same_report(fixtures::get()?.driver("sessions", Variant::Plain), &[])
}

#[test]
fn a_recording_of_tensorflow_gives_the_same_report() -> Result<()> {
    if !machine::can_trace("a_recording_of_tensorflow_gives_the_same_report") {
        return Ok(());
    }
    let command = [machine::required_python("tf-2.21.0")?, machine::file("cases/01_unclosed_tf1_session.py")];
    ensure_same_report(command, &[("TF_CPP_MIN_LOG_LEVEL", "3"), ("TF_ENABLE_ONEDNN_OPTS", "1")])
}

#[test]
fn options_of_the_report_override_the_recorded_ones() -> Result<()> {
    if !machine::can_trace("options_of_the_report_override_the_recorded_ones") {
        return Ok(());
    }
    let place = Place::new()?;
    let command = fixtures::get()?.driver("sessions", Variant::Plain);
    let traced = place.trace().args(["--grace", "300ms", "--"]).args(command).run()?;
    ensure!(traced.code == 0, "{}", traced.stderr);
    let recording = place.path("trace");
    fs::set_permissions(&recording, fs::Permissions::from_mode(0o644))?;
    let options = |output: &Output| -> Result<(Option<u64>, Option<u64>)> {
        let report: Value = serde_json::from_str(&output.stdout)?;
        Ok((report["options"]["grace_ms"].as_u64(), report["options"]["min_bytes"].as_u64()))
    };
    let as_recorded = place.report(&recording, &["--format", "json"])?;
    ensure!(options(&as_recorded)? == (Some(300), Some(1 << 20)), "{:?}", options(&as_recorded)?);
    let chosen = ["--format", "json", "--grace", "100ms", "--min-bytes", "1", "--fail-above", "1MiB"];
    let chosen = place.report(&recording, &chosen)?;
    ensure!(chosen.code == 3, "status {}: 22 MiB are held", chosen.code);
    ensure!(options(&chosen)? == (Some(100), Some(1)), "{:?}", options(&chosen)?);
    let text = place.report(&recording, &["--color", "always"])?;
    ensure!(text.code == 0 && text.stdout.contains("\x1b["), "{}", text.stdout);
    Ok(())
}

/// `kill -9` in the middle: everything but the last second is there.
#[test]
fn a_killed_tracer_leaves_a_readable_recording() -> Result<()> {
    if !machine::can_trace("a_killed_tracer_leaves_a_readable_recording") {
        return Ok(());
    }
    let place = Place::new()?;
    let recording = place.path("trace");
    let begun = Instant::now();
    let mut tfmem = Command::new(place.path("tfmem"))
        .arg("run")
        .arg("-o")
        .arg(&recording)
        .args(["--", "/bin/sh", "-c", "while :; do /bin/true; sleep 0.02; done"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()?;
    let group = Pid::from_raw(i32::try_from(tfmem.id())?);
    let result = (|| {
        // Something must be there first: loading the programs takes a while.
        while read(&recording).map_or(0, |(events, _)| events.len()) < 100 {
            ensure!(begun.elapsed() < Duration::from_secs(60), "nothing was recorded");
            thread::sleep(Duration::from_millis(50));
        }
        thread::sleep(Duration::from_millis(1500));
        kill(group, Signal::SIGKILL)?;
        let killed = clock::boot_ns();
        tfmem.wait()?;
        let (events, tail) = read(&recording)?;
        let last = events.last().context("no event")?.at;
        println!("the last of {} events is {} ms old", events.len(), killed.saturating_sub(last) / 1_000_000);
        ensure!(killed.saturating_sub(last) < 1_000_000_000, "{} ms are missing", (killed - last) / 1_000_000);
        ensure!(!tail, "it says that it is complete");
        Ok(())
    })();
    // The traced program runs on without its tracer.
    let _ = killpg(group, Signal::SIGKILL);
    result?;
    fs::set_permissions(&recording, fs::Permissions::from_mode(0o644))?;
    let output = place.report(&recording, &["--format", "json"])?;
    ensure!(output.code == 0 && output.stderr.contains("cut short"), "{}: {}", output.code, output.stderr);
    let report: Value = serde_json::from_str(&output.stdout)?;
    ensure!(report["losses"]["recording_truncated"] == 1 && report["cost"].is_null(), "{report}");
    Ok(())
}

/// Events, and whether the end was told.
fn read(recording: &Path) -> Result<(Vec<Event>, bool)> {
    let mut reader = Reader::open(fs::File::open(recording)?)?;
    let events = reader.by_ref().collect();
    let end = reader.end();
    ensure!(!end.damaged && end.error.is_none(), "{end:?}");
    Ok((events, end.tail.is_some()))
}

#[test]
fn damaged_recordings_are_read_up_to_there_and_say_so() -> Result<()> {
    if !machine::can_trace("damaged_recordings_are_read_up_to_there_and_say_so") {
        return Ok(());
    }
    let place = Place::new()?;
    let traced = place.trace().arg("--").args(fixtures::get()?.driver("sessions", Variant::Plain)).run()?;
    ensure!(traced.code == 0, "{}", traced.stderr);
    let bytes = fs::read(place.path("trace"))?;
    let damaged = place.path("damaged");
    let check = |content: &[u8], code: i32, said: &str| -> Result<()> {
        fs::write(&damaged, content)?;
        let output = place.report(&damaged, &["--format", "json"])?;
        ensure!(output.code == code && output.stderr.contains(said), "{said}: {}: {}", output.code, output.stderr);
        ensure!(!output.stderr.contains("panicked"), "{}", output.stderr);
        if code == 0 {
            let report: Value = serde_json::from_str(&output.stdout)?;
            ensure!(report["losses"]["recording_truncated"] == 1, "{}", report["losses"]);
        }
        Ok(())
    };
    check(&bytes[..bytes.len() - 10], 0, "cut short")?;
    check(&bytes[..bytes.len() * 2 / 3], 0, "cut short")?;
    let mut flipped = bytes.clone();
    let last = flipped.len() - 10;
    flipped[last] ^= 1;
    check(&flipped, 0, "damaged")?;
    check(&bytes[..100], 2, "very beginning")?;
    check(b"#!/bin/sh", 2, "not a recording")?;
    check(b"", 2, "not a recording")?;
    let missing = place.report(&place.path("missing"), &[])?;
    ensure!(missing.code == 2 && missing.stderr.contains("No such file"), "{}", missing.stderr);
    Ok(())
}

/// Two ways to say no in the middle: a file system that is full, and a limit on the size of files.
#[test]
fn the_trace_goes_on_when_the_disk_is_full() -> Result<()> {
    const NAME: &str = "the_trace_goes_on_when_the_disk_is_full";
    if !machine::can_trace(NAME) {
        return Ok(());
    }
    // Each program that is started is looked at: some kilobytes a piece.
    let command = ["/bin/sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do /bin/sleep 0.2; done"];
    let check = |place: &Place, output: &Output, recording: &Path| -> Result<()> {
        ensure!(output.code == 0, "status {}: {}", output.code, output.stderr);
        ensure!(output.stderr.contains("the recording stops here"), "nothing was said: {}", output.stderr);
        let report: Value = serde_json::from_str(&fs::read_to_string(place.path("live.json"))?)?;
        let lost = report["losses"]["recording_events_lost"].as_u64().context("not among the losses")?;
        let (events, tail) = read(recording)?;
        ensure!(
            !tail && lost + events.len() as u64 == report["events"],
            "{} and {lost} of {}",
            events.len(),
            report["events"]
        );
        Ok(())
    };

    let place = Place::new()?;
    // The report goes through a pipe: the limit is for files alone.
    let limited = Program::new("bash")
        .args(["-c", "set -o pipefail; (ulimit -f 4; exec \"$@\") | cat", "bash"])
        .arg(place.path("tfmem"))
        .args(["run", "--format", "json", "-o"])
        .arg(place.path("trace"))
        .arg("--")
        .args(command)
        .run()?;
    fs::write(place.path("live.json"), &limited.stdout)?;
    check(&place, &limited, &place.path("trace")).context("ulimit -f")?;

    let place = Place::new()?;
    let small = place.path("small");
    fs::create_dir(&small)?;
    if let Err(error) = mount(Some("none"), &small, Some("tmpfs"), MsFlags::empty(), Some("size=4k")) {
        machine::skip_optional(NAME, &format!("a small tmpfs cannot be mounted: {error}"));
        return Ok(());
    }
    let recording = small.join("trace");
    let result = Program::new(place.path("tfmem"))
        .args(["run", "--format", "json", "--report-file"])
        .arg(place.path("live.json"))
        .arg("-o")
        .arg(&recording)
        .arg("--")
        .args(command)
        .run()
        .and_then(|output| check(&place, &output, &recording));
    umount2(&small, MntFlags::MNT_DETACH)?;
    result.context("a full file system")
}

#[test]
fn a_recording_that_cannot_begin_is_an_error_before_anything_runs() -> Result<()> {
    if !machine::can_trace("a_recording_that_cannot_begin_is_an_error_before_anything_runs") {
        return Ok(());
    }
    let place = Place::new()?;
    let trail = place.path("trail");
    for (file, code) in [("/no/such/folder/trace", 2), ("/dev/full", 1), ("/proc", 2)] {
        let output =
            Program::new(place.path("tfmem")).args(["run", "-o", file, "--", "/usr/bin/touch"]).arg(&trail).run()?;
        ensure!(output.code == code, "{file}: status {}: {}", output.code, output.stderr);
        ensure!(output.stderr.contains("record"), "{file}: {}", output.stderr);
        if trail.exists() {
            bail!("{file}: the program was started all the same");
        }
    }
    Ok(())
}
