"""One task of a cluster. The chief runs two sessions that place a variable on each worker; STATE says what the first
of them is: `shared` (the default: workers keep its variables) or `isolated` (they are its own and go with it). The
workers serve until the chief is done. RESET=1: the chief clears the containers in the end."""

import json
import os
import sys
import time
from pathlib import Path

import tensorflow as tf

tf1 = tf.compat.v1
tf1.disable_eager_execution()
MIB = 1 << 20
PAUSE = float(os.environ.get("PAUSE", "1.5"))

config = json.loads(os.environ["TF_CONFIG"])
name, index = config["task"]["type"], config["task"]["index"]
folder = Path(sys.argv[1])
server = tf1.train.Server(tf1.train.ClusterSpec(config["cluster"]), job_name=name, task_index=index)
(folder / f"{name}-{index}.ready").touch()


def wait_for(file):
    end = time.monotonic() + 120
    while not (folder / file).exists():
        if time.monotonic() > end:
            os._exit(1)
        time.sleep(0.05)


def session(initialise, **options):
    graph = tf.Graph()
    with graph.as_default():
        variables = []
        for worker in range(2):
            with tf1.device(f"/job:worker/task:{worker}"):
                variables.append(
                    tf1.get_variable(
                        f"w{worker}",
                        shape=[8 * MIB],
                        dtype=tf.float32,
                        use_resource=True,
                        initializer=tf1.random_uniform_initializer(),
                    )
                )
        init = tf1.global_variables_initializer()
        seen = [v.is_initialized() for v in variables]
    with tf1.Session(server.target, graph=graph, config=tf1.ConfigProto(**options)) as sess:
        if initialise:
            sess.run(init)
        result = [bool(s) for s in sess.run(seen)]
    time.sleep(PAUSE)
    return result


if name == "chief":
    for worker in range(2):
        wait_for(f"worker-{worker}.ready")
    isolated = os.environ.get("STATE") == "isolated"
    assert session(True, isolate_session_state=isolated) == [True, True]
    assert session(False) == [not isolated, not isolated]
    if os.environ.get("RESET"):
        tf1.Session.reset(server.target)
        time.sleep(PAUSE)
    (folder / "done").touch()
else:
    wait_for("done")
# A server cannot be stopped; the end of its process ends it.
sys.stdout.flush()
os._exit(0)
