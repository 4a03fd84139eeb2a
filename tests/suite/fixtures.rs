//! The fixtures themselves: a test that trusts a wrong stand-in proves nothing.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use object::{Object as _, ObjectSection as _, ObjectSymbol as _};
use tfmem_tests::{
    fixtures::{self, CC, FRAMEWORK, Variant},
    program::Program,
};

const PUSH_RBP: u8 = 0x55;

#[test]
fn probed_functions_start_with_a_push() -> Result<()> {
    for (name, expected) in [(FRAMEWORK, 9), (CC, 4)] {
        let data = fs::read(fixtures::get()?.library(Variant::Plain, name))?;
        let file = object::File::parse(&*data)?;
        // Never probed, only read: whatever they start with.
        let read_only = |name: &str| name.starts_with("fixture_") || name.contains("RegionFor");
        let symbols = file.dynamic_symbols().filter(|symbol| symbol.is_definition());
        let mut seen = 0;
        for symbol in symbols.filter(|symbol| symbol.name().is_ok_and(|name| !read_only(name))) {
            let section = file.section_by_index(symbol.section_index().context("no section")?)?;
            let start = section.data_range(symbol.address(), 1)?.context("not in its section")?;
            ensure!(start == [PUSH_RBP], "{} starts with {start:02x?}", symbol.name()?);
            seen += 1;
        }
        ensure!(seen == expected, "{name} exports {seen} functions");
    }
    Ok(())
}

#[test]
fn the_stripped_variant_has_no_names() -> Result<()> {
    for name in [FRAMEWORK, CC] {
        let data = fs::read(fixtures::get()?.library(Variant::Stripped, name))?;
        let file = object::File::parse(&*data)?;
        let names: Vec<_> = file
            .symbols()
            .chain(file.dynamic_symbols())
            .filter(|symbol| symbol.is_definition())
            .filter_map(|symbol| symbol.name().ok())
            .collect();
        ensure!(names.iter().all(|name| name.starts_with("fixture_")), "{names:?}");
    }
    Ok(())
}

#[test]
fn the_driver_tells_what_it_did() -> Result<()> {
    const MIB: u64 = 1 << 20;
    for (variant, early) in [(Variant::Plain, 0), (Variant::Early, 1000), (Variant::Stripped, 0), (Variant::Inlined, 0)]
    {
        let [driver, arguments @ ..] = &fixtures::get()?.driver("sessions", variant)[..] else { continue };
        let output = Program::new(driver).args(arguments).run()?;
        ensure!(output.code == 0, "{}", output.stderr);
        let truth = fixtures::truth(&output)?;
        ensure!(truth.get("chunks_taken")? == 12 + early, "{variant:?}");
        ensure!(truth.get("chunks_given_back")? == 6, "{variant:?}");
        ensure!(truth.get("heap_bytes")? == 4 * MIB, "{variant:?}");
        ensure!((truth.get("opened")?, truth.get("closed")?, truth.get("deleted")?) == (3, 2, 1), "{variant:?}");
    }
    Ok(())
}
