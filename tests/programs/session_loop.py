# TensorFlow 1 sessions opened, run and closed in a loop; prints how long the loop took.
import time

import tensorflow as tf

tf1 = tf.compat.v1
tf1.disable_eager_execution()


def job(steps):
    graph = tf.Graph()
    with graph.as_default():
        w = tf1.get_variable("w", shape=[256, 256], initializer=tf1.ones_initializer(), use_resource=True)
        step = w.assign(tf.matmul(w, w) * 1e-3)
        init = w.initializer
    with tf1.Session(graph=graph) as sess:
        sess.run(init)
        for _ in range(steps):
            sess.run(step)


job(10)
begun = time.time()
for _ in range(20):
    job(300)
print("SECONDS", time.time() - begun)
