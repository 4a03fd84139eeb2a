//! C++ objects that are alive, by class.

mod kind;
mod rtti;
mod vtables;

pub use kind::Kind;
pub use rtti::Static;
pub use vtables::{Class, Classes};
