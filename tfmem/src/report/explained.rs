//! What each cause means: the same words for `tfmem explain`, whoever asks.

use super::model::Cause;

/// One cause, explained.
#[derive(Clone, Copy, Debug)]
pub struct Explained {
    pub cause: Cause,
    /// As the report calls it.
    pub name: &'static str,
    pub means: &'static str,
    pub proved_by: &'static str,
    pub gives_back: &'static str,
    pub mistaken_for: &'static str,
}

#[must_use]
pub fn by_name(name: &str) -> Option<&'static Explained> {
    ALL.iter().find(|explained| explained.name == name)
}

const fn one(cause: Cause, name: &'static str, texts: [&'static str; 4]) -> Explained {
    let [means, proved_by, gives_back, mistaken_for] = texts;
    Explained { cause, name, means, proved_by, gives_back, mistaken_for }
}

pub static ALL: [Explained; 17] = [
    one(
        Cause::SessionOpen,
        "session_open",
        [
            "A session that nobody closed holds its variables, queues, constants and what its runs left.",
            "The calls that open and close sessions were seen, and the memory was made by a run (or the opening) of a session \
             without a close. Of a session that is older than the trace: its object is alive, and the resources were found \
             in a container of its devices.",
            "`sess.close()`, or open it in `with tf.compat.v1.Session() as sess:`; in C `TF_CloseSession` and then \
             `TF_DeleteSession`.",
            "A program that keeps one session on purpose until its end is told the same. Python closes forgotten sessions \
             when it ends normally; then nothing is blamed.",
        ],
    ),
    one(
        Cause::SessionNotDeleted,
        "session_not_deleted",
        [
            "A session was closed through the C API, and its handle was never deleted. Closing alone frees nothing there.",
            "`TF_CloseSession` was seen, `TF_DeleteSession` was not.",
            "`TF_DeleteSession` after `TF_CloseSession`.",
            "`session_open`: there the close itself is missing.",
        ],
    ),
    one(
        Cause::GraphRetained,
        "graph_retained",
        [
            "Graphs of TensorFlow 1 live on after their sessions: the default graph that was never reset, or a graph that a \
             tensor or an operation in a list or a global keeps. Constants are part of a graph.",
            "The definitions of nodes, attributes and constants were read in the process' memory, and followed to what hangs \
             on them; `TF_NewGraph` and `TF_DeleteGraph` are counted.",
            "`tf.compat.v1.reset_default_graph()` after each round, or `with tf.Graph().as_default():`; and drop what refers \
             to a graph's tensors and operations.",
            "`session_open`: closing the session does not delete the graph. `function_traces`: the graphs of eager functions.",
        ],
    ),
    one(
        Cause::StatefulResource,
        "stateful_resource",
        [
            "A variable, a table, a queue or another resource lives in a container of TensorFlow's under a name. It outlives \
             every handle and every session.",
            "The search from the data backwards ended in a slot of a resource manager, whose name and container it read.",
            "`tf.raw_ops.DestroyResourceOp`, `tf.compat.v1.Session.reset(target)` for a server, or no name at all: \
             `experimental_is_anonymous=True`, and drop the last reference.",
            "`python_reference`: a resource without a name goes with its last handle.",
        ],
    ),
    one(
        Cause::PythonReference,
        "python_reference",
        [
            "A Python object holds the tensor or the variable: a list, an attribute, a closure, a tape, an array that shares \
             its memory.",
            "The search from the data backwards ended in a Python object, whose type it names.",
            "Drop the reference (`del`, clear the list, leave the function). Where objects refer to each other in a circle, \
             `gc.collect()`.",
            "`python_reference_cycle`, which nobody but Python's collector can free: from outside the two look alike until a \
             collection has run.",
        ],
    ),
    one(
        Cause::PythonReferenceCycle,
        "python_reference_cycle",
        [
            "Python objects that refer to each other in a circle, and that nothing else refers to, hold tensors until the \
             collector runs. It counts objects, not bytes: a few large tensors never make it run.",
            "Only by a collection that freed such memory. This version does not see collections: it says `python_reference`.",
            "`gc.collect()` after each round, or break the circle (`self.callback = None`, `weakref`).",
            "`python_reference`.",
        ],
    ),
    one(
        Cause::FunctionTraces,
        "function_traces",
        [
            "A `tf.function` was traced again and again, and keeps each trace with its graph and constants.",
            "Definitions of functions were found in the process' memory, at least eight with one name; their bytes are theirs \
             and those of what hangs on them. Traces that were removed are counted by `TFE_ContextRemoveFunction`.",
            "Call it with tensors, not with Python numbers and objects; give it an `input_signature`; make the \
             `tf.function` once, outside of the loop. `del` the function gives its traces back.",
            "`heap_reserve`: after `del` the memory is free, and the C allocator keeps it.",
        ],
    ),
    one(
        Cause::PoolReserve,
        "pool_reserve",
        [
            "A pool of TensorFlow's (BFC allocator) has free memory. It keeps its regions until the process ends.",
            "Regions less chunks in use. That later work used the pool again without growing it proves that it is no leak.",
            "Only the end of the process. On a GPU, `allow_growth` makes the pool take less in the first place.",
            "A leak: `nvidia-smi` and RSS show the whole pool, used or not.",
        ],
    ),
    one(
        Cause::HeapReserve,
        "heap_reserve",
        [
            "The program freed it, and the C allocator keeps the pages for the next `malloc`.",
            "A walk through glibc's arenas whose sum agrees with what the allocator says of itself.",
            "`malloc_trim(0)`, or an allocator that gives pages back by itself. Usually nothing needs to be done.",
            "A leak: RSS does not fall when memory is freed.",
        ],
    ),
    one(
        Cause::PipelineBuffers,
        "pipeline_buffers",
        [
            "A tf.data pipeline keeps elements: a cache, the buffer of a shuffle, what was fetched ahead, the arrays a \
             dataset was made from.",
            "The search from the data backwards ended in an iterator, a dataset or its cache, whose class it names.",
            "Drop the iterator and the dataset (`del`); a smaller buffer; `cache(filename)`.",
            "`python_reference`: the element that the program took out of the pipeline is its own.",
        ],
    ),
    one(
        Cause::NativeCache,
        "native_cache",
        [
            "TensorFlow's own caches: executors, kernels, oneDNN primitives, executables of XLA.",
            "Not found by this version.",
            "The end of the process; `tf.keras.backend.clear_session()` for the kernels of eager code.",
            "`function_traces`.",
        ],
    ),
    one(
        Cause::DeviceContext,
        "device_context",
        [
            "What the driver takes for a context and its modules on a device.",
            "Not found by this version.",
            "Only the end of the process.",
            "A leak: it is there from the first use of the device on, and constant.",
        ],
    ),
    one(
        Cause::PinnedReserve,
        "pinned_reserve",
        [
            "Page-locked host memory that a pool keeps for transfers.",
            "Not found by this version.",
            "Only the end of the process.",
            "`pool_reserve`, which it is, of another kind of memory.",
        ],
    ),
    one(
        Cause::WorkerState,
        "worker_state",
        [
            "A server keeps the variables of sessions that have ended: sessions on one server share its containers.",
            "The session's end was seen, or is older than the trace, and its variable lives in a process with a server.",
            "`tf.compat.v1.Session.reset(target)` (with the container's name, if it has one), or the end of the server.",
            "`session_open`: there the client did not close.",
        ],
    ),
    one(
        Cause::LeftoverProcess,
        "leftover_process",
        [
            "A process outlived the one that started it, and keeps its memory.",
            "It was alive a grace time after its parent's end.",
            "Join or end workers before the program ends; `kill` it now.",
            "Memory of the parent: that is gone.",
        ],
    ),
    one(
        Cause::BeforeAttach,
        "before_attach",
        [
            "It was there before the trace began, and its holder was not found.",
            "No allocation was seen, and the search for holders ended nowhere (or was not made).",
            "Not known: trace the program from its start with `tfmem run`.",
            "A leak of what was traced.",
        ],
    ),
    one(
        Cause::Unexplained,
        "unexplained",
        [
            "It outlived its boundary, and no rule says why.",
            "All other rules were asked.",
            "Not known.",
            "Nothing: it is what it says, and always printed.",
        ],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_is_explained_under_its_name() {
        for explained in &ALL {
            assert_eq!(serde_json::to_value(explained.cause).ok(), Some(explained.name.into()));
            for text in [explained.means, explained.proved_by, explained.gives_back, explained.mistaken_for] {
                assert!(text.ends_with('.'), "{text}");
            }
        }
        let names: std::collections::BTreeSet<&str> = ALL.iter().map(|explained| explained.name).collect();
        assert_eq!(names.len(), ALL.len());
        // A schema with a cause that nobody explains is not complete.
        let schema: serde_json::Value =
            serde_json::from_str(include_str!("../../schema/report-1.schema.json")).unwrap_or_default();
        let all = schema.pointer("/$defs/cause/enum").and_then(|all| all.as_array()).map_or(0, Vec::len);
        assert_eq!(all, ALL.len());
    }
}
