//! What TensorFlow's pools keep of a GPU, and of page-locked host memory. The classic complaint: ten gigabytes are still
//! taken after the session was closed. It is no leak, and what would have made it smaller depends on how it was taken.

use super::pool_reserve::{figures, free, reuse};
use super::{Claimed, Rule};
use crate::event::Addr;
use crate::ledger::gpu::StreamPool;
use crate::ledger::types::{Allocation, Pool};
use crate::report::model::{Cause, Layer, Refs, Verdict};
use crate::report::units::{bytes, counted, plain};
use crate::retention::devices::{self, Made};
use crate::retention::pools::Use;
use crate::retention::scene::Scene;

pub(super) const DEVICE: Rule = Rule { cause: Cause::PoolReserve, claims, verdicts: of_device };
pub(super) const PINNED: Rule = Rule { cause: Cause::PinnedReserve, claims, verdicts: of_host };

/// Free memory is no allocation.
const fn claims(_: &Scene, _: &Allocation) -> bool {
    false
}

fn of_device(scene: &Scene, _: &Claimed) -> Vec<Verdict> {
    let pools = pools(scene, |made| made.layer != Layer::Pinned, Cause::PoolReserve);
    let streams = scene.process.gpu.stream_pools().filter_map(|(_, pool)| stream_ordered(scene, pool));
    pools.into_iter().chain(streams).collect()
}

fn of_host(scene: &Scene, _: &Claimed) -> Vec<Verdict> {
    pools(scene, |made| made.layer == Layer::Pinned, Cause::PinnedReserve)
}

fn pools(scene: &Scene, which: fn(&Made) -> bool, cause: Cause) -> Vec<Verdict> {
    let all = scene.process.pools.iter();
    let made = all.filter_map(|(&addr, pool)| Some((addr, pool, devices::of(scene.process, pool)?)));
    made.filter(|(.., made)| which(made))
        .filter_map(|(addr, pool, made)| verdict(scene, addr, pool, made, cause))
        .collect()
}

fn verdict(scene: &Scene, addr: Addr, pool: &Pool, made: Made, cause: Cause) -> Option<Verdict> {
    let (used, free) = free(scene, addr, pool)?;
    let name = scene.pool_name(addr);
    let growth = Growth::of(pool, &used);
    let mut evidence = vec![reuse(scene, addr, &used), figures(pool, &used)];
    if cause == Cause::PoolReserve {
        evidence.push(growth.evidence(pool, &used));
    }
    evidence.extend(idle(scene, addr, pool));
    let tables = devices::handle_tables(scene.process, pool);
    if tables > 0 {
        evidence.push(format!("its tables of handles take another {} of host memory", bytes(tables)));
    }
    Some(Verdict {
        cause,
        bytes: free,
        summary: format!(
            "{} of {} is free inside TensorFlow's pool \"{}\" and stays taken until the process ends; {}.",
            bytes(free),
            what(made),
            plain(&name, 40),
            match pool.in_use {
                0 => "nothing in it is in use".to_owned(),
                n => format!("{} more is in use", bytes(n)),
            }
        ),
        evidence,
        gives_back: match cause {
            Cause::PinnedReserve => "nothing to do: only the end of the process gives it back; not a leak".to_owned(),
            _ => growth.advice().to_owned(),
        },
        refs: Refs { pools: vec![name], ..Refs::default() },
    })
}

fn what(made: Made) -> String {
    match (made.layer, made.device) {
        (Layer::Pinned, _) => "page-locked host memory".to_owned(),
        (Layer::Managed, _) => "managed memory".to_owned(),
        (_, Some(device)) => format!("GPU {device}"),
        (_, None) => "a GPU".to_owned(),
    }
}

fn idle(scene: &Scene, addr: Addr, pool: &Pool) -> Option<String> {
    let (idle, idle_bytes) = devices::idle_regions(scene.process, addr, pool);
    let all = pool.regions.len() as u64;
    (idle > 0).then(|| {
        format!(
            "{idle} of {} ({}) could be given back whole: nothing in use lies there",
            counted(all, "region"),
            bytes(idle_bytes)
        )
    })
}

/// How the pool came to its memory, as its regions tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Growth {
    /// All that its limit allows, at the first use.
    AtOnce,
    /// Piece by piece.
    InPieces,
}

impl Growth {
    /// A driver that has less left makes TensorFlow ask for a tenth less again and again: nine tenths are all.
    fn of(pool: &Pool, used: &Use) -> Self {
        let whole = pool.limit / 10 * 9;
        let at_once = pool.extended == 1 && pool.limit != 0 && used.regions_bytes >= whole;
        if at_once { Self::AtOnce } else { Self::InPieces }
    }

    fn evidence(self, pool: &Pool, used: &Use) -> String {
        let limit = bytes(pool.limit);
        match self {
            Self::AtOnce => {
                format!("all that its limit of {limit} allows was taken at the first use: memory growth is off")
            }
            Self::InPieces => {
                let gone = pool.extended.saturating_sub(used.regions);
                let gone = if gone == 0 {
                    String::new()
                } else {
                    format!(", {} given back by its garbage collection", counted(gone, "region"))
                };
                format!("it grew in {} up to a limit of {limit}{gone}", counted(pool.extended, "step"))
            }
        }
    }

    const fn advice(self) -> &'static str {
        match self {
            Self::AtOnce => {
                "not a leak; only the end of the process gives it back. To take less the next time: memory growth \
                 (`tf.config.experimental.set_memory_growth`, `TF_FORCE_GPU_ALLOW_GROWTH=true`), a memory limit, or \
                 `TF_GPU_ALLOCATOR=cuda_malloc_async`, which gives freed memory back"
            }
            Self::InPieces => {
                "not a leak; only the end of the process gives it back. To keep less the next time: a memory limit \
                 (`tf.config.set_logical_device_configuration`), or `TF_GPU_ALLOCATOR=cuda_malloc_async`, which gives \
                 freed memory back"
            }
        }
    }
}

/// Freed in order of a stream: it is in the driver's pool, as far as the pool's threshold lets it stay there.
fn stream_ordered(scene: &Scene, pool: &StreamPool) -> Option<Verdict> {
    let kept = pool.kept_at_most();
    if kept == 0 || kept < scene.min_bytes {
        return None;
    }
    let device = pool.device.map_or_else(|| "a GPU".to_owned(), |device| format!("GPU {device}"));
    let mut evidence = vec![format!(
        "an upper bound: it had at most {} in use, has {} now, and keeps up to {} when a stream is waited for",
        bytes(pool.most),
        bytes(pool.in_use),
        bytes(pool.threshold)
    )];
    if let Some((_, reserved)) = pool.reserved {
        evidence.push(format!("the driver said last that the pool has {}", bytes(reserved)));
    }
    Some(Verdict {
        cause: Cause::PoolReserve,
        bytes: kept,
        summary: format!(
            "up to {} of {device} was freed by the program and may be kept by the driver's pool of stream-ordered memory.",
            bytes(kept)
        ),
        evidence,
        gives_back:
            "`cuMemPoolTrimTo`, a lower memory limit of TensorFlow's (it is the pool's threshold), or the end of \
                     the process; not a leak"
                .to_owned(),
        refs: Refs::default(),
    })
}
