//! The ways of following a process' memory map, and which of them this kernel allows: found out by trying.

use std::{collections::BTreeSet, fmt};

use anyhow::{Result, anyhow};
use serde::{Deserialize, Serialize};

use super::link::{Link, Programs, Tracepoint};

/// How the memory map is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// The system calls' tracepoints. While they are on, every system call of the machine takes a slower way.
    Tracepoint,
    /// Probes on the kernel's own functions. Sees what the kernel maps on its own, and slows no other process down; but
    /// the kernel follows only so many returns of one function at once, and misses (counted) those beyond.
    Kprobe,
    /// No events: the mappings are read again and again.
    Poll,
}

impl Backend {
    /// In order of preference.
    pub const ALL: [Self; 3] = [Self::Tracepoint, Self::Kprobe, Self::Poll];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kprobe => "kprobe",
            Self::Tracepoint => "tracepoint",
            Self::Poll => "poll",
        }
    }

    /// Its programs in the BPF object.
    pub fn programs(self) -> Vec<&'static str> {
        match self {
            Self::Kprobe => {
                let places = KERNEL_FUNCTIONS.iter().copied().flatten();
                let names: BTreeSet<_> = places.flat_map(|place| place.programs).copied().collect();
                names.into_iter().collect()
            }
            Self::Tracepoint => SYSTEM_CALLS.iter().map(|(program, ..)| *program).collect(),
            Self::Poll => Vec::new(),
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What was chosen, and why what is preferred was not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    pub backend: Backend,
    /// Back-ends that the kernel refused, with what it said.
    pub refused: Vec<(Backend, String)>,
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.backend)?;
        for (backend, why) in &self.refused {
            write!(f, "; {backend}: {why}")?;
        }
        Ok(())
    }
}

/// Program, category, name.
pub const SYSTEM_CALLS: &[Tracepoint] = &[
    ("enter_mmap", "syscalls", "sys_enter_mmap"),
    ("exit_mmap", "syscalls", "sys_exit_mmap"),
    ("enter_munmap", "syscalls", "sys_enter_munmap"),
    ("exit_munmap", "syscalls", "sys_exit_munmap"),
    ("enter_mremap", "syscalls", "sys_enter_mremap"),
    ("exit_mremap", "syscalls", "sys_exit_mremap"),
    ("enter_brk", "syscalls", "sys_enter_brk"),
    ("exit_brk", "syscalls", "sys_exit_brk"),
    ("enter_madvise", "syscalls", "sys_enter_madvise"),
    ("exit_madvise", "syscalls", "sys_exit_madvise"),
];

/// One function of the kernel with the programs that go on it: all of them, or none.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub function: &'static str,
    pub programs: &'static [&'static str],
}

const fn place(function: &'static str, programs: &'static [&'static str]) -> Place {
    Place { function, programs }
}

/// What must be seen, each with the places where it can be, the best first. Sources: mm/mmap.c, mm/vma.c, ipc/shm.c of
/// 5.15, 6.1, 6.12 and 6.18.
const KERNEL_FUNCTIONS: &[&[Place]] = &[
    &[place("mmap_region", &["map_enter", "map_leave"])],
    &[
        // From 6.3 on all unmappings come through it, those of `shmdt` and `brk` too.
        place("do_vmi_align_munmap", &["unmap_enter_range", "unmap_leave"]),
        // 6.1 and 6.2; it may be merged into its callers.
        place("do_mas_align_munmap", &["unmap_enter_range", "unmap_leave"]),
        place("do_mas_munmap", &["unmap_enter_length", "unmap_leave"]),
        // Up to 6.0.
        place("__do_munmap", &["unmap_enter_first", "unmap_leave"]),
    ],
    &[place("__x64_sys_brk", &["brk_leave"])],
    &[place("__x64_sys_mremap", &["mremap_enter", "mremap_leave"])],
    &[place("__x64_sys_madvise", &["madvise_leave"])],
];

/// Follows the memory map by the first of `wanted` that the kernel takes; its programs are loaded here. `known` says why
/// one does not work here, as far as that is known without trying again.
///
/// # Errors
/// When it takes none; the message says what it said of each.
pub fn follow(
    programs: &mut Programs,
    wanted: &[Backend],
    known: impl Fn(Backend) -> Option<String>,
) -> Result<Chosen> {
    let mut refused = Vec::new();
    for &backend in wanted {
        if let Some(why) = known(backend) {
            refused.push((backend, why));
            continue;
        }
        if backend == Backend::Poll {
            programs.places_may_move()?;
        }
        match load(programs, backend).and_then(|()| attach(programs, backend)) {
            Ok(_) => return Ok(Chosen { backend, refused }),
            Err(error) => refused.push((backend, format!("{error:#}"))),
        }
    }
    let said: Vec<String> = refused.iter().map(|(backend, why)| format!("{backend}: {why}")).collect();
    Err(anyhow!("the memory map cannot be followed: {}", said.join("; ")))
}

fn load(programs: &mut Programs, backend: Backend) -> Result<()> {
    for name in backend.programs() {
        programs.load_program(name).map_err(|error| anyhow!("BPF program `{name}`: {error}"))?;
    }
    Ok(())
}

/// Attaches one back-end's loaded programs, or none of them.
///
/// # Errors
/// What the kernel refused, and what it said.
pub fn attach(programs: &mut Programs, backend: Backend) -> Result<Vec<Link>> {
    match backend {
        Backend::Kprobe => programs.attach_kprobes(KERNEL_FUNCTIONS),
        Backend::Tracepoint => programs.attach_tracepoints(SYSTEM_CALLS),
        Backend::Poll => Ok(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_is_named_once() {
        for backend in Backend::ALL {
            let names = backend.programs();
            assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        }
        assert!(Backend::Kprobe.programs().len() > 6);
    }

    #[test]
    fn what_was_refused_is_said() {
        let refused = vec![(Backend::Tracepoint, "no tracefs".to_owned())];
        let chosen = Chosen { backend: Backend::Kprobe, refused };
        assert_eq!(chosen.to_string(), "kprobe; tracepoint: no tracefs");
    }
}
