"""Writes a saved model with one 8 MiB variable to the folder of its first argument."""

import sys

import tensorflow as tf


class Model(tf.Module):
    def __init__(self):
        super().__init__()
        self.w = tf.Variable(tf.ones([2 << 20]))

    @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
    def __call__(self, x):
        return tf.reduce_sum(self.w) * x


tf.saved_model.save(Model(), sys.argv[1])
