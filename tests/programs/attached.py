"""attached.py CLOSED MIB: waits for SIGUSR1; then opens, runs and closes so many sessions, leaves one more open, and
holds a tensor of so many MiB in the CPU's BFC pool. Prints what TensorFlow itself says that its pool's use grew by, and
waits for SIGTERM."""

import gc
import os
import signal
import sys

os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "1"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
# Before the first thread: they inherit it.
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGTERM])

import tensorflow as tf

tf1 = tf.compat.v1
MIB = 1 << 20


def in_use():
    gc.collect()
    return tf.config.experimental.get_memory_info("CPU:0")["current"]


def fill(mib):
    return tf.fill([mib * MIB // 4], 1.0)


def session():
    graph = tf.Graph()
    with graph.as_default():
        w = tf1.get_variable("w", shape=[MIB], use_resource=True, initializer=tf1.ones_initializer())
        init = w.initializer
    session = tf1.Session(graph=graph)
    session.run(init)
    return session


# What is made once is made now.
session().close()
del_me = fill(1)
del del_me
before = in_use()
print("ready", flush=True)
signal.sigwait([signal.SIGUSR1])
for _ in range(int(sys.argv[1])):
    session().close()
left_open = session()
held = fill(int(sys.argv[2]))
print(in_use() - before, flush=True)
signal.sigwait([signal.SIGTERM])
os._exit(0)
