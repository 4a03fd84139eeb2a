# Datasets made of arrays are kept: each has its array.
from common import *
kept = [tf.data.Dataset.from_tensor_slices(floats(32).reshape(32, -1)).batch(4) for _ in range(4)]
for data in kept:
    for _ in data:
        pass
gc.collect()
phase("epochs_done", "pipeline_buffers", 128 * MIB, "TensorSlice")
