//! Two profiles side by side.

use std::collections::BTreeMap;

use super::{Profile, Style, Weight, label};
use crate::report::{
    model::Frame,
    units::{self, counted},
};

/// What a stack held before and holds after.
#[derive(Clone, Debug)]
pub struct Change {
    pub frames: Vec<Frame>,
    pub before: u64,
    pub after: u64,
}

#[derive(Clone, Debug)]
pub struct Difference {
    pub before: String,
    pub after: String,
    pub changes: Vec<Change>,
    pub weight: Weight,
    /// Of both.
    pub losses: String,
}

/// Stacks are the same when they read the same: the two may come from different runs, at other addresses.
#[must_use]
pub fn difference(before: &Profile, after: &Profile, weight: Weight) -> Difference {
    let mut changes: BTreeMap<Vec<String>, Change> = BTreeMap::new();
    for (profile, is_after) in [(before, false), (after, true)] {
        for row in &profile.rows {
            let key = row.frames.iter().map(|frame| label(frame, Style::Plain)).collect();
            let change =
                changes.entry(key).or_insert_with(|| Change { frames: row.frames.clone(), before: 0, after: 0 });
            let side = if is_after { &mut change.after } else { &mut change.before };
            *side = side.saturating_add(row.weight(weight));
        }
    }
    let losses = if before.losses == after.losses {
        after.losses.clone()
    } else {
        format!("before: {}; after: {}", before.losses, after.losses)
    };
    Difference {
        before: before.subject.clone(),
        after: after.subject.clone(),
        changes: changes.into_values().collect(),
        weight,
        losses,
    }
}

impl Difference {
    /// How much more, how much less.
    #[must_use]
    pub fn summary(&self) -> String {
        let sum =
            |of: fn(&Change) -> u64| self.changes.iter().fold(0, |sum: u64, change| sum.saturating_add(of(change)));
        let shown = |n| match self.weight {
            Weight::Bytes => units::bytes(n),
            Weight::Count => counted(n, "allocation"),
        };
        let more = sum(|change| change.after.saturating_sub(change.before));
        let less = sum(|change| change.before.saturating_sub(change.after));
        let gone = sum(|change| if change.after == 0 { change.before } else { 0 });
        let (before, after) = (sum(|change| change.before), sum(|change| change.after));
        let mut text = format!("{} → {} (+{}, −{})", shown(before), shown(after), shown(more), shown(less));
        if gone > 0 {
            text += &format!(" · {} of stacks that hold nothing any more not drawn", shown(gone));
        }
        format!("{text} · {}", self.losses)
    }
}
