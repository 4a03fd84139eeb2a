# Holds variables, eager tensors, a dataset's cache and a table, with a pool on the CPU, and says what TensorFlow's own
# counter and CPython's allocator say; then waits.
import ctypes, json, os, re, sys, tempfile, time
os.environ["TF_CPU_ALLOCATOR_USE_BFC"] = "1"
os.environ["TF_ENABLE_ONEDNN_OPTS"] = "0"
import tensorflow as tf

variables = [tf.Variable(tf.ones([1 << 20]), name=f"weights_{i}") for i in range(3)]
tensors = [tf.fill([1 << 19], float(i)) for i in range(4)]
cached = tf.data.Dataset.range(8).map(lambda i: tf.fill([1 << 18], i)).cache()
assert sum(1 for _ in cached) == 8
objects = [(i, str(i)) for i in range(100_000)]


def pymalloc():
    """Bytes in use, from what the interpreter writes to standard error."""
    with tempfile.TemporaryFile() as file:
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        sys._debugmallocstats()
        os.dup2(kept, 2)
        os.close(kept)
        file.seek(0)
        text = file.read().decode()
    return int(re.search(r"# bytes in allocated blocks\s+=\s+([\d,]+)", text)[1].replace(",", ""))


info = tf.config.experimental.get_memory_info("CPU:0")
said = {"pool_in_use": info["current"], "pymalloc": pymalloc()}
print(json.dumps(said), flush=True)
time.sleep(120)
