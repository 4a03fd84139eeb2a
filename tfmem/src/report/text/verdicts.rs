//! Verdicts in plain sentences, each with a label that says at a glance whether somebody must act.

use super::page::{Page, Tone};
use crate::report::model::{Cause, Process, Verdict};
use crate::report::units::{bytes, counted};

/// Verdicts shown for a process before the rest is summed up in one line.
const SHOWN: usize = 6;
/// Evidence sentences of a verdict on the page; the JSON has all. Nobody has to act on a reserve: one will do.
const EVIDENCE: usize = 3;
const EVIDENCE_OF_RESERVE: usize = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Label {
    Leak,
    NotLeak,
    Held,
    Leftover,
    Unexplained,
}

impl Label {
    /// `ended`: the process is gone; what was open then can no longer be closed.
    #[must_use]
    pub const fn of(cause: Cause, ended: bool) -> Self {
        match cause {
            Cause::PoolReserve
            | Cause::HeapReserve
            | Cause::PinnedReserve
            | Cause::DeviceContext
            | Cause::NativeCache => Self::NotLeak,
            Cause::LeftoverProcess => Self::Leftover,
            Cause::Unexplained => Self::Unexplained,
            Cause::BeforeAttach | Cause::PythonReference => Self::Held,
            Cause::StatefulResource | Cause::PipelineBuffers if !ended => Self::Held,
            Cause::FunctionTraces | Cause::GraphRetained if !ended => Self::Held,
            Cause::SessionOpen if !ended => Self::Held,
            _ => Self::Leak,
        }
    }

    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Leak => "LEAK",
            Self::NotLeak => "NOT LEAK",
            Self::Held => "HELD",
            Self::Leftover => "LEFTOVER",
            Self::Unexplained => "UNEXPLAINED",
        }
    }

    const fn tone(self) -> Tone {
        match self {
            Self::Leak | Self::Leftover => Tone::Bad,
            Self::NotLeak => Tone::Good,
            Self::Held | Self::Unexplained => Tone::Doubt,
        }
    }
}

pub fn render(page: &mut Page, process: &Process, min_bytes: u64) {
    let ended = process.exited_at.is_some();
    if let Some((tone, answer)) = answer(process, ended, min_bytes) {
        page.blank();
        page.paragraph("IN SHORT", tone, &answer);
    }
    let mut rest = (0, 0_u64);
    for (i, verdict) in process.verdicts.iter().enumerate() {
        // What nobody can explain is never summed up.
        if i >= SHOWN && verdict.cause != Cause::Unexplained {
            rest = (rest.0 + 1, rest.1.saturating_add(verdict.bytes));
            continue;
        }
        one(page, verdict, ended, min_bytes);
    }
    if rest.0 > 0 {
        page.blank();
        let more = format!("and {} with {}; the JSON report has them", counted(rest.0, "more verdict"), bytes(rest.1));
        page.paragraph("", Tone::Dim, &more);
    }
}

/// Is it a leak? In one sentence, before everything else.
fn answer(process: &Process, ended: bool, min_bytes: u64) -> Option<(Tone, String)> {
    let sum = |label: Label| {
        let of = process.verdicts.iter().filter(|v| Label::of(v.cause, ended) == label);
        of.fold(0, |sum: u64, v| sum.saturating_add(v.bytes))
    };
    let (leak, held, reserve) = (sum(Label::Leak), sum(Label::Held), sum(Label::NotLeak));
    let (unexplained, leftover) = (sum(Label::Unexplained), sum(Label::Leftover));
    let besides = |bytes_: u64| match bytes_ {
        n if n >= min_bytes => format!("; another {} is no leak, but kept by allocators for later use", bytes(n)),
        _ => String::new(),
    };
    let blamed = leak.max(held).max(unexplained).max(leftover);
    if blamed < min_bytes {
        let text =
            format!("No leak: the {} that the process still has is kept by allocators for later use.", bytes(reserve));
        return (reserve >= min_bytes).then_some((Tone::Good, text));
    }
    Some(if leak == blamed {
        (Tone::Bad, format!("A leak: {} should have been given back and was not{}.", bytes(leak), besides(reserve)))
    } else if leftover == blamed {
        (
            Tone::Bad,
            format!(
                "Not in this process: {} is in processes that it left behind{}.",
                bytes(leftover),
                besides(reserve)
            ),
        )
    } else if held == blamed {
        let text = format!("Held, not lost: the program still refers to {}, and letting go gives it back", bytes(held));
        (Tone::Doubt, format!("{text}{}.", besides(reserve)))
    } else {
        let text = format!("Not known whether it is a leak: no rule explains {}", bytes(unexplained));
        (Tone::Doubt, format!("{text}{}.", besides(reserve)))
    })
}

fn one(page: &mut Page, verdict: &Verdict, ended: bool, min_bytes: u64) {
    page.blank();
    let label = Label::of(verdict.cause, ended);
    page.paragraph(label.text(), label.tone(), &verdict.summary);
    if verdict.cause == Cause::Unexplained && verdict.bytes < min_bytes {
        // Said, but not worth a paragraph.
        return;
    }
    let sentences = if verdict.cause.is_reserve() { EVIDENCE_OF_RESERVE } else { EVIDENCE };
    for sentence in verdict.evidence.iter().take(sentences) {
        page.paragraph("", Tone::Plain, sentence);
    }
    if !verdict.gives_back.is_empty() {
        page.advice(&verdict.gives_back);
    }
}

/// The verdicts of a process in one line: `LEAK 3.0 MiB, NOT LEAK 2.0 MiB`.
#[must_use]
pub fn brief(process: &Process) -> String {
    let ended = process.exited_at.is_some();
    let mut sums: Vec<(Label, u64)> = Vec::new();
    for v in &process.verdicts {
        let label = Label::of(v.cause, ended);
        match sums.iter_mut().find(|(l, _)| *l == label) {
            Some((_, sum)) => *sum = sum.saturating_add(v.bytes),
            None => sums.push((label, v.bytes)),
        }
    }
    let parts: Vec<String> = sums.iter().map(|(l, n)| format!("{} {}", l.text(), bytes(*n))).collect();
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_session_can_still_be_closed_while_the_process_runs() {
        assert_eq!(Label::of(Cause::SessionOpen, false), Label::Held);
        assert_eq!(Label::of(Cause::SessionOpen, true), Label::Leak);
        assert_eq!(Label::of(Cause::SessionNotDeleted, false), Label::Leak);
    }

    #[test]
    fn no_reserve_is_called_a_leak() {
        for cause in [Cause::PoolReserve, Cause::HeapReserve, Cause::PinnedReserve] {
            assert!(cause.is_reserve());
            assert_eq!(Label::of(cause, true), Label::NotLeak);
        }
    }
}
