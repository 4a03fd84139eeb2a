//! Who points to whom, as far as it was looked for.

use std::{ops::Range, sync::Arc};

use crate::snapshot::objects::Kind;

/// Something that is pointed to or that points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub place: Place,
    /// Where its data lie.
    pub range: Range<u64>,
    /// Who points to it; not all, where there are very many.
    pub references: Vec<Reference>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The node that has the pointer.
    pub from: usize,
    /// Where exactly it lies.
    pub at: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A C++ object, with the name of its class.
    Object(Kind, Arc<str>),
    /// A chunk without a vtable.
    Part,
    /// A Python object, with the name of its type where it could be read.
    Python(Option<Arc<str>>),
    /// Data of a library or a program.
    Static(Arc<str>),
}

impl Place {
    /// Does the search go on behind it?
    pub const fn is_asked(&self) -> bool {
        match self {
            Self::Object(kind, _) => kind.has_holder(),
            Self::Part => true,
            Self::Python(_) | Self::Static(_) => false,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Graph {
    pub nodes: Vec<Node>,
}
