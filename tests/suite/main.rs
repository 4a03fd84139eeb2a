//! Integration tests: tfmem on real programs. One module for each thing it can do.

mod cases;
mod children;
mod doctor;
mod errors;
mod fixtures;
mod hold;
mod output;
mod pool_totals;
mod schema;
