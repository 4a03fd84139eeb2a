//! The configuration file, as a person gets it wrong.

use std::fs;

use anyhow::{Result, ensure};
use tempfile::TempDir;
use tfmem_tests::{machine, program::Program};

#[test]
fn a_mistake_names_its_line() -> Result<()> {
    let folder = TempDir::new()?;
    let path = folder.path().join("agent.toml");
    let table = [
        ("[limits]\nmemroy = \"64MiB\"\n", ":2:1: unknown field `memroy`"),
        ("[trace]\n\ngrace = \"2\"\n", ":3:9: `2` is no time"),
        ("[otlp]\nendpoint = \"https://h:4318\"\nca = \"/no/ca.pem\"\n", ":3:6: /no/ca.pem: cannot be read"),
    ];
    for (text, expected) in table {
        fs::write(&path, text)?;
        for check in [&["--check"][..], &[]] {
            let output = Program::new(machine::tfmem()?).args(["agent", "--config"]).arg(&path).args(check).run()?;
            ensure!(output.code == 2, "{text}: status {}", output.code);
            ensure!(output.stderr.contains(expected), "{text}: {}", output.stderr);
        }
    }
    let output = Program::new(machine::tfmem()?).args(["agent", "--config", "/nowhere.toml"]).run()?;
    ensure!(output.code == 2 && output.stderr.contains("/nowhere.toml: cannot be read"), "{}", output.stderr);
    let example = machine::file("../packaging/agent.toml");
    let output = Program::new(machine::tfmem()?).args(["agent", "--check", "--config"]).arg(example).run()?;
    ensure!(output.code == 0 && output.stderr.is_empty(), "{}", output.stderr);
    let output = Program::new(machine::tfmem()?).arg("agent").run()?;
    ensure!(output.code == 2 && output.stderr.contains("--config"), "{}", output.stderr);
    Ok(())
}

#[test]
fn an_order_to_nobody_says_so() -> Result<()> {
    let words = ["agent", "ctl", "status", "--socket", "/nowhere/agent.sock"];
    let output = Program::new(machine::tfmem()?).args(words).run()?;
    ensure!(output.code == 1 && output.stderr.contains("no agent runs"), "{}", output.stderr);
    Ok(())
}
