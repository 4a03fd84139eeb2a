//! Plans for real TensorFlow wheels, where they are installed.

use std::path::PathBuf;
use std::time::Instant;

use tfmem::attach::{elf, plan};

/// `<cache>/tfmem/python/tf-X.Y.Z/lib/pythonA.B/site-packages/tensorflow`, where test wheels are put.
fn wheels() -> Vec<(String, PathBuf)> {
    let cache = std::env::var_os("TFMEM_TEST_WHEELS")
        .map(PathBuf::from)
        .unwrap_or_else(|| PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache/tfmem/python"));
    let mut found = Vec::new();
    for env in std::fs::read_dir(cache).into_iter().flatten().flatten() {
        let name = env.file_name().to_string_lossy().into_owned();
        let Some(version) = name.strip_prefix("tf-").map(str::to_owned) else { continue };
        for python in std::fs::read_dir(env.path().join("lib")).into_iter().flatten().flatten() {
            let package = python.path().join("site-packages/tensorflow");
            if package.join("libtensorflow_cc.so.2").is_file() {
                found.push((version.clone(), package));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn plans_of_real_wheels() {
    let wheels = wheels();
    if wheels.is_empty() {
        println!("SKIP plans_of_real_wheels: no TensorFlow wheel is installed for tests");
    }
    for (version, package) in wheels {
        for library in ["libtensorflow_framework.so.2", "libtensorflow_cc.so.2"] {
            let path = package.join(library);
            let began = Instant::now();
            let interesting = elf::interesting(&path).unwrap();
            let quick = began.elapsed();
            let began = Instant::now();
            let plan = plan::resolve(&path).unwrap();
            println!("{version} {library}: resolve {:?}, interesting {quick:?} {interesting}", began.elapsed());
            println!("{:?}", plan.library);
            for p in &plan.points {
                println!(
                    "  {:32} {:18} +{:<2} {:#x} {:#x} cheap={} {} | {}",
                    p.entry, p.program, p.delta, p.file_offset, p.cookie, p.cheap, p.instruction, p.why
                );
            }
            println!("missing {:#?} annotation {:?} {:?}", plan.missing, plan.annotation, plan.annotation_missing);
        }
    }
}
