"""Holds tensors in the CPU's BFC pool and prints, as its last act, what TensorFlow itself says is in use there."""

import os

os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "1"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"

import tensorflow as tf

MIB = 1 << 20

held = [tf.fill([size], 1.0) for size in (MIB, 2 * MIB + 1, 3, 7 * MIB, 1000)]
dropped = [tf.fill([5 * MIB], 2.0) for _ in range(3)]
del dropped
held.append(tf.add(held[0], 1.0))

print("IN_USE", tf.config.experimental.get_memory_info("CPU:0")["current"], flush=True)
os._exit(0)
