//! The suite as the first process of a guest: mounts what it takes, runs itself with the second serial line as its
//! output, and turns the machine off.

use std::{
    fs::{File, OpenOptions},
    os::unix::process::CommandExt as _,
    process::{Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use nix::{
    errno::Errno,
    mount::{MsFlags, mount},
    sys::{
        reboot::{RebootMode, reboot},
        wait::waitpid,
    },
    unistd::Pid,
};

const OUTPUT: &str = "/dev/ttyS1";
/// What the kernel's command line holds for us.
const CHOICES: &[(&str, &str)] =
    &[("probes.filter=", "--filter"), ("probes.also=", "--also"), ("probes.storm=", "--storm")];

/// Never returns: when the first process ends, the kernel stops.
pub fn run() -> ! {
    if let Err(error) = suite() {
        // The console: nobody else listens.
        eprintln!("probes: {error:#}");
    }
    let error = reboot(RebootMode::RB_POWER_OFF);
    eprintln!("probes: cannot turn off: {error:?}");
    std::process::exit(1)
}

fn suite() -> Result<()> {
    for (kind, place) in [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev"), ("tmpfs", "/tmp")] {
        let none: Option<&str> = None;
        mount(Some(kind), place, Some(kind), MsFlags::empty(), none).with_context(|| format!("mount {place}"))?;
    }
    let output = OpenOptions::new().write(true).open(OUTPUT).with_context(|| format!("cannot open {OUTPUT}"))?;
    let child = Command::new("/proc/self/exe")
        .arg0("probes")
        .args(choices()?)
        .env_clear()
        .envs([("TFMEM_BIN", "/tfmem"), ("TFMEM_FIXTURES", "/fixtures"), ("HOME", "/tmp"), ("PATH", "/")])
        .stdin(Stdio::from(File::open("/dev/null")?))
        .stdout(Stdio::from(output))
        .spawn()
        .context("cannot run the suite")?;
    wait_for(i32::try_from(child.id())?)
}

fn choices() -> Result<Vec<String>> {
    let line = std::fs::read_to_string("/proc/cmdline")?;
    let mut choices = Vec::new();
    for word in line.split_whitespace() {
        for (name, option) in CHOICES {
            if let Some(value) = word.strip_prefix(name) {
                choices.extend([(*option).to_owned(), value.to_owned()]);
            }
        }
    }
    Ok(choices)
}

/// Whatever else ends meanwhile has lost its parent, and is ours.
fn wait_for(child: i32) -> Result<()> {
    loop {
        match waitpid(Pid::from_raw(-1), None) {
            Ok(status) if status.pid() == Some(Pid::from_raw(child)) => {
                ensure!(matches!(status, nix::sys::wait::WaitStatus::Exited(_, 0)), "the suite ended: {status:?}");
                return Ok(());
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error).context("wait for the suite"),
        }
    }
}
