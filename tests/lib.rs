//! Helpers of the integration tests: run tfmem on real programs and read its report.

mod harness;

pub use harness::{
    attach, fixtures, look, machine, mapped, mapping_storm, native, program, running, schema, snapshot, trace,
};
