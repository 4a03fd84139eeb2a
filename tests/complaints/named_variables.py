# Variables under a shared name in a container of the eager context outlive the handles.
from common import *

def make(i):
    handle = tf.raw_ops.VarHandleOp(shape=[4 * MIB], dtype=tf.float32, shared_name=f"embedding_{i}", container="models")
    tf.raw_ops.AssignVariableOp(resource=handle, value=tf.random.uniform([4 * MIB]))

for i in range(6):
    make(i)
gc.collect()
phase("made", "stateful_resource", 96 * MIB, "embedding_")
