# Holds so many MiB in tensors: three quarters in variables of 64 MiB, the rest in tensors of 64 KiB, inside the arenas.
import os, signal, sys

os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
import tensorflow as tf

mib = int(sys.argv[1])
large = [tf.Variable(tf.ones([16 << 20]), name=f"large_{i}") for i in range(max(mib * 3 // 4 // 64, 1))]
small = [tf.ones([16 << 10]) for _ in range(mib // 4 * 16)]
print("ready", flush=True)
signal.pause()
