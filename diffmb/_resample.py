"""RESAMPLE: the motion between the rows of a trajectory.

Between neighbouring rows at t0 and t1 = t0 + h, with x = (t - t0) / h and the rates that the equations of motion give
at both ends (`_motion.py`, (1)),

    qd = N(q) v                qdd = d(N v)/dt along (qd, vd)                                                       (1)
    q(x)  of fifth degree, with q, qd, qdd at both ends; quaternions to unit length             error O(h^6)       (2)
    v(x)  with N(q) v = qd of (2)                                                               error O(h^5)       (3)
    z(x)  of third degree, with z, zd at both ends                                              error O(h^4)       (4)

(Hermite 1878), and then (q, v) on the constraint manifold, so that a resampled state closes as well as a saved one. Its
derivative is that of (1) to (4), and of the nearest state on the manifold (`settled`).
"""

import jax
import jax.numpy as jnp
from jax import Array, lax

from ._inputs import Inputs
from ._kinematics import difference, qdot, unit_quaternions
from ._knots import before
from ._manifold import nearest_state, renewed, unknown_rows
from ._model import Model
from ._motion import rates_of, settled
from ._plan import split
from ._tiles import over_rows


def resampled(
    model: Model, inputs: Inputs, ts: Array, ys: Array, on: Array | None, times: Array
) -> tuple[Array, Array | None]:
    """States and switches at `times`, from rows at `ts`; nan at times that are not between rows.

    Switches are those of the row that ends an interval: so a run that keeps all steps stores them. Two rows at one time
    are before and after an event; at that time it is the one before.
    """
    later = jnp.clip(jnp.searchsorted(ts, lax.stop_gradient(times), side="left"), 1, ts.shape[0] - 1)
    ends = jnp.stack([later - 1, later], 1)
    on = None if on is None else on[later]
    found = over_rows(lambda *row: _between(model, inputs, *row), times, ts[ends], ys[ends], on)
    return jnp.where(within(ts, times)[:, None], found, jnp.nan), on


def within(ts: Array, times: Array) -> Array:
    """Which times lie between the first and the last row, up to round-off."""
    slack = 8 * jnp.finfo(ts.dtype).eps * jnp.maximum(jnp.abs(ts[0]), jnp.abs(ts[-1]))
    return (times >= ts[0] - slack) & (times <= ts[-1] + slack)


def _between(model: Model, inputs: Inputs, t: Array, ts: Array, ys: Array, on: Array | None) -> Array:
    """The state at t between two rows."""
    seen = ts if inputs.knots is None else ts.at[1].set(before(inputs, ts[1]))  # not what comes after the end
    (q, v, z), (qd, zd), qdd = jax.vmap(lambda at, t, y: _rates(model, inputs, at, t, y, on))(seen, ts, ys)
    h = jnp.where(ts[1] > ts[0], ts[1] - ts[0], 1.0)
    place = lambda x: unit_quaternions(model, _fifth(x, h, q, qd, qdd))
    x = (t - ts[0]) / h
    q, slope = jax.jvp(place, (x,), (jnp.ones_like(x),))  # (2)
    v = jax.jvp(lambda end: difference(model, q, end), (q,), (slope / h,))[1]  # (3)
    return _closed(model, t, jnp.concatenate([q, v, _third(x, h, z, zd)]), on)


def _rates(model: Model, inputs: Inputs, seen: Array, t: Array, y: Array, on: Array | None) -> tuple:
    """(q, v, z), their rates where they are needed, and (1), with inputs as they are `seen`."""
    mode = renewed(*lax.stop_gradient((model, y, t, unknown_rows(model, on, y))))
    q, v, z = split(model, y)
    qd, (vd, zd) = qdot(model, q, v), rates_of(model, mode.chosen, q, v, z, *inputs(seen), t, on)
    qdd = jax.jvp(lambda q, v: qdot(model, q, v), (q, v), (qd, vd))[1]
    return (q, v, z), (qd, zd), qdd


def _fifth(x: Array, h: Array, q: Array, qd: Array, qdd: Array) -> Array:
    """The polynomial of (2); rows of q, qd, qdd belong to x = 0 and x = 1."""
    a, b, c = q[0], h * qd[0], 0.5 * h * h * qdd[0]
    r, s, w = q[1] - a - b - c, h * qd[1] - b - 2 * c, 0.5 * h * h * qdd[1] - c  # what the last three terms must add
    last = (10 * r - 4 * s + w) + x * ((-15 * r + 7 * s - 2 * w) + x * (6 * r - 3 * s + w))
    return a + x * (b + x * (c + x * last))


def _third(x: Array, h: Array, z: Array, zd: Array) -> Array:
    """The polynomial of (4)."""
    a, b = z[0], h * zd[0]
    r, s = z[1] - a - b, h * zd[1] - b
    return a + x * (b + x * ((3 * r - s) + x * (s - 2 * r)))


def _closed(model: Model, t: Array, y: Array, on: Array | None) -> Array:
    """The nearest state on the manifold; its derivative is that of `settled`."""
    if not model.nc:
        return y
    still = lax.stop_gradient((model, y, t))
    mode = renewed(*still, unknown_rows(model, on, y))
    near = nearest_state(*still, mode).y
    q, v, z = split(model, lax.stop_gradient(near) + (y - still[1]))
    return jnp.concatenate([*settled(model, mode.chosen, q, v, t), z])
