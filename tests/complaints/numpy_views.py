# Arrays that share the memory of tensors keep it when the tensors are gone.
from common import *
results = []

def step():
    results.append(np.asarray(tf.random.uniform([2 * MIB])))

for _ in range(16):
    step()
gc.collect()
phase("collected", "python_reference", 128 * MIB, "numpy")
