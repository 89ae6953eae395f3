"""KNOTS: what a motion owes to the times at which the tables of its inputs have a kink or a step.

At a knot t_k the rate of the state goes over from f- to f+. Steps end there, the state is continuous, y-(t_k) = y+(t_k),
and its derivatives at fixed time are not: differentiated once by a and once more by b, with F = f_y dy + f_theta dtheta,

    dy+ = dy- + (f- - f+) dt_k                                                                                      (1)
    d2y+ = d2y- + d[(f- - f+)(t_k, y(t_k))]_b dt_k,a + (F-_a - F+_a) dt_k,b + (f- - f+) d2t_k                       (2)

(saltation; Aizerman and Gantmakher 1958). A step in time ("hold") has (1) in the first derivative already; of a kink
("linear", "cubic") f- = f+ there, but F- is not F+. (2) is what JAX makes of (1) when t_k and y(t_k) move in it, and the
last but one term is added: t_k less its own value, which is zero, times (F- - F+). Where knots of several tables fall
together, they are passed one after the other. Knots at the first time of a run are passed before it starts.

A row of a dense run that is at a knot moves with it, as one at an event does:

    dt = dt_k          dy = dy- + f- dt_k                                                                           (3)
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_derivatives import SymbolicZero

from ._inputs import Inputs
from ._plan import Mode, Theta, field
from ._tiles import over_rows


def before(inputs: Inputs, t: Array) -> Array:
    """The time just before t, which no knot lies behind; t itself if there are no tables."""
    if inputs.knots is None:
        return t
    own = lax.stop_gradient(t)
    return t + (jnp.nextafter(own, jnp.asarray(-jnp.inf, t.dtype)) - own)  # moves with t


def just_before_knots(inputs: Inputs, t: Array) -> Array:
    """t, and just before it if it is a knot: where the last stage of a step that ends there is evaluated."""
    knots = inputs.knots
    return t if knots is None else jnp.where((knots == t).any(), before(inputs, t), t)


def knots_move(dinputs: Inputs) -> bool:
    """Whether times of tables are among what moves; `dinputs` holds tangents, zeros as symbols."""
    return any(not isinstance(table.times, SymbolicZero) for _, table in dinputs.tables)


def pass_knots(theta_of: Callable, moving: Any, moved: Any, mode: Mode, t: Array, y: Array, dy: Array) -> Array:
    """(1) and (2) at t, if there is a knot."""
    inputs = theta_of(moving).inputs
    tables, signals = len(inputs.tables), jnp.asarray([k for k, _ in inputs.tables])

    def rate(passed: Array, moving: Any, t: Array, y: Array) -> Array:
        """f when that many of the tables have passed their knot."""
        own = theta_of(moving)
        left = jnp.zeros(len(inputs.signals), bool).at[signals].max(jnp.arange(tables) >= passed)
        late = jnp.where(left, lax.stop_gradient(before(inputs, t) - t), 0.0)
        return field(eqx.tree_at(lambda th: th.inputs.late, own, late, is_leaf=lambda x: x is None), mode, t, y)

    def one(dy: Array, n: Array) -> tuple[Array, None]:
        at, dt = jax.jvp(lambda moving: _knot_of(theta_of(moving).inputs, n, t), (moving,), (moved,))
        sides = jnp.stack([n, n + 1])
        own = lax.stop_gradient(at)
        f = lax.map(lambda passed: rate(passed, moving, own, y), sides)
        y_at = y + f[0] * (at - own)  # moves with the knot

        def side(row: tuple[Array, Array]) -> tuple[Array, Array]:
            along = lambda moving, y: rate(row[0], moving, at, y)
            return jax.jvp(along, (moving, y_at), (moved, row[1]))

        f, F = lax.map(side, (sides, jnp.stack([dy, dy + (f[0] - f[1]) * dt])))
        return dy + (f[0] - f[1]) * dt + (F[0] - F[1]) * (at - own), None

    return lax.scan(one, dy, jnp.arange(tables))[0]


def _knot_of(inputs: Inputs, n: Array, t: Array) -> Array:
    """The knot of table n that is at t, so that it moves with it; t if it has none."""
    found = [jnp.where(table.times == t, table.times - t, 0.0).sum() for _, table in inputs.tables]
    return t + jnp.stack(found)[n]


@jax.custom_jvp
def rows_at_knots(theta: Theta, t: Array, y: Array, modes: Mode) -> tuple[Array, Array]:
    """Ends of steps, which move with the knots that they are at."""
    return t, y


@partial(rows_at_knots.defjvp, symbolic_zeros=True)
def _rows_rule(primals, tangents):
    theta, t, y, modes = primals
    dtheta, dt, dy, _ = tangents
    dt, dy = (jnp.zeros_like(x) if isinstance(d, SymbolicZero) else d for x, d in ((t, dt), (y, dy)))
    if not knots_move(dtheta.inputs):
        return (t, y), (dt, dy)
    times = jnp.concatenate([table.times for _, table in theta.inputs.tables])
    slopes = [table.times for _, table in dtheta.inputs.tables]
    zero = lambda d: jnp.zeros(d.shape, d.dtype) if isinstance(d, SymbolicZero) else d
    dtimes = jnp.concatenate([zero(d) for d in slopes])
    here = times == t[:, None]
    move = jnp.where(here.any(1), dtimes[jnp.argmax(here, 1)], 0.0)
    f = over_rows(lambda mode, t, y: field(theta, mode, before(theta.inputs, t), y), modes, t, y)
    return (t, y), (dt + move, dy + f * move[:, None])
