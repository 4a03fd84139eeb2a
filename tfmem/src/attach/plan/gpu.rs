//! The plan for CUDA's driver library. Its exported names say all.

use std::path::Path;

use super::{Library, Missing, Plan, Point, place};
use crate::attach::elf::{Elf, Result, Symbol};
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

fn points(elf: &Elf, entry: &Entry, number: usize, name: &str, symbol: &Symbol) -> Vec<Point> {
    let Some(place) = place(elf, symbol, entry.registers) else { return Vec::new() };
    let [enter, leave] = PROGRAMS;
    let first = entry.names.first().copied().unwrap_or_default();
    [(enter, false), (leave, true)]
        .map(|program| place.point(first, (name, symbol), program, entry.cookie(number)))
        .into()
}

/// The driver's file is called after its version: `libcuda.so.535.247.01`.
fn version(path: &Path) -> Option<String> {
    let name = path.canonicalize().ok()?.file_name()?.to_string_lossy().into_owned();
    let version = name.strip_prefix(SONAME)?;
    version.contains('.').then(|| version.to_owned())
}
