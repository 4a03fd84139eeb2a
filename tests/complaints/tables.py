# Lookup tables under a name outlive the Python objects that made them.
from common import *

def build(i):
    handle = tf.raw_ops.MutableHashTableV2(shared_name=f"vocabulary_{i}", key_dtype=tf.int64, value_dtype=tf.int64)
    keys = tf.range(1_000_000, dtype=tf.int64)
    tf.raw_ops.LookupTableInsertV2(table_handle=handle, keys=keys, values=keys)

tf.range(10, dtype=tf.int64)
before = live()
for i in range(3):
    build(i)
gc.collect()
phase("built", "stateful_resource", live() - before, "vocabulary_")
