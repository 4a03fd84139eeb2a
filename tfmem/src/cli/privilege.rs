//! Can tfmem do its work here? Asked before anything starts, so that the answer is one clear sentence.

use super::exit::{FAILED, Failure};
use crate::{
    catalogue::features::OLDEST_KERNEL,
    doctor::{
        facts,
        privilege::{Capability, Held, NEEDED},
    },
};

/// # Errors
/// Names what is missing and how to get it.
pub fn check() -> Result<(), Failure> {
    check_for(NEEDED)
}

/// The same for one who needs less: the agent goes without `CAP_SYS_ADMIN`.
///
/// # Errors
/// Names what is missing and how to get it.
pub fn check_for(needed: &[Capability]) -> Result<(), Failure> {
    kernel(&facts::release())?;
    let held = Held::read();
    let missing = needed.iter().filter(|&&capability| !held.has(capability));
    let missing: Vec<String> = missing.map(|(_, name, purpose)| format!("{name} (to {purpose})")).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "missing privilege: {}. Run it as root: sudo tfmem …; `tfmem doctor` says what this machine allows",
        missing.join(", ")
    )))
}

/// A release that cannot be read is tried all the same.
fn kernel(release: &str) -> Result<(), Failure> {
    let (major, minor) = OLDEST_KERNEL;
    if facts::version(release).is_some_and(|version| version < OLDEST_KERNEL) {
        return Err(Failure::with_status(
            FAILED,
            format!(
                "Linux {release} is too old: tfmem works from {major}.{minor} on; `tfmem doctor` says what is missing"
            ),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_kernel_is_refused_in_words() {
        let failure = kernel("5.10.0-30-amd64").expect_err("too old");
        assert_eq!(failure.status(), FAILED);
        assert!(failure.message().contains("5.10.0-30-amd64") && failure.message().contains("5.15"));
        for new_enough in ["5.15.0-1084-aws", "6.1.0-50-amd64", "7.0-rc1", "unknown"] {
            assert!(kernel(new_enough).is_ok());
        }
    }
}
