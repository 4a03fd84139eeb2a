//! Every BPF program of tfmem: does the verifier take it, can it be attached, does it run when its fixture runs?

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::{Context as _, Result, ensure};
use tfmem::attach::{
    kernel,
    link::{
        Attach, Link, Options, PROCESS_TRACEPOINTS, Programs, Ring, Stacks, has_kprobes, program_names, runs,
        uprobe_names,
    },
    memory::{self, Backend, SYSTEM_CALLS},
    plan,
};
use tfmem_common::config::Process;
use tfmem_tests::{
    fixtures::{self, CC, FRAMEWORK, Variant},
    gpu, machine, program,
};

use crate::line::{Line, Program};

/// Together they have every entry of the catalogue that a stand-in exists for, and every shape of the chunk probes.
const VARIANTS: &[Variant] = &[Variant::Plain, Variant::Inlined];

/// Large enough that nothing is lost that would be looked at: nothing is.
const BUFFER_BYTES: u32 = 1 << 20;

/// Beside a program's name: it was attached by perf events, though the kernel may have something better.
const BY_PERF: &str = "by perf events";

pub fn try_all(also: Option<&str>) -> Result<Vec<Line>> {
    let (mut trial, _ring) = Trial::open(Attach::Auto)?;
    program_names().for_each(|name| trial.load(name));
    if let Some(name) = also {
        trial.load(name);
    }
    trial.attach_to_libraries()?;
    trial.attach_to_tracepoints();
    trial.attach_to_kernel_functions()?;
    trial.fire()?;
    Ok(trial.found.into_values().map(Line::Program).collect())
}

/// Those for libraries once more, by the way that every kernel has.
pub fn try_perf_events() -> Result<Vec<Line>> {
    let (mut trial, _ring) = Trial::open(Attach::Perf)?;
    uprobe_names().for_each(|name| trial.load(name));
    trial.attach_to_libraries()?;
    trial.fire()?;
    let named = |program: Program| Program { name: format!("{} {BY_PERF}", program.name), ..program };
    Ok(trial.found.into_values().map(|program| Line::Program(named(program))).collect())
}

struct Trial {
    programs: Programs,
    found: BTreeMap<String, Program>,
}

impl Trial {
    fn open(attach: Attach) -> Result<(Self, Ring)> {
        let layout = kernel::layout().0;
        let options = Options { buffer_bytes: BUFFER_BYTES, layout, debug: false, stacks: Stacks::Dwarf, attach };
        let (programs, ring) = Programs::open(options)?;
        Ok((Self { programs, found: BTreeMap::new() }, ring))
    }

    fn load(&mut self, name: &str) {
        let mut program = Program { name: name.to_owned(), ..Program::default() };
        match self.programs.load_program(name) {
            Ok(instructions) => {
                program.loaded = true;
                program.instructions = instructions;
            }
            Err(error) => program.why = Some(error.to_string()),
        }
        self.found.insert(program.name.clone(), program);
    }

    fn attach_to_libraries(&mut self) -> Result<()> {
        let fixtures = fixtures::get()?;
        let variants = VARIANTS.iter().flat_map(|&variant| [(variant, FRAMEWORK), (variant, CC)]);
        let libraries = variants.map(|(variant, library)| fixtures.library(variant, library));
        for library in libraries.chain([gpu::driver()?]) {
            let path = machine::absolute(&library)?;
            for point in plan::resolve(&path)?.points {
                let done = self.programs.attach_point(&path, &point.program, point.file_offset, point.cookie);
                self.attached(&point.program, done.with_context(|| point.symbol.clone()));
            }
        }
        Ok(())
    }

    fn attach_to_tracepoints(&mut self) {
        for point in PROCESS_TRACEPOINTS.iter().chain(SYSTEM_CALLS) {
            let done = self.programs.attach_tracepoints(&[*point]).map(drop);
            self.attached(point.0, done);
        }
    }

    /// Where the kernel has them. Not every program has a place on every kernel: functions changed.
    fn attach_to_kernel_functions(&mut self) -> Result<()> {
        for name in Backend::Kprobe.programs() {
            if let Some(program) = self.found.get_mut(name) {
                program.optional = true;
            }
        }
        if !has_kprobes() {
            return Ok(());
        }
        for link in memory::attach(&mut self.programs, Backend::Kprobe)? {
            if let Link::Kprobe(name, _) = link {
                self.attached(name, Ok(()));
            }
        }
        Ok(())
    }

    fn attached(&mut self, name: &str, done: Result<()>) {
        let Some(program) = self.found.get_mut(name) else { return };
        match done {
            Ok(()) => program.attached = true,
            // One that was not loaded has said why.
            Err(error) if program.loaded => program.why = Some(format!("{error:#}")),
            Err(_) => {}
        }
    }

    /// The fixtures are children of this process, and so traced as it is.
    fn fire(&mut self) -> Result<()> {
        let counting = runs::count()?;
        let own = std::process::id();
        self.programs.track(own, Process::default())?;
        let done = fixtures().and_then(|commands| commands.into_iter().try_for_each(run));
        self.programs.untrack(own);
        drop(counting);
        for program in self.found.values_mut() {
            program.fired = self.programs.runs(&program.name).unwrap_or(0);
        }
        done
    }
}

fn fixtures() -> Result<Vec<Vec<PathBuf>>> {
    let fixtures = fixtures::get()?;
    let mut commands: Vec<_> = VARIANTS.iter().map(|&variant| fixtures.driver("sessions", variant)).collect();
    commands.push(vec![fixtures.gpu(), "pahsvic".into(), "500".into(), "2".into(), "1".into()]);
    commands.push(vec![fixtures.mapping_storm(), "1".into(), "2000".into()]);
    Ok(commands)
}

fn run(command: Vec<PathBuf>) -> Result<()> {
    let mut words = command.into_iter();
    let output = program::Program::new(words.next().context("no command")?).args(words).run()?;
    ensure!(output.code == 0, "status {}: {}", output.code, output.stderr);
    Ok(())
}
