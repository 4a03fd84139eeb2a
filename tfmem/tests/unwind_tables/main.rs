//! Unwind tables of real libraries against the rules themselves (evaluated by gimli) and against another unwinder
//! (framehop), and of damaged ones.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may stop")]

mod oracle;

use std::path::{Path, PathBuf};

use framehop::{
    ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder as _,
    x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64},
};
use iced_x86::{Decoder, DecoderOptions, FlowControl};
use object::{Object as _, ObjectSection as _};
use oracle::{Answer, Oracle};
use tfmem::{
    attach::elf::Elf,
    unwind::table::{Table, build, cache::Cache},
};
use tfmem_common::unwind::{
    For, KIND_END, KIND_NONE, KIND_RBP, KIND_RBP_DEREF, KIND_RSP, KIND_UNSUPPORTED, RBP_UNDEFINED, Registers, Rule,
    end, row_address, row_rule, step,
};

/// SplitMix64: the same numbers for the same seed, everywhere.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

fn seed() -> u64 {
    std::env::var("TFMEM_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1)
}

/// A library, its table, and framehop's view of it.
struct Case {
    path: PathBuf,
    elf: Elf,
    table: Table,
    oracle: Oracle,
    unwinder: UnwinderX86_64<Vec<u8>>,
}

impl Case {
    fn open(path: &Path) -> Self {
        let elf = Elf::open(path).unwrap();
        let begun = std::time::Instant::now();
        let table = build(&elf).unwrap().unwrap();
        let took = begun.elapsed();
        let compact = table.compact();
        println!(
            "{}: table in {took:.0?}, {} rows, {} for return addresses; {:?}",
            path.display(),
            table.rows.len(),
            compact.rows.len(),
            table.found
        );
        let file = std::fs::File::open(path).unwrap();
        let cache = object::ReadCache::new(file);
        let object = object::File::parse(&cache).unwrap();
        let section = |name: &str| {
            let section = object.section_by_name(name).unwrap();
            (section.address(), section.data().unwrap().to_vec())
        };
        let oracle = Oracle { frames: section(".eh_frame"), header: section(".eh_frame_hdr") };
        let range = |(address, data): &(u64, Vec<u8>)| Some(*address..*address + data.len() as u64);
        let sections = ExplicitModuleSectionInfo {
            eh_frame_svma: range(&oracle.frames),
            eh_frame: Some(oracle.frames.1.clone()),
            eh_frame_hdr_svma: range(&oracle.header),
            eh_frame_hdr: Some(oracle.header.1.clone()),
            ..ExplicitModuleSectionInfo::default()
        };
        let mut unwinder = UnwinderX86_64::new();
        unwinder.add_module(Module::new("it".to_owned(), 0..1 << 40, 0, sections));
        Self { path: path.to_owned(), elf, table, oracle, unwinder }
    }

    /// Compares one step from code at `pc`, at the end of a call there.
    fn compare(&self, rule: Rule, pc: u64, numbers: &mut Numbers) -> Outcome {
        let sp = numbers.below(1 << 40) * 8 + (1 << 45);
        let registers = Registers { pc: pc + 1, sp, bp: sp + 8 * numbers.below(1000) };
        // Every word of memory has a value: one that may be an address further up the stack.
        let salt = numbers.next();
        let word = |at: u64| (sp + 16_384) | mix(at ^ salt) & 0xf_fff8;
        let own = step(rule, registers, |at, _| Some(word(at)));
        let outcome = match (own, self.oracle.ask(pc, registers, &word)) {
            (Err(end::NO_ROW), Answer::Unknown) => Outcome::Unknown,
            (Err(end::UNSUPPORTED), _) => Outcome::Unsupported,
            (Err(end::COMPLETE), Answer::Outermost) => Outcome::Equal,
            (Err(end::NO_PROGRESS), Answer::Caller(other)) if other.sp <= sp => Outcome::Equal,
            (Ok((own, _)), Answer::Caller(other)) if own == other => Outcome::Equal,
            other => {
                println!("{pc:x}: {other:x?}");
                Outcome::Other
            }
        };
        // framehop does not follow frames that are found through memory, and keeps what is said to be lost.
        let plain = matches!(rule.kind(), KIND_RSP | KIND_RBP) && rule.rbp() != RBP_UNDEFINED;
        if outcome == Outcome::Equal && plain && !self.framehop_agrees(registers, own, &word) {
            return Outcome::Other;
        }
        outcome
    }

    fn framehop_agrees(&self, at: Registers, own: Result<(Registers, bool), u32>, word: &dyn Fn(u64) -> u64) -> bool {
        let mut regs = UnwindRegsX86_64::new(at.pc, at.sp, at.bp);
        let mut cache = CacheX86_64::<_>::new();
        let address = FrameAddress::from_return_address(at.pc).unwrap();
        let other = self.unwinder.unwind_frame(address, &mut regs, &mut cache, &mut |at| Ok(word(at)));
        match (own, other) {
            (Ok((own, _)), Ok(Some(pc))) => own == Registers { pc, sp: regs.sp(), bp: regs.bp() },
            (Err(end::NO_PROGRESS), Err(_)) => true,
            (own, other) => {
                println!("{at:x?}: {own:x?}, framehop {other:x?}");
                false
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Equal,
    /// The table does not know the code, or does not follow what it says, and says so.
    Unknown,
    Unsupported,
    Other,
}

/// TensorFlow's own, as `cargo xtask setup` left them, and Python's.
fn wheels() -> Vec<PathBuf> {
    let cache = std::env::var_os("TFMEM_CACHE").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/tfmem")));
    let environments = cache.map(|cache| cache.join("python")).and_then(|folder| std::fs::read_dir(folder).ok());
    let mut paths = Vec::new();
    for environment in environments.into_iter().flatten().flatten() {
        for version in std::fs::read_dir(environment.path().join("lib")).into_iter().flatten().flatten() {
            let packages = version.path().join("site-packages");
            paths.push(packages.join("tensorflow/libtensorflow_framework.so.2"));
            // Unoptimised, its table takes 20 s to make: the newest has to do.
            if environment.file_name() == "tf-2.21.0" {
                paths.push(packages.join("tensorflow/libtensorflow_cc.so.2"));
            }
        }
        if let Ok(python) = std::fs::canonicalize(environment.path().join("bin/python3")) {
            let library = python.join("../../lib/libpython3.11.so.1.0");
            paths.push(if library.exists() { library } else { python });
        }
    }
    if paths.is_empty() {
        println!("SKIP the wheels: none is set up");
    }
    paths
}

fn libraries() -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> =
        ["libc.so.6", "libstdc++.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "libcrypto.so.3"]
            .iter()
            .map(|name| Path::new("/lib/x86_64-linux-gnu").join(name))
            .collect();
    paths.extend(wheels());
    paths.extend(std::env::current_exe());
    paths.retain(|path| path.exists());
    paths.sort();
    paths.dedup();
    paths
}

/// Each of many places of the code: one that was drawn, and the ends of calls.
#[test]
fn tables_say_what_the_information_says() {
    let mut numbers = Numbers(seed());
    for path in libraries() {
        let case = Case::open(&path);
        let (start, end) = case.elf.code_extent().unwrap();
        let mut counts = [0_u32; 4];
        for _ in 0..20_000 {
            let pc = start + numbers.below(end - start);
            let rule = case.table.rule_at(pc);
            let outcome = case.compare(rule, pc, &mut numbers);
            assert_ne!(outcome, Outcome::Other, "{} at {pc:#x}: {rule:x?} (TFMEM_SEED={})", path.display(), seed());
            counts[outcome as usize] += 1;
        }
        println!("  {counts:?} equal, unknown, unsupported, other");
        assert!(counts[0] > 0);
        // The dynamic linker's resolver finds its frame by a register that is not followed: 2 % of that small file.
        assert!(counts[2] * 40 <= counts[0], "too much of the code is not followed: {counts:?}");
    }
}

/// Where return addresses lie, the compact table says what the full one does.
#[test]
fn nothing_is_lost_where_calls_return_to() {
    let mut numbers = Numbers(seed() ^ 0xca11);
    for path in libraries() {
        let case = Case::open(&path);
        let compact = case.table.compact();
        let (mut calls, mut functions) = (0_u32, 0_u32);
        while functions < 4_000 {
            functions += 1;
            // From a function's start the code decodes as it runs.
            let place = numbers.below(case.table.rows.len() as u64) as usize;
            let starts = (0..place).rev().find(|&n| row_rule(case.table.rows[n]).kind() == KIND_NONE);
            let Some(start) = starts.and_then(|n| case.table.rows.get(n + 1)).map(|&row| row_address(row)) else {
                continue;
            };
            let code = case.elf.at(u64::from(start), 2_048).unwrap_or_default();
            for instruction in Decoder::with_ip(64, &code, u64::from(start), DecoderOptions::NONE) {
                let returns = matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall)
                    || instruction.code() == iced_x86::Code::Syscall;
                if instruction.is_invalid() || !returns {
                    continue;
                }
                let last = instruction.next_ip() - 1;
                let full = case.table.rule_at(last).with_call_free(false);
                assert_eq!(compact.rule_at(last), full, "{} at {last:#x}", case.path.display());
                calls += 1;
            }
        }
        println!("  {calls} calls in {functions} functions");
        assert!(calls > 100);
    }
}

#[test]
fn a_remembered_table_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let cache = Cache::at(folder.path());
    let elf = Elf::open(Path::new("/lib/x86_64-linux-gnu/libc.so.6")).unwrap();
    let first = cache.table(&elf).unwrap().unwrap();
    let second = cache.table(&elf).unwrap().unwrap();
    assert_eq!(first, second);
    // A damaged file is not believed.
    let file = std::fs::read_dir(folder.path().join("unwind")).unwrap().next().unwrap().unwrap().path();
    let whole = std::fs::read(&file).unwrap();
    for at in (0..whole.len()).step_by(whole.len() / 97) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x55;
        std::fs::write(&file, &bytes).unwrap();
        let again = cache.table(&elf).unwrap().unwrap();
        assert_eq!(first.rows, again.rows, "byte {at}");
    }
    std::fs::write(&file, &whole[..100]).unwrap();
    assert_eq!(first, cache.table(&elf).unwrap().unwrap());
}

/// Whatever the unwind information says: no panic, an end, rows in order.
#[test]
fn damaged_information_is_counted() {
    let mut numbers = Numbers(seed() ^ 0xbad);
    let path = Path::new("/lib/x86_64-linux-gnu/libm.so.6");
    let whole = std::fs::read(path).unwrap();
    let elf = Elf::open(path).unwrap();
    let good = build(&elf).unwrap().unwrap();
    let object = object::File::parse(&*whole).unwrap();
    let (offset, size) = object.section_by_name(".eh_frame").unwrap().file_range().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("damaged.so");
    let mut damaged = 0;
    for round in 0..200 {
        let mut bytes = whole.clone();
        for _ in 0..=numbers.below(200) {
            let at = (offset + numbers.below(size)) as usize;
            bytes[at] = match round % 4 {
                0 => 0,
                1 => 0xff,
                _ => numbers.next() as u8,
            };
        }
        std::fs::write(&file, &bytes).unwrap();
        let table = build(&Elf::open(&file).unwrap()).unwrap().unwrap();
        assert!(table.rows.is_sorted_by_key(|&row| row_address(row)), "round {round} of seed {}", seed());
        assert!(table.rows.len() <= 2 * good.rows.len() + 1000);
        damaged += u32::from(table.found.damaged > 0 || table.found.overlapping > 0);
    }
    assert!(damaged > 100, "{damaged} of 200");
    // Nothing at all, a section that is cut off, and one byte of it.
    for len in [offset, offset + 1, offset + size / 2] {
        std::fs::write(&file, &whole[..len as usize]).unwrap();
        if let Ok(elf) = Elf::open(&file) {
            let _ = build(&elf);
        }
    }
}

#[test]
fn steps_end_where_they_must() {
    let at = Registers { pc: 1, sp: 0x1000, bp: 0x900 };
    let none = |_: u64, _: For| None;
    assert_eq!(step(Rule::new(KIND_END, 0, 0), at, none), Err(end::COMPLETE));
    assert_eq!(step(Rule::NONE, at, none), Err(end::NO_ROW));
    assert_eq!(step(Rule::new(KIND_UNSUPPORTED, 0, 0), at, none), Err(end::UNSUPPORTED));
    assert_eq!(step(Rule::new(KIND_RBP, 2, 2), at, |_, _| Some(0)), Err(end::NO_PROGRESS), "down the stack");
    assert_eq!(step(Rule::new(KIND_RBP_DEREF, 0, -1), at, |_, _| Some(at.sp)), Err(end::NO_PROGRESS), "stands still");
    assert_eq!(step(Rule::new(KIND_RBP, 2, 0x7fff), at, none), Err(end::UNREADABLE));
}
