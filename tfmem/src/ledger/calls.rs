//! What each thread is inside of, and which step belongs to which session.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::event::{Addr, Call, Origin, StackId};
use crate::ledger::types::SessionId;

/// Deeper nesting than this is no program but lost returns.
pub(super) const MAX_DEPTH: usize = 64;

/// Steps are looked up while they run; a later one than this many has ended long ago.
const MAX_STEPS: usize = 4096;

/// Calls that only their entry tells of: no [`Body::Leave`](crate::event::Body::Leave) ever comes.
pub(super) const fn entry_only(call: Call) -> bool {
    match call {
        Call::PoolNew
        | Call::PoolDestroy
        | Call::PoolDeallocateRegions
        | Call::DirectSessionNew
        | Call::DirectSessionDestroy
        | Call::DirectSessionStep
        | Call::AddFunction
        | Call::RemoveFunction
        | Call::DeleteGraph
        | Call::GrpcSessionNew
        | Call::GrpcSessionDestroy
        | Call::RemoteHandle
        | Call::MasterSessionNew
        | Call::MasterSessionDestroy
        | Call::WorkerSessionCreate
        | Call::WorkerStep
        | Call::GrpcServerDestroy
        | Call::WorkerCleanup => true,
        Call::NewSession
        | Call::LoadSavedModel
        | Call::CloseSession
        | Call::DeleteSession
        | Call::SessionRun
        | Call::DirectSessionClose
        | Call::NewGraph
        | Call::NewContext
        | Call::DeleteContext
        | Call::ClearCaches
        | Call::PoolExtend
        | Call::GrpcSessionClose
        | Call::MasterSessionClose
        | Call::WorkerSessionDelete
        | Call::WorkerGraphNew
        | Call::WorkerGraphGone
        | Call::NewServer
        | Call::ServerStop
        | Call::DeleteServer
        | Call::GrpcServerStop
        | Call::Reset => false,
    }
}

/// Calls a program makes; what is not one of these is made by TensorFlow inside of them.
pub(super) const fn from_program(call: Call) -> bool {
    matches!(
        call,
        Call::NewSession
            | Call::LoadSavedModel
            | Call::CloseSession
            | Call::DeleteSession
            | Call::SessionRun
            | Call::NewGraph
            | Call::NewContext
            | Call::DeleteContext
            | Call::ClearCaches
            | Call::NewServer
            | Call::ServerStop
            | Call::DeleteServer
            | Call::Reset
    )
}

/// Whether the program can be called back, and so make calls of its own, inside this call: a run executes Python
/// functions, and a context that goes may release Python objects. The others cannot: seen inside one of them, a
/// program's call means that the return of the outer one was lost.
pub(super) const fn calls_back(call: Call) -> bool {
    matches!(call, Call::SessionRun | Call::DeleteContext | Call::ClearCaches)
}

/// A call under way.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub call: Call,
    pub at: u64,
    /// The first argument: the handle, the object or the pool.
    pub arg: u64,
    /// The session it is about; for one that is being opened, the number it will have.
    pub session: Option<SessionId>,
    /// The `DirectSession` or `GrpcSession` made inside, and which of them.
    pub direct: Addr,
    pub remote: bool,
    /// The worker session or the server it is about.
    pub about: Option<u64>,
    pub text: Option<Arc<str>>,
    /// Heap blocks that became regions inside.
    pub regions: Vec<Addr>,
}

impl Frame {
    pub const fn opens_session(&self) -> bool {
        matches!(self.call, Call::NewSession | Call::LoadSavedModel)
    }

    pub const fn ends_session(&self) -> bool {
        matches!(
            self.call,
            Call::CloseSession | Call::DeleteSession | Call::DirectSessionClose | Call::GrpcSessionClose
        )
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Thread {
    pub stack: Vec<Frame>,
    /// The block it gave back last, while it has not allocated since: the sized free calls the plain one.
    pub last_freed: Addr,
    /// The object whose constructor or destructor it entered last: compilers make two of each, one calling the other.
    pub last_made: Addr,
    pub last_gone: Addr,
}

/// Steps with their sessions and where they were begun, the last few thousand of them.
#[derive(Clone, Debug, Default)]
pub(super) struct Steps {
    sessions: FxHashMap<i64, (SessionId, Option<StackId>)>,
    order: VecDeque<i64>,
}

impl Steps {
    pub fn insert(&mut self, step: i64, session: SessionId, launch: Option<StackId>) {
        if self.sessions.insert(step, (session, launch)).is_none() {
            self.order.push_back(step);
            if self.order.len() > MAX_STEPS
                && let Some(oldest) = self.order.pop_front()
            {
                self.sessions.remove(&oldest);
            }
        }
    }

    pub fn get(&self, step: i64) -> Option<SessionId> {
        self.sessions.get(&step).map(|(session, _)| *session)
    }

    /// The stack of the thread that began the step in which something was allocated. Without an op there is no step.
    pub fn launch(&self, origin: &Origin) -> Option<StackId> {
        self.sessions.get(&origin.step).filter(|_| origin.op != 0)?.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_steps_are_forgotten() {
        let mut steps = Steps::default();
        for step in 0..10_000 {
            steps.insert(step, 1, None);
            steps.insert(step, 2, StackId::new(7));
        }
        assert_eq!(steps.order.len(), MAX_STEPS);
        assert_eq!(steps.sessions.len(), MAX_STEPS);
        assert_eq!(steps.get(9_999), Some(2));
        assert_eq!(steps.get(9_999 - 4096), None);
        let of = |op| steps.launch(&Origin { op, step: 9_999, ..Origin::default() });
        assert_eq!((of(1), of(0)), (StackId::new(7), None));
    }
}
