# Variables made again in each step, in the same graph, while the session is open.
from common import *
tf1.disable_eager_execution()
sess = tf1.Session()

def step(i):
    w = tf1.get_variable(f"w{i}", shape=[4 * MIB], dtype=tf.float32, use_resource=True, initializer=tf1.ones_initializer())
    sess.run(w.initializer)

for i in range(8):
    step(i)
phase("steps_done", "session_open", 128 * MIB, "w")
sess.close()
phase("closed")
