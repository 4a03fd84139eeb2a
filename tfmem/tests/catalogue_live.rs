//! What the plan says about the thread-local annotation, compared with a running TensorFlow.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may stop")]

mod catalogue_support;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};

use catalogue_support::{GETTER, wheels};
use tfmem::attach::plan;

/// Imports TensorFlow, then prints for each of its libraries: path, load base, TLS module number, this thread's TLS
/// block, and what the library's own name for the annotation's getter returns. Then waits to be read.
const SCRIPT: &str = r#"
import ctypes, os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow
class Info(ctypes.Structure):
    _fields_ = [("addr", ctypes.c_uint64), ("name", ctypes.c_char_p), ("phdr", ctypes.c_void_p), ("phnum", ctypes.c_uint16),
                ("adds", ctypes.c_ulonglong), ("subs", ctypes.c_ulonglong), ("module", ctypes.c_size_t), ("data", ctypes.c_void_p)]
Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Info), ctypes.c_size_t, ctypes.c_void_p)
def libraries():
    found = []
    def note(info, size, data):
        i = info.contents
        if b"/libtensorflow_" in i.name:
            found.append((i.name.decode(), i.addr, i.module, i.data or 0))
        return 0
    ctypes.CDLL(None).dl_iterate_phdr(Callback(note), None)
    return found
getters = {}
for path, *_ in libraries():
    function = getattr(ctypes.CDLL(path), sys.argv[1], None)
    if function is not None:
        function.restype = ctypes.c_void_p
        getters[path] = function() or 0
for path, base, module, data in libraries():
    print(path, base, module, data, getters.get(path, 0))
print("end", flush=True)
sys.stdin.read()
"#;

fn word(memory: &File, at: u64) -> Option<u64> {
    let mut bytes = [0; 8];
    memory.read_exact_at(&mut bytes, at).ok()?;
    Some(u64::from_le_bytes(bytes))
}

#[test]
fn the_annotation_is_where_the_plan_says() {
    let mut tried = false;
    for (version, package) in wheels() {
        let python = package.ancestors().nth(4).unwrap().join("bin/python");
        if !python.exists() {
            continue;
        }
        tried = true;
        let mut child = Command::new(python)
            .args(["-c", SCRIPT, GETTER])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines: Vec<String> = BufReader::new(child.stdout.take().unwrap())
            .lines()
            .map_while(Result::ok)
            .take_while(|line| line != "end")
            .collect();
        let memory = File::open(format!("/proc/{}/mem", child.id())).unwrap();
        let mut in_use = Vec::new();
        for line in &lines {
            let mut parts = line.split(' ');
            let path = parts.next().unwrap();
            let mut number = || parts.next().unwrap().parse::<u64>().unwrap();
            let (base, module, block, returned) = (number(), number(), number(), number());
            let plan =
                plan::resolve(&Path::new("/proc").join(child.id().to_string()).join("root").join(&path[1..])).unwrap();
            let Some(annotation) = plan.annotation else {
                println!("{version} {path}: no annotation ({:?})", plan.annotation_missing);
                continue;
            };
            let slot = word(&memory, base + annotation.module_slot_vaddr);
            assert_eq!(slot, Some(module), "{version} {path}: the slot holds the library's own module number");
            let used = annotation.in_use(base, |at| word(&memory, at));
            println!("{version} {path}: module {module}, in use: {used:?}");
            if used == Some(true) {
                in_use.push(path.to_owned());
                assert_eq!(returned, block + annotation.symbol_offset, "{version} {path}");
            }
        }
        drop(child.stdin.take());
        let _ = child.wait();
        assert_eq!(in_use.len(), 1, "{version}: one copy is in use: {in_use:?} of {lines:?}");
    }
    if !tried {
        println!("SKIP the_annotation_is_where_the_plan_says: no TensorFlow that can be run is installed for tests");
    }
}
