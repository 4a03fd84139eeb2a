//! Processes that a process started and that outlived it by the grace time: forgotten workers keep their memory.

use crate::report::model::{Cause, Refs, Verdict};
use crate::report::units::{bytes, counted, plain, span_ms};
use crate::retention::record::Leftover;

/// Pids written out one by one.
const SHOWN: usize = 8;

/// `ended`: when the process ended; `looked`: when its descendants were found alive. The bytes are resident bytes of
/// other processes and belong to none of this process's layers.
pub(in crate::retention) fn verdict(left: &[&Leftover], ended: u64, looked: u64) -> Option<Verdict> {
    if left.is_empty() {
        return None;
    }
    let total = left.iter().filter_map(|l| l.seen).map(|(_, rss)| rss).fold(0, u64::saturating_add);
    let n = left.len() as u64;
    let pids: Vec<String> = left.iter().take(SHOWN).map(|l| l.pid.to_string()).collect();
    let more = if left.len() > SHOWN { format!(" and {} more", left.len() - SHOWN) } else { String::new() };
    let mut evidence: Vec<String> = left.iter().take(SHOWN).map(|l| sentence(l, ended)).collect();
    evidence.push(format!("alive {} after this process had ended", span_ms(looked.saturating_sub(ended) / 1_000_000)));
    Some(Verdict {
        cause: Cause::LeftoverProcess,
        bytes: total,
        summary: format!(
            "{} is resident in {} that this process started and that outlived it (pid {}{more}).",
            bytes(total),
            counted(n, "process"),
            pids.join(", ")
        ),
        evidence,
        gives_back: format!(
            "end {} (`kill {}`), or join the pool or the worker before the program ends",
            if n == 1 { "it" } else { "them" },
            pids.join(" ")
        ),
        refs: Refs { pids: left.iter().map(|l| l.pid).collect(), ..Refs::default() },
    })
}

fn sentence(left: &Leftover, ended: u64) -> String {
    let name = plain(&left.name, 40);
    let Some((at, rss)) = left.seen else {
        return format!("pid {} ({name}): its resident bytes were not read", left.pid);
    };
    let when = match at.checked_sub(ended) {
        Some(later) => format!("{} after the end", span_ms(later / 1_000_000)),
        None => format!("{} before the end", span_ms((ended - at) / 1_000_000)),
    };
    format!("pid {} ({name}): {} resident, read {when}", left.pid, bytes(rss))
}
