//! Processes in namespaces of their own, with another root: what they map is found all the same.

use std::{fs, os::unix::fs::chown, path::Path};

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::Signal;
use serde_json::json;
use tempfile::TempDir;
use tfmem::{
    report::model::{BoundaryKind, Process},
    target::info,
};
use tfmem_tests::{
    attach::Attach,
    fixtures::{self, CC, FRAMEWORK, Variant},
    machine,
    program::Program,
    running::Running,
};

use super::process;

/// Where the user namespace's root is outside.
const OUTSIDE: u32 = 100_000;

#[test]
fn a_container() -> Result<()> {
    container("a_container", false)
}

#[test]
fn a_container_with_its_own_users() -> Result<()> {
    container("a_container_with_its_own_users", true)
}

fn container(test: &str, users: bool) -> Result<()> {
    if !machine::can_trace(test) {
        return Ok(());
    }
    let bundle = bundle(users, None)?;
    let state = TempDir::new()?;
    let name = format!("tfmem-test-{}-{}", std::process::id(), u8::from(users));
    let runc = || Program::new("runc").arg("--root").arg(state.path());
    let mut words = vec!["runc".into(), "--root".into(), state.path().as_os_str().to_owned(), "run".into()];
    words.extend(["--bundle".into(), bundle.path().as_os_str().to_owned(), name.clone().into()]);
    let mut running = Running::start(words)?;
    let result = running.expect("ready").and_then(|()| trace(running.pid()));
    let killed = runc().args(["kill", &name, "KILL"]).run()?;
    drop(running);
    let deleted = runc().args(["delete", "--force", &name]).run()?;
    let process = result.with_context(|| format!("{}{}", killed.stderr, deleted.stderr))?;
    ensure!(process.frameworks.iter().all(|framework| framework.library.starts_with("/lib/")), "paths are its own");
    Ok(())
}

/// A file system with the program and all it needs, and runc's configuration.
pub fn bundle(users: bool, cgroup: Option<&str>) -> Result<TempDir> {
    let bundle = TempDir::new()?;
    let root = bundle.path().join("root");
    for folder in ["bin", "proc", "dev", "lib", "lib64"] {
        fs::create_dir_all(root.join(folder))?;
    }
    copy_program(&root)?;
    if users {
        // The namespace's root must be able to reach its root folder and to write there.
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(bundle.path(), mode)?;
        for entry in walk(&root)? {
            chown(entry, Some(OUTSIDE), Some(OUTSIDE))?;
        }
    }
    let mut namespaces = vec!["pid", "mount", "ipc", "uts"];
    if users {
        namespaces.push("user");
    }
    let namespaces: Vec<_> = namespaces.into_iter().map(|kind| json!({ "type": kind })).collect();
    let mapping = json!([{ "containerID": 0, "hostID": OUTSIDE, "size": 65536 }]);
    let (uids, gids) = if users { (mapping.clone(), mapping) } else { (json!([]), json!([])) };
    let config = json!({
        "ociVersion": "1.0.2",
        "process": {
            "terminal": false,
            "user": { "uid": 0, "gid": 0 },
            "args": ["/bin/messy", "loop", "/lib"],
            "env": ["PATH=/bin"],
            "cwd": "/",
        },
        "root": { "path": "root" },
        "hostname": "box",
        "mounts": [{ "destination": "/proc", "type": "proc", "source": "proc" }],
        "linux": { "namespaces": namespaces, "uidMappings": uids, "gidMappings": gids },
    });
    let mut config = config;
    if let Some(path) = cgroup {
        config["linux"]["cgroupsPath"] = path.into();
    }
    fs::write(bundle.path().join("config.json"), config.to_string())?;
    Ok(bundle)
}

/// The program, the stand-in libraries, and the libraries that the loader finds for it here.
fn copy_program(root: &Path) -> Result<()> {
    let fixtures = fixtures::get()?;
    let program = fixtures.messy("loop").swap_remove(0);
    fs::copy(&program, root.join("bin/messy"))?;
    for name in [FRAMEWORK, CC] {
        fs::copy(fixtures.library(Variant::Plain, name), root.join("lib").join(name))?;
    }
    let output = Program::new("ldd").arg(&program).run()?;
    for path in output.stdout.split_whitespace().filter(|word| word.starts_with('/')) {
        let inside = root.join(path.trim_start_matches('/'));
        fs::create_dir_all(inside.parent().context("no folder")?)?;
        fs::copy(path, inside)?;
    }
    Ok(())
}

fn walk(folder: &Path) -> Result<Vec<std::path::PathBuf>> {
    let mut found = vec![folder.to_path_buf()];
    let mut next = 0;
    while let Some(path) = found.get(next).cloned() {
        next += 1;
        if path.is_dir() {
            for entry in fs::read_dir(path)? {
                found.push(entry?.path());
            }
        }
    }
    Ok(found)
}

/// Traces what runs below `outer`, by the pid of the container's first process as the host sees it.
fn trace(outer: u32) -> Result<Process> {
    let below = info::descendants(outer);
    let Some(&program) = below.last() else { bail!("nothing runs in the container") };
    let Some(&first) = below.first() else { bail!("nothing runs in the container") };
    let traced = Attach::to(&[first], &["--duration", "400ms", "--grace", "50ms"])?.wait()?;
    let process = process(&traced.report, program)?;
    ensure!(process.frameworks.len() == 2, "frameworks: {:?}", process.frameworks);
    let deleted = process.boundaries.iter().filter(|boundary| boundary.kind == BoundaryKind::SessionDeleted).count();
    ensure!(deleted > 0 && process.handles.sessions.deleted > 0, "nothing was seen: {:?}", process.handles.sessions);
    Ok(process.clone())
}

/// Without any tool: `unshare` and `chroot`.
#[test]
fn a_chroot_in_other_namespaces() -> Result<()> {
    if !machine::can_trace("a_chroot_in_other_namespaces") {
        return Ok(());
    }
    let root = TempDir::new()?;
    for folder in ["bin", "lib", "lib64"] {
        fs::create_dir_all(root.path().join(folder))?;
    }
    copy_program(root.path())?;
    let words = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "chroot"].map(std::ffi::OsString::from);
    let inside = ["/bin/messy", "loop", "/lib"].map(std::ffi::OsString::from);
    let command = words.into_iter().chain([root.path().as_os_str().to_owned()]).chain(inside);
    let running = Running::start_ready(command)?;
    trace(running.pid())?;
    running.signal(Signal::SIGKILL)?;
    Ok(())
}
