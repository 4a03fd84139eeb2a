# Losses and features of each step, kept in a list.
from common import *
history = []

def step():
    history.append(tf.random.uniform([2 * MIB]))

for _ in range(16):
    step()
phase("trained", "python_reference", 128 * MIB, "EagerTensor")
