//! Metrics of the followed processes. Each has its own series up to a number; beyond it the smaller ones are one.

use super::family::{Family, Labels, Unit, Value};
use crate::{
    agent::ledgers::{Process, state::State},
    profile::word,
    report::model::Layers,
};

/// A name from outside is cut: labels are no place for novels.
const LONGEST: usize = 128;

/// `most`: series of their own.
pub fn families(state: &State, most: usize) -> Vec<Family> {
    let mut processes: Vec<&Process> = state.processes.iter().collect();
    processes.sort_by_key(|process| std::cmp::Reverse(process.rss));
    let (own, others) = processes.split_at(most.min(processes.len()));
    let mut all = Families::new();
    for process in own {
        all.add(process);
    }
    if !others.is_empty() {
        all.add_others(others);
    }
    all.into_vec()
}

struct Families {
    info: Family,
    rss: Family,
    live: Family,
    retained: Family,
    judged: Family,
    after: Family,
    growth: Family,
    open: Family,
    opened: Family,
    oldest: Family,
    boundaries: Family,
    in_full: Family,
    blind: Family,
}

impl Families {
    fn new() -> Self {
        use Unit::{Bytes, One, Seconds};
        Self {
            info: Family::gauge("tfmem.process.info", "Who a process is; always 1.", One),
            rss: Family::gauge("process.memory.usage", "Resident memory.", Bytes),
            live: Family::gauge(
                "tfmem.process.memory.live",
                "Alive by layer. Layers nest: never add them up. Blocks are counted while a process is traced in full.",
                Bytes,
            ),
            retained: Family::gauge(
                "tfmem.process.memory.retained",
                "What outlived the last boundary that was judged, by cause.",
                Bytes,
            ),
            judged: Family::gauge("tfmem.process.memory.judged", "When that was, Unix time.", Seconds),
            after: Family::gauge(
                "tfmem.process.memory.after_boundary",
                "Resident memory a grace time after the last boundary.",
                Bytes,
            ),
            growth: Family::gauge(
                "tfmem.process.memory.growth",
                "The same, less what it was after the first boundary.",
                Bytes,
            ),
            open: Family::gauge("tfmem.sessions.open", "Sessions that nobody closed yet.", One),
            opened: Family::counter("tfmem.sessions.opened", "Sessions opened since the process was seen.", One),
            oldest: Family::gauge(
                "tfmem.sessions.oldest_open",
                "For how long the oldest of them has been open.",
                Seconds,
            ),
            boundaries: Family::counter("tfmem.boundaries", "Moments after which memory was expected back.", One),
            in_full: Family::gauge("tfmem.process.in_full", "1: traced in full at the moment.", One),
            blind: Family::gauge("tfmem.process.blind", "1: calls of its libraries cannot be seen.", One),
        }
    }

    fn add(&mut self, process: &Process) {
        let labels = labels(process);
        self.info.add(info(process), Value::Int(1));
        self.figures(process, &labels);
        let flag = |set: bool| Value::Int(i64::from(set));
        self.in_full.add(labels.clone(), flag(process.in_full));
        self.blind.add(labels.clone(), flag(process.blind));
        if let Some(ns) = process.oldest_open_ns {
            self.oldest.add(labels.clone(), seconds(ns));
        }
        for (name, bytes) in layers(&process.layers) {
            let labels = with(&labels, "tfmem.layer", name);
            self.live.add(labels, bytes.into());
        }
        if let Some(retained) = &process.retained {
            let view = if retained.in_full { "full" } else { "outside" };
            for (&cause, &bytes) in &retained.by_cause {
                let labels = with(&with(&labels, "tfmem.view", view), "tfmem.cause", &word(cause));
                self.retained.add(labels, bytes.into());
            }
            let wall = crate::target::clock::wall_offset_ns().saturating_add(retained.at);
            self.judged.add(labels, seconds(wall));
        }
    }

    fn figures(&mut self, process: &Process, labels: &Labels) {
        let add = |family: &mut Family, value: Option<Value>| {
            if let Some(value) = value {
                family.add(labels.clone(), value);
            }
        };
        add(&mut self.rss, process.rss.map(Value::from));
        add(&mut self.after, process.after_boundary.map(Value::from));
        add(&mut self.growth, process.growth.map(Value::Int));
        add(&mut self.open, Some(process.sessions_open.into()));
        add(&mut self.opened, Some(process.sessions_opened.into()));
        add(&mut self.boundaries, Some(process.boundaries.into()));
    }

    /// Sums of gauges alone: a counter that loses a process would seem to begin anew.
    fn add_others(&mut self, others: &[&Process]) {
        let labels: Labels = vec![("process.pid", "others".into())];
        let sum = |of: fn(&Process) -> u64| others.iter().map(|process| of(process)).fold(0, u64::saturating_add);
        self.info.add(with(&labels, "tfmem.processes", &others.len().to_string()), Value::Int(1));
        self.rss.add(labels.clone(), sum(|process| process.rss.unwrap_or(0)).into());
        self.open.add(labels, sum(|process| process.sessions_open).into());
    }

    fn into_vec(self) -> Vec<Family> {
        vec![
            self.info,
            self.rss,
            self.live,
            self.retained,
            self.judged,
            self.after,
            self.growth,
            self.open,
            self.opened,
            self.oldest,
            self.boundaries,
            self.in_full,
            self.blind,
        ]
    }
}

/// What tells one process from the others, and the tasks of one job apart in one query.
pub fn labels(process: &Process) -> Labels {
    let who = &process.who;
    let mut labels: Labels = vec![("process.pid", process.pid.to_string().into())];
    let mut add = |name: &'static str, value: Option<String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            labels.push((name, cut(value).into()));
        }
    };
    add("process.executable.name", Some(who.name.clone()));
    add("k8s.pod.uid", who.pod_uid.clone());
    add("container.id", who.container.clone());
    add("tfmem.job.name", who.job.clone());
    add("tfmem.task.index", who.task.map(|task| task.to_string()));
    labels
}

/// Everything that is known of who it is.
pub fn info(process: &Process) -> Labels {
    let who = &process.who;
    let mut labels = labels(process);
    let mut add = |name: &'static str, value: Option<String>| {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            labels.push((name, cut(value).into()));
        }
    };
    add("container.runtime", who.runtime.map(str::to_owned));
    add("slurm.job.id", who.slurm_job.clone());
    add("slurm.step.id", who.slurm_step.clone());
    add("systemd.unit", who.unit.clone());
    add("tensorflow.version", process.version.clone());
    add("tfmem.before_attach", process.before_attach.then(|| "true".to_owned()));
    labels
}

fn cut(value: String) -> String {
    let clean = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    if value.chars().any(char::is_control) || value.len() > LONGEST {
        value.chars().map(clean).take(LONGEST).collect()
    } else {
        value
    }
}

fn with(labels: &Labels, name: &'static str, value: &str) -> Labels {
    let mut labels = labels.clone();
    labels.push((name, value.to_owned().into()));
    labels
}

fn seconds(ns: u64) -> Value {
    Value::Float(ns as f64 / 1e9)
}

fn layers(layers: &Layers) -> impl Iterator<Item = (&'static str, u64)> {
    let all = [
        ("device", layers.device),
        ("pinned", layers.pinned),
        ("managed", layers.managed),
        ("pool_region", layers.pool_region),
        ("pool_chunk", layers.pool_chunk),
        ("mapping", layers.mapping),
        ("heap", layers.heap),
    ];
    all.into_iter().filter_map(|(name, bytes)| Some((name, bytes?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::Cause;

    #[test]
    fn labels_are_short_and_clean() {
        assert_eq!(cut("a\nb".to_owned()), "a\u{fffd}b");
        assert_eq!(cut("x".repeat(1000)).len(), LONGEST);
    }

    #[test]
    fn causes_have_the_names_of_the_report() {
        for cause in [Cause::SessionOpen, Cause::PythonReferenceCycle, Cause::Unexplained, Cause::BeforeAttach] {
            assert_eq!(serde_json::to_value(cause).unwrap(), word(cause));
        }
    }
}
