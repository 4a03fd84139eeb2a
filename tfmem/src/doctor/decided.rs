//! What this machine allows, decided once, by trying: `run` and `trace` go by what `tfmem doctor` tries, and reports and
//! recordings hold it. It is remembered for as long as nothing changes that it depends on, until the next boot at most.
//!
//! One more thing to try is one more [`Check`] in one of the doctor's groups; its name is all that is needed here.

use std::{
    collections::BTreeMap,
    fmt, fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::OnceLock,
    time::Instant,
};

use serde::{Deserialize, Serialize};

use super::{
    check::{Check, Outcome},
    facts, privilege, trial_groups,
};
use crate::attach::{cache::Folder, memory::Backend, tracefs};

/// Names that others ask for.
pub const PTRACE: &str = "ptrace";
pub const RETURN_UNDER_SECCOMP: &str = "uretprobe_seccomp";

/// What came of one trial.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tried {
    #[serde(flatten)]
    outcome: Outcome,
    fix: Option<String>,
    required: bool,
}

impl Tried {
    /// Nothing is known against using it.
    #[must_use]
    pub const fn allows(&self) -> bool {
        self.outcome.allows()
    }

    #[must_use]
    pub const fn works(&self) -> bool {
        matches!(self.outcome, Outcome::Works)
    }

    #[must_use]
    pub const fn is_limited(&self) -> bool {
        matches!(self.outcome, Outcome::Degraded(_))
    }

    /// Why it does not work, or not well.
    #[must_use]
    pub fn reason(&self) -> &str {
        match &self.outcome {
            Outcome::Works => "",
            Outcome::Degraded(why) | Outcome::Missing(why) | Outcome::NotTried(why) => why,
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn fix(&self) -> Option<&str> {
        self.fix.as_deref()
    }
}

impl fmt::Display for Tried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.outcome {
            Outcome::Works => f.write_str("ok"),
            Outcome::Degraded(why) => write!(f, "limited: {why}"),
            Outcome::Missing(why) => write!(f, "missing: {why}"),
            Outcome::NotTried(why) => write!(f, "not tried: {why}"),
        }
    }
}

/// Everything that was tried, by its name in reports: that of the check, in one word (`uretprobe_seccomp`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decided(BTreeMap<String, Tried>);

static DECIDED: OnceLock<Decided> = OnceLock::new();

/// What this machine allows: remembered, or tried now, which takes about two seconds. Call it before the process has a
/// second thread where that can be helped: children are forked.
#[must_use]
pub fn decided() -> &'static Decided {
    DECIDED.get_or_init(|| {
        let now = Circumstances::read();
        let memory = Memory::open();
        if let Some(known) = memory.load(&now) {
            log::debug!("what this machine allows is known since an earlier run");
            return known;
        }
        let begun = Instant::now();
        let decided = Decided::of(trial_groups().iter().flat_map(|(_, checks)| checks));
        log::info!("what this machine allows was tried in {} ms", begun.elapsed().as_millis());
        memory.store(&now, &decided);
        decided
    })
}

/// Takes over what was tried just now, for later runs too.
pub(super) fn refresh<'a>(checks: impl Iterator<Item = &'a Check>) {
    let decided = Decided::of(checks);
    Memory::open().store(&Circumstances::read(), &decided);
    // Decided before in this process: that stays.
    let _ = DECIDED.set(decided);
}

impl Decided {
    #[must_use]
    pub fn of<'a>(checks: impl Iterator<Item = &'a Check>) -> Self {
        let tried =
            |check: &Check| Tried { outcome: check.outcome.clone(), fix: check.fix.clone(), required: check.required };
        Self(checks.map(|check| (word(check.name), tried(check))).collect())
    }

    /// `None`: this version does not try it.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Tried> {
        self.0.get(name)
    }

    /// What nothing can be traced without, and is not there.
    pub fn lacking(&self) -> impl Iterator<Item = (&str, &Tried)> {
        self.0.iter().filter(|(_, tried)| tried.required && !tried.allows()).map(|(name, tried)| (name.as_str(), tried))
    }

    /// What speaks against this way of following the memory map; `None`: nothing that is known.
    #[must_use]
    pub fn against(&self, backend: Backend) -> Option<&Tried> {
        self.get(&format!("mappings_{backend}")).filter(|tried| matches!(tried.outcome, Outcome::Missing(_)))
    }

    /// For a report: outcome and reason in words.
    #[must_use]
    pub fn in_words(&self) -> BTreeMap<String, String> {
        self.0.iter().map(|(name, tried)| (name.clone(), tried.to_string())).collect()
    }
}

/// `mappings, kprobe` → `mappings_kprobe`.
fn word(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_ascii_lowercase).collect::<Vec<_>>().join("_")
}

/// All that the outcome of a trial depends on and that can change between two runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Circumstances {
    boot: String,
    kernel: String,
    tfmem: String,
    /// Size and time of the program's file: another build of the same version tries other programs.
    program: (u64, i64, i64),
    /// User, capabilities in effect, namespaces, seccomp filter.
    privileges: Vec<String>,
    /// The kernel's settings that may change while it runs.
    settings: Vec<String>,
}

impl Circumstances {
    fn read() -> Self {
        let program = fs::metadata("/proc/self/exe").map(|file| (file.size(), file.mtime(), file.mtime_nsec()));
        Self {
            boot: facts::boot_id(),
            kernel: facts::release(),
            tfmem: env!("CARGO_PKG_VERSION").to_owned(),
            program: program.unwrap_or_default(),
            privileges: privilege::circumstances(),
            settings: vec![
                format!("{:?}", facts::lockdown()),
                format!("{:?}", facts::perf_event_paranoid()),
                format!("{:?}", facts::ptrace_scope()),
                tracefs::mounted().to_string(),
            ],
        }
    }

    /// Enough is known to tell another boot and another program from this one.
    fn are_known(&self) -> bool {
        !self.boot.is_empty() && !self.kernel.is_empty() && self.program.0 > 0
    }
}

/// What is written down.
#[derive(Serialize, Deserialize)]
struct Entry {
    circumstances: Circumstances,
    decided: Decided,
}

/// Where it is remembered. What is not ours, damaged or of other circumstances is as good as nothing.
struct Memory {
    folder: Folder,
}

/// Some thirty outcomes; the reason of a refused program has some lines of a log.
const LARGEST: u64 = 256 << 10;

impl Memory {
    fn open() -> Self {
        Self { folder: Folder::open("capabilities") }
    }

    fn file(&self) -> Option<PathBuf> {
        self.folder.path.as_deref().map(|folder: &Path| folder.join("decided.json"))
    }

    fn load(&self, now: &Circumstances) -> Option<Decided> {
        let entry: Entry = serde_json::from_slice(&self.folder.load(&self.file()?, LARGEST)?).ok()?;
        (now.are_known() && entry.circumstances == *now && entry.decided.is_worth_remembering())
            .then_some(entry.decided)
    }

    fn store(&self, now: &Circumstances, decided: &Decided) {
        let Some(file) = self.file().filter(|_| now.are_known() && decided.is_worth_remembering()) else { return };
        let entry = Entry { circumstances: now.clone(), decided: decided.clone() };
        let stored = serde_json::to_vec(&entry).map_err(Into::into).and_then(|bytes| self.folder.store(&file, &bytes));
        if let Err(error) = stored {
            log::debug!("cannot remember what this machine allows in {}: {error}", file.display());
        }
    }
}

impl Decided {
    /// A machine that cannot trace is tried again each time: whoever mends it should not have to say so.
    fn is_worth_remembering(&self) -> bool {
        !self.0.is_empty() && self.lacking().next().is_none()
    }
}

#[cfg(test)]
mod tests;
