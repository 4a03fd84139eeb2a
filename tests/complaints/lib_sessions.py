# Sessions opened by a helper that returns results and forgets the session.
from common import *
tf1.disable_eager_execution()
graph = tf1.Graph()
with graph.as_default():
    table = tf1.get_variable("table", shape=[4 * MIB], use_resource=True, initializer=tf1.random_uniform_initializer())
    total = tf.reduce_sum(table)
opened = []

def evaluate():
    sess = tf1.Session(graph=graph)
    opened.append(sess)
    sess.run(table.initializer)
    return sess.run(total)

for _ in range(5):
    evaluate()
phase("evaluated", "session_open", 80 * MIB, "table")
