# A saved model is loaded again and again; DROP=1: and dropped, with Python's collector off.
import tempfile
from common import *

class Net(tf.Module):
    def __init__(self):
        self.w = tf.Variable(tf.zeros([8, MIB]))

    @tf.function(input_signature=[tf.TensorSpec([], tf.float32)])
    def __call__(self, x):
        return tf.reduce_sum(self.w) * x

folder = tempfile.mkdtemp()
net = Net()
tf.saved_model.save(net, folder)
del net
gc.collect()
gc.disable()
models = []
for _ in range(4):
    model = tf.saved_model.load(folder)
    model(tf.constant(1.0))
    if not os.environ.get("DROP"):
        models.append(model)
del model
phase("loaded", "python_reference", 128 * MIB, "Variable")
