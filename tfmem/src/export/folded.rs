//! Folded stacks: `outermost;…;innermost 4096`, one line for each stack. What `flamegraph.pl` and its kin read.

use std::collections::BTreeMap;
use std::io::{self, Write};

use crate::profile::{Difference, Profile, Style, Weight, label};
use crate::report::model::Frame;

/// # Errors
/// What the writer says.
pub fn write(profile: &Profile, weight: Weight, out: &mut impl Write) -> io::Result<()> {
    lines(profile, weight).iter().try_for_each(|line| writeln!(out, "{line}"))
}

/// In order of the stacks, each once.
#[must_use]
pub fn lines(profile: &Profile, weight: Weight) -> Vec<String> {
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    for row in &profile.rows {
        let sum = sums.entry(stack(&row.frames)).or_default();
        *sum = sum.saturating_add(row.weight(weight));
    }
    sums.into_iter().map(|(stack, sum)| format!("{stack} {sum}")).collect()
}

/// With two figures: before, after.
#[must_use]
pub fn changes(difference: &Difference) -> Vec<String> {
    let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for change in &difference.changes {
        let sum = sums.entry(stack(&change.frames)).or_default();
        sum.0 = sum.0.saturating_add(change.before);
        sum.1 = sum.1.saturating_add(change.after);
    }
    sums.into_iter().map(|(stack, (before, after))| format!("{stack} {before} {after}")).collect()
}

fn stack(frames: &[Frame]) -> String {
    let labels: Vec<String> = frames.iter().map(|frame| label(frame, Style::Folded)).collect();
    labels.join(";")
}
