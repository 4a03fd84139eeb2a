//! Plans remembered on disk, so that a library that was read once is not read again.
//!
//! A remembered plan only saves the searches: before it is used, every point is compared with the file at hand
//! ([`Plan::fits`]). What is lost by a wrong or hostile cache is therefore time.

mod folder;

use std::path::Path;

use super::elf::{Elf, Result};
use super::plan::{self, Plan};
use crate::catalogue;

pub use folder::Folder;

/// A plan has some tens of points of a few hundred bytes.
const LARGEST_PLAN: u64 = 1 << 20;

const NAME: &str = "plans";

#[derive(Clone, Debug)]
pub struct Cache {
    folder: Folder,
}

impl Cache {
    /// In the first of the usual places that can be written, see [`Folder::open`].
    #[must_use]
    pub fn open() -> Self {
        Self { folder: Folder::open(NAME) }
    }

    /// A cache below this directory.
    #[must_use]
    pub fn at(base: &Path) -> Self {
        Self { folder: Folder::at(base, NAME) }
    }

    /// The plan for a library: remembered if it fits the file, else made and remembered.
    pub fn resolve(&self, path: &Path) -> Result<Plan> {
        let elf = Elf::open(path)?;
        let file = self.folder.path.as_ref().and_then(|dir| Some(dir.join(file_name(&elf)?)));
        if let Some(mut plan) = file.as_deref().and_then(|file| self.load(file)).filter(|plan| plan.fits(&elf)) {
            plan.rebase(&elf, path);
            return Ok(plan);
        }
        let plan = plan::resolve_in(&elf, path)?;
        // "Nothing here" is found out quickly, and nothing could be compared with the file the next time.
        if !plan.is_empty()
            && let Some(file) = file
            && let Err(error) = self.store(&file, &plan)
        {
            log::debug!("cannot remember the plan in {}: {error}", file.display());
        }
        Ok(plan)
    }

    fn load(&self, file: &Path) -> Option<Plan> {
        serde_json::from_slice(&self.folder.load(file, LARGEST_PLAN)?).ok()
    }

    fn store(&self, file: &Path, plan: &Plan) -> std::io::Result<()> {
        self.folder.store(file, &serde_json::to_vec(plan)?)
    }
}

/// By content, by the program that made the plan and by its catalogue. The names hold hex digits and dots only: the
/// build id comes from the file.
fn file_name(elf: &Elf) -> Option<String> {
    let identity = elf.identity()?;
    Some(format!("{identity}-{}-{:016x}.json", env!("CARGO_PKG_VERSION"), catalogue::fingerprint()))
}
