//! `tfmem agent` on stand-ins and on real TensorFlow.

mod configuration;
mod discovery;
mod endpoints;
mod escalation;
mod prometheus;
mod tensorflow;
mod who;
