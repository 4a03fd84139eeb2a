# A persistent tape is kept, and what the forward pass made with it.
from common import *
x = tf.Variable(tf.ones([2 * MIB]))
with tf.GradientTape(persistent=True) as tape:
    y = x
    for _ in range(12):
        y = tf.sin(y)
    loss = tf.reduce_sum(y)
del y
phase("forward", "python_reference", 12 * 8 * MIB, "")
