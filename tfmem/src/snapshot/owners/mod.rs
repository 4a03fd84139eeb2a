//! Who holds a tensor's buffer: backwards along pointers, level by level, until an object that means something.
//!
//! A pointer counts where it lies in a chunk in use, in a block of Python's, or in static data. What a chunk is, its
//! vtable says; one without is a part of something (a list, a table's slots), and whoever points into it is asked next.

mod graph;
mod kept;
mod name;
mod search;
mod targets;
#[cfg(test)]
mod tests;

pub use graph::Graph;
pub use name::{Owner, add_holder, owner};
pub use search::{Found, Met, search};
