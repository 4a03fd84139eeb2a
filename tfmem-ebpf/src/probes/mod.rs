//! One file for each family of probes.

mod broken;
mod calls;
mod chunk;
mod gpu;
mod heap;
mod kernel_functions;
mod memory;
mod nothing;
mod process;
mod system_calls;
