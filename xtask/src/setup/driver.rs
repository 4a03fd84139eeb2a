//! NVIDIA's own driver library, from Debian's archive (`non-free`), in the cache: tests look for its functions and call
//! them where there is no GPU. It is not ours to hand on. A machine that cannot have it does without.

use std::fs;

use anyhow::{Context as _, Result};

use super::{present, step};
use crate::{layout, process::Program, vm::apt::Apt};

const PACKAGE: &str = "libcuda1";
/// Where the package has it.
const INSIDE: &str = "usr/lib/x86_64-linux-gnu/nvidia/current";

pub fn ensure_if_possible() {
    if layout::driver().exists() {
        present("NVIDIA's driver library");
        return;
    }
    step("fetching NVIDIA's driver library (3 MB)");
    if let Err(error) = fetch() {
        println!("setup: NVIDIA's driver library: left out: {error:#}");
    }
}

fn fetch() -> Result<()> {
    let folder = layout::driver_dir();
    let apt = Apt::open(&folder.join("apt"), "non-free")?;
    let (download, files) = (folder.join("download"), folder.join("files"));
    for unfinished in [&download, &files] {
        // What an interrupted run left.
        let _ = fs::remove_dir_all(unfinished);
    }
    fs::create_dir_all(&download).with_context(|| format!("cannot make {}", download.display()))?;
    let archive = apt.download(PACKAGE, &download)?;
    Program::new("dpkg-deb").arg("-x").arg(&archive).arg(&files).run()?;
    let place = layout::driver();
    let place = place.parent().context("the driver is in a folder")?;
    fs::rename(files.join(INSIDE), place).with_context(|| format!("cannot move it to {}", place.display()))?;
    for done in [&download, &files] {
        fs::remove_dir_all(done).with_context(|| format!("cannot remove {}", done.display()))?;
    }
    Ok(())
}
