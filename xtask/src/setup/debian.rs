//! Packages of the system. What is asked is whether the thing works, not whether a package of some name is there, so
//! that other systems and hand-made installations are left alone.

use std::path::Path;

use anyhow::{Result, bail};

use super::{Extent, present, step};
use crate::{
    layout::Environment,
    process::{Program, is_root},
    python,
};

pub fn ensure(environments: &[Environment], extent: Extent) -> Result<()> {
    let missing = missing(environments, extent);
    if missing.is_empty() {
        present("C compiler, Python, system tools");
        return Ok(());
    }
    let list = missing.join(" ");
    if Program::new("apt-get").arg("--version").output().is_none() {
        bail!("please install with this system's package manager what Debian calls: {list}");
    }
    if !is_root() {
        bail!("please run: sudo apt-get update && sudo apt-get install -y {list}");
    }
    step(&format!("installing the Debian packages {list}"));
    install(&missing)?;
    match self::missing(environments, extent) {
        still if still.is_empty() => Ok(()),
        still => bail!("installed {list}, but this still does not work: {}", still.join(" ")),
    }
}

/// What the bench compares with. Its figures are left out where there is none.
pub fn bpftrace() {
    if answers("bpftrace") {
        present("bpftrace");
        return;
    }
    step("installing the Debian package bpftrace");
    if let Err(error) = install(&["bpftrace"]) {
        println!("setup: bpftrace: left out: {error:#}");
    }
}

fn install(packages: &[&str]) -> Result<()> {
    let apt = || Program::new("apt-get").env("DEBIAN_FRONTEND", "noninteractive");
    apt().arg("update").run()?;
    apt().args(["install", "-y", "--no-install-recommends"]).args(packages).run()
}

fn answers(program: &str) -> bool {
    Program::new(program).arg("--version").output().is_some()
}

/// Where Debian has them, and the packages.
const ALLOCATORS: [(&str, &str); 2] = [
    ("/usr/lib/x86_64-linux-gnu/libjemalloc.so.2", "libjemalloc2"),
    ("/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4", "libtcmalloc-minimal4"),
];

fn missing(environments: &[Environment], extent: Extent) -> Vec<&'static str> {
    let mut packages = Vec::new();
    // The tests compile C programs that stand in for TensorFlow, and strip one.
    if !answers("gcc") {
        packages.push("gcc");
    }
    if !answers("strip") {
        packages.push("binutils");
    }
    if !Path::new("/usr/include/stdio.h").exists() {
        packages.push("libc6-dev");
    }
    // The tests run tfmem without privileges by it.
    if !answers("setpriv") {
        packages.push("util-linux");
    }
    // A container of the tests' own.
    if matches!(extent, Extent::Tests | Extent::Full) && !answers("runc") {
        packages.push("runc");
    }
    // What scrapes the agent in its tests.
    if matches!(extent, Extent::Tests | Extent::Full) {
        if !answers("promtool") {
            packages.push("prometheus");
        }
        if !answers("prometheus-alertmanager") {
            packages.push("prometheus-alertmanager");
        }
    }
    // Allocators that programs put before the C library's.
    if extent != Extent::Demo {
        for (file, package) in ALLOCATORS {
            if !Path::new(file).exists() {
                packages.push(package);
            }
        }
    }
    // Other kernels than this machine's.
    if extent != Extent::Demo && !answers("qemu-system-x86_64") {
        packages.push("qemu-system-x86");
    }
    // A test program in C++ that takes long to compile.
    if extent == Extent::Full && !answers("g++") {
        packages.push("g++");
    }
    if environments
        .iter()
        .any(|environment| !environment.python().exists() && python::find(environment.pythons).is_none())
    {
        packages.extend(["python3", "python3-venv"]);
    }
    packages
}
