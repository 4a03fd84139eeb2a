//! Which files need probes, and putting them in: once for each file, announced once for each process.

mod full;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
    time::Instant,
};

use tfmem_common::config::Annotation;

use super::symbols::{Symbol, Symbols};
use crate::{
    attach::{
        cache::Cache,
        elf,
        link::{Kept, Programs},
        plan::Plan,
    },
    catalogue,
    event::{Addr, Body, Event, LibraryInfo, NOT_FOLLOWED},
    stream::decode::Hold,
    target::{
        clock,
        maps::{self, Line},
    },
};

/// A file's identity as `/proc/PID/maps` shows it.
type FileKey = ((u32, u32), u64);

#[derive(Debug)]
enum Judgement {
    /// Nothing of interest.
    Nothing,
    /// By its name a library of TensorFlow's, but nothing in it can be probed: the report must say so.
    Blind(Arc<LibraryInfo>),
    Probed(Box<Probed>),
}

#[derive(Debug)]
struct Probed {
    plan: Plan,
    info: Arc<LibraryInfo>,
    /// Where rare events alone are wanted: the probes that are in, and what is to be done with the others.
    rare: Option<full::Rare>,
}

#[derive(Debug)]
pub struct Libraries {
    cache: Cache,
    symbols: Symbols,
    files: BTreeMap<FileKey, Judgement>,
    announced: BTreeSet<(u32, FileKey)>,
    which: Which,
    /// Files that no process has mapped any more, and since when.
    unused: BTreeMap<FileKey, u64>,
}

/// Which probes go into libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    All,
    /// Those on rare events; the others come and go, see [`full`].
    Rare,
    /// Those on what opens and closes something, and never others.
    Boundaries,
}

impl Libraries {
    pub fn new(cache: Option<&Path>, symbols: Vec<Symbol>, which: Which) -> Self {
        let cache = cache.map_or_else(Cache::open, Cache::at);
        Self {
            cache,
            symbols: Symbols::new(symbols),
            files: BTreeMap::new(),
            announced: BTreeSet::new(),
            which,
            unused: BTreeMap::new(),
        }
    }

    /// Judges what a held process mapped.
    /// `once`: a file without probes shall not stop anybody again.
    pub fn held(&mut self, programs: &mut Programs, hold: Hold, lines: &[Line], once: bool) -> Vec<Event> {
        let start = (hold.start != 0).then_some(hold.start);
        let lines = at(lines, start);
        let events = self.judge_lines(programs, hold.pid, &lines);
        // A file without probes must not stop anybody again. One with probes must: each process that maps it needs
        // the place of its annotation before the library runs.
        if once
            && start.is_some()
            && let Some(line) = lines.first()
            && matches!(self.files.get(&key(line)), Some(Judgement::Nothing))
        {
            programs.judged(hold.file);
        }
        events
    }

    /// Judges the executable mappings of a process: the one at `start`, or all.
    pub fn judge(&mut self, programs: &mut Programs, pid: u32, start: Option<Addr>, lines: &[Line]) -> Vec<Event> {
        self.judge_lines(programs, pid, &at(lines, start))
    }

    fn judge_lines(&mut self, programs: &mut Programs, pid: u32, lines: &[&Line]) -> Vec<Event> {
        let mut events: Vec<Event> = lines.iter().filter_map(|line| self.judge_line(programs, pid, line)).collect();
        events.extend(self.symbols.take_told());
        events
    }

    /// Puts the probes in that a process needs, and tells nobody yet.
    pub fn prepare(&mut self, programs: &mut Programs, pid: u32) {
        for line in code_of(pid) {
            self.examine(programs, pid, &line);
        }
    }

    /// Puts the probes into a file that was not seen before, TensorFlow's and the user's.
    fn examine(&mut self, programs: &mut Programs, pid: u32, line: &Line) {
        if !self.files.contains_key(&key(line)) {
            let judgement = probe(programs, &self.cache, pid, line, self.which);
            self.symbols.judge(programs, pid, line);
            self.files.insert(key(line), judgement);
        }
    }

    fn judge_line(&mut self, programs: &mut Programs, pid: u32, line: &Line) -> Option<Event> {
        self.examine(programs, pid, line);
        let key = key(line);
        let info = match self.files.get(&key) {
            Some(Judgement::Probed(probed)) => &probed.info,
            Some(Judgement::Blind(info)) => info,
            Some(Judgement::Nothing) | None => return None,
        };
        if !self.announced.insert((pid, key)) {
            return None;
        }
        if let Some(Judgement::Probed(probed)) = self.files.get(&key) {
            set_annotation(programs, pid, line, &probed.plan);
        }
        Some(Event { at: clock::boot_ns(), pid, tid: pid, stack: None, body: Body::Library(info.clone()) })
    }

    /// Has the process a library with probes?
    pub fn announced(&self, pid: u32) -> bool {
        self.announced.iter().any(|&(of, _)| of == pid)
    }

    /// The user's own boundary symbols.
    pub const fn symbols(&mut self) -> &mut Symbols {
        &mut self.symbols
    }

    /// The process ended or became another program.
    pub fn forget(&mut self, pid: u32) {
        self.rare(pid);
        self.announced.retain(|&(of, _)| of != pid);
    }
}

/// The mappings of a process that show code of a file. A process that is gone maps nothing.
pub fn code_of(pid: u32) -> Vec<Line> {
    let mut lines = maps::read(pid).unwrap_or_default();
    lines.retain(|line| line.executable && line.inode != 0);
    lines
}

/// The one at `start`, or all.
fn at(lines: &[Line], start: Option<Addr>) -> Vec<&Line> {
    lines.iter().filter(|line| start.is_none_or(|start| contains(line, start))).collect()
}

const fn contains(line: &Line, address: Addr) -> bool {
    line.start <= address && address < line.end
}

const fn key(line: &Line) -> FileKey {
    (line.dev, line.inode)
}

fn probe(programs: &mut Programs, cache: &Cache, pid: u32, line: &Line, which: Which) -> Judgement {
    let path = line.reachable(pid);
    match elf::interesting(&path) {
        Ok(true) => {}
        Ok(false) => return nothing_in(line, &path),
        Err(error) => {
            log::debug!("{}: {error}", line.name);
            return nothing_in(line, &path);
        }
    }
    let begun = Instant::now();
    let mut plan = match cache.resolve(&path) {
        Ok(plan) if plan.points.is_empty() => return nothing_in(line, &path),
        Ok(plan) => plan,
        Err(error) => {
            log::warn!("{}: no probes: {error}", line.name);
            return nothing_in(line, &path);
        }
    };
    let resolved = begun.elapsed();
    // What a library lacks is told by its whole plan.
    let whole = (which == Which::Boundaries).then(|| plan.clone());
    plan.points.retain(|point| which != Which::Boundaries || catalogue::is_rare(&point.entry));
    let rare = which == Which::Rare;
    let (kept, refused) = if rare {
        programs.attach_kept(&path, plan.points.iter().filter(|point| full::is_rare(point)))
    } else {
        (Kept::default(), programs.attach(&path, &plan))
    };
    let probes = if rare { kept.len() } else { plan.points.len() - refused.len() };
    let told = whole.as_ref().unwrap_or(&plan);
    log::info!(
        "{}: {probes} probes (symbols in {resolved:.0?}, attached in {:.0?})",
        line.name,
        begun.elapsed() - resolved
    );
    for (symbol, error) in &refused {
        log::warn!("{}: no probe on {symbol}: {error}", line.name);
    }
    if let Some(missing) = told.chunks_unseen() {
        log::warn!("{}: {}", line.name, missing.reason);
    }
    let mut blind = blind(&line.name, |name| told.tells(name, &refused));
    if told.library.framework == catalogue::gpu::FRAMEWORK {
        blind.extend(told.missing.iter().map(|missing| missing.entry.clone()));
    }
    let chunks = told.chunks_unseen().map(|missing| missing.entry.clone());
    blind.extend(chunks.filter(|entry| !blind.contains(entry)));
    let missing = plan.missing.iter().map(|missing| missing.entry.clone());
    let missing = missing.chain((which == Which::Boundaries).then(|| NOT_FOLLOWED.to_owned()));
    let missing: Vec<String> = missing.chain(refused.iter().map(|(symbol, _)| symbol.clone())).collect();
    let info = LibraryInfo {
        framework: plan.library.framework.clone(),
        version: plan.library.version.clone(),
        path: line.name.clone(),
        build_id: plan.library.build_id.clone(),
        probes: probes as u32,
        blind,
        missing,
    };
    warn_blind(&info);
    let rare = rare.then(|| full::Rare::new(kept, &info));
    let info = if rare.is_some() { full::as_seen_rarely(&plan, info) } else { info };
    Judgement::Probed(Box::new(Probed { plan, info: Arc::new(info), rare }))
}

/// A file without anything to probe: of no interest, unless its name says that it should have something, or what it
/// holds does (a stripped program with TensorFlow linked in).
fn nothing_in(line: &Line, path: &Path) -> Judgement {
    let mut blind = blind(&line.name, |_| false);
    if blind.is_empty() && elf::nameless(path).unwrap_or(false) {
        blind = catalogue::all_essentials().map(str::to_owned).collect();
    }
    if blind.is_empty() {
        return Judgement::Nothing;
    }
    let info = LibraryInfo {
        framework: catalogue::FRAMEWORK.to_owned(),
        version: None,
        path: line.name.clone(),
        build_id: None,
        probes: 0,
        missing: blind.clone(),
        blind,
    };
    warn_blind(&info);
    Judgement::Blind(Arc::new(info))
}

/// What a library of this name must have and has not.
fn blind(name: &str, found: impl Fn(&str) -> bool) -> Vec<String> {
    let essentials = catalogue::family_by_name(name).into_iter().flat_map(catalogue::essentials);
    essentials.filter(|entry| !found(entry)).map(str::to_owned).collect()
}

fn warn_blind(info: &LibraryInfo) {
    if !info.blind.is_empty() {
        log::warn!(
            "{}: no probe can serve {}: the report is blind to what they tell",
            info.path,
            info.blind.join(", ")
        );
    }
}

/// Tells the BPF programs where this process's copy of the library keeps the op annotation.
fn set_annotation(programs: &mut Programs, pid: u32, line: &Line, plan: &Plan) {
    let (Some(annotation), Some(mut process)) = (&plan.annotation, programs.tracked(pid)) else { return };
    let Some(bias) = plan.load_bias(line.start, line.offset) else { return };
    let place = Annotation {
        module_slot: bias.wrapping_add(annotation.module_slot_vaddr),
        offset: annotation.symbol_offset as u32,
        layout: annotation.layout.number(),
    };
    let Some(free) = process.annotations.iter_mut().find(|known| known.module_slot == 0 || **known == place) else {
        log::warn!("process {pid}: a third copy of the op annotation, in {}, is not read", line.name);
        return;
    };
    *free = place;
    if let Err(error) = programs.track(pid, process) {
        log::warn!("process {pid}: ops will not be named: {error:#}");
    }
}
