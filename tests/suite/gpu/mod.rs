//! Memory of GPUs, over a stand-in driver whose log is the truth.

mod calls;
mod real;
mod tensorflow;
