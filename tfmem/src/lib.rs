//! tfmem: traces memory that TensorFlow does not give back, from outside the process.
//!
//! One direction of data: a source (ring buffer or recording) yields [`event::Event`]s, the [`ledger`] turns them into
//! lifetimes, [`retention`] looks at them at boundaries, [`report`] shows what it found.

pub mod agent;
pub mod attach;
pub mod catalogue;
pub mod cli;
pub mod doctor;
pub mod event;
pub mod export;
pub mod ledger;
pub mod live;
pub mod names;
pub mod observe;
pub mod profile;
pub mod python;
pub mod recording;
pub mod report;
pub mod retention;
pub mod snapshot;
pub mod stream;
pub mod symbols;
pub mod target;
pub mod unwind;
