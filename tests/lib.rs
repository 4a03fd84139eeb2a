//! Helpers of the integration tests: run tfmem on real programs and read its report.

mod harness;

pub use harness::{fixtures, look, machine, program, schema, trace};
