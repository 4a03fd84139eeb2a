//! `tfmem agent`: every TensorFlow process of a host, for as long as the host runs.

pub mod config;
pub mod control;
mod desk;
pub mod discover;
mod escalation;
mod export;
mod http;
pub mod ledgers;
mod limits;
mod metrics;
mod run;
pub mod who;

pub use run::run;
