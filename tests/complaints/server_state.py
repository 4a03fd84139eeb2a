# A parameter server in the process: sessions come and go, what they made stays. PLACE: a container of its own.
from common import *
tf1.disable_eager_execution()
server = tf1.train.Server.create_local_server()

def job(name):
    graph = tf1.Graph()
    with graph.as_default(), graph.container(os.environ.get("PLACE", "")):
        w = tf1.get_variable(name, shape=[4 * MIB], use_resource=True, initializer=tf1.random_uniform_initializer())
        init = w.initializer
    with tf1.Session(server.target, graph=graph) as sess:
        sess.run(init)

for name in ["a", "b", "c", "d"]:
    job(name)
gc.collect()
phase("jobs_done", "worker_state", 64 * MIB, "a")
