# An iterator over `from_generator` is kept after an early stop, and what it fetched ahead with it.
from common import *

def numbers():
    for _ in range(1000):
        yield floats(4)

def make():
    data = tf.data.Dataset.from_generator(numbers, output_signature=tf.TensorSpec([MIB], tf.float32))
    return iter(data.prefetch(24))

kept = make()
next(kept)
time.sleep(3)                                        # the buffer fills
phase("stopped_early", "pipeline_buffers", 24 * 4 * MIB, "Prefetch")
del kept
gc.collect()
phase("iterator_deleted")
