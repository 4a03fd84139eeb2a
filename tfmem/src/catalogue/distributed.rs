//! Distributed TensorFlow: client sessions, masters, workers and servers.
//!
//! What ties the processes is the session's handle, 16 hexadecimal digits made by the master (`MasterSession`'s
//! constructor, tensorflow/core/distributed_runtime/master_session.cc). A worker hears of a session by
//! `SessionMgr::CreateSession` only when the session is isolated or brings its own cluster; else (the default) by the
//! graphs that the master registers for it. So both are watched.

use tfmem_common::cookie::Text;

use super::table::{ALL_READ, C_API, exact, prefix};
use super::{Entry, Program, Several};
use crate::event::Call;

/// Not needed to recognise a library by.
const DISTRIBUTED: Entry = Entry { landmark: false, ..C_API };

/// `GraphMgr::Item::session`, behind the virtual table and the reference count
/// (tensorflow/core/distributed_runtime/graph_mgr.h). Read in the destructors of 2.12.0, 2.15.1, 2.18.1 and 2.21.0:
/// each passes the string at +16 on as the session's handle.
const ITEM_SESSION: u16 = 16;

pub const ENTRIES: &[Entry] = &[
    // --- the client ---
    Entry {
        name: "GrpcSession::GrpcSession",
        meaning: "a client's session on a server was made",
        call: Some(Call::GrpcSessionNew),
        registers: 2,
        several: Several::Variants,
        spellings: &[
            exact("_ZN10tensorflow11GrpcSessionC2ERKNS_14SessionOptionsE", Text::None, ALL_READ),
            exact("_ZN10tensorflow11GrpcSessionC1ERKNS_14SessionOptionsE", Text::None, ALL_READ),
        ],
        ..DISTRIBUTED
    },
    Entry {
        name: "GrpcSession::Close",
        meaning: "a client closed its session on a server",
        program: Program::CallAndReturn,
        call: Some(Call::GrpcSessionClose),
        registers: 2,
        spellings: &[exact("_ZN10tensorflow11GrpcSession5CloseEv", Text::None, ALL_READ)],
        ..DISTRIBUTED
    },
    Entry {
        name: "GrpcSession::~GrpcSession",
        meaning: "a client's session on a server was destroyed",
        call: Some(Call::GrpcSessionDestroy),
        several: Several::Variants,
        spellings: &[
            exact("_ZN10tensorflow11GrpcSessionD2Ev", Text::None, ALL_READ),
            exact("_ZN10tensorflow11GrpcSessionD1Ev", Text::None, ALL_READ),
            exact("_ZN10tensorflow11GrpcSessionD0Ev", Text::None, ALL_READ),
        ],
        ..DISTRIBUTED
    },
    // `GrpcSession::SetHandleAndGraphVersion` would tell the handle earlier, but it is inlined from 2.15 on. These are
    // virtual, and called by the thread that runs the session.
    Entry {
        name: "RunStepRequest::set_session_handle",
        meaning: "a client names its session to the master: ties the session to its handle",
        call: Some(Call::RemoteHandle),
        registers: 2,
        spellings: &[
            exact(
                "_ZN10tensorflow26MutableProtoRunStepRequest18set_session_handleERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
                Text::StdString(1),
                ALL_READ,
            ),
            exact(
                "_ZN10tensorflow22InMemoryRunStepRequest18set_session_handleERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
                Text::StdString(1),
                ALL_READ,
            ),
        ],
        ..DISTRIBUTED
    },
    // --- the master ---
    Entry {
        name: "MasterSession::MasterSession",
        meaning: "a master opened a session for a client",
        call: Some(Call::MasterSessionNew),
        registers: 1,
        several: Several::Variants,
        // The rest of the name holds types of the standard library and of protobuf.
        spellings: &[
            prefix("_ZN10tensorflow13MasterSessionC2ERKNS_14SessionOptionsE", Text::None, ALL_READ),
            prefix("_ZN10tensorflow13MasterSessionC1ERKNS_14SessionOptionsE", Text::None, ALL_READ),
        ],
        ..DISTRIBUTED
    },
    Entry {
        name: "MasterSession::Close",
        meaning: "a master closed a session",
        program: Program::CallAndReturn,
        call: Some(Call::MasterSessionClose),
        registers: 2,
        spellings: &[exact("_ZN10tensorflow13MasterSession5CloseEv", Text::None, ALL_READ)],
        ..DISTRIBUTED
    },
    Entry {
        name: "MasterSession::~MasterSession",
        meaning: "a master's session was destroyed",
        call: Some(Call::MasterSessionDestroy),
        several: Several::Variants,
        spellings: &[
            exact("_ZN10tensorflow13MasterSessionD2Ev", Text::None, ALL_READ),
            exact("_ZN10tensorflow13MasterSessionD1Ev", Text::None, ALL_READ),
            exact("_ZN10tensorflow13MasterSessionD0Ev", Text::None, ALL_READ),
        ],
        ..DISTRIBUTED
    },
    // --- the worker ---
    Entry {
        name: "SessionMgr::CreateSession",
        meaning: "a worker opened a session of its own for a master",
        call: Some(Call::WorkerSessionCreate),
        registers: 3,
        // Overloads call each other with the same handle, and the rest of the names holds absl's inline namespace.
        spellings: &[prefix(
            "_ZN10tensorflow10SessionMgr13CreateSessionERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKNS_9ServerDefE",
            Text::StdString(2),
            ALL_READ,
        )],
        ..DISTRIBUTED
    },
    Entry {
        name: "SessionMgr::DeleteSession",
        meaning: "a worker deleted such a session",
        program: Program::CallAndReturn,
        call: Some(Call::WorkerSessionDelete),
        registers: 3,
        spellings: &[exact(
            "_ZN10tensorflow10SessionMgr13DeleteSessionERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE",
            Text::StdString(2),
            ALL_READ,
        )],
        ..DISTRIBUTED
    },
    Entry {
        name: "GraphMgr::Register",
        meaning: "a master registered a graph of a session on this worker",
        program: Program::CallAndReturn,
        call: Some(Call::WorkerGraphNew),
        registers: 3,
        spellings: &[prefix(
            "_ZN10tensorflow8GraphMgr8RegisterERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEERKNS_8GraphDefE",
            Text::StdString(2),
            ALL_READ,
        )],
        ..DISTRIBUTED
    },
    Entry {
        name: "GraphMgr::Item::~Item",
        meaning: "such a graph is gone from this worker",
        program: Program::CallAndReturn,
        call: Some(Call::WorkerGraphGone),
        several: Several::Variants,
        spellings: &[
            exact("_ZN10tensorflow8GraphMgr4ItemD2Ev", Text::StdStringAt(0, ITEM_SESSION), ALL_READ),
            exact("_ZN10tensorflow8GraphMgr4ItemD1Ev", Text::StdStringAt(0, ITEM_SESSION), ALL_READ),
            exact("_ZN10tensorflow8GraphMgr4ItemD0Ev", Text::StdStringAt(0, ITEM_SESSION), ALL_READ),
        ],
        ..DISTRIBUTED
    },
    Entry {
        name: "GraphMgr::StartParallelExecutors",
        meaning: "a step begins on this worker: ties the step's number to the session's handle",
        call: Some(Call::WorkerStep),
        registers: 4,
        // (graph handle, step, item, …)
        spellings: &[prefix(
            "_ZN10tensorflow8GraphMgr22StartParallelExecutorsERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEElPNS0_4ItemE",
            Text::StdStringAt(3, ITEM_SESSION),
            ALL_READ,
        )],
        ..DISTRIBUTED
    },
    // --- servers ---
    Entry {
        name: "TF_NewServer",
        meaning: "a server was made",
        program: Program::CallAndReturn,
        call: Some(Call::NewServer),
        registers: 3,
        spellings: &[exact("TF_NewServer", Text::None, ALL_READ)],
        ..DISTRIBUTED
    },
    Entry {
        name: "TF_ServerStop",
        meaning: "a server was told to stop",
        program: Program::CallAndReturn,
        call: Some(Call::ServerStop),
        spellings: &[exact("TF_ServerStop", Text::None, ALL_READ)],
        ..DISTRIBUTED
    },
    Entry {
        name: "TF_DeleteServer",
        meaning: "a server was deleted",
        program: Program::CallAndReturn,
        call: Some(Call::DeleteServer),
        spellings: &[exact("TF_DeleteServer", Text::None, ALL_READ)],
        ..DISTRIBUTED
    },
    Entry {
        name: "GrpcServer::Stop",
        meaning: "the server behind a handle was told to stop",
        program: Program::CallAndReturn,
        call: Some(Call::GrpcServerStop),
        registers: 2,
        spellings: &[exact("_ZN10tensorflow10GrpcServer4StopEv", Text::None, ALL_READ)],
        ..DISTRIBUTED
    },
    Entry {
        name: "GrpcServer::~GrpcServer",
        meaning: "the server behind a handle was destroyed",
        call: Some(Call::GrpcServerDestroy),
        several: Several::Variants,
        spellings: &[
            exact("_ZN10tensorflow10GrpcServerD2Ev", Text::None, ALL_READ),
            exact("_ZN10tensorflow10GrpcServerD1Ev", Text::None, ALL_READ),
            exact("_ZN10tensorflow10GrpcServerD0Ev", Text::None, ALL_READ),
        ],
        ..DISTRIBUTED
    },
    // --- containers ---
    Entry {
        name: "TF_Reset",
        meaning: "a client had a server clear its containers",
        program: Program::CallAndReturn,
        call: Some(Call::Reset),
        registers: 3,
        spellings: &[exact("TF_Reset", Text::None, ALL_READ)],
        ..DISTRIBUTED
    },
    Entry {
        name: "Worker::CleanupAllAsync",
        meaning: "this worker clears containers",
        call: Some(Call::WorkerCleanup),
        registers: 1,
        spellings: &[prefix("_ZN10tensorflow6Worker15CleanupAllAsyncEPKNS_17CleanupAllRequestE", Text::None, ALL_READ)],
        ..DISTRIBUTED
    },
];
