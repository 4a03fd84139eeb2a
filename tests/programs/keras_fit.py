# A small Keras fit; prints how long the fit itself took.
import time

import numpy as np
import tensorflow as tf

model = tf.keras.Sequential([tf.keras.layers.Dense(256, activation="relu") for _ in range(4)] + [tf.keras.layers.Dense(1)])
model.compile("adam", "mse")
x, y = np.ones((2048, 128), np.float32), np.ones((2048, 1), np.float32)
model.fit(x, y, batch_size=32, epochs=1, verbose=0)
begun = time.time()
model.fit(x, y, batch_size=32, epochs=20, verbose=0)
print("SECONDS", time.time() - begun)
