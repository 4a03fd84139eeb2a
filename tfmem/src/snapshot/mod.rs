//! What a process holds right now, read from outside: no probe, no stop, no symbol, nothing loaded into it.
//!
//! Order: mappings and resident pages ([`space`]), arenas of the C heap ([`heap`]), large blocks and Python's pools
//! ([`heads`]), one pass over the rest ([`scan`]: objects by class, pointers), TensorFlow's pools, who holds what ([`owners`]). Every
//! layout shows in what lies there and is checked; what does not pass its check is not claimed. All that is read may
//! be garbage (the process runs on meanwhile, or is hostile): every list has a bound, and so has our own memory.

mod allocator;
mod checks;
mod clusters;
mod contents;
mod definitions;
pub mod diff;
mod ground;
mod heads;
pub mod heap;
mod holders;
mod messages;
pub mod model;
mod nearby;
mod objects;
mod owners;
mod parts;
mod pointers;
mod pools;
mod pymalloc;
mod python_type;
mod scan;
mod scopes;
pub mod space;
mod take;
pub mod text;
mod text_in;
pub mod window;

pub use contents::Contents;
pub use ground::{Clock, Ground};
pub use objects::Kind;
pub use take::{MOST_HOLDERS, take};
