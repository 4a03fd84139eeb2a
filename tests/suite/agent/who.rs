//! Who runs a process: a container in a Kubernetes-shaped control group, as runc makes it.

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;
use tfmem::target::info;
use tfmem_tests::{agent::Agent, machine, program::Program, running::Running};

use crate::messy::containers::bundle;

const POD: &str = "4d5f1a2b-3c4d-5e6f-7a8b-9c0d1e2f3a4b";

#[test]
fn a_container_is_named_by_its_pod() -> Result<()> {
    if !machine::can_trace("a_container_is_named_by_its_pod") {
        return Ok(());
    }
    let id = format!("{:064x}", std::process::id());
    let bundle = bundle(false, Some(&format!("/kubepods/burstable/pod{POD}/{id}")))?;
    let state = TempDir::new()?;
    let mut agent = Agent::start("")?;
    let runc = || Program::new("runc").arg("--root").arg(state.path());
    let mut words = vec!["runc".into(), "--root".into(), state.path().as_os_str().to_owned(), "run".into()];
    words.extend(["--bundle".into(), bundle.path().as_os_str().to_owned(), id.clone().into()]);
    let mut running = Running::start(words)?;
    let found = running.expect("ready").and_then(|()| find(&mut agent, running.pid(), &id));
    let killed = runc().args(["kill", &id, "KILL"]).run()?;
    drop(running);
    let deleted = runc().args(["delete", "--force", &id]).run()?;
    found.with_context(|| format!("{}{}", killed.stderr, deleted.stderr))?;
    agent.end()?;
    Ok(())
}

fn find(agent: &mut Agent, outer: u32, id: &str) -> Result<()> {
    let pid = *info::descendants(outer).last().context("nothing runs in the container")?;
    let seen = |agent: &mut Agent| {
        Ok(agent.process(pid)?.filter(|process| process["boundaries"].as_u64().is_some_and(|n| n > 0)))
    };
    let (process, _) = agent.wait_for("what runs in the container", seen)?;
    ensure!(process["who"]["pod_uid"] == POD && process["who"]["container"] == id, "{process}");
    let labels = [format!("k8s_pod_uid=\"{POD}\""), format!("container_id=\"{id}\"")];
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    ensure!(agent.metric("tfmem_boundaries_total", &labels)?.is_some_and(|n| n > 0.0));
    Ok(())
}
