//! Can tfmem do its work here? Asked before anything starts, so that the answer is one clear sentence.

use super::args::Mm;
use super::exit::{FAILED, Failure};
use crate::{
    attach::memory::Backend,
    catalogue::features::OLDEST_KERNEL,
    doctor::{
        self, Decided, RETURN_UNDER_SECCOMP, Tried, facts,
        privilege::{Capability, Held, NEEDED},
    },
};

/// Privileges and the kernel's age.
///
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

/// Whether everything works that a trace cannot do without; tried before, or now. `spared`: what this one does without.
///
/// # Errors
/// Names what does not, why, and what to do.
pub fn trials(spared: &[&str]) -> Result<(), Failure> {
    let decided = doctor::decided();
    let lacking: Vec<String> = decided
        .lacking()
        .filter(|(name, _)| !spared.contains(name))
        .map(|(name, tried)| sentence(name, tried))
        .collect();
    if !lacking.is_empty() {
        let why = format!("this machine does not allow it: {}; `tfmem doctor` says more", lacking.join("; "));
        return Err(Failure::with_status(FAILED, why));
    }
    if let Some(tried) = decided.get(RETURN_UNDER_SECCOMP).filter(|tried| tried.is_limited()) {
        log::warn!("{}", sentence(RETURN_UNDER_SECCOMP, tried));
    }
    Ok(())
}

fn sentence(name: &str, tried: &Tried) -> String {
    let fix = tried.fix().map(|fix| format!(" (what helps: {fix})")).unwrap_or_default();
    format!("{name}: {}{fix}", tried.reason())
}

/// The ways of following the memory map that `--mm` leaves.
///
/// # Errors
/// When one was asked for that does not work here.
pub fn ways(mm: Mm) -> Result<Vec<Backend>, Failure> {
    ways_of(doctor::decided(), mm)
}

fn ways_of(decided: &Decided, mm: Mm) -> Result<Vec<Backend>, Failure> {
    let ways = mm.backends();
    let [only] = ways[..] else { return Ok(ways) };
    let Some(tried) = decided.against(only) else { return Ok(ways) };
    let fix = tried.fix().map(|fix| format!(" It takes {fix}.")).unwrap_or_default();
    let best = Backend::ALL.into_iter().find(|&way| decided.against(way).is_none()).unwrap_or(Backend::Poll);
    let why = format!("--mm {only} does not work here: {}.{fix} Without --mm it would be {best}", tried.reason());
    Err(Failure::usage(why))
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
    use crate::doctor::check::Check;

    #[test]
    fn a_way_that_does_not_work_is_refused_with_what_helps() {
        let kprobe = Check::new("mappings, kprobe", "").missing("not compiled in").fix("a kernel with kprobes");
        let decided = Decided::of([Check::new("mappings, tracepoint", ""), kprobe].iter());
        let failure = ways_of(&decided, Mm::Kprobe).expect_err("it is missing");
        assert_eq!(failure.status(), super::super::exit::USAGE);
        let expected = "--mm kprobe does not work here: not compiled in. It takes a kernel with kprobes. \
                        Without --mm it would be tracepoint";
        assert_eq!(failure.message(), expected);
        for (mm, ways) in [(Mm::Auto, 3), (Mm::Tracepoint, 1), (Mm::Poll, 1)] {
            assert_eq!(ways_of(&decided, mm).expect("it works").len(), ways, "{mm:?}");
        }
        // What was not tried is tried.
        assert!(ways_of(&Decided::default(), Mm::Kprobe).is_ok());
    }

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
