//! Names for the stacks of a report.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::{CodeFile, PerfMap, Symbols, perf_map::without_name, place_name};
use crate::report::model::{Frame, FrameKind, Report, Unknown};

/// Names all places in the report's stacks that have no name yet, and counts those that stay without one.
/// `paths`: where a file of the traced programs may be found here. `map`: of code made at run time.
pub fn name(
    report: &mut Report,
    symbols: &mut Symbols,
    paths: &dyn Fn(&CodeFile) -> Vec<PathBuf>,
    map: Option<&PerfMap>,
) {
    if !report.stacks.is_empty() {
        let unresolved = name_stacks(&mut report.stacks, symbols, paths, map);
        report.losses.insert("frames_unresolved".to_owned(), unresolved);
    }
}

/// The same for stacks alone. Returns how many distinct places stay without a name.
pub fn name_stacks(
    stacks: &mut BTreeMap<String, Vec<Frame>>,
    symbols: &mut Symbols,
    paths: &dyn Fn(&CodeFile) -> Vec<PathBuf>,
    map: Option<&PerfMap>,
) -> u64 {
    let mut places: BTreeMap<(String, Option<String>), BTreeSet<u64>> = BTreeMap::new();
    for frame in stacks.values().flatten() {
        if let Some((file, address)) = unnamed(frame) {
            places.entry((file.name, file.build_id)).or_default().insert(address);
        }
    }
    let mut named: BTreeMap<(CodeKey, u64), Vec<Frame>> = BTreeMap::new();
    for (key, addresses) in places {
        let file = CodeFile { name: key.0.clone(), build_id: key.1.clone() };
        let addresses: Vec<u64> = addresses.into_iter().collect();
        let frames = symbols.frames(&file, &paths(&file), &addresses);
        named.extend(addresses.iter().map(|&address| (key.clone(), address)).zip(frames));
    }
    for stack in stacks.values_mut() {
        *stack = std::mem::take(stack).into_iter().flat_map(|frame| replaced(frame, &named, map)).collect();
    }
    let unknown = stacks.values().flatten().filter(|frame| frame.unknown.is_some());
    let distinct: BTreeSet<_> = unknown.map(|frame| (&frame.module, &frame.build_id, frame.address)).collect();
    distinct.len() as u64
}

/// The same with the files as they are on this machine, found by the paths that the report has.
pub fn name_here(report: &mut Report) {
    name(report, &mut Symbols::new(), &as_recorded, None);
}

/// The same for stacks alone.
pub fn name_stacks_here(stacks: &mut BTreeMap<String, Vec<Frame>>) -> u64 {
    name_stacks(stacks, &mut Symbols::new(), &as_recorded, None)
}

fn as_recorded(file: &CodeFile) -> Vec<PathBuf> {
    vec![PathBuf::from(&file.name)]
}

type CodeKey = (String, Option<String>);

/// The place of a frame that is named by it, and that nobody tried to name.
fn unnamed(frame: &Frame) -> Option<(CodeFile, u64)> {
    let (module, address) = (frame.module.as_ref()?, frame.address?);
    let is_place =
        frame.kind == FrameKind::Native && frame.unknown.is_none() && frame.name == place_name(Some(module), address);
    is_place.then(|| (CodeFile { name: module.clone(), build_id: frame.build_id.clone() }, address))
}

fn replaced(frame: Frame, named: &BTreeMap<(CodeKey, u64), Vec<Frame>>, map: Option<&PerfMap>) -> Vec<Frame> {
    if let Some((file, address)) = unnamed(&frame)
        && let Some(frames) = named.get(&((file.name, file.build_id), address))
    {
        return frames.iter().map(|found| Frame { offset: frame.offset, ..found.clone() }).collect();
    }
    match (&frame.module, frame.address) {
        (None, Some(address))
            if frame.kind == FrameKind::Native
                && frame.unknown.is_none()
                && frame.name == place_name(None, address) =>
        {
            vec![map.map_or_else(|| without_name(address, Unknown::JitWithoutMap), |map| map.frame(address))]
        }
        _ => vec![frame],
    }
}
