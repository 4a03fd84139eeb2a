//! The agent from its start to its end.

use std::{path::Path, sync::Arc, thread};

use anyhow::{Context as _, Result, anyhow};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::{
    runtime::{Builder, Runtime},
    sync::{Notify, mpsc},
};

use super::{
    config::Config,
    desk::{Board, Desk, analysis, pace},
    discover::Finder,
    ledgers::{self, Ask, Ledgers},
};
use crate::{
    attach::{
        link::{Attach, Stacks},
        memory::Backend,
    },
    live::{self, Capabilities, Live, drive::Stop, serve::Order},
};

/// Orders that may wait for the loop.
const ORDERS: usize = 1024;
const WISHES: usize = 64;

/// Runs until `stop` completes.
///
/// # Errors
/// When the kernel refuses the programs, or an address or a socket cannot be had.
pub fn run<S: Stop>(path: &Path, config: Config, stop: impl FnOnce() -> Result<S>) -> Result<()> {
    raise_files(u64::from(config.limits.files));
    let (wishes, wished) = mpsc::channel(WISHES);
    let ledgers = Ledgers::new(analysis(&config), config.escalation.rule.clone(), Capabilities::default());
    let ledgers = Arc::new(ledgers::start(ledgers, wishes)?);
    let main = runtime()?;
    // Entered for what is registered with it.
    let entered = main.enter();
    let (mut live, capabilities) = Live::new(options(&config), ledgers.sink(), None)?;
    drop(entered);
    ledgers.ask(Ask::Capabilities(capabilities));
    let (orders, mut receiver) = mpsc::channel(ORDERS);
    orders.try_send(Order::Most(config.limits.processes as usize)).context("the loop takes no orders")?;
    let finder = Finder::start(config.trace.discovery, config.host.cache.as_deref(), orders.clone())?;
    let board = Arc::new(Board::new(ledgers.shared.clone(), live.gauges(), finder.counts.clone()));
    let end = Arc::new(Notify::new());
    let (desk_config, desk_path) = (config, path.to_owned());
    let (desk_ledgers, desk_end) = (ledgers.clone(), end.clone());
    let (started, begun) = std::sync::mpsc::channel();
    let (failed, failure) = tokio::sync::oneshot::channel::<()>();
    let desk = thread::Builder::new().name("desk".into()).spawn(move || -> Result<()> {
        let result = runtime().and_then(|runtime| {
            runtime.block_on(async {
                let desk = Desk::new(desk_path, desk_config, board, desk_ledgers, orders).await?;
                let _ = started.send(());
                desk.run(wished, desk_end).await
            })
        });
        drop((started, failed));
        result
    })?;
    if begun.recv().is_ok() {
        log::warn!("the agent watches for TensorFlow");
        main.block_on(async {
            let both = Both { stop: stop()?, failure: Some(failure) };
            live.serve(&mut receiver, both).await
        })?;
    }
    // Orders that come now are for nobody.
    receiver.close();
    while receiver.try_recv().is_ok() {}
    end.notify_one();
    drop(finder);
    let result = desk.join().map_err(|_| anyhow!("the thread of orders panicked"))?;
    drop(live);
    if let Ok(ledgers) = Arc::try_unwrap(ledgers).map_err(drop) {
        ledgers.end();
    }
    result
}

/// The end is wanted, or the thread of orders is no more.
struct Both<S> {
    stop: S,
    failure: Option<tokio::sync::oneshot::Receiver<()>>,
}

impl<S: Stop> Stop for Both<S> {
    async fn wait(&mut self) {
        match &mut self.failure {
            Some(failure) => tokio::select! {
                () = self.stop.wait() => {}
                // Its sender is gone: nothing is ever sent.
                _ = failure => {}
            },
            None => self.stop.wait().await,
        }
    }
}

fn options(config: &Config) -> live::Options {
    live::Options {
        grace: config.trace.grace.0,
        buffer_bytes: config.trace.buffer.0 as u32,
        debug_bpf: false,
        // Anything else would slow every process of the machine down.
        memory: vec![Backend::Poll],
        cache: config.host.cache.clone(),
        symbols: Vec::new(),
        stacks: Stacks::Off,
        attach: Attach::Auto,
        rare: Some(pace(config)),
        snapshot_only: false,
    }
}

fn runtime() -> Result<Runtime> {
    Builder::new_current_thread().enable_all().build().context("no runtime")
}

/// Each probe is a descriptor. Where more are not allowed, fewer have to do: what does not fit is counted.
fn raise_files(wanted: u64) {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return };
    if soft < wanted
        && let Err(error) = setrlimit(Resource::RLIMIT_NOFILE, wanted, hard.max(wanted))
        && let Err(_) = setrlimit(Resource::RLIMIT_NOFILE, hard.min(wanted), hard)
    {
        log::warn!("{soft} file descriptors instead of {wanted}: {error}");
    }
}
