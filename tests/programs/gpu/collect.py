"""A pool that grows, up to a limit: what was dropped does not fit what is wanted next, so that whole regions are given
back. Prints what TensorFlow says is in use."""

import json
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"

import numpy
import tensorflow as tf

MIB = 1 << 20
gpu = tf.config.list_physical_devices("GPU")[0]
tf.config.set_logical_device_configuration(gpu, [tf.config.LogicalDeviceConfiguration(memory_limit=512)])


def take(mib):
    with tf.device("/GPU:0"):
        return tf.identity(tf.constant(numpy.zeros(mib * MIB // 4, dtype=numpy.float32)))


first, second, third = take(64), take(128), take(32)
del first, second
fourth = take(300)
print("IN_USE", json.dumps({"GPU:0": tf.config.experimental.get_memory_info("GPU:0")["current"]}), flush=True)
os._exit(0)
