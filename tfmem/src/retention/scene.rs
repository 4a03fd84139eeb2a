//! The moment at which survivors are judged: what the rules may look at.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use crate::event::{Addr, DeviceIndex};
use crate::ledger::types::{Allocation, BlockLayer, Session, SessionId};
use crate::ledger::{Ledger, Process};
use crate::report::model::BoundaryKind;

use super::holders::Holders;
use super::record::Subject;
use crate::report::units::plain;

/// A pool's counters at the first boundary that saw it: what came after is reuse or growth.
#[derive(Clone, Copy, Debug)]
pub(super) struct Baseline {
    /// When the boundary was.
    pub at: u64,
    pub handed_out_bytes: u64,
    /// Bytes of all regions then.
    pub region_bytes: u64,
}

pub(super) struct Scene<'a> {
    pub ledger: &'a Ledger,
    pub process: &'a Process,
    pub baselines: &'a BTreeMap<Addr, Baseline>,
    pub kind: BoundaryKind,
    pub subject: Subject,
    /// The span that the boundary ends.
    pub opened: u64,
    pub at: u64,
    /// Now.
    pub after: u64,
    pub trace_start: u64,
    pub min_bytes: u64,
    pub max_rows: usize,
    /// Who holds what at this moment; empty when nobody looked.
    pub holders: Holders,
}

impl Scene<'_> {
    pub fn is_end(&self) -> bool {
        matches!(self.subject, Subject::Process)
    }

    pub fn attached(&self) -> bool {
        self.process.identity.info.as_ref().is_some_and(|i| i.attached)
    }

    /// Its beginning was not seen.
    pub fn before_attach(&self, born: u64) -> bool {
        self.attached() && born < self.trace_start
    }

    pub fn op_name(&self, allocation: &Allocation) -> Option<Arc<str>> {
        (allocation.origin.op != 0).then(|| self.ledger.op_name(allocation.origin.op).cloned()).flatten()
    }

    pub fn pool_name(&self, pool: Addr) -> String {
        let named = self.process.pools.get(&pool).and_then(|p| p.name.as_deref());
        named.filter(|n| !n.is_empty()).map_or_else(|| format!("pool@{pool:#x}"), str::to_owned)
    }

    /// The GPU that an allocation, or a chunk's pool, is on.
    pub fn device(&self, a: &Allocation) -> Option<DeviceIndex> {
        match (a.layer, a.pool) {
            (BlockLayer::Chunk, Some(pool)) => super::devices::of(self.process, self.process.pools.get(&pool)?)?.device,
            (BlockLayer::Chunk | BlockLayer::Heap, _) => None,
            _ => self.process.gpu.device_of(a.layer, a.addr),
        }
    }

    /// `session 3`, `worker session 4f2ac1e09b3d5a78`
    pub fn owner_name(&self, id: SessionId) -> String {
        match self.process.worker_sessions.find(id) {
            Some(worker) => format!("worker session {}", plain(&worker.handle, 20)),
            None => format!("session {id}"),
        }
    }

    /// What outlived this boundary.
    pub fn survivors(&self) -> impl Iterator<Item = Allocation> + '_ {
        let claim = match self.subject {
            Subject::Session(id) => Claim::of(&self.process.sessions, id),
            _ => None,
        };
        self.process.allocations().filter(is_memory).filter(move |a| match self.subject {
            Subject::Process => true,
            Subject::Session(_) => claim.as_ref().is_some_and(|c| c.holds(a)),
            Subject::Worker(id) => of_worker(self.process, id, a),
            Subject::Server(_) => a.owner.is_some_and(|owner| is_served(self.process, owner)),
            // Born in the span itself: what was there when it began is not its own.
            Subject::Mark(_) | Subject::Symbol(_) => self.opened < a.born && a.born <= self.at,
            Subject::Context(_) => a.owner.is_none() && (self.opened..=self.at).contains(&a.born),
        })
    }
}

/// Which memory is a session's: what its runs allocated, and what nobody knows whose it is while no other session can
/// be meant.
///
/// Memory without an owner that was born while several sessions were open is the last one's to be closed, and nobody's
/// as long as one of them is open: no session is blamed for another's memory.
#[derive(Debug)]
pub(super) struct Claim {
    id: SessionId,
    span: RangeInclusive<u64>,
    /// Spans of sessions that are open, or were closed after this one.
    rivals: Vec<RangeInclusive<u64>>,
}

impl Claim {
    pub fn of(sessions: &[Session], id: SessionId) -> Option<Self> {
        let this = sessions.iter().find(|s| s.id == id)?;
        // While the closing call is under way the span reaches up to now.
        let end = ended(this).unwrap_or(u64::MAX);
        let rivals = sessions.iter().filter(|s| s.id != id && s.opened <= end).filter_map(|s| match ended(s) {
            None => Some(s.opened..=u64::MAX),
            Some(e) => ((e, s.id) > (end, id)).then_some(s.opened..=e),
        });
        Some(Self { id, span: this.opened..=end, rivals: rivals.collect() })
    }

    pub fn holds(&self, a: &Allocation) -> bool {
        match a.owner {
            Some(owner) => owner == self.id,
            None => self.span.contains(&a.born) && !self.rivals.iter().any(|r| r.contains(&a.born)),
        }
    }
}

/// Whether memory is a worker session's: made by its steps, which in the process of its client are the client's.
pub(super) fn of_worker(process: &Process, id: SessionId, a: &Allocation) -> bool {
    let Some(owner) = a.owner else { return false };
    let client = || process.session(owner).and_then(|s| s.remote_handle.clone());
    owner == id || process.worker_sessions.find(id).is_some_and(|worker| client().is_some_and(|h| h == worker.handle))
}

/// Whether a session ran on a server of this process, as far as that is known.
fn is_served(process: &Process, owner: SessionId) -> bool {
    process.worker_sessions.find(owner).is_some() || process.session(owner).is_some_and(|s| s.remote)
}

/// When a session's span ended: its close, or the delete that was its close.
pub(super) fn ended(session: &Session) -> Option<u64> {
    session.closed.or(session.deleted)
}

/// Blocks that count as memory of the program. A region does not: what is in use of it are its chunks, and the rest is
/// the pool's reserve.
pub(super) const fn is_memory(a: &Allocation) -> bool {
    matches!((a.layer, a.pool), (BlockLayer::Chunk, _) | (_, None))
}
