"""Maps memory in many shapes of Python code, and says of each mapping where it was made, as a line of JSON:
{"bytes": …, "frames": [[file, function, line], …innermost first]}."""

import asyncio
import contextlib
import ctypes
import functools
import json
import mmap
import os
import sys
import threading

PAGE = 4096
LIBC = ctypes.CDLL(None)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
kept = []
pages = iter(range(5001, 6000))


def name_of(code):
    # Qualified from 3.11 on.
    return getattr(code, "co_qualname", code.co_name)


def say(size):
    frame, out = sys._getframe(1), []
    while frame is not None:
        out.append([frame.f_code.co_filename, name_of(frame.f_code), frame.f_lineno])
        frame = frame.f_back
    os.write(1, (json.dumps({"bytes": size, "frames": out}) + "\n").encode())


def take():
    size = next(pages) * PAGE
    # On one line: both calls are at the same place.
    kept.append(mmap.mmap(-1, size)), say(size)


def take_without_the_lock():
    size = next(pages) * PAGE
    LIBC.mmap(None, size, mmap.PROT_READ, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0), say(size)


class Trainer:
    def __init__(self, then=None):
        take()
        if then is not None:
            then()

    def fit(self, depth):
        if depth:
            return self.fit(
                depth - 1,
            )
        return sorted([1], key=lambda _: self.step())

    def step(self):
        take()
        exec(compile("def made():\n    for _ in generator(): pass\n    return 0\nmade()", "<made>", "exec"), globals())
        return 0

    @property
    def attribute(self):
        take()

    @functools.lru_cache(maxsize=None)
    def cached(self):
        take()

    def __getattr__(self, name):
        take()
        raise AttributeError(name)


def generator():
    def inner():
        take()
        yield from deeper()

    yield from inner()


def deeper():
    for value in map(lambda _: take(), [1, 2]):
        yield value


@contextlib.contextmanager
def context():
    take()
    yield
    take()


async def waits(depth):
    if depth:
        await waits(depth - 1)
    else:
        await asyncio.sleep(0)
        take()


def größe():
    take()
    Trainer().fit(3)


def from_c():
    """A thread that C made."""
    callback = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda _: Trainer().attribute)
    thread = ctypes.c_ulong()
    LIBC.pthread_create(ctypes.byref(thread), None, callback, None)
    LIBC.pthread_join(thread, None)


def after_fork():
    child = os.fork()
    if child == 0:
        for _ in range(50):
            next(pages)
        Trainer(take).fit(2)
        os._exit(0)
    os.waitpid(child, 0)
    for _ in range(100):
        next(pages)


def freed():
    """Code objects, each made where the one before was."""
    for number in range(5):
        scope = {"take": take}
        exec(compile("\n" * number + f"def f{number}():\n    take()\nf{number}()", f"<made {number}>", "exec"), scope)


def deep(depth):
    if depth:
        deep(depth - 1)
    else:
        take()


def main():
    take(), take_without_the_lock()
    Trainer(lambda: Trainer(take)).fit(40)
    Trainer().attribute, Trainer().cached(), hasattr(Trainer(), "nothing")
    list(map(lambda f: f(), [take, functools.partial(sorted, [1], key=lambda _: take() or 0)]))
    with context():
        take()
    asyncio.run(waits(3))
    thread = threading.Thread(target=größe)
    thread.start(), thread.join()
    from_c(), after_fork(), freed(), deep(110)


main()
print("DEEP", flush=True)
sys.setrecursionlimit(3000)
deep(400)
