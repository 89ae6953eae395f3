"""MANIFOLD: the nearest consistent state to the end of a step, and the rows that are independent there.

The equations are (3) of `_motion.py`; here they are repeated until nothing is left, and rows are chosen anew when those
in use have become dependent or no longer imply the others. A small change of the state follows by the same equations,

    dq <- dq - C d(phi)        dv <- dv - C d(G v - nu)        C = M^-1 G_e^T A^-1                                 (1)

without which a change that has left the manifold a little grows: at a fold by a factor of thousands in each passage.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ._kinematics import unit_quaternions
from ._model import Model
from ._motion import chosen_again, openness, settle_once, settled_softly
from ._plan import Mode, split
from ._tiles import Pace, running

_PASSES = 8
_SHRUNK = 5e-2  # of what was left of a row at the start of a step: it ends much nearer to a singular attitude
_VANISHING = 1e-2  # of the most that was left of it: it ends near to one
_GONE = 3e-7  # ... that no step can start from there (the softness of the correction leaves 1e-7)
_WAITS = 3  # times in a row that a step is made shorter instead
WIDE_OPEN = 0.1  # m or rad by which constraints may be open in a run without projection
_DEPENDENT = 1e-3  # sin^2 of the angle between a row and those before it


def _double(dtype) -> bool:
    return bool(np.finfo(dtype).eps < 1e-12)


def _settled(dtype) -> float:
    """A correction below this leaves an error of the order of its square."""
    return 1e-7 if _double(dtype) else 1e-3


def _implied(dtype) -> float:
    """m or rad that rows which are not in use may be open."""
    return 1e-9 if _double(dtype) else 1e-4


def open_limit(dtype, projected: bool = True) -> float:
    """m or rad: constraints that stay open by more cannot be satisfied; without projection they open up by and by."""
    return WIDE_OPEN if not projected else 1e-6 if _double(dtype) else 1e-2


def is_closed(model: Model, y: Array, t: Array, on: Array | None) -> Array:
    """Whether a state satisfies the constraints well enough to start from it."""
    if not model.nc:
        return jnp.asarray(True)
    q, v, _ = split(model, y)
    with running(Pace.ONCE):
        phi, rate = openness(model, q, v, t, row_mask(model, on, q))
    limit = open_limit(y.dtype)
    return (phi <= limit) & (rate <= 1e3 * limit * (1.0 + jnp.abs(v).max(initial=0.0)))


def row_mask(model: Model, on: Array | None, like: Array) -> Array:
    """1 for rows that are switched on, 0 for the others, (nc,)."""
    return jnp.ones(model.nc, like.dtype) if on is None else on[np.asarray(model.row_switch)]


def unknown_rows(model: Model, on: Array | None, like: Array) -> Mode:
    """A mode whose rows are still to be chosen."""
    places = min(model.nc, model.nv) if model.candidates is None else len(model.candidates)
    return Mode(jnp.full(places, -1.0, like.dtype), jnp.asarray(True), on)


def renewed(model: Model, y: Array, t: Array, mode: Mode) -> Mode:
    """The mode with rows chosen anew where it is `stale`; computed only if some member of a batch needs it."""
    if not model.nc:
        return mode
    q, mask = split(model, y)[0], row_mask(model, mode.on, y)
    anew = lambda carry: (chosen_again(model, q, t, mask, *carry), jnp.asarray(False))
    with running(Pace.ONCE):
        return Mode(*lax.while_loop(lambda carry: carry[1], anew, (mode.chosen, mode.stale)), mode.on)


class Landing(eqx.Module):
    """A state, the size of the correction, what stays open (m or rad), the mode for what follows, and what of each row
    is independent of those before it (the pivots of A: zero where it is not known)."""

    y: Array
    size: Array
    left: Array
    mode: Mode
    pivots: Array


def as_it_is(y: Array, mode: Mode) -> Landing:
    zero = jnp.zeros((), y.dtype)
    return Landing(y, zero, zero, mode, jnp.zeros_like(mode.chosen))


def left_open(model: Model, y: Array, t: Array, mode: Mode) -> Landing:
    """The end of a step that is not put on the manifold, and how far from it that is."""
    if not model.nc:
        return as_it_is(y, mode)
    q, v, _ = split(model, y)
    with running(Pace.STEP):
        left, _ = openness(model, q, v, t, row_mask(model, mode.on, q))
    return eqx.tree_at(lambda end: end.left, as_it_is(y, mode), left)


class Approach(eqx.Module):
    """How near a run is to singular attitudes, and how long it has waited to get nearer.

    A row vanishes there, with the square of the distance. Rows hold the motion weakly, and its branches are close to
    each other: steps that start there are not accurate, get ever shorter, or leave on the wrong branch.
    """

    pivots: Array  # of the rows where the next step starts
    most: Array  # that they have been since these rows are in use
    waits: Array  # times in a row that a step was made shorter for where it ends

    def to(self, end: Landing) -> tuple[Array, Array]:
        """Whether a step that ends there had better be shorter, and whether none should start from there."""
        nearer = (end.pivots < _SHRUNK * self.pivots).any()
        return nearer & (self.waits < _WAITS), nearer | (end.pivots < _VANISHING * self.most).any()

    def loses(self, end: Landing) -> Array:
        """Whether a run that goes on from there may take any branch."""
        return (end.pivots < _GONE * self.most).any()

    def after(self, end: Landing, anew: Array) -> "Approach":
        """At the end of a step; with rows that will be chosen `anew` or are stale nothing is known."""
        known = ~(anew | end.mode.stale)
        pivots = jnp.where(known, end.pivots, 0.0)
        return Approach(pivots, jnp.where(known, jnp.maximum(self.most, pivots), 0.0), jnp.zeros_like(self.waits))

    def waited(self, once_more: Array) -> "Approach":
        return Approach(self.pivots, self.most, self.waits + once_more)


def approach_of(mode: Mode) -> Approach:
    """At the start."""
    nothing = jnp.zeros_like(mode.chosen)
    return Approach(nothing, nothing, jnp.asarray(0))


def nearest_state(model: Model, y: Array, t: Array, mode: Mode) -> Landing:
    q, v, z = split(model, y)
    if not model.nc:
        return as_it_is(jnp.concatenate([unit_quaternions(model, q), v, z]), mode)
    mask = row_mask(model, mode.on, q)

    def once(carry):
        q, v, _, _, first, count = carry
        with running(Pace.STEP):
            q, v, size, *about = settle_once(model, mode.chosen, mask, q, v, t)
        return q, v, size, tuple(about), jnp.where(count == 0, size, first), count + 1

    unsettled = lambda carry: (carry[2] > _settled(y.dtype)) & (carry[5] < _PASSES)
    zero = jnp.zeros((), y.dtype)
    start = (q, v, zero + 1.0, (zero, zero + 1.0, jnp.zeros_like(mode.chosen)), zero, jnp.asarray(0))
    q, v, _, (left, rank, pivots), first, _ = lax.while_loop(unsettled, once, start)
    poor = (rank < _DEPENDENT) | (left > _implied(y.dtype))
    return Landing(jnp.concatenate([q, v, z]), first, left, Mode(mode.chosen, poor, mode.on), pivots)


@running(Pace.STEP)
def nearest_change(model_of: Callable, moving: Any, moved: Any, mode: Mode, t: Array, y: Array, dy: Array) -> Array:
    """(1): the change of a state y on the manifold when its rows change with `moving` by `moved`; linear in both."""

    def put_right(moving: Any, y: Array) -> Array:
        model = model_of(moving)
        q, v, z = split(model, y)
        if not model.nc:
            return jnp.concatenate([unit_quaternions(model, q), v, z])
        return jnp.concatenate([*settled_softly(model, mode.chosen, q, v, t), z])

    return jax.jvp(put_right, (moving, y), (moved, dy))[1]
