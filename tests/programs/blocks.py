"""blocks.py WHAT: works in blocks that are all alike, for ever, and prints how long each took, in seconds.

fit       an epoch of a small Keras fit
sessions  a TensorFlow 1 session opened, run and closed
pool      additions of small tensors in eager mode: as many chunks as Python can have
"""

import os
import sys
import time

if sys.argv[1] == "pool":
    os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "1"

import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1


def fit():
    dense = tf.keras.layers.Dense
    model = tf.keras.Sequential([dense(256, activation="relu") for _ in range(4)] + [dense(1)])
    model.compile("adam", "mse")
    x, y = np.ones((2048, 128), np.float32), np.ones((2048, 1), np.float32)

    class Epochs(tf.keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.begun = time.time()

        def on_epoch_end(self, epoch, logs=None):
            print(time.time() - self.begun, flush=True)

    model.fit(x, y, batch_size=32, epochs=1_000_000, verbose=0, callbacks=[Epochs()])


def session(steps=300):
    graph = tf.Graph()
    with graph.as_default():
        w = tf1.get_variable("w", shape=[256, 256], initializer=tf1.ones_initializer(), use_resource=True)
        step = w.assign(tf.matmul(w, w) * 1e-3)
        init = w.initializer
    with tf1.Session(graph=graph) as sess:
        sess.run(init)
        for _ in range(steps):
            sess.run(step)


def sessions():
    tf1.disable_eager_execution()
    for_ever(session)


def pool():
    x = tf.ones([256])

    def block():
        y = x
        for _ in range(10_000):
            y = y + x

    for_ever(block)


def for_ever(block):
    while True:
        begun = time.time()
        block()
        print(time.time() - begun, flush=True)


{"fit": fit, "sessions": sessions, "pool": pool}[sys.argv[1]]()
