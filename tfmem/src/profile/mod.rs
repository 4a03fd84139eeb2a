//! Memory by call stack: rows of a stack and what it holds, out of a finished report, or of the events of a recording
//! for moments that are no boundary. What flame graphs and exports are made of.
//!
//! The rows add up to what was asked for, byte by byte: one without a stack has the frame [`NO_STACK`] for it.

mod diff;
mod label;
pub mod moment;
mod select;

pub use diff::{Change, Difference, difference};
pub use label::{Style, label};
pub use select::{Selection, Which};

use self::moment::{Held, Key, Of, Sum};

use std::time::UNIX_EPOCH;

use crate::report::{
    model::{Boundary, Cause, Frame, FrameKind, Layer, Process, Report, Survivor},
    text,
    units::{self, counted, plain},
};
use crate::retention::stacks;

/// Stands for the stack of a row that has none.
pub const NO_STACK: &str = "[no stack]";
/// Stands for the ops and stacks of a row that sums up groups too small to show.
pub const SMALL_GROUPS: &str = "[groups too small to show]";

#[derive(Clone, Debug, Default)]
pub struct Profile {
    /// What the rows are of, such as `Survivors of`, and which.
    pub what: &'static str,
    pub subject: String,
    /// The rows are what was taken, given back or not.
    pub ever: bool,
    pub rows: Vec<Row>,
    /// What the trace lost, in words.
    pub losses: String,
    /// When the rows held, ns since 1970.
    pub at_ns: Option<u64>,
}

#[derive(Clone, Debug)]
pub struct Row {
    pub pid: u32,
    /// From the outermost inwards.
    pub frames: Vec<Frame>,
    pub layer: Layer,
    /// Why it is still there, where that was asked.
    pub cause: Option<Cause>,
    pub owner: Option<String>,
    pub bytes: u64,
    pub count: u64,
    pub has_stack: bool,
}

/// What the width of a frame means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weight {
    #[default]
    Bytes,
    Count,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    #[error("no process with TensorFlow {}has a boundary {wanted}; there are: {known}", .pid.map_or_else(String::new, |pid| format!("and pid {pid} ")))]
    NoBoundary { wanted: String, pid: Option<u32>, known: String },
    #[error("the report's figures add up to more than there can be: it is damaged")]
    TooLarge,
}

impl Profile {
    /// The survivors of a report that are asked for.
    ///
    /// # Errors
    /// When there is no such boundary, or the figures make no sense.
    pub fn of(report: &Report, selection: &Selection) -> Result<Self, ProfileError> {
        let chosen = selection.boundaries(report)?;
        let several = chosen.len() > 1;
        let mut rows = Vec::new();
        for &(process, boundary) in &chosen {
            let survivors = boundary.survivors.iter();
            let wanted = survivors.filter(|s| selection.layer.is_none_or(|layer| s.layer == layer));
            rows.extend(wanted.map(|survivor| row(report, process, survivor, several)));
        }
        let profile = Self {
            what: "Survivors of",
            subject: subject(&chosen, selection.layer),
            ever: false,
            rows,
            losses: losses(report),
            at_ns: taken(&chosen),
        };
        profile.checked()
    }

    /// What was held at a moment of the trace that this report is of, or all that was ever taken.
    ///
    /// # Errors
    /// When the figures make no sense.
    pub fn of_moment(report: &Report, held: &Held, of: Of) -> Result<Self, ProfileError> {
        let several =
            held.groups.keys().any(|key| held.groups.keys().next().is_some_and(|first| first.process != key.process));
        let rows = held.groups.iter().map(|(key, sum)| held_row(report, held, key, *sum, several)).collect();
        let (what, subject) = match held.after_ns {
            Some(after) => ("Alive", format!("{:.3} s after the trace began", after as f64 / 1e9)),
            None => ("All that was allocated", "given back since or not".to_owned()),
        };
        let pid = of.pid.map_or_else(String::new, |pid| format!(" · pid {pid}"));
        let subject = format!("{subject}{pid}{}", layer_alone(of.layer));
        let at_ns = held.after_ns.and_then(|after| unix_ns(&report.started_at)?.checked_add(after));
        let ever = held.after_ns.is_none();
        Self { what, subject, ever, rows, losses: losses(report), at_ns }.checked()
    }

    /// Formats have signed numbers; no real sum is near the limit.
    fn checked(self) -> Result<Self, ProfileError> {
        let fits = |weight| self.sum(weight).is_some_and(|sum| i64::try_from(sum).is_ok());
        if fits(Weight::Bytes) && fits(Weight::Count) { Ok(self) } else { Err(ProfileError::TooLarge) }
    }

    #[must_use]
    pub fn title(&self) -> String {
        format!("{} {}", self.what, self.subject)
    }

    fn sum(&self, weight: Weight) -> Option<u64> {
        self.rows.iter().try_fold(0_u64, |sum, row| sum.checked_add(row.weight(weight)))
    }

    #[must_use]
    pub fn total(&self, weight: Weight) -> u64 {
        self.sum(weight).unwrap_or(u64::MAX)
    }

    /// Bytes whose stack is not known.
    #[must_use]
    pub fn without_stack(&self) -> u64 {
        self.rows.iter().filter(|row| !row.has_stack).fold(0, |sum, row| sum.saturating_add(row.bytes))
    }

    /// How much it is, and what is not known of it.
    #[must_use]
    pub fn summary(&self) -> String {
        let total = units::bytes(self.total(Weight::Bytes));
        let mut text = format!("{total} in {}", counted(self.total(Weight::Count), "allocation"));
        let without = self.without_stack();
        if without > 0 {
            text += &format!(" · {} without a stack", units::bytes(without));
        }
        format!("{text} · {}", self.losses)
    }
}

impl Row {
    #[must_use]
    pub const fn weight(&self, weight: Weight) -> u64 {
        match weight {
            Weight::Bytes => self.bytes,
            Weight::Count => self.count,
        }
    }
}

fn row(report: &Report, process: &Process, survivor: &Survivor, several: bool) -> Row {
    let stack = survivor.stack.as_ref().and_then(|key| report.stacks.get(key)).filter(|frames| !frames.is_empty());
    let instead = if survivor.folded_groups.is_some() { SMALL_GROUPS } else { NO_STACK };
    let bottom = several.then(|| process_name(process));
    let frames = frames(bottom, stack.map(Vec::as_slice), instead, survivor.place.op.as_deref());
    Row {
        pid: process.pid,
        frames,
        layer: survivor.layer,
        cause: Some(survivor.cause),
        owner: survivor.owner.clone(),
        bytes: survivor.bytes,
        count: survivor.count,
        has_stack: stack.is_some(),
    }
}

/// One row of what was held at a moment.
fn held_row(report: &Report, held: &Held, key: &Key, sum: Sum, several: bool) -> Row {
    let stack = key.stack.and_then(|id| held.stacks.get(&stacks::name(id))).filter(|frames| !frames.is_empty());
    // The report has the ledger's processes, less those that nothing was seen of.
    let named = || report.processes.iter().rfind(|process| process.pid == key.pid).map(process_name);
    let bottom = several.then(|| named().unwrap_or_else(|| format!("pid {}", key.pid)));
    let frames = frames(bottom, stack.map(Vec::as_slice), NO_STACK, key.op.as_deref());
    let (bytes, count, has_stack) = (sum.bytes, sum.count, stack.is_some());
    Row { pid: key.pid, frames, layer: key.layer, cause: None, owner: None, bytes, count, has_stack }
}

/// From the outermost inwards: the process, the stack or what stands for it, the op.
fn frames(process: Option<String>, stack: Option<&[Frame]>, instead: &str, op: Option<&str>) -> Vec<Frame> {
    let mut frames: Vec<Frame> = process.map(|name| Frame::named(FrameKind::Native, name)).into_iter().collect();
    match stack {
        Some(stack) => frames.extend(stack.iter().rev().cloned()),
        None => frames.push(Frame::named(FrameKind::Native, instead)),
    }
    if let Some(op) = op
        && !frames.iter().any(|frame| frame.kind == FrameKind::Op && frame.name == op)
    {
        frames.push(Frame::named(FrameKind::Op, op));
    }
    frames
}

fn process_name(process: &Process) -> String {
    format!("{} ({})", text::name(process), process.pid)
}

fn subject(chosen: &[(&Process, &Boundary)], layer: Option<Layer>) -> String {
    let layer = layer_alone(layer);
    match chosen {
        [(process, boundary)] => {
            format!("boundary {}, {} · {}{layer}", boundary.id, plain(&boundary.label, 80), process_name(process))
        }
        several => format!("{}, one of each process{layer}", counted(several.len() as u64, "boundary")),
    }
}

fn layer_alone(layer: Option<Layer>) -> String {
    layer.map_or_else(String::new, |layer| format!(", layer {} alone", word(layer)))
}

/// When the last of them was looked at.
fn taken(chosen: &[(&Process, &Boundary)]) -> Option<u64> {
    chosen.iter().filter_map(|(_, boundary)| unix_ns(&boundary.after_at)).max()
}

/// A date of a report as ns since 1970.
#[must_use]
pub fn unix_ns(date: &str) -> Option<u64> {
    let time = humantime::parse_rfc3339(date).ok()?;
    u64::try_from(time.duration_since(UNIX_EPOCH).ok()?.as_nanos()).ok()
}

/// The word that the report has for a layer, a cause, a kind of boundary.
#[must_use]
pub fn word(value: impl serde::Serialize) -> String {
    serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

/// All kinds of loss that happened: figures and stacks may lack what they were about.
fn losses(report: &Report) -> String {
    let happened: Vec<String> = report
        .losses
        .iter()
        .filter(|&(_, &count)| count > 0)
        .map(|(kind, &count)| format!("{} {}", units::count(count), plain(kind, 40)))
        .collect();
    match happened.as_slice() {
        [] => "nothing lost".to_owned(),
        few if few.len() <= 4 => format!("lost: {}", few.join(", ")),
        many => format!("lost: {} and {} more kinds", many[..4].join(", "), many.len() - 4),
    }
}

#[cfg(test)]
mod tests;
