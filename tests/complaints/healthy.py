# Programs that tidy up: nothing of them is to be blamed. The arguments name them; several in one process are fine.
import multiprocessing, sys, tempfile
from common import *


def eager_fit():
    model = tf.keras.Sequential([tf.keras.layers.Input((256,)), tf.keras.layers.Dense(512), tf.keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse", run_eagerly=True)
    model.fit(floats(0.125).reshape(-1, 256), floats(0.125).reshape(-1, 256)[:, :1], verbose=0)


def pipeline():
    data = tf.data.Dataset.range(200).map(lambda i: tf.fill([MIB // 16], tf.cast(i, tf.float32)))
    for _ in data.shuffle(32).batch(4).prefetch(2):
        pass


def cached():
    data = tf.data.Dataset.range(64).map(lambda i: tf.fill([MIB // 4], tf.cast(i, tf.float32))).cache()
    for _ in range(2):
        for _ in data:
            pass


def generator():
    data = tf.data.Dataset.from_generator(lambda: (floats(1) for _ in range(20)),
                                          output_signature=tf.TensorSpec([MIB // 4], tf.float32))
    for _ in data.prefetch(4):
        pass


def saved_model():
    class Net(tf.Module):
        def __init__(self):
            self.w = tf.Variable(tf.zeros([4, MIB]))

        @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
        def __call__(self, x):
            return tf.reduce_sum(self.w) * x

    folder = tempfile.mkdtemp()
    tf.saved_model.save(Net(), folder)
    for _ in range(3):
        tf.saved_model.load(folder)(tf.constant(1.0))
        gc.collect()


def shapes():
    @tf.function(reduce_retracing=True)
    def total(x):
        return tf.reduce_sum(x) + tf.reduce_sum(tf.constant(big))
    big = floats(0.5)
    for n in range(1, 60):
        total(tf.ones([n, 7]))


def tape():
    x = tf.Variable(tf.ones([2 * MIB]))
    for _ in range(3):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.sin(x) ** 2)
        x.assign_sub(0.1 * tape.gradient(loss, x))


def table():
    handle = tf.raw_ops.MutableHashTableV2(shared_name="vocabulary", key_dtype=tf.int64, value_dtype=tf.int64)
    keys = tf.range(500_000, dtype=tf.int64)
    tf.raw_ops.LookupTableInsertV2(table_handle=handle, keys=keys, values=keys)
    tf.raw_ops.DestroyResourceOp(resource=handle)


def session_with():
    with tf.Graph().as_default():
        w = tf1.get_variable("w", shape=[4 * MIB], use_resource=True, initializer=tf1.ones_initializer())
        with tf1.Session() as sess:
            sess.run(w.initializer)
            sess.run(tf.reduce_sum(w))


def server_reset():
    server = tf1.train.Server.create_local_server()
    with tf.Graph().as_default():
        w = tf1.get_variable("w", shape=[4 * MIB], use_resource=True, initializer=tf1.ones_initializer())
        with tf1.Session(server.target) as sess:
            sess.run(w.initializer)
    tf1.Session.reset(server.target)


def square(x):
    return x * x


def workers():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        pool.map(square, range(4))
        pool.close()
        pool.join()


ALL = [eager_fit, pipeline, cached, generator, saved_model, shapes, tape, table, session_with, server_reset]
if __name__ == "__main__":
    names = sys.argv[1:]
    for program in ALL:
        if not names or program.__name__ in names:
            program()
            gc.collect()
    if "workers" in names:
        workers()
    phase("done")
    os._exit(0)
