# A layer called with a Python number: a trace for each.
from common import *
@tf.function
def augment(x, factor):
    noise = tf.constant(floats(0.5))
    return tf.reduce_sum(noise) * x * factor

augment(tf.constant(1.0), -1.0)
before = live()
for i in range(80):
    augment(tf.constant(1.0), i / 7)
gc.collect()
phase("called", "function_traces", live() - before, "augment")
