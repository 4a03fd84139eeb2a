# A hyperparameter search: a Keras model for each trial, fitted and forgotten. Each fit leaves its weights and the
# optimizer's two slots behind: TensorFlow's registry of gradient functions closes over what captured them. CLEAR=1: with
# `clear_session` and a collection after each trial.
import gc, os
from common import *

def trial(width):
    model = tf.keras.Sequential([tf.keras.layers.Input((1024,)), tf.keras.layers.Dense(width), tf.keras.layers.Dense(1)])
    model.compile(optimizer="adam", loss="mse")
    model.fit(np.random.rand(32, 1024), np.random.rand(32, 1), verbose=0)
    if os.environ.get("CLEAR"):
        tf.keras.backend.clear_session()
        gc.collect()

trial(1)
gc.collect()
before = live()
for _ in range(3):
    trial(4096)
gc.collect()
held = 3 * 3 * 16 * MIB
assert live() - before > held, (live() - before, held)
phase("trials_done", "python_reference", held, "variable")
