//! Which survivors are meant.

use std::str::FromStr;

use super::ProfileError;
use crate::report::{
    model::{Boundary, BoundaryKind, Layer, Process, Report},
    units::plain,
};

/// A boundary of each process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Which {
    /// The last boundary: the end of the process or of the trace.
    #[default]
    End,
    /// The last one before the end: a close, a mark.
    Last,
    Id(u64),
}

impl FromStr for Which {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "end" => Ok(Self::End),
            "last" => Ok(Self::Last),
            id => id.parse().map(Self::Id).map_err(|_| "expected a boundary's number, last or end".to_owned()),
        }
    }
}

impl std::fmt::Display for Which {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::End => out.write_str("end"),
            Self::Last => out.write_str("last"),
            Self::Id(id) => id.fmt(out),
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    pub which: Which,
    pub pid: Option<u32>,
    pub layer: Option<Layer>,
}

const fn is_end(kind: BoundaryKind) -> bool {
    matches!(kind, BoundaryKind::ProcessExit | BoundaryKind::TraceEnd)
}

impl Which {
    fn find(self, process: &Process) -> Option<&Boundary> {
        let mut boundaries = process.boundaries.iter();
        match self {
            Self::End => boundaries.rfind(|boundary| is_end(boundary.kind)),
            Self::Last => boundaries.rfind(|boundary| !is_end(boundary.kind)),
            Self::Id(id) => boundaries.find(|boundary| boundary.id == id),
        }
    }
}

impl Selection {
    /// One boundary for each process that has it. Processes without TensorFlow count when there is nothing else.
    pub(super) fn boundaries<'a>(&self, report: &'a Report) -> Result<Vec<(&'a Process, &'a Boundary)>, ProfileError> {
        let meant = |process: &&Process| self.pid.is_none_or(|pid| process.pid == pid);
        let all: Vec<&Process> = report.processes.iter().filter(meant).collect();
        let of = |list: &[&'a Process]| -> Vec<(&'a Process, &'a Boundary)> {
            list.iter().filter_map(|&process| Some((process, self.which.find(process)?))).collect()
        };
        let traced: Vec<&Process> = all.iter().copied().filter(|p| !p.frameworks.is_empty()).collect();
        let mut found = of(&traced);
        if found.is_empty() {
            found = of(&all);
        }
        if found.is_empty() {
            let known = known(&all);
            return Err(ProfileError::NoBoundary { wanted: self.which.to_string(), pid: self.pid, known });
        }
        Ok(found)
    }
}

fn known(processes: &[&Process]) -> String {
    let of = |process: &&Process| {
        let pid = process.pid;
        process
            .boundaries
            .iter()
            .map(move |b| format!("{} ({}, pid {pid})", b.id, plain(&b.label, 40)))
            .collect::<Vec<_>>()
    };
    let all: Vec<String> = processes.iter().flat_map(of).collect();
    match all.as_slice() {
        [] => "none".to_owned(),
        few if few.len() <= 12 => few.join(", "),
        many => format!("{} and {} more", many[..12].join(", "), many.len() - 12),
    }
}
