//! Names of places in small libraries, made here with debugging information, without, and stripped; against binutils'
//! `addr2line`. Damaged ones give an answer all the same.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use tfmem::{
    attach::elf::Elf,
    report::model::{Frame, FrameKind, Report, Unknown},
    symbols::{self, CodeFile, Symbols, place_name},
};

#[path = "../../xtask/src/layout.rs"]
#[allow(dead_code, reason = "each user has its own part")]
mod layout;

const SOURCE: &str = "
volatile int sink;
static inline __attribute__((always_inline)) void deepest(int x) { sink += x * 3; }
static inline __attribute__((always_inline)) void deeper(int x) { sink += 1; deepest(x + 1); sink -= 1; }
__attribute__((noinline)) void _ZN3tsl12BFCAllocator11AllocateRawEmm(int x) { sink ^= 5; deeper(x); sink ^= 6; }
__attribute__((noinline)) static void local_one(int x) { sink += x; }
void plain(int x) { local_one(x); local_one(x + 1); sink = 1; }
";

/// A library of [`SOURCE`].
fn library(folder: &Path, name: &str, flags: &[&str]) -> PathBuf {
    let (source, out) = (folder.join("source.c"), folder.join(name));
    fs::write(&source, SOURCE).unwrap();
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-shared", "-fPIC", "-Wl,--build-id"]).args(flags).arg("-o").arg(&out).arg(&source);
    assert!(gcc.status().unwrap().success());
    out
}

fn file(path: &Path) -> CodeFile {
    CodeFile { name: path.display().to_string(), build_id: Elf::open(path).unwrap().build_id() }
}

fn frames(path: &Path, addresses: &[u64]) -> Vec<Vec<Frame>> {
    Symbols::new().frames(&file(path), &[path.to_owned()], addresses)
}

/// All addresses of the code that gcc made from the source, by `nm`.
fn addresses(path: &Path) -> Vec<u64> {
    let out = Command::new("nm").arg("-S").arg(path).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let mut all = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        if let [start, size, "T" | "t", name] = words.as_slice()
            && ["plain", "local_one", "_ZN3tsl12BFCAllocator11AllocateRawEmm"].contains(name)
        {
            let hex = |text| u64::from_str_radix(text, 16).unwrap();
            all.extend(hex(start)..hex(start) + hex(size));
        }
    }
    assert!(all.len() > 30, "{text}");
    all
}

/// What binutils says: function and line, innermost first.
fn oracle(path: &Path, address: u64) -> Vec<(String, Option<u32>)> {
    let mut tool = Command::new("addr2line");
    let out = tool.args(["-f", "-i", "-e"]).arg(path).arg(format!("{address:#x}")).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let line = |text: &str| text.rsplit(':').next().unwrap().split(' ').next().unwrap().parse().ok();
    lines.chunks_exact(2).map(|pair| (symbols::demangle(pair[0]), line(pair[1]))).collect()
}

#[test]
fn functions_lines_and_what_was_inlined_are_those_of_binutils() {
    let folder = tempfile::tempdir().unwrap();
    for (name, flags) in [
        ("dwarf5.so", ["-gdwarf-5", "-g"]),
        ("dwarf4.so", ["-gdwarf-4", "-g"]),
        ("packed.so", ["-g", "-Wl,--compress-debug-sections=zlib"]),
    ] {
        let path = library(folder.path(), name, &flags);
        let addresses = addresses(&path);
        let mut inlined = 0;
        for (frames, &address) in frames(&path, &addresses).iter().zip(&addresses) {
            let found: Vec<(String, Option<u32>)> = frames.iter().map(|f| (f.name.clone(), f.line)).collect();
            assert_eq!(found, oracle(&path, address), "{name} {address:#x}");
            let (outermost, inner) = frames.split_last().unwrap();
            assert!(!outermost.inlined && inner.iter().all(|frame| frame.inlined));
            inlined = inlined.max(inner.len());
        }
        assert_eq!(inlined, 2, "{name}");
    }
}

#[test]
fn names_come_from_the_symbols_that_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let with = library(folder.path(), "symbols.so", &[]);
    let addresses = addresses(&with);
    let without = folder.path().join("stripped.so");
    let strip = |flag: &str| Command::new("strip").arg(flag).arg("-o").arg(&without).arg(&with).status().unwrap();
    let names = |path: &Path| -> Vec<(String, Option<Unknown>)> {
        frames(path, &addresses).into_iter().map(|f| (f[0].name.clone(), f[0].unknown)).collect()
    };
    let full = names(&with);
    assert!(full.iter().all(|(_, unknown)| unknown.is_none()));
    for name in ["plain", "local_one", "tsl::BFCAllocator::AllocateRaw"] {
        assert!(full.iter().any(|(found, _)| found == name), "{name}");
    }
    // Without .symtab the exported ones are left; nothing else passes for the local one.
    assert!(strip("--strip-all").success());
    for ((found, unknown), (name, _)) in names(&without).iter().zip(&full) {
        if name == "local_one" {
            assert_eq!(*unknown, Some(Unknown::NoSymbol), "{found}");
        } else {
            assert_eq!(found, name);
        }
    }
}

#[test]
fn why_there_is_no_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = library(folder.path(), "a.so", &[]);
    let known = file(&path);
    let reason = |file: &CodeFile, paths: &[PathBuf]| Symbols::new().frames(file, paths, &[0x1234])[0][0].unknown;
    let gone = PathBuf::from("/nowhere/at/all.so");
    assert_eq!(reason(&known, std::slice::from_ref(&gone)), Some(Unknown::FileGone));
    let other = CodeFile { build_id: Some("abcd0123".to_owned()), ..known.clone() };
    assert_eq!(reason(&other, &[gone.clone(), path.clone()]), Some(Unknown::FileReplaced));
    assert_eq!(reason(&known, &["/etc/passwd".into()]), Some(Unknown::FileUnreadable));
    assert_eq!(reason(&known, &["/dev/zero".into()]), Some(Unknown::FileUnreadable));
    // One that was opened while it was there is named after it is deleted.
    let mut symbols = Symbols::new();
    let address = addresses(&path)[0];
    symbols.add(known.clone(), Elf::open(&path).unwrap());
    fs::remove_file(&path).unwrap();
    assert_eq!(symbols.frames(&known, &[gone], &[address])[0][0].unknown, None);
    let nothing = folder.path().join("nothing.so");
    let bare =
        Command::new("gcc").args(["-shared", "-nostdlib", "-s", "-x", "c", "/dev/null", "-o"]).arg(&nothing).status();
    assert!(bare.unwrap().success());
    assert_eq!(frames(&nothing, &[0x10])[0][0].unknown, Some(Unknown::Stripped));
}

/// TensorFlow's library, where `cargo xtask setup` put it.
fn tensorflow() -> Option<PathBuf> {
    let python = layout::REQUIRED.last()?.dir().join("lib");
    let versions = fs::read_dir(python).ok()?.flatten();
    let path = |entry: fs::DirEntry| entry.path().join("site-packages/tensorflow/libtensorflow_cc.so.2");
    versions.map(path).find(|path| path.exists())
}

/// A figure of this process, in KiB or bytes.
fn figure(file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/self/{file}")).unwrap();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

const ALONE: &str = "TFMEM_TEST_ALONE";

#[test]
fn tensorflows_library_is_never_read_whole() {
    let Some(path) = tensorflow() else {
        eprintln!("left out: no TensorFlow in the cache (cargo xtask setup)");
        return;
    };
    // In a process of its own, as memory is counted by process.
    if std::env::var_os(ALONE).is_none() {
        let mut alone = Command::new(std::env::current_exe().unwrap());
        alone.args(["--exact", "tensorflows_library_is_never_read_whole", "--nocapture"]).env(ALONE, "1");
        assert!(alone.status().unwrap().success());
        return;
    }
    let places: u64 = std::env::var(ALONE).unwrap().parse::<u64>().unwrap().max(20_000);
    let (elf, before) = (Elf::open(&path).unwrap(), figure("io", "rchar"));
    let (_, start) = elf.code_segments()[0];
    let step = (elf.image_size() - start) / places;
    let addresses: Vec<u64> = (0..places).map(|k| start + k * step).collect();
    let frames = frames(&path, &addresses);
    let named = frames.iter().filter(|frames| frames[0].unknown.is_none()).count();
    let (peak, read) = (figure("status", "VmHWM") >> 10, (figure("io", "rchar") - before) >> 20);
    eprintln!("{places} places, {named} named: peak {peak} MiB, {read} MiB read of {} MiB", elf.len() >> 20);
    assert!(named as u64 > places / 3, "{named}");
    assert!(peak < 80 + places / 1500, "{peak} MiB");
    assert!(read < elf.len() >> 22, "{read} MiB");
}

#[test]
fn damaged_files_are_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let path = library(folder.path(), "good.so", &["-g"]);
    let (good, addresses) = (fs::read(&path).unwrap(), addresses(&path));
    let bad = folder.path().join("bad.so");
    let mut random = 88_172_645_463_325_252_u64;
    let mut next = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % below as u64) as usize
    };
    for round in 0..600 {
        let mut bytes = good.clone();
        for _ in 0..=round % 40 {
            let at = next(bytes.len());
            bytes[at] = next(256) as u8;
        }
        if round % 7 == 0 {
            bytes.truncate(next(good.len()));
        }
        fs::write(&bad, &bytes).unwrap();
        let file = CodeFile { name: "/bad.so".to_owned(), build_id: None };
        let found = Symbols::new().frames(&file, std::slice::from_ref(&bad), &addresses);
        assert!(found.iter().all(|frames| !frames.is_empty() && frames.iter().all(|f| !f.name.is_empty())));
    }
}

#[test]
fn the_stacks_of_a_report_get_names_and_what_has_none_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = library(folder.path(), "a.so", &["-g"]);
    let CodeFile { name, build_id } = file(&path);
    let place = |module: Option<&str>, address| Frame {
        module: module.map(str::to_owned),
        address: Some(address),
        build_id: build_id.clone().filter(|_| module.is_some()),
        offset: Some(9),
        ..Frame::named(FrameKind::Native, place_name(module, address))
    };
    let deep = addresses(&path).into_iter().max_by_key(|&address| oracle(&path, address).len()).unwrap();
    let stack =
        vec![place(Some(&name), deep), place(None, 0x7f00), place(Some(&name), 1), Frame::named(FrameKind::Op, "Fill")];
    let mut report = Report::default();
    report.stacks.insert("1".to_owned(), stack);
    symbols::name(&mut report, &mut Symbols::new(), &|file| vec![PathBuf::from(&file.name)], None);
    let names: Vec<(&str, Option<Unknown>)> =
        report.stacks["1"].iter().map(|frame| (frame.name.as_str(), frame.unknown)).collect();
    assert_eq!(
        names,
        [
            ("deepest", None),
            ("deeper", None),
            ("tsl::BFCAllocator::AllocateRaw", None),
            ("0x7f00", Some(Unknown::JitWithoutMap)),
            ("a.so+0x1", Some(Unknown::NoSymbol)),
            ("Fill", None),
        ]
    );
    assert_eq!(report.losses["frames_unresolved"], 2);
    assert_eq!(report.stacks["1"][0].offset, Some(9));
    // Naming twice changes nothing.
    let before = report.stacks.clone();
    symbols::name(&mut report, &mut Symbols::new(), &|file| vec![PathBuf::from(&file.name)], None);
    assert_eq!(report.stacks, before);
}
