"""Sessions on GPUs: tensors fed and fetched, the session closed, a second one, and one that stays open. Prints what
TensorFlow says is in use. The first argument is JSON: options of the sessions, and which devices to use."""

import json
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
# The host's own pools are another matter.
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"

import numpy
import tensorflow as tf

tf1 = tf.compat.v1
tf1.disable_eager_execution()
settings = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}


def config():
    options = tf1.GPUOptions()
    if "virtual" in settings:
        options.experimental.virtual_devices.add().memory_limit_mb.extend(settings["virtual"])
    for name in ("per_process_gpu_memory_fraction", "allow_growth"):
        if name in settings:
            setattr(options, name, settings[name])
    return tf1.ConfigProto(gpu_options=options)


def job(device):
    graph = tf1.Graph()
    with graph.as_default(), tf1.device(device):
        data = tf1.placeholder(tf.float32, [None])
        out = tf1.identity(data)
        session = tf1.Session(config=config())
        for size in (1 << 10, 1 << 20, 4 << 20):
            given = numpy.arange(size, dtype=numpy.float32)
            if not numpy.array_equal(session.run(out, {data: given}), given):
                sys.exit("the values came back otherwise")
        session.close()


def stays_open(device):
    with tf1.Graph().as_default(), tf1.device(device):
        variable = tf1.Variable(numpy.ones(3 << 18, dtype=numpy.float32), name="kept")
        session = tf1.Session(config=config())
        session.run(variable.initializer)
        return session


devices = settings.get("devices", ["/GPU:0"])
for device in devices:
    job(device)
    job(device)
held = [stays_open(device) for device in devices if settings.get("held")]
used = {}
# Sessions may have other devices than eager execution.
for device in settings.get("asked", devices):
    info = tf.config.experimental.get_memory_info(device.strip("/"))
    used[device.strip("/")] = info["current"]
print("IN_USE", json.dumps(used), flush=True)
os._exit(0)
