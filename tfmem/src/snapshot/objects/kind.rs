//! Which of TensorFlow's classes matter, and what a person calls them.

use serde::{Deserialize, Serialize};

use crate::event::HolderKind;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Session,
    Server,
    Context,
    Variable,
    Table,
    Cache,
    Iterator,
    Dataset,
    Handle,
    Executor,
    Device,
    Pool,
    Buffer,
    Slice,
    Other,
}

impl Kind {
    /// By the demangled name of the class. Namespaces have moved between versions (`tensorflow`, `tsl`): the end tells.
    #[must_use]
    pub fn of(class: &str) -> Self {
        let last = last_part(class);
        let ours = class.contains("tensorflow::") || class.starts_with("tsl::");
        match last {
            _ if !ours => Self::Other,
            "DirectSession" | "MasterSession" | "GrpcSession" => Self::Session,
            "GrpcServer" => Self::Server,
            "EagerContext" => Self::Context,
            "Var" | "LegacyVar" => Self::Variable,
            "TensorHandle" => Self::Handle,
            "ExecutorImpl" => Self::Executor,
            "BFCAllocator" | "GPUBFCAllocator" => Self::Pool,
            "ThreadPoolDevice" | "LocalDevice" | "GPUDevice" | "BaseGPUDevice" => Self::Device,
            "IteratorResource" | "Iterator" => Self::Iterator,
            "Dataset" => Self::Dataset,
            _ if class.contains("::Buffer<") && class.contains("(anonymous namespace)") => Self::Buffer,
            _ if class.contains("::SubBuffer<") => Self::Slice,
            _ if class.contains("MemoryCache") => Self::Cache,
            _ if class.contains("lookup::") && last.contains("Table") && !last.contains("Op") => Self::Table,
            _ => Self::Other,
        }
    }

    /// Does a container or a Python object hold it under a name, so that it pays to look further?
    #[must_use]
    pub const fn has_holder(self) -> bool {
        matches!(self, Self::Variable | Self::Table | Self::Handle | Self::Buffer | Self::Slice)
    }

    /// How much it says as the owner of a buffer: the higher, the more.
    #[must_use]
    pub const fn weight(self) -> u32 {
        match self {
            Self::Variable | Self::Table | Self::Cache => 9,
            Self::Iterator => 8,
            Self::Dataset | Self::Session => 6,
            Self::Handle => 5,
            Self::Executor | Self::Server | Self::Context | Self::Device | Self::Pool => 4,
            Self::Other | Self::Buffer | Self::Slice => 3,
        }
    }

    /// As an owner in the events.
    #[must_use]
    pub const fn holder(self) -> HolderKind {
        match self {
            Self::Variable => HolderKind::Variable,
            Self::Table => HolderKind::Table,
            Self::Cache | Self::Iterator | Self::Dataset => HolderKind::Pipeline,
            Self::Handle => HolderKind::Handle,
            _ => HolderKind::Other,
        }
    }

    /// What one is called.
    #[must_use]
    pub const fn noun(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Server => "server",
            Self::Context => "eager context",
            Self::Variable => "variable",
            Self::Table => "table",
            Self::Cache => "dataset cache",
            Self::Iterator => "iterator",
            Self::Dataset => "dataset",
            Self::Handle => "tensor handle",
            Self::Executor => "executor",
            Self::Device => "device",
            Self::Pool => "pool",
            Self::Buffer => "tensor buffer",
            Self::Slice => "slice of a tensor",
            Self::Other => "object",
        }
    }
}

/// The name behind the last `::` that is not inside template arguments or parentheses, without such arguments.
fn last_part(class: &str) -> &str {
    let (mut depth, mut from, mut end) = (0_i32, 0, class.len());
    for (at, byte) in class.bytes().enumerate() {
        match byte {
            b'<' | b'(' => {
                if depth == 0 {
                    end = at;
                }
                depth += 1;
            }
            b'>' | b')' => depth -= 1,
            b':' if depth == 0 => (from, end) = (at + 1, class.len()),
            _ => {}
        }
    }
    class.get(from..end.max(from)).unwrap_or(class)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_by_their_names() {
        for (class, kind) in [
            ("tensorflow::DirectSession", Kind::Session),
            ("tensorflow::Var", Kind::Variable),
            ("tensorflow::(anonymous namespace)::Buffer<float>", Kind::Buffer),
            ("tensorflow::lookup::MutableHashTableOfTensors<long, float>", Kind::Table),
            ("tensorflow::lookup::HashTableOp<tensorflow::lookup::HashTable<long, float>, long, float>", Kind::Other),
            ("tensorflow::data::ShuffleDatasetOpBase::ShuffleDatasetBase::Iterator<tensorflow::X>", Kind::Iterator),
            ("std::_Sp_counted_ptr_inplace<tensorflow::data::MemoryCache, std::allocator<void>, 2>", Kind::Cache),
            ("tsl::BFCAllocator", Kind::Pool),
            ("tensorflow::GPUBFCAllocator", Kind::Pool),
            ("xla::Buffer<float>", Kind::Other),
            ("std::vector<tensorflow::Var>", Kind::Other),
        ] {
            assert_eq!(Kind::of(class), kind, "{class}: {}", last_part(class));
        }
    }
}
