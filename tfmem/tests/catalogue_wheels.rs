//! Plans for real TensorFlow wheels, where they are installed.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop")]

mod catalogue_support;

use std::path::Path;
use std::time::{Duration, Instant};

use catalogue_support::wheels;
use tfmem::attach::cache::Cache;
use tfmem::attach::plan::{Layout, Plan, Point};
use tfmem::attach::{elf, plan};

const FRAMEWORK: &[&str] = &[
    "port::AlignedMalloc aligned_malloc",
    "port::AlignedMalloc aligned_malloc_ret",
    "port::AlignedFree aligned_free",
    "BFCAllocator::BFCAllocator call_enter",
    "BFCAllocator::~BFCAllocator call_enter",
    "BFCAllocator::Extend call_enter",
    "BFCAllocator::Extend call_leave",
    "BFCAllocator::DeallocateRegions call_enter",
];

/// How chunks are reported: as a rule, and where the one function is inlined into its callers.
const LONG: &[&str] = &["BFCAllocator::AddTraceMe chunk"];
const INLINED: &[&str] =
    &["BFCAllocator::AddTraceMe without sizes chunk_short", "BFCAllocator::DeallocateRawInternal chunk_given_back"];

const CC: &[&str] = &[
    "TF_NewSession call_enter",
    "TF_NewSession call_leave",
    "TF_LoadSessionFromSavedModel call_enter",
    "TF_LoadSessionFromSavedModel call_leave",
    "TF_CloseSession call_enter",
    "TF_CloseSession call_leave",
    "TF_DeleteSession call_enter",
    "TF_DeleteSession call_leave",
    "TF_SessionRun call_enter",
    "TF_SessionRun call_leave",
    "DirectSession::DirectSession call_enter",
    "DirectSession::Close call_enter",
    "DirectSession::Close call_leave",
    "DirectSession::~DirectSession call_enter",
    "DirectSession::RunInternal call_enter",
    "TF_NewGraph call_enter",
    "TF_NewGraph call_leave",
    "TF_DeleteGraph call_enter",
    "TFE_NewContext call_enter",
    "TFE_NewContext call_leave",
    "TFE_DeleteContext call_enter",
    "TFE_DeleteContext call_leave",
    "TFE_ContextClearCaches call_enter",
    "TFE_ContextClearCaches call_leave",
    "TFE_ContextAddFunction call_enter",
    "TFE_ContextAddFunction call_enter",
    "TFE_ContextRemoveFunction call_enter",
    "GrpcSession::GrpcSession call_enter",
    "GrpcSession::Close call_enter",
    "GrpcSession::Close call_leave",
    "GrpcSession::~GrpcSession call_enter",
    "RunStepRequest::set_session_handle call_enter",
    "RunStepRequest::set_session_handle call_enter",
    "MasterSession::MasterSession call_enter",
    "MasterSession::Close call_enter",
    "MasterSession::Close call_leave",
    "MasterSession::~MasterSession call_enter",
    "SessionMgr::CreateSession call_enter",
    "SessionMgr::CreateSession call_enter",
    "SessionMgr::CreateSession call_enter",
    "SessionMgr::DeleteSession call_enter",
    "SessionMgr::DeleteSession call_leave",
    "GraphMgr::Register call_enter",
    "GraphMgr::Register call_leave",
    "GraphMgr::Item::~Item call_enter",
    "GraphMgr::Item::~Item call_leave",
    "GraphMgr::StartParallelExecutors call_enter",
    "TF_NewServer call_enter",
    "TF_NewServer call_leave",
    "TF_ServerStop call_enter",
    "TF_ServerStop call_leave",
    "TF_DeleteServer call_enter",
    "TF_DeleteServer call_leave",
    "GrpcServer::Stop call_enter",
    "GrpcServer::Stop call_leave",
    "GrpcServer::~GrpcServer call_enter",
    "TF_Reset call_enter",
    "TF_Reset call_leave",
    "Worker::CleanupAllAsync call_enter",
];

/// The copies of the aligned allocator that both libraries have up to 2.18.
const COPIES: &[&str] =
    &["port::AlignedMalloc aligned_malloc", "port::AlignedMalloc aligned_malloc_ret", "port::AlignedFree aligned_free"];

const SIZED: &[&str] = &["port::AlignedSizedFree aligned_free"];

struct Golden {
    points: Vec<&'static str>,
    missing: &'static [&'static str],
    /// Offset and layout of the annotation.
    annotation: Option<(u64, Layout)>,
    build_id: bool,
}

fn golden(version: &str, library: &str) -> Option<Golden> {
    let framework = library.contains("framework");
    let with = |parts: &[&[&'static str]]| parts.concat();
    Some(match (version, framework) {
        ("2.12.0", true) => Golden {
            points: with(&[FRAMEWORK, LONG]),
            missing: &["port::AlignedSizedFree"],
            annotation: Some((0x210, Layout::CStr)),
            build_id: true,
        },
        ("2.12.0", false) => Golden {
            points: with(&[CC, COPIES]),
            missing: &[],
            annotation: Some((0x700, Layout::CStr)),
            build_id: true,
        },
        ("2.15.1", true) => Golden {
            points: with(&[FRAMEWORK, LONG]),
            missing: &["port::AlignedSizedFree"],
            annotation: Some((0x2e0, Layout::CStr)),
            build_id: true,
        },
        ("2.15.1", false) => Golden {
            points: with(&[CC, COPIES]),
            missing: &[],
            annotation: Some((0x2b0, Layout::CStr)),
            build_id: true,
        },
        ("2.18.1", true) => Golden {
            points: with(&[FRAMEWORK, INLINED, SIZED]),
            missing: &[],
            annotation: Some((0x1f0, Layout::CStr)),
            build_id: true,
        },
        ("2.18.1", false) => Golden {
            points: with(&[CC, COPIES, SIZED]),
            missing: &[],
            annotation: Some((0x590, Layout::CStr)),
            build_id: true,
        },
        ("2.21.0", true) => Golden {
            points: with(&[FRAMEWORK, LONG, SIZED]),
            missing: &[],
            annotation: Some((0x408, Layout::View)),
            build_id: false,
        },
        ("2.21.0", false) => {
            Golden { points: with(&[CC]), missing: &["port::AlignedMalloc"], annotation: None, build_id: false }
        }
        _ => return None,
    })
}

fn libraries() -> Vec<(String, &'static str, std::path::PathBuf)> {
    let both = ["libtensorflow_framework.so.2", "libtensorflow_cc.so.2"];
    let of = |(version, package): (String, std::path::PathBuf)| {
        both.map(|library| (version.clone(), library, package.join(library)))
    };
    wheels().into_iter().flat_map(of).collect()
}

fn print(plan: &Plan) {
    for p in &plan.points {
        println!(
            "  {:30} {:18} {:#11x} +{:<2} {} {:24} {}",
            p.entry,
            p.program,
            p.file_offset,
            p.delta,
            if p.cheap { "cheap    " } else { "EXPENSIVE" },
            p.instruction,
            p.why
        );
    }
    for m in &plan.missing {
        println!("  missing {}: {}", m.entry, m.reason);
    }
    println!("  annotation: {:?} {:?}", plan.annotation, plan.annotation_missing);
}

#[test]
fn plans_of_real_wheels() {
    if libraries().is_empty() {
        println!("SKIP plans_of_real_wheels: no TensorFlow wheel is installed for tests");
    }
    for (version, library, path) in libraries() {
        assert!(elf::interesting(&path).unwrap());
        let plan = plan::resolve(&path).unwrap();
        println!("{version} {library}: {:?}", plan.library);
        print(&plan);
        assert_eq!(plan.library.version.as_deref(), Some(version.as_str()));
        let hot = |p: &&Point| {
            let name = p.program.as_str();
            name.starts_with("chunk") || matches!(name, "aligned_malloc" | "aligned_malloc_ret" | "aligned_free")
        };
        assert!(plan.points.iter().filter(hot).all(|p| p.cheap), "each hot entry read so far has a cheap place");
        let Some(golden) = golden(&version, library) else {
            println!("SKIP: no list of what {version} must have");
            continue;
        };
        let mut found: Vec<String> = plan.points.iter().map(|p| format!("{} {}", p.entry, p.program)).collect();
        let mut expected = golden.points;
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected, "{version} {library}");
        let missing: Vec<&str> = plan.missing.iter().map(|m| m.entry.as_str()).collect();
        assert_eq!(missing, golden.missing, "{version} {library}");
        assert_eq!(plan.annotation.map(|a| (a.symbol_offset, a.layout)), golden.annotation, "{version} {library}");
        assert_eq!(plan.library.build_id.is_some(), golden.build_id);
    }
}

/// The shortest of several runs: the machine may be busy with something else.
fn best(runs: u32, mut work: impl FnMut()) -> Duration {
    let time = |_| {
        let began = Instant::now();
        work();
        began.elapsed()
    };
    (0..runs).map(time).min().unwrap_or_default()
}

#[test]
fn speed() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::at(dir.path());
    let release = !cfg!(debug_assertions);
    for (version, library, path) in libraries() {
        let uncached = best(3, || drop(plan::resolve(&path).unwrap()));
        let first = cache.resolve(&path).unwrap();
        let cached = best(5, || assert_eq!(cache.resolve(&path).unwrap(), first));
        let quick = best(20, || assert!(elf::interesting(&path).unwrap()));
        println!("{version} {library}: resolved in {uncached:?}, cached {cached:?}, judged in {quick:?}");
        if release {
            assert!(uncached < Duration::from_secs(2) && cached < Duration::from_millis(20));
            assert!(quick < Duration::from_micros(300));
        }
    }
    for library in ["/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/x86_64-linux-gnu/libstdc++.so.6"] {
        if Path::new(library).exists() {
            let quick = best(20, || assert!(!elf::interesting(Path::new(library)).unwrap()));
            println!("{library}: judged in {quick:?}");
            assert!(!release || quick < Duration::from_micros(300));
        }
    }
}
