# Holds 64 MiB in a variable of a session, 32 MiB in a dataset's cache, 48 MiB in a tensor that a global names. Says
# "ready"; at SIGUSR1 opens, runs and closes another session, keeps a tensor of 16 MiB more, says "done", and waits.
import os, signal, time

os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])   # before the first thread: they inherit it

import tensorflow as tf

tf1 = tf.compat.v1
MIB = 1 << 20


def session(name, mib):
    graph = tf.Graph()
    with graph.as_default():
        w = tf1.get_variable(name, [mib * MIB // 4], initializer=tf1.zeros_initializer(), use_resource=True)
        opened = tf1.Session(graph=graph)
        opened.run(w.initializer)
    return opened


kept = session("kept_weights", 64)
cached = tf.data.Dataset.range(32).map(lambda i: tf.fill([MIB // 4], tf.cast(i, tf.float32))).cache()
assert sum(1 for _ in cached) == 32
a_global = tf.fill([12 * MIB], 1.0)
print("ready", flush=True)
signal.sigwait([signal.SIGUSR1])
session("closed_weights", 8).close()
later = tf.fill([4 * MIB], 2.0)
print("done", flush=True)
time.sleep(120)
