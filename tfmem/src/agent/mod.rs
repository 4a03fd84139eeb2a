//! `tfmem agent`: every TensorFlow process of a host, for as long as the host runs.

pub mod config;
pub mod discover;
mod escalation;
mod ledgers;
mod limits;
mod metrics;
pub mod who;
