//! Remembered plans: used when they fit, made anew when they do not.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop")]

mod catalogue_support;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use catalogue_support::{FRAMEWORK, compile, framework, source};
use tfmem::attach::cache::Cache;
use tfmem::attach::plan::{self, Plan};

fn files(base: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(base.join("plans")).unwrap().map(|e| e.unwrap().path()).collect()
}

fn load(file: &Path) -> Plan {
    serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap()
}

#[test]
fn a_plan_is_remembered_and_a_damaged_one_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = framework(dir.path(), "lib.so", &[]) else { return };
    let base = dir.path().join("cache");
    let cache = Cache::at(&base);
    let fresh = cache.resolve(&path).unwrap();
    assert_eq!(fresh, plan::resolve(&path).unwrap());
    let [file] = files(&base).try_into().unwrap();
    assert_eq!(load(&file), fresh);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(cache.resolve(&path).unwrap(), fresh);

    for rubbish in [b"".as_slice(), b"{", b"[1,2,3]", &[0xff; 100]] {
        std::fs::write(&file, rubbish).unwrap();
        assert_eq!(cache.resolve(&path).unwrap(), fresh);
        assert_eq!(load(&file), fresh, "written again");
    }
    assert_eq!(files(&base).len(), 1, "nothing is left beside it");
}

#[test]
fn a_remembered_plan_is_used_only_where_it_fits() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = framework(dir.path(), "lib.so", &["-Wl,--build-id=0x11223344"]) else { return };
    let base = dir.path().join("cache");
    let cache = Cache::at(&base);
    let good = cache.resolve(&path).unwrap();
    let [file] = files(&base).try_into().unwrap();
    type Change = (&'static str, fn(&mut Plan));
    let changes: [Change; 9] = [
        ("a place in the middle of an instruction", |p| p.points[0].file_offset += 1),
        ("another delta", |p| p.points[0].delta += 1),
        ("another function's address", |p| p.points[0].address = p.points[1].address),
        ("another symbol", |p| p.points[0].symbol_index += 1),
        ("another program", |p| p.points[0].program = "call_enter".to_owned()),
        ("another cookie", |p| p.points[0].cookie = 77),
        ("fewer points", |p| p.points.truncate(2)),
        ("another annotation", |p| p.annotation.as_mut().unwrap().symbol_offset += 8),
        ("another slot", |p| p.annotation.as_mut().unwrap().module_slot_vaddr += 8),
    ];
    for (what, change) in changes {
        let mut bad = good.clone();
        change(&mut bad);
        std::fs::write(&file, serde_json::to_vec(&bad).unwrap()).unwrap();
        assert_eq!(cache.resolve(&path).unwrap(), good, "{what}");
        assert_eq!(load(&file), good, "{what}");
    }

    // Another library that claims the same build id.
    let functions: Vec<&str> = FRAMEWORK.iter().rev().copied().chain(["TF_NewSession"]).collect();
    let other =
        compile(dir.path(), "other.so", &source(&functions, ""), &["-shared", "-Wl,--build-id=0x11223344"]).unwrap();
    assert_eq!(cache.resolve(&other).unwrap(), plan::resolve(&other).unwrap());
    assert_eq!(files(&base).len(), 1);
    assert_eq!(cache.resolve(&path).unwrap(), good);
}

#[test]
fn a_copy_elsewhere_uses_the_same_plan_under_its_own_path() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = framework(dir.path(), "lib.so", &[]) else { return };
    let base = dir.path().join("cache");
    let cache = Cache::at(&base);
    let first = cache.resolve(&path).unwrap();
    let copy = dir.path().join("copy.so");
    std::fs::copy(&path, &copy).unwrap();
    let second = cache.resolve(&copy).unwrap();
    assert_eq!(second.library.path, copy.to_str().unwrap());
    assert_eq!(second.points, first.points);
    assert_eq!(files(&base).len(), 1);
}

#[test]
fn without_a_safe_place_plans_are_made_each_time() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = framework(dir.path(), "lib.so", &[]) else { return };
    let expected = plan::resolve(&path).unwrap();
    // Somewhere no directory can be made.
    assert_eq!(Cache::at(Path::new("/dev/null/cache")).resolve(&path).unwrap(), expected);
    // A directory anybody may write to.
    let open = dir.path().join("open");
    std::fs::create_dir_all(open.join("plans")).unwrap();
    std::fs::set_permissions(open.join("plans"), std::fs::Permissions::from_mode(0o777)).unwrap();
    assert_eq!(Cache::at(&open).resolve(&path).unwrap(), expected);
    assert!(files(&open).is_empty());
    // A link to a directory.
    let linked = dir.path().join("linked");
    std::fs::create_dir(&linked).unwrap();
    std::fs::create_dir(dir.path().join("target")).unwrap();
    std::os::unix::fs::symlink(dir.path().join("target"), linked.join("plans")).unwrap();
    assert_eq!(Cache::at(&linked).resolve(&path).unwrap(), expected);
    assert_eq!(std::fs::read_dir(dir.path().join("target")).unwrap().count(), 0);
    // A file anybody may write to is not read.
    let base = dir.path().join("cache");
    let cache = Cache::at(&base);
    cache.resolve(&path).unwrap();
    let [file] = files(&base).try_into().unwrap();
    let mut lie = expected.clone();
    lie.missing.clear();
    std::fs::write(&file, serde_json::to_vec(&lie).unwrap()).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(cache.resolve(&path).unwrap(), expected);
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600, "replaced");
}

#[test]
fn a_library_without_symbols_of_interest_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = compile(dir.path(), "dull.so", "int dull(void) { return 1; }\n", &["-shared"]) else { return };
    let base = dir.path().join("cache");
    let plan = Cache::at(&base).resolve(&path).unwrap();
    assert!(plan.is_empty() && plan.missing.is_empty());
    assert!(files(&base).is_empty());
}
