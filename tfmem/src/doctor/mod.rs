//! `tfmem doctor`: what this kernel, these privileges and these libraries allow, found out by trying.
//!
//! Programs and probes are tried on tfmem itself and on children of its own; no other process notices, and nothing
//! stays behind.

mod bait;
pub mod check;
mod decided;
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
use crate::attach::{kernel, tracefs};

pub use decided::{Decided, PTRACE, RETURN_UNDER_SECCOMP, Tried, decided};
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

/// Checks under their heading.
type Group = (&'static str, Vec<Check>);

/// Tries everything that decides what a trace may do. Call before the process has a second thread: children are forked.
fn trial_groups() -> Vec<Group> {
    let held = Held::read();
    let (layout, reasons) = kernel::layout();
    vec![
        ("Privileges", system::privileges(held)),
        ("Kernel", system::kernel(held, &layout, &reasons)),
        ("Ways into the kernel", others::features(held)),
        ("Programs and probes", trials::run(held, layout)),
        ("Another process", others::child(held)),
    ]
}

/// Tries everything anew, whatever is remembered, and remembers it.
#[must_use]
pub fn examine(libraries: Vec<Examined>) -> Findings {
    let mut groups = trial_groups();
    decided::refresh(groups.iter().flat_map(|(_, checks)| checks));
    groups.push(("GPU", vec![system::nvml()]));
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

/// For a report: what was decided, by name, and facts of the machine beside it. `layout_reasons`: what
/// [`kernel::layout`] did not find.
#[must_use]
pub fn capabilities(layout_reasons: &[String]) -> BTreeMap<String, String> {
    let yes_no = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
    let paranoid = facts::perf_event_paranoid().map_or_else(|| "unknown".to_owned(), |level| level.to_string());
    // Where a fact says more than that something works, it stands in its place.
    let facts = [
        ("kernel", facts::release()),
        ("btf", yes_no(kernel::has_type_information())),
        ("kernel_layout", if layout_reasons.is_empty() { yes_no(true) } else { layout_reasons.join("; ") }),
        ("tracefs", if tracefs::mounted() { "mounted" } else { "private" }.to_owned()),
        ("lockdown", facts::lockdown().unwrap_or_else(|| "none".to_owned())),
        ("perf_event_paranoid", paranoid),
    ];
    let mut all = decided().in_words();
    all.extend(facts.into_iter().map(|(name, value)| (name.to_owned(), value)));
    all
}
