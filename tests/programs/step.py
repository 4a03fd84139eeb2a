# Runs a script that sleeps in each of its phases, step by step: instead of sleeping it says what glibc says of its
# heap at this very instant, and waits for SIGUSR1.
import ctypes, json, os, runpy, signal, sys, time

signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})   # all threads that start later inherit it


class MallInfo2(ctypes.Structure):
    _fields_ = [(n, ctypes.c_size_t) for n in "arena ordblks smblks hblks hblkhd usmblks "
                "fsmblks uordblks fordblks keepcost".split()]


mallinfo2 = ctypes.CDLL("libc.so.6").mallinfo2
mallinfo2.restype = MallInfo2


def said():
    m = mallinfo2()
    return json.dumps({name: getattr(m, name) for name, _ in MallInfo2._fields_}).encode() + b"\n"


def wait(_):
    said()                                                   # whatever this allocates once is there now
    os.write(1, said())
    signal.sigwait({signal.SIGUSR1})


time.sleep = wait
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
