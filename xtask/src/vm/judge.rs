//! Is that kernel all right?

use serde_json::Value;

use super::{line::Program, said::Said};

/// Everything that is wrong, a sentence each; empty: nothing. `reference` is what the same suite said on the host.
pub fn wrong(said: &Said, reference: &Said) -> Vec<String> {
    let mut wrong = Vec::new();
    if !said.ended {
        wrong.push("the suite did not come to its end".to_owned());
    }
    if !said.is_something() {
        wrong.push("the suite ran nothing".to_owned());
    }
    wrong.extend(said.failed.iter().map(|(part, why)| format!("{part}: {why}")));
    wrong.extend(said.programs.iter().filter_map(program));
    for program in reference.programs.iter().filter(|program| said.programs.iter().all(|p| p.name != program.name)) {
        wrong.push(format!("{}: the host has this program", program.name));
    }
    for (scenario, expected) in &reference.ledgers {
        match said.ledgers.get(scenario) {
            Some(found) if found == expected => {}
            Some(found) => wrong.push(format!("ledger of {scenario}: {}", difference(found, expected, ""))),
            None => wrong.push(format!("ledger of {scenario}: there is none")),
        }
    }
    wrong
}

fn program(program: &Program) -> Option<String> {
    let Program { name, loaded, attached, fired, optional, why, .. } = program;
    let why = why.as_deref().unwrap_or("nobody says why");
    if !loaded {
        return Some(format!("{name} was not loaded: {why}"));
    }
    if !attached && *optional {
        return None;
    }
    if !attached {
        return Some(format!("{name} was not attached: {why}"));
    }
    (*fired == 0).then(|| format!("{name} is attached and never ran"))
}

/// The first place where they differ.
fn difference(found: &Value, expected: &Value, at: &str) -> String {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            let fields = found.keys().chain(expected.keys());
            let differs = |field: &&String| found.get(*field) != expected.get(*field);
            let null = Value::Null;
            fields.into_iter().find(differs).map_or_else(String::new, |field| {
                let (found, expected) = (found.get(field), expected.get(field));
                difference(found.unwrap_or(&null), expected.unwrap_or(&null), &format!("{at}.{field}"))
            })
        }
        (Value::Array(found), Value::Array(expected)) if found.len() == expected.len() => {
            let place = (0..found.len()).find(|&i| found[i] != expected[i]).unwrap_or(0);
            difference(&found[place], &expected[place], &format!("{at}[{place}]"))
        }
        _ => format!("{at} is {found}, on the host {expected}"),
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Result;

    use super::*;

    const GOOD: &str = r#"
        {"kind":"kernel","release":"6.1.0"}
        {"kind":"program","name":"chunk","loaded":true,"instructions":5,"attached":true,"fired":3,"why":null}
        {"kind":"ledger","scenario":"sessions","ledger":{"processes":[{"comm":"driver","exit":"exit 0"}]}}
        {"kind":"end"}"#;

    fn judged(text: &str) -> Result<Vec<String>> {
        Ok(wrong(&Said::read(text)?, &Said::read(GOOD)?))
    }

    #[test]
    fn nothing_wrong() -> Result<()> {
        assert_eq!(judged(GOOD)?, [""; 0]);
        Ok(())
    }

    #[test]
    fn each_kind_of_failure_is_red() -> Result<()> {
        let changes = [
            (r#""loaded":true"#, r#""loaded":false"#, "chunk was not loaded: nobody says why"),
            (r#""attached":true"#, r#""attached":false"#, "chunk was not attached: nobody says why"),
            (r#""fired":3"#, r#""fired":0"#, "chunk is attached and never ran"),
            ("exit 0", "exit 1", r#"ledger of sessions: .processes[0].exit is "exit 1", on the host "exit 0""#),
            ("sessions", "others", "ledger of sessions: there is none"),
            (r#""name":"chunk""#, r#""name":"other""#, "chunk: the host has this program"),
            (r#"{"kind":"end"}"#, r#"{"kind":"failed","part":"p","why":"w"}{"#, ""),
            (r#"{"kind":"end"}"#, "", "the suite did not come to its end"),
        ];
        for (from, to, expected) in changes {
            let text = GOOD.replace(from, to);
            match judged(&text) {
                Ok(found) => assert_eq!(found, [expected]),
                Err(_) => assert_eq!(expected, "", "{text}"),
            }
        }
        let nowhere = GOOD.replace(r#""attached":true,"fired":3"#, r#""attached":false,"fired":0,"optional":true"#);
        assert_eq!(judged(&nowhere)?, [""; 0], "not every kernel has a place for it");
        let nothing = judged(r#"{"kind":"end"}"#)?;
        assert!(nothing.iter().any(|why| why == "the suite ran nothing"), "{nothing:?}");
        Ok(())
    }
}
