//! Integration tests: tfmem on real programs. One module for each thing it can do.

mod agent;
mod boundaries;
mod capabilities;
mod cases;
mod children;
mod complaints;
mod distributed;
mod doctor;
mod errors;
mod fixtures;
mod followed;
mod gpu;
mod hold;
mod mapping_storm;
mod memory_map;
pub mod messy;
mod output;
mod overflow;
mod pool_totals;
mod python;
mod python_lines;
mod python_stacks;
mod recording;
mod schema;
mod snapshot;
mod stacks;
mod uprobes;
