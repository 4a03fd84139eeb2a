# A new `tf.function` for each call, each with a trace that holds the constant baked into it.
from common import *
kept = {}

def predict(i):
    def body(x):
        return tf.reduce_sum(tf.constant(floats(1))) * x
    kept[i] = tf.function(body)
    return kept[i](tf.constant(1.0))

predict(-1)
kept.clear()
gc.collect()
before = live()
for i in range(40):
    predict(i)
gc.collect()
phase("called", "function_traces", live() - before, "body")
kept.clear()
gc.collect()
phase("functions_dropped")
