//! `tfmem agent` and `tfmem agent ctl`

use std::{
    io::{self, IsTerminal as _, Write as _},
    path::Path,
};

use anyhow::Context as _;
use serde_json::Value;

use super::{
    args::{Agent, AgentCommand, Color, Ctl, CtlCommand, Format},
    exit::Failure,
    privilege,
    stop::Asked,
};
use crate::{
    agent::{
        self, config, control,
        ledgers::{RARE, TRACING},
    },
    doctor::privilege::NEEDED_BY_AGENT,
    report::{
        model::Report,
        text::{self, Style},
    },
    snapshot::{self, model::Snapshot},
};

/// # Errors
/// When the configuration is wrong or the agent cannot be started.
pub fn agent(args: &Agent) -> Result<u8, Failure> {
    if let Some(AgentCommand::Ctl(ctl)) = &args.command {
        return give_order(ctl);
    }
    let Some(path) = &args.config else {
        return Err(Failure::usage("which configuration? tfmem agent --config FILE"));
    };
    let config = config::read(path).map_err(|mistake| Failure::usage(mistake.to_string()))?;
    if args.check {
        return Ok(0);
    }
    privilege::check_for(NEEDED_BY_AGENT)?;
    agent::run(path, config, || Ok(Asked::new(None)?))?;
    Ok(0)
}

fn give_order(ctl: &Ctl) -> Result<u8, Failure> {
    let request = match ctl.command {
        CtlCommand::Status => control::Request::Status,
        CtlCommand::Processes => control::Request::Processes,
        CtlCommand::Escalate { pid, time } => {
            control::Request::Escalate { pid, for_ms: time.map(|time| time.as_millis() as u64) }
        }
        CtlCommand::Snapshot { pid } => control::Request::Snapshot { pid },
        CtlCommand::Report { pid } => control::Request::Report { pid },
    };
    let socket = ctl.socket.clone().unwrap_or_else(|| config::Control::default().socket);
    let answer = control::ask(Path::new(&socket), &request)?;
    let text = match ctl.format {
        Format::Json => serde_json::to_string_pretty(&answer).context("write the answer")? + "\n",
        Format::Text => in_words(&ctl.command, &answer, ctl.color)?,
    };
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // The reader had enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(0),
        other => Ok(other.map(|()| 0).context("write the answer")?),
    }
}

const NOT_FULL: &str = "
  single chunks and blocks were not followed: `tfmem agent ctl escalate PID` does that for a while
";

fn in_words(command: &CtlCommand, answer: &Value, color: Color) -> Result<String, Failure> {
    let style = Style { colour: color.wanted(io::stdout().is_terminal()), ..Style::default() };
    let not_understood = "the agent is of another version: its answer is not understood";
    Ok(match command {
        CtlCommand::Status => lines(answer, 0),
        CtlCommand::Processes => processes(answer),
        CtlCommand::Escalate { .. } => "traced in full from now on\n".to_owned(),
        CtlCommand::Snapshot { .. } => {
            let snapshot: Snapshot = serde_json::from_value(answer.clone()).context(not_understood)?;
            snapshot::text::render(&snapshot, style)
        }
        CtlCommand::Report { .. } => {
            let report: Report = serde_json::from_value(answer.clone()).context(not_understood)?;
            let rare = report.capabilities.get(TRACING).is_some_and(|tracing| tracing == RARE);
            text::render(&report, style) + if rare { NOT_FULL } else { "" }
        }
    })
}

/// Names and values, one a line.
fn lines(value: &Value, depth: usize) -> String {
    let Value::Object(fields) = value else { return String::new() };
    let mut out = String::new();
    for (name, value) in fields {
        let indent = "  ".repeat(depth);
        match value {
            Value::Object(inner) if inner.is_empty() => {}
            Value::Object(_) => out += &format!("{indent}{name}\n{}", lines(value, depth + 1)),
            Value::String(text) => out += &format!("{indent}{name:<20} {text}\n"),
            other => out += &format!("{indent}{name:<20} {other}\n"),
        }
    }
    out
}

fn processes(answer: &Value) -> String {
    let rows = answer.as_array().map_or(&[][..], Vec::as_slice);
    if rows.is_empty() {
        return "no process with TensorFlow is followed\n".to_owned();
    }
    let text = |row: &Value, path: &str| match row.pointer(path) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => "-".to_owned(),
        Some(other) => other.to_string(),
    };
    let bytes = |row: &Value, path: &str| {
        let bytes = row.pointer(path).and_then(Value::as_u64);
        bytes.map_or_else(|| "?".to_owned(), |bytes| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)))
    };
    let mut out = format!(
        "{:>8} {:<16} {:<8} {:>14} {:>14} {:>6} {:>10} {:<5} POD, CONTAINER OR UNIT\n",
        "PID", "NAME", "TASK", "RESIDENT", "RETAINED", "OPEN", "BOUNDARIES", "FULL"
    );
    for row in rows {
        let task = match (text(row, "/who/job"), text(row, "/who/task")) {
            (job, task) if job != "-" => format!("{job}:{task}"),
            _ => "-".to_owned(),
        };
        let retained = row.pointer("/retained/by_cause").and_then(Value::as_object).map(|causes| {
            let bytes: u64 = causes.values().filter_map(Value::as_u64).fold(0, u64::saturating_add);
            format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
        });
        let place = ["/who/pod_uid", "/who/container", "/who/slurm_job", "/who/unit"];
        let place = place.iter().map(|path| text(row, path)).find(|place| place != "-");
        out += &format!(
            "{:>8} {:<16} {:<8} {:>14} {:>14} {:>6} {:>10} {:<5} {}\n",
            text(row, "/pid"),
            text(row, "/who/name"),
            task,
            bytes(row, "/rss"),
            retained.unwrap_or_else(|| "-".to_owned()),
            text(row, "/sessions_open"),
            text(row, "/boundaries"),
            if row.pointer("/in_full").and_then(Value::as_bool) == Some(true) { "yes" } else { "no" },
            place.unwrap_or_else(|| "-".to_owned())
        );
    }
    // Names of programs are theirs to choose: nothing of them may steer the terminal.
    out.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn processes_are_a_table() {
        let answer = json!([{
            "pid": 7, "who": { "name": "py\u{1b}thon", "job": "worker", "task": 1, "pod_uid": "uid" },
            "rss": 1 << 20, "sessions_open": 2, "boundaries": 3, "in_full": true,
            "retained": { "by_cause": { "session_open": 1 << 20, "unexplained": 1 << 19 } },
        }]);
        let table = processes(&answer);
        let row = table.lines().nth(1).unwrap();
        let words: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(words, ["7", "py\u{fffd}thon", "worker:1", "1.0", "MiB", "1.5", "MiB", "2", "3", "yes", "uid"]);
        assert!(processes(&json!([])).contains("no process"));
    }

    #[test]
    fn a_status_is_lines() {
        assert_eq!(
            lines(&json!({ "a": 1, "b": { "c": "x" }, "d": {} }), 0),
            format!("{:<20} 1\nb\n  {:<20} x\n", "a", "c")
        );
    }
}
