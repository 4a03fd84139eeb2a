"""Three short training sessions of 64 MiB each. Two run side by side and are closed; the third is forgotten."""

import os

import tensorflow as tf

tf1 = tf.compat.v1
tf1.disable_eager_execution()

ROWS = 16 * 1024 * 1024 // 64


def make_session():
    graph = tf.Graph()
    with graph.as_default():
        weights = tf1.get_variable(
            "weights", shape=[ROWS, 64], dtype=tf.float32, initializer=tf1.random_uniform_initializer(), use_resource=True
        )
        rows = tf1.random.uniform([256], maxval=ROWS, dtype=tf.int32)
        batch = tf.gather(weights, rows)
        loss = tf.reduce_mean(tf.square(tf.matmul(batch, tf.ones([64, 64])) - 1.0))
        step = tf1.train.GradientDescentOptimizer(0.01).minimize(loss)
        init = tf1.global_variables_initializer()
    session = tf1.Session(graph=graph)
    session.run(init)
    return session, step, loss


def train(session, step, loss, name):
    for _ in range(20):
        _, value = session.run([step, loss])
    print(f"{name}: loss {value:.4f}", flush=True)


jobs = {"first": make_session(), "second": make_session()}
for name, job in jobs.items():
    train(*job, name)
for session, _, _ in jobs.values():
    session.close()

forgotten = make_session()  # nobody closes it
train(*forgotten, "third")
print("done", flush=True)
os._exit(0)  # as a job runner ends its workers: without Python's clean-up, which would delete the session
