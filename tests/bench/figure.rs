//! One measured figure, and how a list of them is shown.

use std::fmt::Write as _;

use serde_json::json;

#[derive(Clone, Debug)]
pub struct Figure {
    pub name: String,
    pub unit: &'static str,
    pub value: f64,
    /// What it is compared with, and how many times as much it is.
    pub against: Option<(String, f64)>,
    /// The goal, where there is one.
    pub goal: Option<&'static str>,
}

impl Figure {
    pub fn new(name: impl Into<String>, unit: &'static str, value: f64) -> Self {
        Self { name: name.into(), unit, value, against: None, goal: None }
    }

    pub fn against(mut self, other: &Self) -> Self {
        self.against = Some((other.name.clone(), self.value / other.value));
        self
    }

    pub const fn goal(mut self, goal: &'static str) -> Self {
        self.goal = Some(goal);
        self
    }

    pub fn json(&self) -> String {
        let (against, ratio) = self.against.as_ref().map_or((None, None), |(name, ratio)| (Some(name), Some(ratio)));
        json!({
            "name": self.name, "unit": self.unit, "value": self.value, "against": against, "ratio": ratio,
            "goal": self.goal
        })
        .to_string()
    }
}

/// Runs `work` so many times and returns the median.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

pub fn table(figures: &[Figure]) -> String {
    let mut out = String::from("| what | median | ratio | goal |\n|---|---|---|---|\n");
    for figure in figures {
        let ratio = figure.against.as_ref().map_or_else(String::new, |(name, ratio)| format!("{ratio:.2} × {name}"));
        let _ = writeln!(
            out,
            "| {} | {:.*} {} | {ratio} | {} |",
            figure.name,
            if figure.value < 10.0 { 2 } else { 0 },
            figure.value,
            figure.unit,
            figure.goal.unwrap_or("")
        );
    }
    out
}

pub fn document(table: &str, rounds: usize) -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    format!(
        "# What tfmem costs\n\nWritten by `cargo xtask bench`; run it to get the figures of your machine. Linux {}, {cores} \
         cores, medians of {rounds} rounds.\n\n{table}\n## Method\n\n\
         * *Probe*: a stand-in for TensorFlow's framework library whose `AddTraceMe` does nothing is called from one \
         thread (its CPU time), without a probe, with an empty BPF program on the same instruction, and under `tfmem run`. The ratio \
         that counts is tfmem's against the empty program: the trap itself is the kernel's price and differs between \
         machines (nested virtualisation makes it dear).\n\
         * *Stack*: the same calls from 60 frames deep, by the same way or by another one each time. \
         Half of the calls (chunks taken) have a stack; the figure is that of a call with one.\n\
         * *Mapping*: `mmap`, one touch, `munmap` of 64 KiB in a loop, with and without tfmem.\n\
         * *Program*: wall time of a real script with and without tfmem, in turns.\n\
         * *Attach*: time to find a library's symbols and to choose the instructions, without and with the cache.\n\
         * *Reading*: CPU time of tfmem itself for each event of the chunk storm, decoding and ledger together.\n",
        kernel.trim()
    )
}
