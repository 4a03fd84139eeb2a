//! Plans remembered on disk, so that a library that was read once is not read again.
//!
//! A remembered plan only saves the searches: before it is used, every point is compared with the file at hand
//! ([`Plan::fits`]). What is lost by a wrong or hostile cache is therefore time.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::elf::{Elf, Result};
use super::plan::{self, Plan};
use crate::catalogue;

/// A plan has some tens of points of a few hundred bytes.
const LARGEST_PLAN: u64 = 1 << 20;

#[derive(Clone, Debug)]
pub struct Cache {
    /// `None`: nowhere to write; plans are made anew each time.
    dir: Option<PathBuf>,
}

impl Cache {
    /// `$TFMEM_CACHE`, for root `/var/cache/tfmem`, else `$XDG_CACHE_HOME/tfmem` or `~/.cache/tfmem`: the first that can
    /// be written and belongs to us.
    #[must_use]
    pub fn open() -> Self {
        let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        if let Some(chosen) = set("TFMEM_CACHE") {
            return Self::at(&chosen);
        }
        let user = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
        let root = nix::unistd::geteuid().is_root().then(|| PathBuf::from("/var/cache"));
        let dir = root.into_iter().chain(user).find_map(|base| Self::at(&base.join("tfmem")).dir);
        Self { dir }
    }

    /// A cache below this directory.
    #[must_use]
    pub fn at(base: &Path) -> Self {
        let dir = base.join("plans");
        // A symbolic link or somebody else's directory is no place for files that a root process trusts.
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&dir);
        let ours = made.is_ok() && std::fs::symlink_metadata(&dir).is_ok_and(|meta| meta.is_dir() && is_ours(&meta));
        if !ours {
            log::debug!("no plan cache in {}", dir.display());
        }
        Self { dir: ours.then_some(dir) }
    }

    /// The plan for a library: remembered if it fits the file, else made and remembered.
    pub fn resolve(&self, path: &Path) -> Result<Plan> {
        let elf = Elf::open(path)?;
        let file = self.dir.as_ref().and_then(|dir| Some(dir.join(file_name(&elf)?)));
        if let Some(mut plan) = file.as_deref().and_then(load).filter(|plan| plan.fits(&elf)) {
            plan.rebase(&elf, path);
            return Ok(plan);
        }
        let plan = plan::resolve_in(&elf, path)?;
        // "Nothing here" is found out quickly, and nothing could be compared with the file the next time.
        if !plan.is_empty()
            && let Some(file) = file
            && let Err(error) = store(&file, &plan)
        {
            log::debug!("cannot remember the plan in {}: {error}", file.display());
        }
        Ok(plan)
    }
}

/// By content, by the program that made the plan and by its catalogue. The names hold hex digits and dots only: the
/// build id comes from the file.
fn file_name(elf: &Elf) -> Option<String> {
    let identity = elf.identity()?;
    Some(format!("{identity}-{}-{:016x}.json", env!("CARGO_PKG_VERSION"), catalogue::fingerprint()))
}

fn is_ours(meta: &std::fs::Metadata) -> bool {
    meta.uid() == nix::unistd::geteuid().as_raw() && meta.mode() & 0o022 == 0
}

fn load(file: &Path) -> Option<Plan> {
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(file).ok()?;
    let meta = opened.metadata().ok()?;
    if !meta.is_file() || !is_ours(&meta) || meta.len() > LARGEST_PLAN {
        return None;
    }
    let mut text = Vec::new();
    opened.take(LARGEST_PLAN).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Written beside and renamed over: a reader sees a whole file or none.
fn store(file: &Path, plan: &Plan) -> std::io::Result<()> {
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
    let beside = file.with_extension(format!("{}-{number}.new", std::process::id()));
    let written = write_new(&beside, plan).and_then(|()| std::fs::rename(&beside, file));
    if written.is_err() {
        // Best effort: a leftover is harmless and gets another name next time.
        let _ = std::fs::remove_file(&beside);
    }
    written
}

fn write_new(path: &Path, plan: &Plan) -> std::io::Result<()> {
    let text = serde_json::to_vec(plan)?;
    let mut file: File = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(libc::O_NOFOLLOW)
        .mode(0o600)
        .open(path)?;
    file.write_all(&text)
}
