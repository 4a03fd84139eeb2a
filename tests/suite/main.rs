//! Integration tests: tfmem on real programs. One module for each thing it can do.

mod boundaries;
mod cases;
mod children;
mod distributed;
mod doctor;
mod errors;
mod fixtures;
mod followed;
mod hold;
mod mapping_storm;
mod messy;
mod output;
mod pool_totals;
mod recording;
mod schema;
