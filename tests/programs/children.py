"""A child by multiprocessing that holds an open session when it ends. The argument is how children are started."""

import multiprocessing
import os
import sys

METHOD = sys.argv[1]
if METHOD == "fork":
    import tensorflow  # noqa: F401  The child has it from its parent.


def child():
    import tensorflow as tf

    tf1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        w = tf1.get_variable("w", shape=[2 << 20], use_resource=True, initializer=tf1.ones_initializer())
        session = tf1.Session(graph=graph)
        session.run(w.initializer)
    print("CHILD", os.getpid(), flush=True)
    os._exit(0)  # Without any clean-up.


if __name__ == "__main__":
    process = multiprocessing.get_context(METHOD).Process(target=child)
    process.start()
    process.join()
    sys.exit(process.exitcode)
