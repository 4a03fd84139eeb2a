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
    /// Another resource that keeps tensors: a queue, a writer of summaries.
    Resource,
    Cache,
    Iterator,
    Dataset,
    Handle,
    Executor,
    Device,
    Pool,
    Buffer,
    Slice,
    /// A description of a function or of a node of a graph.
    Definition,
    Other,
}

impl Kind {
    /// By the demangled name of the class. Namespaces have moved between versions (`tensorflow`, `tsl`): the end tells.
    #[must_use]
    pub fn of(class: &str) -> Self {
        let last = last_part(class);
        let ours = class.contains("tensorflow::") || class.starts_with("tsl::");
        match last {
            // What the C API made, from an array of numpy's for one.
            "TF_ManagedBuffer" if class == last => Self::Buffer,
            _ if !ours => Self::Other,
            "DirectSession" | "MasterSession" | "GrpcSession" => Self::Session,
            "GrpcServer" => Self::Server,
            "EagerContext" => Self::Context,
            "Var" | "LegacyVar" => Self::Variable,
            // The second is what an array of numpy's has that shares a tensor's memory.
            "TensorHandle" | "TensorInterface" => Self::Handle,
            "ExecutorImpl" => Self::Executor,
            "BFCAllocator" | "GPUBFCAllocator" => Self::Pool,
            "ThreadPoolDevice" | "LocalDevice" | "GPUDevice" | "BaseGPUDevice" => Self::Device,
            "IteratorResource" | "Iterator" => Self::Iterator,
            _ if class.contains("DatasetOp") && class.contains("::Iterator::") => Self::Iterator,
            _ if last.ends_with("Queue") || last.ends_with("SummaryWriter") || last.ends_with("SummaryFileWriter") => {
                Self::Resource
            }
            "Stack" | "TensorArray" | "StagingMap" | "Barrier" => Self::Resource,
            "Dataset" => Self::Dataset,
            "FunctionRecord" | "FunctionDefAndOpRegistration" | "FunctionDef" | "NodeDef" | "GraphDef" => {
                Self::Definition
            }
            "FunctionLibraryDefinition" | "TensorProto" => Self::Definition,
            _ if class.contains("_Sp_counted_ptr_inplace<tensorflow::NodeProperties") => Self::Definition,
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
        matches!(self, Self::Variable | Self::Table | Self::Resource | Self::Handle | Self::Buffer | Self::Slice)
    }

    /// How much it says as the owner of a buffer: the higher, the more.
    #[must_use]
    pub const fn weight(self) -> u32 {
        match self {
            Self::Variable | Self::Table | Self::Cache | Self::Resource => 9,
            Self::Iterator => 8,
            Self::Dataset | Self::Session => 6,
            Self::Handle => 5,
            Self::Executor | Self::Server | Self::Context | Self::Device | Self::Pool => 4,
            Self::Other | Self::Buffer | Self::Slice | Self::Definition => 3,
        }
    }

    /// As an owner in the events.
    #[must_use]
    pub const fn holder(self) -> HolderKind {
        match self {
            Self::Variable => HolderKind::Variable,
            Self::Table => HolderKind::Table,
            Self::Resource => HolderKind::Resource,
            Self::Cache | Self::Iterator | Self::Dataset => HolderKind::Pipeline,
            Self::Handle => HolderKind::Handle,
            Self::Executor | Self::Definition => HolderKind::Graph,
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
            Self::Resource => "resource",
            Self::Cache => "dataset cache",
            Self::Iterator => "iterator",
            Self::Dataset => "dataset",
            Self::Handle => "tensor handle",
            Self::Executor => "executor",
            Self::Device => "device",
            Self::Pool => "pool",
            Self::Buffer => "tensor buffer",
            Self::Slice => "slice of a tensor",
            Self::Definition => "definition of a function or node",
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
            ("TF_ManagedBuffer", Kind::Buffer),
            ("mine::TF_ManagedBuffer", Kind::Other),
            ("tensorflow::FIFOQueue", Kind::Resource),
            ("tensorflow::FunctionRecord", Kind::Definition),
            ("xla::Buffer<float>", Kind::Other),
            ("std::vector<tensorflow::Var>", Kind::Other),
        ] {
            assert_eq!(Kind::of(class), kind, "{class}: {}", last_part(class));
        }
    }
}
