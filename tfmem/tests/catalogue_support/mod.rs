//! Small libraries with the symbols of large ones, made with the system's compiler.

#![allow(clippy::unwrap_used, reason = "a test may stop")]
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

pub const ADD_TRACE_ME: &str = "_ZN3tsl12BFCAllocator10AddTraceMeESt17basic_string_viewIcSt11char_traitsIcEEPKvll";
pub const DEALLOCATE_REGIONS: &str =
    "_ZN3tsl12BFCAllocator17DeallocateRegionsERKN4absl12lts_2099010113flat_hash_setIPvNS2_18container_internalE";
pub const GETTER: &str = "_ZN3tsl8profiler27ScopedMemoryDebugAnnotation27ThreadMemoryDebugAnnotationEv";
pub const VARIABLE: &str = "_ZZN3tsl8profiler27ScopedMemoryDebugAnnotation27ThreadMemoryDebugAnnotationEvE10annotation";

/// Symbols of the framework library, one function each.
pub const FRAMEWORK: &[&str] = &[
    ADD_TRACE_ME,
    DEALLOCATE_REGIONS,
    "_ZN3tsl12BFCAllocatorC1ESt10unique_ptrINS_12SubAllocatorESt14default_deleteIS2_EEmRKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKNS0_7OptionsE",
    "_ZN3tsl12BFCAllocator6ExtendEmm",
    "_ZN3tsl4port11AlignedFreeEPv",
    "_ZN3tsl4port13AlignedMallocEmi",
    "_ZN3tsl8profiler27ScopedMemoryDebugAnnotationC2EPKcl",
];

/// C text of such a library. `extra` is appended.
pub fn source(functions: &[&str], extra: &str) -> String {
    let mut text = String::from("#define SYM(s) __asm__(s) __attribute__((visibility(\"default\")))\nint sink;\n");
    for (number, name) in functions.iter().enumerate() {
        let _ = writeln!(
            text,
            "int f{number}(int) SYM(\"{name}\"); int f{number}(int x) {{ return sink += x + {number}; }}"
        );
    }
    text.push_str(extra);
    text
}

/// The annotation: a thread-local variable of `words` words, and the function that returns its address.
pub fn annotation(words: usize) -> String {
    format!(
        "static __thread long other[3];\n\
         static __thread long annotation[{words}] __asm__(\"{VARIABLE}\");\n\
         void *getter(void) SYM(\"{GETTER}\");\n\
         void *getter(void) {{ other[0]++; return annotation; }}\n\
         void *caller(void) {{ return getter(); }}\n"
    )
}

pub const ADD_TRACE_ME_SHORT: &str = "_ZN3tsl12BFCAllocator10AddTraceMeESt17basic_string_viewIcSt11char_traitsIcEEPKv";

/// A pool as AddTraceMe leaves it once compiled. `long` and `short`: how these two are called.
pub struct Pool {
    /// Called by `AllocateRawInternal`: "long", "short", "none".
    pub taken: &'static str,
    /// Called by `DeallocateRawInternal`: the same.
    pub given_back: &'static str,
    /// The short form calls the long one.
    pub passes_on: bool,
    /// `DeallocateRaw` calls `DeallocateRawInternal`.
    pub internal_called: bool,
    /// Where the short form looks for chunks (the regions are at 1392, so 1416 is right).
    pub chunks: u32,
}

pub const POOL: Pool =
    Pool { taken: "short", given_back: "long", passes_on: true, internal_called: true, chunks: 1416 };

/// The long form is part of [`FRAMEWORK`]; where a text has none, `long_here` defines it.
pub fn pool(pool: &Pool, long_here: bool) -> String {
    let call = |which: &str| match which {
        "long" => "add_long(p);",
        "short" => "add_short(p, 0, 0, p);",
        _ => "sink++;",
    };
    format!(
        "typedef struct {{ char b[1392]; long regions[3]; }} Pool; long total;\n\
         int add_long(void *) SYM(\"{ADD_TRACE_ME}\");\n{}\
         long *region_for(long *, void *) SYM(\"_ZNK3tsl12BFCAllocator13RegionManager9RegionForEPKv\");\n\
         long *region_for(long *r, void *p) {{ sink++; return r; }}\n\
         __attribute__((optimize(\"O1\"))) void add_short(void *, long, char *, void *) SYM(\"{ADD_TRACE_ME_SHORT}\");\n\
         void add_short(void *p, long n, char *t, void *c) {{ long r = *region_for(((Pool *)p)->regions, c);\n\
           total = r + *(long *)((char *)p + {}); {} }}\n\
         void take(void *) SYM(\"_ZN3tsl12BFCAllocator19AllocateRawInternalEmmbm\"); void take(void *p) {{ {} }}\n\
         void back(void *) SYM(\"_ZN3tsl12BFCAllocator21DeallocateRawInternalEPv\"); void back(void *p) {{ {} }}\n\
         void free_(void *) SYM(\"_ZN3tsl12BFCAllocator13DeallocateRawEPv\"); void free_(void *p) {{ {} }}\n",
        if long_here { "int add_long(void *p) { return sink++; }\n" } else { "" },
        pool.chunks,
        if pool.passes_on { "add_long(p);" } else { "sink++;" },
        call(pool.taken),
        call(pool.given_back),
        if pool.internal_called { "back(p); sink++;" } else { "sink++;" },
    )
}

/// Destructors as a compiler makes them: `D2` does the work and is `D1` as well, `D0` calls it.
pub const DESTRUCTORS: &str = "\
    void d2(long *) SYM(\"_ZN3tsl12BFCAllocatorD2Ev\");\n\
    void d2(long *p) { for (int i = 0; i < 9; i++) { p[i] += sink; p[i + 9] *= sink; p[i + 18] /= sink | 1; } }\n\
    void d1(long *) SYM(\"_ZN3tsl12BFCAllocatorD1Ev\") __attribute__((alias(\"_ZN3tsl12BFCAllocatorD2Ev\")));\n\
    void d0(long *) SYM(\"_ZN3tsl12BFCAllocatorD0Ev\");\n\
    void d0(long *p) { d1(p); }\n";

/// Compiles a shared library. `None`, said aloud, where there is no compiler.
pub fn compile(dir: &Path, name: &str, source: &str, flags: &[&str]) -> Option<PathBuf> {
    let c = dir.join(format!("{name}.c"));
    std::fs::write(&c, source).unwrap();
    let out = dir.join(name);
    let run = Command::new("gcc").args(["-O0", "-fPIC", "-w", "-o"]).arg(&out).arg(&c).args(flags).output();
    match run {
        Ok(done) => {
            assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
            Some(out)
        }
        Err(error) => {
            println!("SKIP: no gcc: {error}");
            None
        }
    }
}

pub fn framework(dir: &Path, name: &str, flags: &[&str]) -> Option<PathBuf> {
    let text = source(FRAMEWORK, &(annotation(8) + DESTRUCTORS + &pool(&POOL, false)));
    let flags: Vec<&str> =
        ["-shared", "-fno-omit-frame-pointer", "-Wl,--build-id"].iter().chain(flags).copied().collect();
    compile(dir, name, &text, &flags)
}

/// `<cache>/tfmem/python/tf-X.Y.Z/lib/pythonA.B/site-packages/tensorflow`, where test wheels are put.
pub fn wheels() -> Vec<(String, PathBuf)> {
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
