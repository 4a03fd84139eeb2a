//! One module for each thing a test needs.

pub mod agent;
pub mod attach;
pub mod fixtures;
pub mod gpu;
pub mod look;
pub mod machine;
pub mod mapped;
pub mod mapping_storm;
pub mod native;
pub mod program;
pub mod running;
pub mod schema;
pub mod snapshot;
pub mod trace;

#[allow(dead_code, reason = "the tests need the Python environments' places only")]
#[path = "../../xtask/src/layout.rs"]
mod layout;
