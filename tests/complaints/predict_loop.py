# `predict` in a loop: one function, one shape after the other; nothing is kept but the model.
from common import *
model = tf.keras.Sequential([tf.keras.layers.Input((64,)), tf.keras.layers.Dense(64)])
for n in range(30):
    model.predict(np.random.rand(1 + n % 3, 64).astype("float32"), verbose=0)
gc.collect()
phase("predicted")
