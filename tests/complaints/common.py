# What the scripts of this folder share. Each is a public complaint made small; it says itself, before it ends, what is
# held and why (`TRUTH`), from TensorFlow's own sizes, from `mallinfo2` or from Python's collector: never from tfmem.
import ctypes, gc, os, time
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
import numpy as np
import tensorflow as tf
tf.get_logger().setLevel("ERROR")
tf1 = tf.compat.v1
MIB = 1 << 20


class MallInfo2(ctypes.Structure):
    _fields_ = [(n, ctypes.c_size_t) for n in "arena ordblks smblks hblks hblkhd usmblks "
                "fsmblks uordblks fordblks keepcost".split()]


LIBC = ctypes.CDLL("libc.so.6")
LIBC.mallinfo2.restype = MallInfo2


def live():
    m = LIBC.mallinfo2()
    return m.uordblks + m.hblkhd


def phase(name, cause=None, size=0, place=""):
    """A phase in which `size` bytes are held because of `cause`; without a cause nothing is to be blamed."""
    rss = int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // MIB
    print(f"PHASE {name} rss={rss} malloc_live={live() // MIB} malloc_free={LIBC.mallinfo2().fordblks // MIB} (MiB)")
    print(f"TRUTH {name} {cause or 'none'} {int(size)} {place}", flush=True)
    if not os.environ.get("HOLD_AT") or name.startswith(os.environ["HOLD_AT"]):
        time.sleep(float(os.environ.get("HOLD", "0")))
    if name.startswith(os.environ.get("STOP_AT") or "\0"):
        os._exit(0)


def floats(mib):
    """So many MiB of random numbers: no page of them is the same as another."""
    return np.random.rand(int(mib * MIB) // 4).astype(np.float32)
