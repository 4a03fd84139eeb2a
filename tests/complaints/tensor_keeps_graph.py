# A tensor in a global keeps the graph that it is of, with all its constants, past the session and past
# `reset_default_graph`.
from common import *
tf1.disable_eager_execution()
last = []

def train(mib):
    with tf1.Session() as sess:
        total = tf1.add_n([tf.reduce_sum(tf.constant(floats(1))) for _ in range(mib)])
        sess.run(total)
        last.append(total)

train(1)
tf1.reset_default_graph()
last.clear()
gc.collect()
before = live()
train(48)
tf1.reset_default_graph()
gc.collect()
phase("session_closed", "graph_retained", live() - before, "graph")
last.clear()
gc.collect()
phase("tensor_dropped")
