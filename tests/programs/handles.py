"""Clears the eager context's caches, deletes a context, and tells servers to stop: one that was started (TensorFlow
refuses) and one that was not (it stops)."""

import ctypes
import os
import sys
import time
from pathlib import Path

import tensorflow as tf


@tf.function
def double(x):
    return x + x


assert float(double(tf.constant(2.0))) == 4.0
tf.keras.backend.clear_session()

cc = ctypes.CDLL(str(next(Path(tf.__file__).parent.glob("libtensorflow_cc.so*"))))
pointer = ctypes.c_void_p
for name, result, arguments in [
    ("TF_NewStatus", pointer, []),
    ("TF_GetCode", ctypes.c_int, [pointer]),
    ("TFE_NewContextOptions", pointer, []),
    ("TFE_NewContext", pointer, [pointer, pointer]),
    ("TFE_ContextClearCaches", None, [pointer]),
    ("TFE_DeleteContext", None, [pointer]),
    ("TF_NewServer", pointer, [ctypes.c_char_p, ctypes.c_size_t, pointer]),
    ("TF_ServerStart", None, [pointer, pointer]),
    ("TF_ServerStop", None, [pointer, pointer]),
]:
    function = getattr(cc, name)
    function.restype, function.argtypes = result, arguments

status = cc.TF_NewStatus()
context = cc.TFE_NewContext(cc.TFE_NewContextOptions(), status)
assert context, cc.TF_GetCode(status)
cc.TFE_ContextClearCaches(context)
cc.TFE_DeleteContext(context)

definition = (
    tf.train.ServerDef(
        cluster=tf.train.ClusterSpec({"local": ["127.0.0.1:0"]}).as_cluster_def(),
        job_name="local",
        task_index=0,
        protocol="grpc",
    )
).SerializeToString()
started = cc.TF_NewServer(definition, len(definition), status)
assert started, cc.TF_GetCode(status)
cc.TF_ServerStart(started, status)
cc.TF_ServerStop(started, status)
assert cc.TF_GetCode(status) != 0
idle = cc.TF_NewServer(definition, len(definition), status)
assert idle, cc.TF_GetCode(status)
cc.TF_ServerStop(idle, status)
assert cc.TF_GetCode(status) == 0
# Not deleted: 2.15.1 dies of that (an assertion on grpc's completion queue).
time.sleep(0.5)
sys.stdout.flush()
os._exit(0)
