"""WATCH: how far it is, how long it will take, and what Ctrl-C does.

The first Ctrl-C asks the work to stop at its next checkpoint, the second ends the process at once. Compiled programs
run without Python, so the second is seen by a thread that reads the bytes which the system's signal handler writes.
"""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .._errors import Exit, StudyError

_EVERY = 10.0  # s between lines if the output is no terminal


class Watch:
    """Where the work reports: `step` after each piece, which also stops it when Ctrl-C was pressed."""

    def __init__(self, quiet: bool = False):
        self.quiet, self.stopped = quiet, False
        self._first: tuple[float, int] | None = None  # when it told for the first time, and how far it was
        self._said = 0.0
        self._terminal = sys.stderr.isatty()

    def say(self, text: str) -> None:
        """A line for people."""
        if not self.quiet:
            print(f"{text}", file=sys.stderr, flush=True)  # noqa: T201

    def step(self, done: int, total: int, text: str = "") -> None:
        """`done` of `total` pieces are safe. Raises when the work is to stop."""
        self.tell(done, total, text)
        if self.stopped and done != total:
            raise self.interrupted()

    def interrupted(self) -> StudyError:
        return StudyError("interrupted; what there is has been written, --resume goes on", Exit.INTERRUPTED)

    def tell(self, done: int, total: int, text: str = "") -> None:
        """Shows how far it is, and how long it will take at most."""
        now = time.monotonic()
        last, left = done == total, ""
        if self._first is None:
            self._first = now, done  # the first piece compiles: its time says nothing about the others
        elif done > self._first[1] and not last:
            left = f"  {_clock((now - self._first[0]) / (done - self._first[1]) * (total - done))} left"
        if self.quiet or (not self._terminal and not last and now - self._said < _EVERY):
            return
        self._said = now
        line = f"  {done}/{total}{left}  {text}".rstrip()
        end = "\n" if last or not self._terminal else ""
        start = "\r\x1b[K" if self._terminal else ""
        print(f"{start}{line}", end=end, file=sys.stderr, flush=True)  # noqa: T201


def _clock(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, hours = whole // 60, whole // 3600
    return f"{minutes} min {whole % 60:02d} s" if not hours else f"{hours} h {minutes % 60:02d} min"


@contextmanager
def interruptible(watch: Watch) -> Iterator[None]:
    """Ctrl-C and a polite kill stop the watch; a second one ends the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    near, far = socket.socketpair()
    far.setblocking(False)
    numbers = (signal.SIGINT, signal.SIGTERM)
    before: dict[Any, Any] = {number: signal.signal(number, lambda *_: None) for number in numbers}
    old = signal.set_wakeup_fd(far.fileno(), warn_on_full_buffer=False)
    reader = threading.Thread(target=_listen, args=(near, watch), daemon=True)
    reader.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(old)
        for number, handler in before.items():
            signal.signal(number, handler)
        far.close()
        reader.join(1.0)
        near.close()


def _listen(near: socket.socket, watch: Watch) -> None:
    while data := near.recv(16):
        for number in data:
            if number not in (signal.SIGINT, signal.SIGTERM):
                continue
            if watch.stopped:
                os.write(2, b"\nstopped at once; the last checkpoint is safe\n")
                os._exit(Exit.INTERRUPTED)
            watch.stopped = True
            os.write(2, b"\nstopping at the next checkpoint; press Ctrl-C again to stop at once\n")
