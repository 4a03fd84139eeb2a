//! The stacks that a report names, and what it says of all of them.

use std::collections::BTreeMap;

use crate::event::{PythonCode, StackId};
use crate::ledger::stacks::{Place, Stacks};
use crate::report::model::{Frame, FrameKind, Process, StackCoverage, Unknown};

/// Its key in the report.
#[must_use]
pub fn name(id: StackId) -> String {
    format!("{id:016x}")
}

/// The frames of every stack that a row names.
pub(super) fn named(stacks: &Stacks, processes: &[Process]) -> BTreeMap<String, Vec<Frame>> {
    let survivors = processes.iter().flat_map(|process| &process.boundaries).flat_map(|boundary| &boundary.survivors);
    let keys = survivors.filter_map(|survivor| survivor.stack.as_ref());
    keys.filter_map(|key| {
        let id = StackId::new(u64::from_str_radix(key, 16).ok()?)?;
        Some((key.clone(), frames(stacks, id)?))
    })
    .collect()
}

/// From the innermost outwards, without names. `None`: the stack's number came without its frames.
#[must_use]
pub fn frames(stacks: &Stacks, id: StackId) -> Option<Vec<Frame>> {
    Some(stacks.get(id)?.frames.iter().map(|&frame| shown(stacks, frame)).collect())
}

fn shown(stacks: &Stacks, frame: u64) -> Frame {
    let (name, module, build_id, address, offset) = match stacks.place(frame) {
        Place::File { file, address } => {
            let short = file.path.rsplit('/').next().unwrap_or_default();
            let name = format!("{short}+{address:#x}");
            (name, Some(file.path.clone()), file.build_id.clone(), address, file.offset(address))
        }
        Place::Nowhere { address } => (format!("{address:#x}"), None, None, address, None),
        Place::Python(code) => return python(code),
    };
    let address = Some(address);
    let (file, line, inlined, unknown) = (None, None, false, None);
    Frame { kind: FrameKind::Native, name, file, line, module, build_id, address, offset, inlined, unknown }
}

fn python(code: Option<&PythonCode>) -> Frame {
    let unknown = |address: u64, why: Unknown| Frame {
        address: Some(address),
        unknown: Some(why),
        ..Frame::named(FrameKind::Python, format!("code object at {address:#x}"))
    };
    match code {
        Some(PythonCode::Known { file, function, line }) => {
            Frame { file: Some(file.clone()), line: *line, ..Frame::named(FrameKind::Python, function) }
        }
        Some(PythonCode::Gone { address }) => unknown(*address, Unknown::CodeGone),
        Some(PythonCode::Unreadable { address }) => unknown(*address, Unknown::CodeUnreadable),
        None => Frame { unknown: Some(Unknown::CodeUnreadable), ..Frame::named(FrameKind::Python, "?") },
    }
}

/// How much of what was allocated has a stack; `None`: none were taken.
pub(super) fn coverage(stacks: &Stacks) -> Option<StackCoverage> {
    let bytes = stacks.bytes();
    (!stacks.is_empty()).then_some(StackCoverage { bytes: bytes.all, with_stack: bytes.with, complete: bytes.complete })
}
