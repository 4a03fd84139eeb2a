//! What changed between two snapshots: by place, pool, class and holder.

use std::collections::BTreeMap;

use serde::Serialize;

use super::model::{Process, Snapshot};

/// Name and version of the JSON form.
pub const NAME: &str = "tfmem.snapshot_diff/1";

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diff {
    pub schema: String,
    pub before_at: String,
    pub after_at: String,
    pub processes: Vec<ProcessDiff>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProcessDiff {
    pub pid: u32,
    pub comm: String,
    pub before_rss_bytes: u64,
    pub after_rss_bytes: u64,
    /// Only what changed, the largest change first.
    pub rows: Vec<Row>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    pub group: Group,
    pub what: String,
    pub before_bytes: u64,
    pub after_bytes: u64,
    /// Objects, or buffers; the same as bytes count where there is no such number.
    pub before_count: u64,
    pub after_count: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    Resident,
    Pool,
    Holder,
    Class,
}

/// Compares processes with the same pid; where none has, those in the same place.
#[must_use]
pub fn diff(before: &Snapshot, after: &Snapshot) -> Diff {
    let same_pid = |process: &Process| before.processes.iter().find(|other| other.pid == process.pid);
    let some_match = after.processes.iter().any(|process| same_pid(process).is_some());
    let pairs = after.processes.iter().enumerate().map(|(index, process)| {
        let other = if some_match { same_pid(process) } else { before.processes.get(index) };
        (other.cloned().unwrap_or_default(), process)
    });
    Diff {
        schema: NAME.to_owned(),
        before_at: before.taken_at.clone(),
        after_at: after.taken_at.clone(),
        processes: pairs.map(|(before, after)| of_process(&before, after)).collect(),
    }
}

type Rows = BTreeMap<(Group, String), [(u64, u64); 2]>;

fn of_process(before: &Process, after: &Process) -> ProcessDiff {
    let mut rows = Rows::new();
    for (side, process) in [before, after].into_iter().enumerate() {
        collect(&mut rows, side, process);
    }
    let row = |((group, what), [before, after]): ((Group, String), [(u64, u64); 2])| Row {
        group,
        what,
        before_bytes: before.0,
        after_bytes: after.0,
        before_count: before.1,
        after_count: after.1,
    };
    let mut rows: Vec<Row> = rows.into_iter().filter(|(_, [before, after])| before != after).map(row).collect();
    rows.sort_by_key(|row| (row.group, std::cmp::Reverse(row.before_bytes.abs_diff(row.after_bytes))));
    ProcessDiff {
        pid: after.pid,
        comm: after.comm.clone(),
        before_rss_bytes: before.rss_bytes,
        after_rss_bytes: after.rss_bytes,
        rows,
    }
}

fn collect(rows: &mut Rows, side: usize, process: &Process) {
    let mut add = |group: Group, what: String, bytes: u64, count: u64| {
        if let Some(cell) = rows.entry((group, what)).or_default().get_mut(side) {
            cell.0 += bytes;
            cell.1 += count;
        }
    };
    for part in &process.resident {
        add(Group::Resident, part.what.clone(), part.bytes, 0);
    }
    add(Group::Resident, "unexplained".to_owned(), process.unexplained_bytes, 0);
    for pool in process.pools.iter().filter(|pool| pool.refused.is_none()) {
        let name = pool.name.as_deref().unwrap_or("no name");
        add(Group::Pool, format!("{name}: in use"), pool.in_use_bytes, 0);
        add(Group::Pool, format!("{name}: free"), pool.free_bytes, 0);
    }
    for holder in &process.holders {
        add(Group::Holder, holder.title(), holder.bytes, holder.count);
    }
    for class in &process.classes {
        add(Group::Class, class.class.clone(), class.bytes, class.count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::model::{Holder, Part};

    #[test]
    fn only_what_changed_is_said() {
        let part = |what: &str, bytes| Part { what: what.to_owned(), bytes };
        let process =
            |stacks, heap| Process { resident: vec![part("stacks", stacks), part("heap", heap)], ..Process::default() };
        let mut after = process(5, 300);
        after.holders.push(Holder {
            owner: "variable".to_owned(),
            name: Some("w".to_owned()),
            bytes: 64,
            count: 1,
            ..Holder::default()
        });
        let diff = of_process(&process(5, 100), &after);
        let rows: Vec<_> = diff.rows.iter().map(|row| (row.what.as_str(), row.before_bytes, row.after_bytes)).collect();
        assert_eq!(rows, [("heap", 100, 300), ("variable \"w\"", 0, 64)]);
    }
}
