//! One boot of a kernel in QEMU, under software emulation: no hardware support is asked for, and none differs.
//!
//! Two processors in turns on one thread: with a thread each, the emulator may run code that the kernel has just patched
//! (as it does whenever a tracepoint comes or goes) in its old form, and the kernel stops.

use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

const CONSOLE_LINES: usize = 30;

/// `panic=-1` with `-no-reboot`: a kernel that fails ends the emulator at once.
const COMMAND_LINE: &str = "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable";

/// Boots and returns what the suite said on the second serial line. `folder` is for this boot alone.
/// It may take no longer than `limit`.
pub fn boot(kernel: &Path, initramfs: &Path, arguments: &[String], folder: &Path, limit: Duration) -> Result<String> {
    let (console, said) = (folder.join("console"), folder.join("said"));
    let serial = |path: &Path| format!("file:{}", path.display());
    // The kernel hands what it does not know to the first process: words with a `=` in the environment.
    let command_line = std::iter::once(COMMAND_LINE.to_owned()).chain(arguments.iter().cloned()).collect::<Vec<_>>();
    let mut command = Command::new("qemu-system-x86_64");
    command
        .args(["-accel", "tcg,thread=single", "-cpu", "max", "-smp", "2", "-m", "1024"])
        .args(["-display", "none", "-nodefaults", "-no-user-config", "-no-reboot"])
        .arg("-serial")
        .arg(serial(&console))
        .arg("-serial")
        .arg(serial(&said))
        .arg("-kernel")
        .arg(kernel)
        .arg("-initrd")
        .arg(initramfs)
        .arg("-append")
        .arg(command_line.join(" "))
        .stdin(Stdio::null());
    let begun = Instant::now();
    let mut child = command.spawn().context("cannot run qemu-system-x86_64: run `cargo xtask setup`")?;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if begun.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            bail!("not done after {} s; its console:\n{}", limit.as_secs(), last_lines(&console));
        }
        thread::sleep(Duration::from_millis(50));
    };
    let said = fs::read(&said).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    if !status.success() || said.trim().is_empty() {
        bail!("it did not come up ({status}); its console:\n{}", last_lines(&console));
    }
    Ok(said)
}

fn last_lines(console: &Path) -> String {
    let text = fs::read(console).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(CONSOLE_LINES)..].join("\n")
}
