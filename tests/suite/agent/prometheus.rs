//! Real Prometheus scrapes the agent, an alert fires and reaches a real Alertmanager; the rules pass their own tests.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    path::Path,
    process::{Child, Command, Stdio},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;
use tfmem_tests::{
    agent::{Agent, get},
    fixtures, machine,
    program::Program,
    running::Running,
};

const PROGRAMS: [&str; 3] = ["prometheus", "prometheus-alertmanager", "promtool"];

#[test]
fn the_alert_rules_pass_their_tests() -> Result<()> {
    if missing("the_alert_rules_pass_their_tests") {
        return Ok(());
    }
    let tests = machine::file("../packaging/prometheus/tfmem.rules.test.yaml");
    let output = Program::new("promtool").args(["test", "rules"]).arg(tests).run()?;
    ensure!(output.code == 0, "{}{}", output.stdout, output.stderr);
    Ok(())
}

fn missing(test: &str) -> bool {
    let missing = PROGRAMS.iter().find(|program| Program::new(program).arg("--version").run().is_err());
    if let Some(program) = missing {
        machine::skip(test, &format!("no {program}: run `cargo xtask setup`"));
    }
    missing.is_some()
}

/// A program that ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(program: &str, folder: &Path, arguments: &[String]) -> Result<Server> {
    let log = fs::File::create(folder.join(format!("{program}.log")))?;
    let child = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .with_context(|| format!("cannot run {program}"))?;
    Ok(Server(child))
}

/// A port that is free at this moment.
fn free() -> Result<SocketAddr> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?)
}

#[test]
fn an_alert_fires_and_reaches_alertmanager() -> Result<()> {
    let test = "an_alert_fires_and_reaches_alertmanager";
    if !machine::can_trace(test) || missing(test) {
        return Ok(());
    }
    let folder = TempDir::new()?;
    let (prometheus, manager) = (free()?, free()?);
    let mut agent = Agent::start("[escalation]\nfor = \"2s\"\n")?;
    let program = Running::start_ready(fixtures::get()?.messy("grow"))?;
    let pid = program.pid();
    agent.wait_for("the process", |agent| agent.process(pid))?;
    write_configuration(folder.path(), agent.address(), manager)?;
    let path = |name: &str| folder.path().join(name).display().to_string();
    let _manager = serve(
        "prometheus-alertmanager",
        folder.path(),
        &[
            format!("--config.file={}", path("alertmanager.yaml")),
            format!("--storage.path={}", path("alerts")),
            format!("--web.listen-address={manager}"),
            "--cluster.listen-address=".to_owned(),
        ],
    )?;
    let _prometheus = serve(
        "prometheus",
        folder.path(),
        &[
            format!("--config.file={}", path("prometheus.yaml")),
            format!("--storage.tsdb.path={}", path("data")),
            format!("--web.listen-address={prometheus}"),
            "--web.console.templates=/nowhere".to_owned(),
            "--web.console.libraries=/nowhere".to_owned(),
        ],
    )?;
    agent.ask(&["escalate", &pid.to_string(), "--for", "2s"])?;
    let query = format!("/api/v1/query?query=tfmem_process_memory_retained_bytes%7Bprocess_pid%3D%22{pid}%22%7D");
    let asked = |address: SocketAddr, path: &str| -> Result<Option<Value>> {
        // It listens a moment after it was started.
        let Ok(body) = get(address, path) else { return Ok(None) };
        Ok(serde_json::from_str(&body).ok())
    };
    agent.wait_for("the retained bytes in Prometheus", |_| {
        let answer = asked(prometheus, &query)?;
        Ok(answer.filter(|answer| answer["data"]["result"].as_array().is_some_and(|series| !series.is_empty())))
    })?;
    let (alert, _) = agent.wait_for("the alert in Alertmanager", |_| {
        let answer = asked(manager, "/api/v2/alerts")?;
        Ok(answer.and_then(|answer| answer.as_array().and_then(|alerts| alerts.first().cloned())))
    })?;
    ensure!(alert["labels"]["alertname"] == "TensorFlowMemoryRetained", "{alert}");
    let named = alert["labels"]["process_pid"].as_str().context("no pid")?.parse::<u32>()?;
    ensure!(named == pid, "{alert}");
    agent.end()?;
    Ok(())
}

/// The shipped rules, with the amounts and times of a test that shall be quick.
fn write_configuration(folder: &Path, agent: SocketAddr, manager: SocketAddr) -> Result<()> {
    let rules = fs::read_to_string(machine::file("../packaging/prometheus/tfmem.rules.yaml"))?;
    let rules = rules.replacen("> 256 * 1024 * 1024", "> 256 * 1024", 1).replacen("for: 5m", "for: 0s", 1);
    fs::write(folder.join("rules.yaml"), rules)?;
    let prometheus = format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n\
         rule_files: [rules.yaml]\n\
         alerting: {{alertmanagers: [{{static_configs: [{{targets: ['{manager}']}}]}}]}}\n\
         scrape_configs: [{{job_name: tfmem, static_configs: [{{targets: ['{agent}']}}]}}]\n"
    );
    fs::write(folder.join("prometheus.yaml"), prometheus)?;
    let manager = "route: {receiver: nobody, group_wait: 0s}\nreceivers: [{name: nobody}]\n";
    fs::write(folder.join("alertmanager.yaml"), manager)?;
    Ok(())
}

#[test]
fn every_query_of_the_dashboard_is_one() -> Result<()> {
    if missing("every_query_of_the_dashboard_is_one") {
        return Ok(());
    }
    let text = fs::read_to_string(machine::file("../packaging/grafana/tfmem.json"))?;
    let dashboard: Value = serde_json::from_str(&text)?;
    let panels = dashboard["panels"].as_array().context("no panels")?;
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let queries: Vec<String> =
        targets.filter_map(|target| Some(target["expr"].as_str()?.replace("$instance", ".*"))).collect();
    ensure!(queries.len() > 10);
    // As rules, which promtool parses.
    let rule = |(number, query): (usize, &String)| format!("      - {{record: 'q:{number}', expr: {query:?}}}\n");
    let rules: String = queries.iter().enumerate().map(rule).collect();
    let folder = TempDir::new()?;
    let path = folder.path().join("rules.yaml");
    fs::write(&path, format!("groups:\n  - name: dashboard\n    rules:\n{rules}"))?;
    let output = Program::new("promtool").args(["check", "rules"]).arg(&path).run()?;
    ensure!(output.code == 0, "{}{}", output.stdout, output.stderr);
    Ok(())
}
