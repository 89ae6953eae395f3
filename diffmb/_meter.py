"""METER: one line on the terminal that says how far a run is; a few plain lines where there is no terminal.

    simulate:  43 %, t = 0.43 of 1 s, 1234 steps, 2.1 s, about 2.8 s to go

A call from the loop to Python costs as much as several steps, so the loop asks only now and then: with each answer it
is told after how many turns to ask again, such that some calls are made in a second. Of a batch the slowest member
counts. Without a meter nothing of this is in a program.
"""

import shutil
import sys
import threading
import time
from typing import Any

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.experimental import io_callback

from ._results import RESULTS

_EVERY = 0.2  # s between two calls, about
_FASTER = 8  # times more turns until the next call than until the last one, at most
_PATIENCE = 10.0  # s between two plain lines
_COUNT = jax.ShapeDtypeStruct((), np.int32)


class Meter(eqx.Module):
    """The display of `progress=True`."""


class Asking(eqx.Module):
    """Which display it is, turns of the loop so far, and the turn at which it is called next."""

    number: Array
    turns: Array
    next: Array


def begun(meter: Any) -> Any:
    """What the loop carries along for a display; None without one."""
    if meter is None or not isinstance(meter, Meter):
        return None if meter is None else meter.init()
    one = jnp.asarray(1, jnp.int32)
    return Asking(eqxi.nonbatchable(io_callback(_begin, _COUNT)), 0 * one, one)


def shown(meter: Any, own: Any, ts: Array, p: Any, going: Array) -> Any:
    """At a turn of the loop, which is at `p`."""
    if meter is None or not isinstance(meter, Meter):
        return None if meter is None else meter.step(own, _share(ts, p))
    turns = own.turns + 1
    news = jnp.where(going, _share(ts, p), 1.0), jnp.where(going, p.t, ts[-1])
    told = _slowest(*news, ts[-1], p.counts.accepted)
    ask = lambda _: turns + jax.pure_callback(_update, _COUNT, own.number, turns, told)
    return Asking(own.number, turns, jax.lax.cond(eqxi.nonbatchable(turns >= own.next), ask, lambda _: own.next, None))


def ended(meter: Any, own: Any, ts: Array, p: Any) -> None:
    """After the last turn."""
    if meter is None:
        return
    if not isinstance(meter, Meter):
        meter.close(own)
        return
    fine = (p.result == RESULTS.successful) | (p.result == RESULTS.event)
    told = _slowest(jnp.where(fine, 1.0, _share(ts, p)), p.t, ts[-1], p.counts.accepted)
    # with what the loop was told last: XLA would leave its questions out of the loop if nothing needed the answers
    io_callback(_end, None, own.number, told, eqxi.unvmap_all(fine), own.next)


def _share(ts: Array, p: Any) -> Array:
    return (p.t - ts[0]) / (ts[-1] - ts[0])


def _slowest(share: Array, t: Array, last: Array, steps: Array) -> Array:
    """The same of one member, or of those that are behind in a batch."""
    least = lambda x: -eqxi.unvmap_max(-x)
    return jnp.stack([least(share), least(t), eqxi.unvmap_max(last), eqxi.unvmap_max(steps).astype(share.dtype)])


# --- on the host --------------------------------------------------------------------------------------------------


class _Line:
    """What is on the terminal for one run."""

    def __init__(self):
        self.start = self.called = time.perf_counter()
        self.told, self.turns, self.width, self.quarter = self.start, 0, 0, 1

    def pause(self, now: float, turns: int) -> int:
        """Turns until the next call."""
        done, took = turns - self.turns, max(now - self.called, 1e-6)
        self.turns, self.called = turns, now
        return int(max(1, min(done * _EVERY / took, _FASTER * done)))

    def update(self, now: float, news: np.ndarray) -> None:
        if _is_terminal():
            self.live(self.text(now, news))
        elif now - self.told > _PATIENCE and news[0] * 4 >= self.quarter:
            self.quarter, self.told = int(news[0] * 4) + 1, now
            _write(self.text(now, news) + "\n")

    def end(self, news: np.ndarray, fine: bool) -> None:
        share, t, last, steps = news.tolist()
        took = lasting(time.perf_counter() - self.start)
        where = f"t = {t:.6g} s" if fine else f"stopped at t = {t:.6g} of {last:.6g} s ({_percent(share).strip()})"
        text = f"simulate: {'done, ' if fine else ''}{where}, {steps:.0f} steps in {took}"
        if _is_terminal():
            self.live(text)
            text = ""
        _write(text + "\n")

    def live(self, text: str) -> None:
        """Over what is there."""
        text = text[: max(shutil.get_terminal_size().columns - 1, 20)]
        _write("\r" + text.ljust(self.width))
        self.width = len(text)

    def text(self, now: float, news: np.ndarray) -> str:
        share, t, last, steps = news.tolist()
        took = now - self.start
        left = f", about {lasting(took * (1 / share - 1))} to go" if 1e-3 < share < 1 else ""
        return f"simulate: {_percent(share)}, t = {t:.6g} of {last:.6g} s, {steps:.0f} steps, {lasting(took)}{left}"


def lasting(seconds: float) -> str:
    """A duration as people say it."""
    if seconds < 60:
        return f"{seconds * 1e3:.0f} ms" if seconds < 0.1 else f"{seconds:.1f} s"
    minutes, seconds = divmod(round(seconds), 60)
    return f"{minutes}:{seconds:02d} min" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d} h"


def _percent(share: float) -> str:
    return f"{min(100 * share, 100):3.0f} %"


def _is_terminal() -> bool:
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):  # there is none, or it is closed
        return False


def _write(text: str) -> None:
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):  # a run does not fail because nobody can see it
        pass


_lines: dict[int, _Line] = {}
_lock = threading.Lock()
_numbers = iter(range(1, 2**31))


def _begin() -> np.ndarray:
    with _lock:
        number = next(_numbers)
        _lines[number] = _Line()
        return np.asarray(number, np.int32)


def _update(number: Any, turns: Any, news: Any) -> np.ndarray:
    with _lock:
        line, now = _lines.get(int(number)), time.perf_counter()
        if line is None:
            return np.asarray(2**30, np.int32)
        line.update(now, np.asarray(news))
        return np.asarray(line.pause(now, int(turns)), np.int32)


def _end(number: Any, news: Any, fine: Any, _: Any) -> None:
    with _lock:
        line = _lines.pop(int(number), None)
        if line is not None:
            line.end(np.asarray(news), bool(fine))
