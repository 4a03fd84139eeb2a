//! The plan for CUDA's driver library. Its exported names say all.

use std::path::Path;

use super::{Library, Missing, Plan, Point, place};
use crate::attach::elf::{Elf, Result};
use crate::catalogue::gpu::{ENTRIES, ESSENTIAL, Entry, FRAMEWORK, PROGRAMS, SONAME};

pub(super) fn is_driver(elf: &Elf) -> bool {
    elf.soname().is_some_and(|name| name.starts_with(SONAME))
}

/// A remembered plan saves no search here: it is right when it is what would be made now.
pub(super) fn is_plan(known: &Plan, elf: &Elf) -> bool {
    plan(elf, Path::new("")).is_ok_and(|made| made.points == known.points && made.missing == known.missing)
}

pub(super) fn plan(elf: &Elf, path: &Path) -> Result<Plan> {
    let mut plan = Plan {
        library: Library {
            framework: FRAMEWORK.to_owned(),
            path: path.to_string_lossy().into_owned(),
            build_id: elf.build_id(),
            version: version(path),
            size: elf.len(),
            code: elf.code_segments(),
        },
        points: Vec::new(),
        missing: Vec::new(),
        annotation: None,
        annotation_missing: None,
    };
    let mut addresses = Vec::new();
    for (number, entry) in ENTRIES.iter().enumerate() {
        let before = plan.points.len();
        for name in entry.names {
            let Some(symbol) = elf.lookup(name)?.filter(|symbol| symbol.function) else { continue };
            // Two names of one function are one place.
            if addresses.contains(&symbol.value) {
                continue;
            }
            addresses.push(symbol.value);
            plan.points.extend(points(elf, entry, number, name, &symbol));
        }
        let name = entry.names.first().copied().unwrap_or_default();
        if plan.points.len() == before && ESSENTIAL.contains(&name) {
            plan.missing.push(Missing { entry: name.to_owned(), reason: "no such symbol".to_owned() });
        }
    }
    Ok(plan)
}

fn points(elf: &Elf, entry: &Entry, number: usize, name: &str, symbol: &crate::attach::elf::Symbol) -> Vec<Point> {
    let Some(place) = place(elf, symbol, entry.registers) else { return Vec::new() };
    let point = |(program, ret): (&str, bool)| Point {
        entry: entry.names.first().copied().unwrap_or_default().to_owned(),
        symbol: name.to_owned(),
        table: symbol.table,
        symbol_index: symbol.index,
        address: symbol.value,
        delta: place.choice.delta,
        file_offset: place.file_offset,
        program: program.to_owned(),
        ret,
        cookie: entry.cookie(number),
        instruction: place.choice.instruction.clone(),
        cheap: place.choice.cheap,
        why: place.choice.why.clone(),
    };
    let [enter, leave] = PROGRAMS;
    vec![point((enter, false)), point((leave, true))]
}

/// The driver's file is called after its version: `libcuda.so.535.247.01`.
fn version(path: &Path) -> Option<String> {
    let name = path.canonicalize().ok()?.file_name()?.to_string_lossy().into_owned();
    let version = name.strip_prefix(SONAME)?;
    version.contains('.').then(|| version.to_owned())
}
