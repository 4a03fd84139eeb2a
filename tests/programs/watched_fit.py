# A Keras fit whose steps are timed one by one; prints one JSON line: what each epoch lost, and the steps' times in µs.
# After the first epoch it says "ready".
import json, os, signal, sys, time

os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
import numpy as np
import tensorflow as tf

tf.keras.utils.set_random_seed(1)
tf.config.experimental.enable_op_determinism()
epochs = int(sys.argv[1])
model = tf.keras.Sequential([tf.keras.layers.Dense(512, activation="relu") for _ in range(4)] + [tf.keras.layers.Dense(1)])
model.compile("adam", "mse")
x = np.random.default_rng(1).normal(size=(4096, 256)).astype(np.float32)
y = x.sum(axis=1, keepdims=True)
data = tf.data.Dataset.from_tensor_slices((x, y)).cache().shuffle(1024, seed=1).batch(32).prefetch(2)


class Steps(tf.keras.callbacks.Callback):
    def __init__(self):
        self.times, self.begun = [], 0

    def on_train_batch_begin(self, batch, logs=None):
        self.begun = time.perf_counter_ns()

    def on_train_batch_end(self, batch, logs=None):
        self.times.append((time.perf_counter_ns() - self.begun) // 1000)


model.fit(data, epochs=1, verbose=0)
print("ready", flush=True)
steps = Steps()
history = model.fit(data, epochs=epochs, verbose=0, callbacks=[steps])
print(json.dumps({"loss": history.history["loss"], "steps": steps.times}), flush=True)

signal.pause()
