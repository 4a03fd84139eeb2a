# A hyperparameter search: a Keras model for each trial, fitted and forgotten. Each fit leaves its weights and the
# optimizer's slots behind. CLEAR=1: with `clear_session` and a collection after each trial.
import gc, os
from common import *

def trial():
    model = tf.keras.Sequential([tf.keras.layers.Input((1024,)), tf.keras.layers.Dense(4096), tf.keras.layers.Dense(1)])
    model.compile(optimizer="adam", loss="mse")
    model.fit(np.random.rand(32, 1024), np.random.rand(32, 1), verbose=0)

for _ in range(3):
    trial()
    if os.environ.get("CLEAR"):
        tf.keras.backend.clear_session()
        gc.collect()
from tensorflow.python.ops.resource_variable_ops import BaseResourceVariable
gc.collect()
held = sum(v.shape.num_elements() * v.dtype.size for v in gc.get_objects() if isinstance(v, BaseResourceVariable))
phase("trials_done", "python_reference", held, "Variable")
