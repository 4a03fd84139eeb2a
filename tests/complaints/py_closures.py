# Functions given to `py_function` keep what they close over.
from common import *
kept = []

def make(i):
    table = tf.constant(floats(16))
    look = lambda k: table[int(k)]
    def use(k):
        return tf.py_function(look, [k], tf.float32)
    kept.append(tf.function(use))
    kept[-1](tf.constant(i))

for i in range(8):
    make(i)
gc.collect()
phase("made", "python_reference", 128 * MIB, "EagerTensor")
