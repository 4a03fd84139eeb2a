# Sessions are closed, the default graph is never reset: each round adds its constants to it.
from common import *
tf1.disable_eager_execution()

def predict(mib):
    with tf1.Session() as sess:
        sess.run(tf1.add_n([tf.reduce_sum(tf.constant(floats(1))) for _ in range(mib)]))

predict(1)
gc.collect()
before = live()
for _ in range(6):
    predict(8)
gc.collect()
phase("rounds_done", "graph_retained", live() - before, "graph")
tf1.reset_default_graph()
gc.collect()
phase("reset")
