//! One file for each family of probes.

mod broken;
mod calls;
mod chunk;
mod heap;
mod memory;
mod nothing;
mod process;
