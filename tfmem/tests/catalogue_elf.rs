//! Symbols of small libraries of every make, and of damaged ones.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop")]

mod catalogue_support;

use std::path::Path;

use catalogue_support::{ADD_TRACE_ME, DEALLOCATE_REGIONS, FRAMEWORK, VARIABLE, compile, framework, source};
use tfmem::attach::elf::{self, Elf, ElfError, Table};
use tfmem::attach::plan::{self, Layout, Plan};

fn entries(plan: &Plan) -> Vec<(&str, &str)> {
    let mut list: Vec<_> = plan.points.iter().map(|p| (p.entry.as_str(), p.program.as_str())).collect();
    list.sort_unstable();
    list
}

/// What the fixture of the framework library must give, however it is linked.
fn assert_framework(plan: &Plan) {
    assert_eq!(
        entries(plan),
        [
            ("BFCAllocator::AddTraceMe", "chunk"),
            ("BFCAllocator::BFCAllocator", "call_enter"),
            ("BFCAllocator::DeallocateRegions", "call_enter"),
            ("BFCAllocator::Extend", "call_enter"),
            ("BFCAllocator::Extend", "call_leave"),
            ("BFCAllocator::~BFCAllocator", "call_enter"),
            ("port::AlignedFree", "aligned_free"),
            ("port::AlignedMalloc", "aligned_malloc"),
            ("port::AlignedMalloc", "aligned_malloc_ret"),
        ]
    );
    assert!(plan.points.iter().all(|p| p.cheap), "{plan:#?}");
    assert_eq!(plan.missing.len(), 1, "{:?}", plan.missing);
    assert_eq!(plan.missing[0].entry, "port::AlignedSizedFree");
}

#[test]
fn a_library_is_read_however_it_was_linked() {
    let dir = tempfile::tempdir().unwrap();
    let makes: [(&str, &[&str]); 5] = [
        ("plain.so", &[]),
        ("stripped.so", &["-s"]),
        ("sysv.so", &["-Wl,--hash-style=sysv"]),
        ("both.so", &["-Wl,--hash-style=both"]),
        ("separate.so", &["-Wl,-z,separate-code", "-Wl,-z,now"]),
    ];
    for (name, flags) in makes {
        let Some(path) = framework(dir.path(), name, flags) else { return };
        assert!(elf::interesting(&path).unwrap(), "{name}");
        let plan = plan::resolve(&path).unwrap();
        assert_framework(&plan);
        assert_eq!(plan.library.build_id.as_deref().map(str::len), Some(40), "{name}");
        if name == "stripped.so" {
            assert!(plan.annotation.is_none());
            assert!(plan.annotation_missing.as_deref().unwrap().contains("stripped"), "{plan:?}");
        } else {
            let annotation = plan.annotation.unwrap_or_else(|| panic!("{name}: {:?}", plan.annotation_missing));
            assert_eq!((annotation.layout, annotation.symbol.as_str()), (Layout::CStr, VARIABLE));
            assert!(
                annotation.symbol_offset.is_multiple_of(8) && annotation.getter_slot_vaddr.is_some(),
                "{annotation:?}"
            );
        }
    }
}

#[test]
fn no_hash_table_means_one_pass() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = framework(dir.path(), "plain.so", &["-Wl,--hash-style=gnu"]) else { return };
    let mut bytes = std::fs::read(&path).unwrap();
    let tag = 0x6fff_fef5_u64.to_le_bytes(); // DT_GNU_HASH
    let at = bytes.windows(16).position(|w| w[..8] == tag && w[8..] != [0; 8]).unwrap();
    bytes[at..at + 8].copy_from_slice(&0x6fff_ff00_u64.to_le_bytes());
    std::fs::write(&path, bytes).unwrap();
    assert_framework(&plan::resolve(&path).unwrap());
}

#[test]
fn points_are_where_the_functions_are() {
    let dir = tempfile::tempdir().unwrap();
    let Some(path) = framework(dir.path(), "plain.so", &["-fcf-protection=full"]) else { return };
    let bytes = std::fs::read(&path).unwrap();
    let plan = plan::resolve(&path).unwrap();
    for point in &plan.points {
        let start = (point.file_offset - point.delta) as usize;
        assert_eq!(bytes[start..start + 4], [0xf3, 0x0f, 0x1e, 0xfa], "endbr64 at {}", point.symbol);
        assert_eq!((point.delta, bytes[start + 4], point.cheap), (4, 0x55, true), "{}", point.symbol);
    }
}

#[test]
fn view_layout_and_disagreement() {
    let dir = tempfile::tempdir().unwrap();
    let view = "_ZN3tsl8profiler27ScopedMemoryDebugAnnotationC2ESt17basic_string_viewIcSt11char_traitsIcEEl";
    let make = |name: &str, functions: &[&str], words| {
        let text = source(functions, &catalogue_support::annotation(words));
        compile(dir.path(), name, &text, &["-shared"]).map(|path| plan::resolve(&path).unwrap())
    };
    let Some(plan) = make("view.so", &[ADD_TRACE_ME, view], 10) else { return };
    assert_eq!(plan.annotation.unwrap().layout, Layout::View);
    let silent = make("silent.so", &[ADD_TRACE_ME], 8).unwrap();
    assert_eq!(silent.annotation.unwrap().layout, Layout::CStr, "the size alone is enough");
    let torn = make("torn.so", &[ADD_TRACE_ME, view], 8).unwrap();
    assert!(torn.annotation_missing.unwrap().contains("disagree"));
    let strange = make("strange.so", &[ADD_TRACE_ME, view], 11).unwrap();
    assert!(strange.annotation_missing.unwrap().contains("88 bytes"));
}

#[test]
fn a_static_program_and_hidden_functions_are_found_in_the_full_table() {
    let dir = tempfile::tempdir().unwrap();
    let text = source(
        FRAMEWORK,
        &format!(
            "{}{}void _start(void) {{ for (;;); }}\n",
            catalogue_support::DESTRUCTORS,
            catalogue_support::pool(&catalogue_support::POOL, false)
        ),
    );
    let Some(path) = compile(dir.path(), "static", &text, &["-static", "-nostdlib", "-fno-pic", "-no-pie"]) else {
        return;
    };
    let plan = plan::resolve(&path).unwrap();
    assert_framework(&plan);
    assert!(plan.points.iter().all(|p| p.table == Table::Full));
    assert!(plan.annotation.is_none() && plan.annotation_missing.is_none(), "it has no annotation at all");
    // Too small to be TensorFlow: not worth a pass over its symbols.
    assert!(!elf::interesting(&path).unwrap());

    // The C API alone is exported, as in libtensorflow.so; the rest of its family is hidden.
    let hidden = "int h(int) __asm__(\"_ZN10tensorflow13DirectSession5CloseEv\") __attribute__((visibility(\"hidden\")));\n\
                  int h(int x) { return x; }\n";
    let text = source(&["TF_NewSession", "TF_CloseSession"], hidden);
    let path = compile(dir.path(), "capi.so", &text, &["-shared"]).unwrap();
    let plan = plan::resolve(&path).unwrap();
    let close = plan.points.iter().find(|p| p.entry == "DirectSession::Close").unwrap();
    assert_eq!(close.table, Table::Full);
    assert!(plan.missing.iter().any(|m| m.entry == "TFE_NewContext" && m.reason.contains("known in 2.12.0")));
    assert!(!plan.missing.iter().any(|m| m.entry.starts_with("BFC")), "another family's: {:?}", plan.missing);
}

#[test]
fn a_wrapper_around_an_imported_function_gets_no_probe() {
    let dir = tempfile::tempdir().unwrap();
    let wrapper = "int real(long, long) SYM(\"_ZN3tsl4port13AlignedMallocEmSt11align_val_t\");\n\
                   int wrap(long, int) SYM(\"_ZN3tsl4port13AlignedMallocEmi\");\n\
                   int wrap(long a, int b) { return real(a, b); }\n";
    let text = source(&["TF_NewSession"], wrapper);
    let Some(path) = compile(dir.path(), "wrapper.so", &text, &["-shared"]) else { return };
    let plan = plan::resolve(&path).unwrap();
    assert!(!plan.points.iter().any(|p| p.entry == "port::AlignedMalloc"), "{:?}", plan.points);
    assert!(plan.missing.iter().any(|m| m.entry == "port::AlignedMalloc" && m.reason.contains("wrapper")));
    // Where both are defined, the function itself is taken, once.
    let both = wrapper.to_owned() + "int real(long a, long b) { return a + b; }\n";
    let path = compile(dir.path(), "both.so", &source(&["TF_NewSession"], &both), &["-shared"]).unwrap();
    let plan = plan::resolve(&path).unwrap();
    let points: Vec<_> = plan.points.iter().filter(|p| p.entry == "port::AlignedMalloc").collect();
    assert_eq!(points.len(), 2);
    assert!(points.iter().all(|p| p.symbol.ends_with("align_val_t")));
}

#[test]
fn what_is_no_library_is_an_error_with_a_name() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    assert!(matches!(Elf::open(dir.path()), Err(ElfError::NotAFile | ElfError::Open(_))));
    assert!(matches!(Elf::open(&dir.path().join("nothing")), Err(ElfError::Open(_))));
    assert!(matches!(Elf::open(&write("empty", b"")), Err(ElfError::NotElf)));
    assert!(matches!(Elf::open(&write("text", &[b'a'; 200])), Err(ElfError::NotElf)));
    let Some(path) = framework(dir.path(), "plain.so", &[]) else { return };
    let good = std::fs::read(path).unwrap();
    for (at, value, name) in [(4, 1_u8, "32 bit"), (5, 2, "big-endian"), (18, 183, "not x86-64")] {
        let mut bytes = good.clone();
        bytes[at] = value;
        match Elf::open(&write("foreign", &bytes)) {
            Err(ElfError::Foreign(what)) => assert_eq!(what, name),
            other => panic!("{other:?}"),
        }
    }
    let fifo = dir.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRUSR).unwrap();
    assert!(matches!(Elf::open(&fifo), Err(ElfError::NotAFile)));
}

fn read_all(path: &Path) {
    let _ = elf::interesting(path);
    let Ok(elf) = Elf::open(path) else { return };
    let _ = elf.identity();
    if let Ok(plan) = plan::resolve_in(&elf, path) {
        assert!(plan.points.iter().all(|p| p.file_offset < elf.len()), "{plan:#?}");
        let _ = plan.fits(&elf);
    }
    for name in [ADD_TRACE_ME, DEALLOCATE_REGIONS, "nothing"] {
        let _ = elf.lookup(name);
    }
    let _ = elf.scan(Table::Full, &|_| true);
    let _ = elf.scan(Table::Dynamic, &|_| true);
}

#[test]
fn damaged_libraries_are_survived() {
    let dir = tempfile::tempdir().unwrap();
    for style in ["-Wl,--hash-style=gnu", "-Wl,--hash-style=sysv"] {
        let Some(path) = framework(dir.path(), "plain.so", &[style]) else { return };
        let good = std::fs::read(path).unwrap();
        let bad = dir.path().join("bad.so");
        for len in (0..good.len()).step_by(97) {
            std::fs::write(&bad, &good[..len]).unwrap();
            read_all(&bad);
        }
        // Every byte of the headers and of the tables the loader uses, then random places in clusters.
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % below as u64) as usize
        };
        for round in 0..1200 {
            let mut bytes = good.clone();
            let places = 1 + random(6);
            for _ in 0..places {
                let at = match round % 3 {
                    0 => random(0x300),
                    1 => random(0x1200.min(good.len())),
                    _ => random(good.len()),
                };
                let width = 1 << random(4);
                let fill = [0, 0xff, 0x7f, 0x80, random(256) as u8][random(5)];
                for byte in bytes.iter_mut().skip(at).take(width) {
                    *byte = fill;
                }
            }
            std::fs::write(&bad, &bytes).unwrap();
            read_all(&bad);
        }
        // The dynamic section decides where everything else is: each of its words, with nasty values.
        for at in (0..good.len() - 16).step_by(8) {
            let tag = u64::from_le_bytes(good[at..at + 8].try_into().unwrap());
            if !matches!(tag, 4..=7 | 0x17 | 0x6fff_fef5 | 0x6fff_fff0) {
                continue;
            }
            for value in [0, 1, 8, 0x200, good.len() as u64 - 4, good.len() as u64, u64::MAX, u64::MAX - 7, 1 << 63] {
                let mut bytes = good.clone();
                bytes[at + 8..at + 16].copy_from_slice(&value.to_le_bytes());
                std::fs::write(&bad, &bytes).unwrap();
                read_all(&bad);
            }
        }
    }
}
