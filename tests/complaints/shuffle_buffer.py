# The buffer of a shuffle lives as long as the iterator, which a global keeps.
from common import *

def make():
    data = tf.data.Dataset.range(1000).map(lambda i: tf.fill([MIB // 2], tf.cast(i, tf.float32)))
    return iter(data.shuffle(64))

kept = make()
next(kept)
phase("stopped_early", "pipeline_buffers", 64 * 2 * MIB, "Shuffle")
del kept
gc.collect()
phase("iterator_deleted")
