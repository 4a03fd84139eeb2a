//! The report: data, text, JSON. What the text shows and what the JSON holds are the same [`model::Report`].

pub mod explained;
pub mod json;
pub mod model;
#[cfg(test)]
#[allow(clippy::expect_used, reason = "tests fail by panicking")]
mod tests;
pub mod text;
pub mod units;

use model::{Cause, Report};

/// Whether there is something that this report could not see: a limit that is kept then says nothing.
#[must_use]
pub fn blind(report: &Report) -> bool {
    report.processes.iter().flat_map(|p| &p.frameworks).any(|f| !f.blind.is_empty())
}

/// Whether what the trace blames exceeds `limit` bytes. Memory that an allocator keeps for its next user is not
/// counted.
#[must_use]
pub fn fail_above(report: &Report, limit: u64) -> bool {
    let blamed: u64 = report
        .processes
        .iter()
        .flat_map(|p| &p.verdicts)
        // What was there before the trace outlived nothing that the trace saw.
        .filter(|v| !v.cause.is_reserve() && v.cause != Cause::BeforeAttach)
        .fold(0, |sum, v| sum.saturating_add(v.bytes));
    blamed > limit
}
