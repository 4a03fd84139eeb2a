//! Is tfmem allowed to do its work? Asked before anything starts, so that the answer is one clear sentence.

use super::exit::Failure;
use crate::doctor::privilege::Held;

/// # Errors
/// Names what is missing and how to get it.
pub fn check() -> Result<(), Failure> {
    let missing: Vec<String> =
        Held::read().missing().iter().map(|(_, name, purpose)| format!("{name} (to {purpose})")).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "missing privilege: {}. Run it as root: sudo tfmem …; `tfmem doctor` says what this machine allows",
        missing.join(", ")
    )))
}
