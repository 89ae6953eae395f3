"""TILES: how many samples of a batch run side by side on CPU, and what is stored between the stages of a program.

many samples                 tiles of 64
up to 1000, seldom           one by one: the short program of a single state, which is quick to compile
a long program               one by one: each fills the caches, or has something to do only now and then

A tile, or a single sample, is one kernel (`_straight`) if its program is not too long; else arrays, whose products are
written out along the samples where these are many. A long program of a sample that is alone is left to a machine that
needs no compiling: who waits for one run waits for the compiler above all, who runs a batch for the batch.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum, auto
from functools import partial
from typing import Any

import jax
from jax.ad_checkpoint import checkpoint_name
from jax.experimental.xla_metadata import set_xla_metadata

TILE = 64  # the working set of a few bodies then fits the L1/L2 caches
FEW = 1000  # samples that are walked one by one when that is seldom done
_SMALL = 8192  # numbers up to which a loop over an array is worth one kernel
_MARKED = ("0.10.",)  # versions of jax with which the mark of `one_kernel` was tried

storing: ContextVar[bool] = ContextVar("storing", default=False)


class Pace(Enum):
    """How often a program runs: a dozen times in every step of a simulation; once a step; nobody knows; now and then,
    at a few samples; or hardly ever."""

    OFTEN = auto()
    STEP = auto()
    UNKNOWN = auto()
    SELDOM = auto()
    ONCE = auto()


pace: ContextVar[Pace] = ContextVar("pace", default=Pace.UNKNOWN)

_QUICK = 3_200  # operations on numbers that are one kernel, which compiles faster than many kernels of arrays
_FAST = 28_000  # ... that are one kernel all the same, if they run often
_ONCE = 50_000  # ... that are left to the machine, if they run once
_LONG = 12_000  # ... of which one sample fills the caches: several side by side would be slower
_DERIVATIVE = 2.5  # a derivative has about so many operations for each one of its function
_MACHINE = {Pace.ONCE: 500, Pace.STEP: 1_000, Pace.OFTEN: 4_000}  # ... from which a sample that is alone has no kernel


def longest(own: Pace, derivative: bool) -> int:
    """Operations up to which the program of a single sample is written out; a function and its derivatives are so
    together. Measured, accelerations of four-bar (2900 operations) and Andrews (10500): 11 and 24 us as arrays, 2 and
    6 us as kernels. Forty four-bars (22000; correction 28000): a run of 450 ms becomes one of 23 ms."""
    most = {Pace.OFTEN: _FAST, Pace.STEP: _FAST, Pace.ONCE: _ONCE}.get(own, _QUICK)
    return int(most * (_DERIVATIVE if derivative else 1))


def by_table(own: Pace, derivative: bool, operations: int) -> bool:
    """Whether the program of a sample that is alone is left to the machine, which is compiled in 0.2 s and needs 5 ns
    for each operation; a kernel of its own takes 0.3 ms to compile for each, and 0.5 ns."""
    return own in _MACHINE and operations >= _MACHINE[own] * (_DERIVATIVE if derivative else 1)


@contextmanager
def running(own: Pace) -> Iterator[None]:
    """What is called inside runs as often as that.

    Often: a longer time to compile pays. Seldom: on CPU the samples go one by one, so that it compiles quickly;
    reactions of a four-bar at 201 times take 3.6 s to compile instead of 8.3 s, their derivatives by three numbers 12 s
    instead of 37 s; a run takes 6 ms instead of 1.3 ms. Once: a single sample is not compiled at all.
    """
    token = pace.set(own)
    try:
        yield
    finally:
        pace.reset(token)


def over_rows(fun: Callable[..., Any], *rows: Any) -> Any:
    """fun at each row of arrays, as for the times of a motion."""
    with running(Pace.SELDOM):
        return jax.vmap(fun)(*rows)


def members(motion: Any, fun: Callable[[Any], Any]) -> Any:
    """fun of a motion over times `ts`, or of each member of a batch of motions."""
    return fun(motion) if motion.ts.ndim <= 1 else jax.vmap(lambda one: members(one, fun))(motion)


def tile_of(batch: int, own: Pace, operations: int | None) -> int:
    """Samples that run side by side, of a program of so many operations if it is written out."""
    if own is Pace.SELDOM and batch <= FEW:
        return 1
    as_arrays = operations is None
    if (as_arrays and own is Pace.ONCE) or (operations or 0) > _LONG:
        return 1
    return TILE if batch >= 2 * TILE else batch


def as_arrays(x: jax.Array) -> jax.Array:
    """x, in a program that is not to be written out: seen at once, instead of when it has become too long."""
    return checkpoint_name(x, "arrays")  # which has no rule in `_straight`


def stored(fun: Callable[..., Any]) -> Callable[..., Any]:
    """`fun`, with its results written to memory once when a program for CPU tiles is being made.

    XLA on CPU otherwise recomputes a stage in each place that uses it (rotations in every entry of an inertia, and so
    on); a call that is not inlined is a border that its fusion does not cross, and costs no copy.
    """
    return partial(_stored, fun)


def _stored(fun: Callable[..., Any], *args: Any) -> Any:
    if not storing.get():
        return fun(*args)
    with set_xla_metadata(inlineable="false"):
        return jax.jit(fun)(*args)


def one_kernel(fun: Callable[[jax.Array], Any]) -> Callable[[jax.Array], Any]:
    """`fun`, a loop of elementwise operations on one small array, as a single kernel on CPU.

    XLA does so with loops below a kilobyte by itself. Above, each turn starts four or five kernels: the inverse of 7
    rows takes 2.1 instead of 0.65 us, of 21 rows 18 instead of 2.4 us (9 us by LAPACK). The mark is not for programs in
    general: XLA ends the process where it meets operations that such a kernel cannot hold.
    """

    def call(x: jax.Array) -> Any:
        if not 0 < x.size <= _SMALL or not jax.__version__.startswith(_MARKED):
            return fun(x)
        with set_xla_metadata(inlineable="false", xla_cpu_small_call="true"):
            return jax.jit(fun)(x)

    return call
