# A model whose layers know it, dropped, with Python's collector off.
from common import *

class Model:
    def __init__(self):
        self.w = tf.Variable(tf.random.uniform([4 * MIB]))
        self.again = self

tf.random.uniform([2])
gc.collect()
gc.disable()
for _ in range(6):
    Model()
phase("dropped", "python_reference", 96 * MIB, "")
gc.collect()
phase("collected")
