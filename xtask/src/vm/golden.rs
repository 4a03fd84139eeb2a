//! What each series of kernels is known to offer, committed. `TFMEM_BLESS=1` takes over what was found.

use std::{collections::BTreeMap, env, fs, path::PathBuf};

use anyhow::{Context as _, Result};

use crate::workspace;

type Outcomes = BTreeMap<String, String>;

/// What differs, a sentence each.
pub fn compare(series: &str, found: &Outcomes) -> Result<Vec<String>> {
    let path = path(series);
    if env::var_os("TFMEM_BLESS").is_some() {
        let text = serde_json::to_string_pretty(found)? + "\n";
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        return Ok(Vec::new());
    }
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) => return Ok(vec![format!("{}: {error} (TFMEM_BLESS=1 writes it)", path.display())]),
    };
    let expected = serde_json::from_str(&text).with_context(|| format!("{} is no golden", path.display()))?;
    Ok(differences(found, &expected))
}

fn path(series: &str) -> PathBuf {
    workspace::root().join("tests/kernels").join(format!("{series}.json"))
}

fn differences(found: &Outcomes, expected: &Outcomes) -> Vec<String> {
    let mut names: Vec<&String> = found.keys().chain(expected.keys()).collect();
    names.sort();
    names.dedup();
    let outcome =
        |outcomes: &Outcomes, name: &String| outcomes.get(name).cloned().unwrap_or_else(|| "nothing".to_owned());
    names
        .into_iter()
        .filter(|name| found.get(*name) != expected.get(*name))
        .map(|name| format!("capability {name} is {}, known as {}", outcome(found, name), outcome(expected, name)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_are_compared() {
        let outcomes = |pairs: &[(&str, &str)]| -> Outcomes {
            pairs.iter().map(|(name, outcome)| ((*name).to_owned(), (*outcome).to_owned())).collect()
        };
        let found = outcomes(&[("fentry", "missing"), ("new", "ok"), ("same", "ok")]);
        let expected = outcomes(&[("fentry", "ok"), ("old", "ok"), ("same", "ok")]);
        let lines = [
            "capability fentry is missing, known as ok",
            "capability new is ok, known as nothing",
            "capability old is nothing, known as ok",
        ];
        assert_eq!(differences(&found, &expected), lines);
    }
}
