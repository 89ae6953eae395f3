"""Any joint as a constraint: the coordinates that fit a given pose best, and what is left over.

    E = X(q, t)^-1 rel        e = (vee(skew part of R_E), p_E)        how far `rel` is from the pose at q
    S0^T e(q) = 0             the nearest coordinates q, with S0 = -de/dq there
    phi = C0^T e              6 - nv rows, C0 a basis of what S0 leaves: C0^T S0 = 0

S0 and C0 are held fixed when these are differentiated. On the manifold e stays zero, so any fixed combination of its
rows is a valid constraint at every order: G, nu and gamma are exact, only the basis of the multipliers is chosen here.
The iteration itself is not differentiated. From its end, where S0^T e = 0, steps with its fixed slope,

    q <- q + (S0^T S0)^-1 S0^T e(q)

change nothing but derivatives: each makes those of q right to one order more, and those of phi to one more than q's,
because C0^T takes away the first order of what q misses.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from .._spatial._pose import Pose
from .._spatial._twist import axial
from .._spatial._vector import eye, join
from ._lift import lift

_STARTS = (0.8, -0.8, 1.6, -1.6, 2.4, -2.4, 3.1, -3.1)  # along each coordinate, beside the neutral start
_STEPS = 30
_LAST = 3  # steps from the best end: exact, whichever start it came from
_NEAR = 1e-3  # squares of angles and relative distances of an end that has arrived; a wrong end leaves more
_ORDERS = 4  # derivatives of q


def generic_rows(joint: Any, rel: Pose, t: Array) -> Array:
    """phi, (6 - nv, *batch), for a joint whose speeds are the rates of its coordinates."""
    return located_rows(pose_misfit, joint.nv, joint, rel, t)


def located_rows(misfit: Callable, rank: int, joint: Any, rel: Pose, t: Array) -> Array:
    """phi for a `misfit(joint, q, rel, t)` (6 or more,) whose slope by the coordinates has this rank; lower than nv
    where coordinates are redundant."""
    return lift(partial(_rows, misfit, rank), rel.translation.ndim - 1, joint, rel, t)


def _rows(misfit: Callable, rank: int, joint: Any, rel: Pose, t: Array) -> Array:
    q, S0 = _nearest(misfit, rank, *lax.stop_gradient((joint, rel, t)))
    back = jnp.linalg.solve(_normal(S0, rank, 0.0), S0.T) if joint.nv else S0.T

    def step(q, _):
        e = misfit(joint, q, rel, t)
        return q + back @ e, e

    _, e = lax.scan(step, q, None, length=_ORDERS + 1)
    return _complement(S0, rank).T @ e[-1]


def _complement(S: Array, rank: int) -> Array:
    """C (n, n - rank) with C^T S = 0: unit vectors of the rows that elimination with full pivoting leaves over, less
    what the pivot rows make of them. It changes smoothly with S as long as the pivots stay."""
    n, rest = S.shape[0], S
    rows, columns = jnp.zeros(n, bool), jnp.zeros(S.shape[1], bool)
    for _ in range(rank):
        size = jnp.where(rows[:, None] | columns, -1.0, jnp.abs(rest))
        row, column = jnp.divmod(jnp.argmax(size), S.shape[1])
        rest = rest - rest[:, column][:, None] * rest[row] / rest[row, column]
        rows, columns = rows.at[row].set(True), columns.at[column].set(True)
    order = jnp.argsort(rows, stable=True)
    left, pivots = order[: n - rank], order[n - rank :]
    S = S[:, jnp.argsort(~columns, stable=True)[:rank]]
    C = jnp.zeros((n, n - rank), S.dtype).at[left, jnp.arange(n - rank)].set(1.0)
    return C.at[pivots].set(-jnp.linalg.solve(S[pivots].T, S[left].T)) if rank else C


def pose_misfit(joint: Any, q: Array, rel: Pose, t: Array) -> Array:
    """e, (6,)."""
    E = joint.pose(q, t).inverse() @ rel
    return join(axial(E.rotation, eye(3, q)), E.translation)


def _normal(S: Array, rank: int, damping: Any) -> Array:
    """S^T S; where coordinates are redundant, with a little on the diagonal, which chooses the shortest change."""
    little = 0.0 if rank == S.shape[1] else 1e-12
    return S.T @ S + (damping + little) * jnp.eye(S.shape[1], dtype=S.dtype)


class _Search(NamedTuple):
    """At q, in turn `turn` from start `start`; the best end so far and its error; steps left, -1 until one is found."""

    q: Array
    S: Array
    turn: Array
    start: Array
    best: Array
    error: Array
    left: Array


def _nearest(misfit: Callable, rank: int, joint: Any, rel: Pose, t: Array) -> tuple[Array, Array]:
    """(q, S0): by Levenberg-Marquardt from one start after another until one arrives; else the best of all."""
    dtype = rel.translation.dtype
    units, neutral = jnp.eye(joint.nv, dtype=dtype), joint.neutral().astype(dtype)
    rows = jax.eval_shape(misfit, joint, neutral, rel, t).shape[0]
    if not joint.nv:
        return neutral, jnp.zeros((rows, 0), dtype)
    size = (rel.translation**2).sum() + (joint.pose(neutral, t).translation ** 2).sum()
    starts = jnp.concatenate([neutral[None], *(neutral + s * units for s in _STARTS)])

    def turn(at):
        push = lambda d: jax.jvp(lambda q: misfit(joint, q, rel, t), (at.q,), (d,))
        e, S = jax.vmap(push, out_axes=(None, 1))(units)
        turned = (joint.pose(at.q, t).rotation * rel.rotation).sum()  # the skew part vanishes at half a turn too
        error = jnp.where(turned < 1.0, 10.0, 0.0) + e @ e
        way = e[3:6] @ e[3:6]
        near = (error - way < _NEAR) & (way < _NEAR * size + 1e-8)
        damping = jnp.where(e @ e > 1e-12, jnp.minimum(e @ e, 1.0), 0.0)
        step = -jnp.linalg.solve(_normal(S, rank, damping), S.T @ e)
        q = at.q + step
        ended = (at.left < 0) & ((jnp.abs(step).max() < 1e-7) | (at.turn >= _STEPS))
        better = ended & (error < at.error - 1e-12)
        best, least = jnp.where(better, q, at.best), jnp.where(better, error, at.error)
        found = ended & ((better & near) | (at.start + 1 >= len(starts)))
        again = starts[jnp.minimum(at.start + 1, len(starts) - 1)]
        q = jnp.where(found, best, jnp.where(ended, again, q))
        left = jnp.where(found, _LAST, jnp.where(at.left > 0, at.left - 1, at.left))
        return _Search(q, -S, jnp.where(ended, 0, at.turn + 1), at.start + ended, best, least, left)

    none, far = jnp.asarray(0), jnp.asarray(jnp.inf, dtype)
    begin = _Search(neutral, jnp.zeros((rows, joint.nv), dtype), none, none, neutral, far, none - 1)
    end = lax.while_loop(lambda at: at.left != 0, turn, begin)
    return end.q, end.S
