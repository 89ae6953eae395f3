"""Any joint as a constraint: the coordinates that fit a given pose best, and what is left over.

    E = X(q, t)^-1 rel        e = (vee(skew part of R_E), p_E)        how far `rel` is from the pose at q
    S0^T e(q) = 0             the nearest coordinates q, with S0 = -de/dq there
    phi = C0^T e              6 - nv rows, C0 a basis of what S0 leaves: C0^T S0 = 0

S0 and C0 are held fixed when these are differentiated. On the manifold e stays zero, so any fixed combination of its
rows is a valid constraint at every order: G, nu and gamma are exact, only the basis of the multipliers is chosen here.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from .._spatial._pose import Pose
from .._spatial._twist import axial
from .._spatial._vector import eye, join
from ._lift import lift

_STARTS = (0.8, -0.8, 1.6, -1.6, 2.4, -2.4, 3.1, -3.1)  # along each coordinate, beside the neutral start
_STEPS = 30


def generic_rows(joint: Any, rel: Pose, t: Array) -> Array:
    """phi, (6 - nv, *batch), for a joint whose speeds are the rates of its coordinates."""
    return located_rows(pose_misfit, joint.nv, joint, rel, t)


def located_rows(misfit: Callable, rank: int, joint: Any, rel: Pose, t: Array) -> Array:
    """phi for a `misfit(joint, q, rel, t)` (6 or more,) whose slope by the coordinates has this rank; lower than nv
    where coordinates are redundant."""
    return lift(partial(_rows, misfit, rank), rel.translation.ndim - 1, joint, rel, t)


def _rows(misfit: Callable, rank: int, joint: Any, rel: Pose, t: Array) -> Array:
    q = _nearest(misfit, rank, joint, rel, t) if joint.nv else jnp.zeros(0, rel.translation.dtype)
    complement = _complement(lax.stop_gradient(_slope(misfit, joint, q, rel, t)), rank)
    return lax.stop_gradient(complement).T @ misfit(joint, q, rel, t)


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


def _slope(misfit: Callable, joint: Any, q: Array, rel: Pose, t: Array) -> Array:
    """-de/dq, (n, nv)."""
    return -jax.jacfwd(lambda q: misfit(joint, q, rel, t))(q).reshape(-1, joint.nv)


def _normal(S0: Array, S: Array, rank: int, damping: Any = 0.0) -> Array:
    """S0^T S; where coordinates are redundant, with a little on the diagonal, which chooses the shortest change."""
    little = 0.0 if rank == S.shape[1] else 1e-12
    return S0.T @ S + (damping + little) * jnp.eye(S.shape[1], dtype=S.dtype)


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _nearest(misfit: Callable, rank: int, joint: Any, rel: Pose, t: Array) -> Array:
    """The best of several Levenberg-Marquardt runs."""

    def step(_, q):
        e, S = misfit(joint, q, rel, t), _slope(misfit, joint, q, rel, t)
        damping = jnp.where(e @ e > 1e-12, jnp.minimum(e @ e, 1.0), 0.0)
        return q + jnp.linalg.solve(_normal(S, S, rank, damping), S.T @ e)

    def run(start):
        q = lax.fori_loop(0, _STEPS, step, start)
        e = misfit(joint, q, rel, t)
        turned = joint.pose(q, t).inverse() @ rel
        flipped = jnp.trace(turned.rotation) < 1.0  # the skew part vanishes at half a turn too
        return q, jnp.where(flipped, 10.0, 0.0) + e @ e

    units = jnp.eye(joint.nv, dtype=rel.translation.dtype)
    neutral = joint.neutral().astype(units.dtype)
    starts = jnp.concatenate([neutral[None], *(neutral + s * units for s in _STARTS)])
    found, errors = jax.vmap(run)(starts)
    best = found[jnp.argmin(errors > errors.min() + 1e-12)]  # the first of the equally good
    return lax.fori_loop(0, 3, step, best)  # exact, whichever start it came from


@_nearest.defjvp
def _nearest_rule(misfit, rank, primals, tangents):
    joint, rel, t = primals
    q = _nearest(misfit, rank, joint, rel, t)
    S = _slope(misfit, joint, q, rel, t)
    S0 = lax.stop_gradient(S)
    change = jax.jvp(lambda joint, rel, t: misfit(joint, q, rel, t), primals, tangents)[1]
    return q, jnp.linalg.solve(_normal(S0, S, rank), S0.T @ change)
