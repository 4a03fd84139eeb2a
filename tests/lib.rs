//! Helpers of the integration tests: run tfmem on real programs and read its report.

mod harness;

pub use harness::{
    agent, attach, fixtures, gpu, look, machine, mapped, mapping_storm, native, program, running, schema, snapshot,
    trace,
};

/// Each case once for each required environment, so that a failure names both. The module that calls it has a function
/// `required(test, environment, case)`.
#[macro_export]
macro_rules! on_each_tensorflow {
    // With a list of all of them, by their names.
    ($all:ident: $($case:ident),+ $(,)?) => {
        $crate::on_each_tensorflow!($($case),+);
        const $all: &[(&str, fn(&std::path::Path) -> anyhow::Result<()>)] = &[$((stringify!($case), $case)),+];
    };
    ($($case:ident),+ $(,)?) => {
        mod tf_2_15_1 {
            $(#[test]
            fn $case() -> anyhow::Result<()> {
                super::required(stringify!($case), "tf-2.15.1", super::$case)
            })+
        }
        mod tf_2_21_0 {
            $(#[test]
            fn $case() -> anyhow::Result<()> {
                super::required(stringify!($case), "tf-2.21.0", super::$case)
            })+
        }
    };
}
