# Queue runners of TF 1: the queue is full when the training stops, and nobody closes the session.
from common import *
tf1.disable_eager_execution()
graph = tf1.Graph()
with graph.as_default():
    queue = tf1.FIFOQueue(32, [tf.float32], shapes=[[MIB]], name="batches")
    put = queue.enqueue(tf1.random_uniform([MIB]))
    get = queue.dequeue()
    tf1.train.add_queue_runner(tf1.train.QueueRunner(queue, [put]))
    size = queue.size()
sess = tf1.Session(graph=graph)
with graph.as_default():
    coordinator = tf1.train.Coordinator()
    threads = tf1.train.start_queue_runners(sess=sess, coord=coordinator)
sess.run(get)
while sess.run(size) < 32:
    time.sleep(0.1)
time.sleep(1)
phase("trained", "session_open", 33 * 4 * MIB, "random_uniform")
coordinator.request_stop()
sess.close()
coordinator.join(threads, stop_grace_period_secs=5)
phase("closed")
