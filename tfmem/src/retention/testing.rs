//! Small event streams written as lines of text, so that a test reads like the program it stands for.
//!
//! A line is `MS PID WORD…`; `PID/TID` names a thread. Sizes take `K` and `M`, addresses are hexadecimal. Blank lines
//! and what follows a `#` do not count.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Analysis, Facts, Options, WallClock};
use crate::event::{
    Body, Call, Event, ExitStatus, HeapSeen, Holder, HolderKind, LibraryInfo, Mapping, MappingKind, NOT_FOLLOWED,
    Origin, ProcessInfo, Scope, Snapshot,
};
use crate::report::model::{Host, Report};

pub(crate) const MIB: u64 = 1 << 20;

/// The report on these lines: grace 2 s, groups from 1 MiB on.
pub(crate) fn report(lines: &str) -> Report {
    report_with(lines, Options::default())
}

pub(crate) fn report_with(lines: &str, options: Options) -> Report {
    let mut analysis = Analysis::new(options);
    for event in events(lines) {
        analysis.feed(&event);
    }
    analysis.finish(facts())
}

pub(crate) fn facts() -> Facts {
    Facts {
        host: Host { kernel: "6.12.0".to_owned(), boot_id: "b".to_owned(), hostname: "h".to_owned() },
        clock: WallClock { boot_unix_ns: 1_700_000_000_000_000_000 },
        ..Facts::default()
    }
}

pub(crate) fn events(lines: &str) -> Vec<Event> {
    let mut script = Script { ops: HashMap::new(), out: Vec::new() };
    for line in lines.lines() {
        let words: Vec<&str> = line.split('#').next().unwrap_or("").split_whitespace().collect();
        if !words.is_empty() {
            script.line(&words);
        }
    }
    script.out
}

struct Script {
    ops: HashMap<String, u64>,
    out: Vec<Event>,
}

impl Script {
    fn line(&mut self, words: &[&str]) {
        let at = words[0].parse::<u64>().expect("time in ms") * 1_000_000;
        if let Some(body) = match words[1] {
            "start" => Some(Body::TraceStart),
            "end" => Some(Body::TraceEnd),
            _ => None,
        } {
            self.out.push(Event { at, pid: 0, tid: 0, stack: None, body });
            return;
        }
        let (pid, tid) = words[1].split_once('/').unwrap_or((words[1], words[1]));
        let (pid, tid) = (pid.parse().expect("pid"), tid.parse().expect("tid"));
        let put = |script: &mut Self, body| script.out.push(Event { at, pid, tid, stack: None, body });
        let args = &words[3..];
        match words[2] {
            "process" => put(self, process(at, args)),
            "tensorflow" => put(self, library(args[0], args.contains(&"unfollowed"))),
            "fork" => put(self, Body::Fork { child: args[0].parse().expect("pid"), shares_memory: false }),
            "exit" => put(self, Body::Ended { status: Some(ExitStatus::Code(args[0].parse().expect("code"))) }),
            "killed" => put(self, Body::Ended { status: Some(ExitStatus::Signal(args[0].parse().expect("signal"))) }),
            "lost" => put(self, Body::Lost { what: args[0].into(), count: args[1].parse().expect("count") }),
            "map" => {
                put(self, Body::Map { start: hex(args[0]), len: size(args[1]), prot: 3, flags: 0x22, file: false });
            }
            "walk" => {
                let [in_use, free, free_resident, trimmable] = [0, 1, 2, 3].map(|i| size(args[i]));
                put(self, Body::Heap(HeapSeen { in_use, free, free_resident, trimmable }));
            }
            "holds" => {
                let holder = holder(args);
                // Lines that follow one another are one look.
                match self.out.last_mut() {
                    Some(Event { at: before, body: Body::Holders(all), .. }) if *before == at => {
                        *all = all.iter().cloned().chain([holder]).collect();
                    }
                    _ => put(self, Body::Holders([holder].into())),
                }
            }
            "function" => put(self, enter(Call::AddFunction, [0; 6])),
            "unfunction" => put(self, named(Call::RemoveFunction, [0; 6], args[0])),
            "newgraph" => {
                put(self, enter(Call::NewGraph, [0; 6]));
                put(self, Body::Leave { call: Call::NewGraph, ret: hex(args[0]) });
            }
            "delgraph" => put(self, enter(Call::DeleteGraph, [hex(args[0]), 0, 0, 0, 0, 0])),
            "look" => put(self, Body::Snapshot(Arc::new(snapshot(args)))),
            "new" => {
                put(self, enter(Call::NewSession, [0; 6]));
                put(self, Body::Leave { call: Call::NewSession, ret: hex(args[0]) });
            }
            "context" => {
                put(self, enter(Call::NewContext, [0; 6]));
                put(self, Body::Leave { call: Call::NewContext, ret: hex(args[0]) });
            }
            "pool" => put(
                self,
                Body::Enter {
                    call: Call::PoolNew,
                    args: [hex(args[0]), 0, 1 << 40, 0, 0, 0],
                    text: args.get(1).map(|name| Arc::from(*name)),
                },
            ),
            "extend" => {
                put(self, enter(Call::PoolExtend, [hex(args[0]), 0, 0, 0, 0, 0]));
                let origin = Origin::default();
                put(self, Body::HeapAlloc { addr: hex(args[1]), bytes: size(args[2]), origin });
                put(self, Body::Leave { call: Call::PoolExtend, ret: 1 });
            }
            "grow" => put(self, enter(Call::PoolExtend, [hex(args[0]), 0, 0, 0, 0, 0])),
            "/grow" => put(self, Body::Leave { call: Call::PoolExtend, ret: 1 }),
            "chunk" => {
                let origin = self.origin(at, args.get(3));
                let (pool, addr, bytes) = (hex(args[0]), hex(args[1]), size(args[2]));
                put(self, Body::ChunkAlloc { pool, addr, requested: bytes, bytes, origin });
            }
            "unchunk" => put(self, Body::ChunkFree { pool: hex(args[0]), addr: hex(args[1]) }),
            "heap" => {
                let origin = self.origin(at, args.get(2));
                put(self, Body::HeapAlloc { addr: hex(args[0]), bytes: size(args[1]), origin });
            }
            "stepheap" => {
                let mut origin = self.origin(at, args.get(2));
                origin.step = args[3].parse().expect("step");
                put(self, Body::HeapAlloc { addr: hex(args[0]), bytes: size(args[1]), origin });
            }
            "server" => {
                put(self, enter(Call::NewServer, [0; 6]));
                put(self, Body::Leave { call: Call::NewServer, ret: hex(args[0]) });
            }
            "step" => {
                let step = args[0].parse().expect("step");
                put(self, named(Call::WorkerStep, [0, 0, step, 0, 0, 0], args[1]));
            }
            "graph" => put(self, named(Call::WorkerGraphNew, [0; 6], args[0])),
            "ungraph" => put(self, named(Call::WorkerGraphGone, [0; 6], args[0])),
            "cleanup" => put(self, enter(Call::WorkerCleanup, [0; 6])),
            "mark" => put(self, Body::Mark { label: Arc::from(args[0]) }),
            "symbol" => {
                let (number, name) = (args[0].parse().expect("number"), Arc::from(args[1]));
                put(self, Body::UserSymbol { number, name, entry_only: args.contains(&"never") });
            }
            "call" => put(self, Body::UserEnter { number: args[0].parse().expect("number") }),
            "return" => put(self, Body::UserLeave { number: args[0].parse().expect("number") }),
            "unheap" => put(self, Body::HeapFree { addr: hex(args[0]) }),
            word => {
                let (name, leaves) = word.strip_prefix('/').map_or((word, false), |rest| (rest, true));
                let call = match name {
                    "run" => Call::SessionRun,
                    "close" => Call::CloseSession,
                    "delete" => Call::DeleteSession,
                    "clear" => Call::ClearCaches,
                    "drop" => Call::DeleteContext,
                    "graph" => Call::WorkerGraphNew,
                    "ungraph" => Call::WorkerGraphGone,
                    "stop" => Call::ServerStop,
                    _ => panic!("no such word: {word}"),
                };
                if leaves {
                    put(self, Body::Leave { call, ret: 0 });
                } else {
                    put(self, enter(call, [hex(args[0]), 0, 0, 0, 0, 0]));
                }
            }
        }
    }

    /// `OP` or `OP:REGION`; the op's name is told the first time it appears.
    fn origin(&mut self, at: u64, word: Option<&&str>) -> Origin {
        let Some(word) = word else { return Origin::default() };
        let (name, region) = word.split_once(':').unwrap_or((word, "output"));
        let next = 0x100 + self.ops.len() as u64;
        let op = *self.ops.entry(name.to_owned()).or_insert_with(|| {
            self.out.push(Event {
                at,
                pid: 0,
                tid: 0,
                stack: None,
                body: Body::OpName { op: next, name: name.into() },
            });
            next
        });
        let mut bytes = [0; 8];
        for (to, from) in bytes.iter_mut().zip(region.bytes()) {
            *to = from;
        }
        Origin { op, step: 0, region: bytes, dtype: 1 }
    }
}

/// `[SCOPE:]KIND[*COUNT] NAME BYTES BLOCK…`: with a scope, or a table with a name, in the container `localhost`.
fn holder(args: &[&str]) -> Holder {
    let (scope, kind) = args[0].split_once(':').map_or((None, args[0]), |(scope, kind)| (Some(scope), kind));
    let (what, count) = kind.split_once('*').unwrap_or((kind, "1"));
    let kind = match what {
        "table" => HolderKind::Table,
        "variable" => HolderKind::Variable,
        "queue" => HolderKind::Resource,
        "cache" => HolderKind::Pipeline,
        "python" => HolderKind::Python,
        "function" => HolderKind::Function,
        "graph" => HolderKind::Graph,
        "sessions" => HolderKind::Session,
        "pool" => HolderKind::Pool,
        "nobody" => HolderKind::Other,
        other => panic!("no such holder: {other}"),
    };
    let scope = scope.map(|scope| match scope {
        "eager" => Scope::Eager,
        "session" => Scope::Session,
        "server" => Scope::Server,
        other => panic!("no such scope: {other}"),
    });
    let name = (args[1] != "-").then(|| args[1].to_owned());
    let in_container = scope.is_some() || (kind == HolderKind::Table && name.is_some());
    Holder {
        kind,
        what: what.to_owned(),
        class: what.to_owned(),
        name,
        container: in_container.then(|| "localhost".to_owned()),
        bytes: size(args[2]),
        count: count.parse().expect("count"),
        blocks: args[3..].iter().map(|block| hex(block)).collect(),
        complete: true,
        scope,
    }
}

fn enter(call: Call, args: [u64; 6]) -> Body {
    Body::Enter { call, args, text: None }
}

fn named(call: Call, args: [u64; 6], text: &str) -> Body {
    Body::Enter { call, args, text: Some(Arc::from(text)) }
}

/// `NAME [ppid=N] [attached] [started=MS]`
fn process(at: u64, args: &[&str]) -> Body {
    let value = |key: &str| args.iter().find_map(|a| a.strip_prefix(key));
    Body::Process(Arc::new(ProcessInfo {
        ppid: value("ppid=").map_or(1, |v| v.parse().expect("ppid")),
        comm: "python".to_owned(),
        cmdline: vec!["python".to_owned(), args[0].to_owned()],
        exe: "/usr/bin/python3".to_owned(),
        started_at: value("started=").map_or(at, |v| v.parse::<u64>().expect("ms") * 1_000_000),
        cgroup: None,
        attached: args.contains(&"attached"),
        job: None,
    }))
}

fn library(version: &str, unfollowed: bool) -> Body {
    Body::Library(Arc::new(LibraryInfo {
        framework: "tensorflow".to_owned(),
        version: Some(version.to_owned()),
        path: "/lib/libtensorflow_framework.so.2".to_owned(),
        build_id: None,
        probes: 12,
        missing: unfollowed.then(|| NOT_FOLLOWED.to_owned()).into_iter().collect(),
        blind: Vec::new(),
    }))
}

/// `ANON FILE [exit] [in=ADDR+SIZE,…] [map=ADDR+SIZE[:NAME],…]`; `in` are resident ranges.
fn snapshot(args: &[&str]) -> Snapshot {
    let value = |key: &str| args.iter().find_map(|a| a.strip_prefix(key));
    let range = |text: &str| {
        let (start, len) = text.split_once('+').expect("ADDR+SIZE");
        (hex(start), size(len))
    };
    let mapping = |text: &str| {
        let (place, name) = text.split_once(':').unwrap_or((text, ""));
        let (start, len) = range(place);
        Mapping { start, len, kind: MappingKind::Anonymous, resident_bytes: len, name: name.to_owned() }
    };
    Snapshot {
        rss_anon: size(args[0]),
        rss_file: size(args[1]),
        rss_shmem: 0,
        mappings: value("map=").map_or_else(Vec::new, |v| v.split(',').map(mapping).collect()),
        resident: value("in=").map(|v| v.split(',').filter(|t| !t.is_empty()).map(range).collect()),
        at_exit: args.contains(&"exit"),
    }
}

fn hex(text: &str) -> u64 {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).expect("hexadecimal")
}

fn size(text: &str) -> u64 {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 1 << 10),
        Some(b'M') => (&text[..text.len() - 1], 1 << 20),
        _ => (text, 1),
    };
    digits.parse::<u64>().expect("size") * unit
}
