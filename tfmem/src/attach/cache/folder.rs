//! A folder for what is remembered between runs: ours alone, written whole or not at all.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Clone, Debug)]
pub struct Folder {
    /// `None`: nowhere to write; everything is made anew each time.
    pub path: Option<PathBuf>,
}

impl Folder {
    /// Below `$TFMEM_CACHE`, for root `/var/cache/tfmem`, else `$XDG_CACHE_HOME/tfmem` or `~/.cache/tfmem`: the first that
    /// can be written and belongs to us.
    #[must_use]
    pub fn open(name: &str) -> Self {
        let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        if let Some(chosen) = set("TFMEM_CACHE") {
            return Self::at(&chosen, name);
        }
        let user = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
        let root = nix::unistd::geteuid().is_root().then(|| PathBuf::from("/var/cache"));
        let path = root.into_iter().chain(user).find_map(|base| Self::at(&base.join("tfmem"), name).path);
        Self { path }
    }

    #[must_use]
    pub fn at(base: &Path, name: &str) -> Self {
        let dir = base.join(name);
        // A symbolic link or somebody else's directory is no place for files that a root process trusts.
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&dir);
        let ours = made.is_ok() && std::fs::symlink_metadata(&dir).is_ok_and(|meta| meta.is_dir() && is_ours(&meta));
        if !ours {
            log::debug!("no cache in {}", dir.display());
        }
        Self { path: ours.then_some(dir) }
    }

    /// The bytes of a file in it; `None`: there is none, or it is not ours or too large.
    #[must_use]
    pub fn load(&self, file: &Path, largest: u64) -> Option<Vec<u8>> {
        let opened = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(file).ok()?;
        let meta = opened.metadata().ok()?;
        if !meta.is_file() || !is_ours(&meta) || meta.len() > largest {
            return None;
        }
        let mut bytes = Vec::new();
        opened.take(largest).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// Written beside and renamed over: a reader sees a whole file or none.
    ///
    /// # Errors
    /// What the system said.
    pub fn store(&self, file: &Path, bytes: &[u8]) -> io::Result<()> {
        static WRITTEN: AtomicU64 = AtomicU64::new(0);
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let beside = file.with_extension(format!("{}-{number}.new", std::process::id()));
        let written = write_new(&beside, bytes).and_then(|()| std::fs::rename(&beside, file));
        if written.is_err() {
            // Best effort: a leftover is harmless and gets another name next time.
            let _ = std::fs::remove_file(&beside);
        }
        written
    }
}

fn is_ours(meta: &Metadata) -> bool {
    meta.uid() == nix::unistd::geteuid().as_raw() && meta.mode() & 0o022 == 0
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file: File = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(libc::O_NOFOLLOW)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)
}
