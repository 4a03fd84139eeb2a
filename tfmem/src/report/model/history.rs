//! Handles and the timeline: what a process opened and closed, and how its memory went.

use serde::{Deserialize, Serialize};

use super::Place;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Handles {
    pub sessions: Sessions,
    pub graphs: HandleCount,
    pub contexts: HandleCount,
    pub functions: HandleCount,
    pub resources: HandleCount,
    pub iterators: HandleCount,
    /// `closed`: told to stop or deleted.
    pub servers: HandleCount,
    /// Sessions of clients, here or elsewhere, that this process worked for.
    #[serde(default)]
    pub worker_sessions: HandleCount,
    /// Sessions that this process was the master of.
    #[serde(default)]
    pub master_sessions: HandleCount,
    /// Which of these counts are not exact.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bounds: Vec<HandleBound>,
}

/// Counts that are not exact, because records of calls were lost: the truth lies between the two, both included.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandleBound {
    pub class: HandleClass,
    pub opened_at_least: u64,
    pub opened_at_most: u64,
    pub closed_at_least: u64,
    pub closed_at_most: u64,
    /// Records of calls that were lost, of whatever class.
    pub lost_calls: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HandleClass {
    Sessions,
    Graphs,
    Contexts,
    Functions,
    Servers,
    WorkerSessions,
    MasterSessions,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sessions {
    pub opened: u64,
    pub closed: u64,
    pub deleted: u64,
    pub open: Vec<OpenSession>,
    pub ended: Vec<EndedSession>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct OpenSession {
    pub id: u64,
    /// Its handle on its master, where it is a session on a server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handle: Option<String>,
    pub opened_at: String,
    pub age_ms: u64,
    /// Bytes alive that this session's runs allocated.
    pub bytes: u64,
    #[serde(rename = "where", skip_serializing_if = "Option::is_none")]
    pub place: Option<Place>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct EndedSession {
    pub id: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub handle: Option<String>,
    pub opened_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deleted_at: Option<String>,
}

/// `null`: no probe looks at this kind of handle in this trace.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct HandleCount {
    pub opened: Option<u64>,
    pub closed: Option<u64>,
}

/// Resident bytes over time. `bands[i].bytes[k]` is the band's height at `edges[k]` (ns on the boot clock).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Timeline {
    pub edges: Vec<u64>,
    pub bands: Vec<TimelineBand>,
    /// Bytes of chunks and heap blocks alive at each edge (from the events, resident or not).
    pub in_use: Vec<u64>,
    pub rss: Vec<Option<u64>>,
    pub devices: Vec<TimelineDevice>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TimelineBand {
    pub band: String,
    pub bytes: Vec<Option<u64>>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TimelineDevice {
    pub index: u32,
    pub nvml: Vec<Option<u64>>,
}
