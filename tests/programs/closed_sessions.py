"""The control of case 01: the same four sessions, each closed by its `with`."""

import gc

import tensorflow as tf

tf1 = tf.compat.v1
tf1.disable_eager_execution()
MIB = 1 << 20


def run_job():
    graph = tf.Graph()
    with graph.as_default():
        w = tf1.get_variable(
            "w", shape=[16 * MIB], dtype=tf.float32, use_resource=True, initializer=tf1.zeros_initializer()
        )
        init = w.initializer
    with tf1.Session(graph=graph) as session:
        session.run(init)


for _ in range(4):
    run_job()
gc.collect()
