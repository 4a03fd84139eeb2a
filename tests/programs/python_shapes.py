"""Stands still in many shapes of Python code, after it said where it is, as a line of JSON:
{"threads": [[[file, function, line], …innermost first], …]}, the main thread's frames first."""

import json
import sys
import threading
import time


def name_of(code):
    # Qualified from 3.11 on.
    return getattr(code, "co_qualname", code.co_name)


def frames(frame):
    out = []
    while frame is not None:
        out.append([frame.f_code.co_filename, name_of(frame.f_code), frame.f_lineno])
        frame = frame.f_back
    return out


def dump():
    """Where everybody is; the caller's line is the one it stays on."""
    me = sys._getframe(1)
    others = [frames(f) for ident, f in sys._current_frames().items() if ident != threading.get_ident()]
    return json.dumps({"threads": [frames(me)] + others})


def stay():
    print(dump(), flush=True), time.sleep(600)


class Trainer:
    def fit(self, depth):
        if depth:
            return self.fit(
                depth - 1,
            )
        return [step() for step in [lambda: self.inside_exec()]][0]

    def inside_exec(self):
        exec(compile("def made():\n    for _ in generator(): pass\nmade()", "<made>", "exec"), globals())


def generator():
    def inner():
        yield from deeper()

    yield from inner()


def deeper():
    for value in map(lambda _: stay(), [1]):
        yield value


def größe(event):
    event.wait()


def main():
    event = threading.Event()
    for _ in range(3):
        threading.Thread(target=größe, args=(event,), daemon=True).start()
    # They must stand at their line when it is written down.
    time.sleep(0.5)
    sorted([1], key=lambda _: Trainer().fit(40))


main()
