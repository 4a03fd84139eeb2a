//! Looks for a Python interpreter that can make virtual environments.

use std::{
    env,
    path::{Path, PathBuf},
};

use crate::process::Program;

/// The first of `versions` (best first) that this machine has and that works.
pub fn find(versions: &[&str]) -> Option<PathBuf> {
    versions
        .iter()
        .flat_map(|version| candidates(version).into_iter().map(move |path| (version, path)))
        .find_map(|(version, path)| works(&path, version).then_some(path))
}

fn candidates(version: &str) -> Vec<PathBuf> {
    let name = format!("python{version}");
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = env::split_paths(&path).collect();
    folders.extend(["/usr/bin".into(), "/usr/local/bin".into()]);
    folders.extend(pyenv_folders(version));
    let mut found: Vec<PathBuf> = folders.iter().map(|folder| folder.join(&name)).collect();
    // A distribution's default Python may be the right one under its short name only.
    found.extend(folders.iter().map(|folder| folder.join("python3")));
    found.retain(|path| path.is_file());
    found
}

/// pyenv's own builds; its shims on PATH work for the selected version only.
fn pyenv_folders(version: &str) -> Vec<PathBuf> {
    let root = env::var_os("PYENV_ROOT")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".pyenv")));
    let Some(versions) = root.and_then(|root| root.join("versions").read_dir().ok()) else { return Vec::new() };
    let prefix = format!("{version}.");
    versions
        .filter_map(Result::ok)
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
        .map(|entry| entry.path().join("bin"))
        .collect()
}

/// A file that is called python may be a shim without a version behind it, or a Debian Python without python3-venv.
fn works(path: &Path, version: &str) -> bool {
    let code = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])";
    Program::new(path).args(["-c", code]).output().as_deref() == Some(version)
}
