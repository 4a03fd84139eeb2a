//! `tfmem doctor`: what this kernel, these privileges and these libraries allow, found out by trying.
//!
//! Programs and probes are tried on tfmem itself and on children of its own; no other process notices, and nothing
//! stays behind.

mod bait;
pub mod check;
pub mod facts;
mod library;
mod others;
pub mod privilege;
mod seen;
mod system;
mod text;
mod trials;

use std::collections::BTreeMap;

use serde::Serialize;

use self::{
    check::{Check, Verdict, verdict},
    privilege::Held,
};
use crate::attach::{kernel, link, tracefs};

pub use library::{Examined, mapped, named};
pub use text::render;

/// `schema` of the JSON form.
const SCHEMA: &str = "tfmem.doctor/1";

/// Everything that was found.
#[derive(Clone, Debug, Serialize)]
pub struct Findings {
    pub schema: &'static str,
    pub tfmem: Tool,
    pub verdict: Verdict,
    pub checks: Vec<Check>,
    /// What was asked for with `--pid` and `--library`.
    pub libraries: Vec<Examined>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Tool {
    pub version: &'static str,
}

/// Tries everything. Call before the process has a second thread: children are forked.
#[must_use]
pub fn examine(libraries: Vec<Examined>) -> Findings {
    let held = Held::read();
    let (layout, reasons) = kernel::layout();
    let groups = [
        ("Privileges", system::privileges(held)),
        ("Kernel", system::kernel(held, &layout, &reasons)),
        ("Ways into the kernel", others::features(held)),
        ("Programs and probes", trials::run(held, layout)),
        ("Another process", others::child(held)),
        ("GPU", vec![system::nvml()]),
    ];
    let checks: Vec<Check> = groups
        .into_iter()
        .flat_map(|(group, checks)| checks.into_iter().map(move |check| Check { group, ..check }))
        .collect();
    Findings {
        schema: SCHEMA,
        tfmem: Tool { version: env!("CARGO_PKG_VERSION") },
        verdict: verdict(&checks),
        checks,
        libraries,
    }
}

/// Facts for a report, by looking only: nothing is tried, so that a trace does not begin later. `layout_reasons`: what
/// [`kernel::layout`] did not find.
#[must_use]
pub fn capabilities(layout_reasons: &[String]) -> BTreeMap<String, String> {
    let release = facts::release();
    let yes_no = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
    let affected = facts::version(&release).is_some_and(facts::may_have_seccomp_bug);
    let paranoid = facts::perf_event_paranoid().map_or_else(|| "unknown".to_owned(), |level| level.to_string());
    let all = [
        ("kernel", release),
        ("btf", yes_no(kernel::has_type_information())),
        ("kernel_layout", if layout_reasons.is_empty() { yes_no(true) } else { layout_reasons.join("; ") }),
        ("tracefs", if tracefs::mounted() { "mounted" } else { "private" }.to_owned()),
        ("kprobes", yes_no(link::has_kprobes())),
        ("uretprobe_seccomp_bug", if affected { "possible" } else { "no" }.to_owned()),
        ("lockdown", facts::lockdown().unwrap_or_else(|| "none".to_owned())),
        ("perf_event_paranoid", paranoid),
    ];
    all.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_come_quickly() {
        let begun = std::time::Instant::now();
        let found = capabilities(&[]);
        let took = begun.elapsed();
        println!("{found:?} in {took:?}");
        assert_eq!(found.len(), 8);
        assert!(found.values().all(|value| !value.is_empty()));
    }
}
