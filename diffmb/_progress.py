"""PROGRESS: where the loop of `_advance.py` is, what it keeps, and what it leaves."""

from typing import Any

import equinox as eqx
from jax import Array

from ._manifold import Approach, Landing
from ._plan import Mode
from ._quiet import Quiet


class Steps(eqx.Module):
    """Every accepted step: its times, the state at its start and end, stage slopes times step, and the rows in use.

    `lands` is the number of the requested time that it reaches, or -1; `event` that of the event which ends it, or -1;
    plus the number of all events if it is carried along by the event before it (`_watch.py`).
    The next step starts where one that was made `aside` did. After an event `y1` is the state just before, `mode` that
    of the step, and the next step has the state and the mode after it.
    """

    t0: Array
    t1: Array
    y0: Array
    y1: Array
    k: Array
    mode: Mode
    lands: Array
    event: Array
    aside: Array


class Log(eqx.Module):
    """Times and numbers of the events so far."""

    times: Array
    which: Array
    count: Array


class Counts(eqx.Module):
    """How the run went: attempts, accepted steps, largest |phi| left after a step, largest correction of a step."""

    tried: Array
    accepted: Array
    error: Array
    drift: Array


class Progress(eqx.Module):
    """Where the loop is."""

    t: Array
    y: Array
    h: Array
    mode: Mode
    solver_state: Any
    controller_state: Any
    output: Array  # number of the next one
    result: Any
    approach: Approach
    counts: Counts
    watch: Any  # of the conditions, a `Watch`; None without events
    log: Log
    quiet: Quiet | None


class Entry(eqx.Module):
    """What a turn leaves to be kept: a state and a mode with the number of their row, a step with its own."""

    row: Array
    y: Array
    mode: Mode
    number: Array
    step: Steps | None


class Span(eqx.Module):
    """The first and the last time, and the next one to be reached."""

    first: Array
    last: Array
    next: Array


class Found(eqx.Module):
    """What a run leaves: states and modes at the requested times, how many were reached, events, and how it went.

    `t`, `y`, `h`, `mode` are those of the last accepted step.
    """

    ys: Array
    modes: Mode
    reached: Array
    t: Array
    y: Array
    h: Array
    mode: Mode
    counts: Counts
    log: Log
    result: Any


class Attempt(eqx.Module):
    """One step: its end on the manifold and off it, error estimate, slopes, and what the next step starts with."""

    t1: Array
    end: Landing
    raw: Array
    error: Array
    k: Array
    solver_state: Any
    failed: Array

    @property
    def y(self) -> Array:
        return self.end.y
