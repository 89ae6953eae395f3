"""KNOTS: what a motion owes to the times at which the tables of its inputs have a kink or a step.

At a knot t_k the rate of the state goes over from f- to f+. Steps end there, the state is continuous, y-(t_k) =
y+(t_k), and its derivatives at fixed time are not. Differentiated once by a and once more by b, with
F = f_y dy + f_theta dtheta,

    dy+ = dy- + (f- - f+) dt_k                                                                                      (1)
    d2y+ = d2y- + d[(f- - f+)(t_k, y(t_k))]_b dt_k,a + (F-_a - F+_a) dt_k,b + (f- - f+) d2t_k                       (2)

(saltation; Aizerman and Gantmakher 1958). A step in time ("hold") has (1) in the first derivative already; at a kink
("linear", "cubic") f- = f+, but F- is not F+. (2) is what JAX makes of (1) when t_k and y(t_k) move in it, and of the
last but one term, which is added as t_k less its own value, zero, times (F- - F+). Where knots of several tables fall
together, they are passed one after the other. Knots at the first time of a run are passed before it starts.

A row of a dense run that is at a knot moves with it, as one at an event does:

    dt = dt_k          dy = dy- + f- dt_k                                                                           (3)
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_derivatives import SymbolicZero

from ._inputs import Inputs
from ._plan import Mode, Theta, field
from ._tiles import over_rows


def before(inputs: Inputs, t: Array) -> Array:
    """The time just before t, which no knot at t has reached; t itself if there are no tables."""
    return t if inputs.knots is None else t + (_below(t) - lax.stop_gradient(t))  # moves with t


def _below(t: Array) -> Array:
    return jnp.nextafter(lax.stop_gradient(t), jnp.asarray(-jnp.inf, t.dtype))


def up_to(theta: Theta, ends: Array | list[Array]) -> Theta:
    """With tables that do not know what comes at their end or later, and carry on the piece before it.

    Stages of a step see its own pieces so, also where a method looks beyond its end (Kvaerno5: 1.23 steps).
    """
    tables = theta.inputs.tables
    if not tables:
        return theta
    ends = ends if isinstance(ends, list) else [ends] * len(tables)
    ends = [lax.stop_gradient(end) for end in ends]
    return dataclasses.replace(theta, inputs=dataclasses.replace(theta.inputs, ends=ends))


def knots_move(dinputs: Inputs) -> bool:
    """Whether times of tables are among what moves; `dinputs` holds tangents, zeros as symbols."""
    return any(not isinstance(table.times, SymbolicZero) for table in dinputs.tables)


def pass_knots(theta_of: Callable, moving: Any, moved: Any, mode: Mode, t: Array, y: Array, dy: Array) -> Array:
    """(1) and (2) at t, if there is a knot."""
    tables = len(theta_of(moving).inputs.tables)

    def rate(passed: Array, moving: Any, t: Array, y: Array) -> Array:
        """f when that many of the tables have passed their knot."""
        ends = [jnp.where(n < passed, jnp.inf, t) for n in range(tables)]
        return field(up_to(theta_of(moving), ends), mode, t, y)

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
    found = [jnp.where(table.times == t, table.times - t, 0.0).sum() for table in inputs.tables]
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
    times = jnp.concatenate([table.times for table in theta.inputs.tables])
    pairs = [(a.times, d.times) for a, d in zip(theta.inputs.tables, dtheta.inputs.tables, strict=True)]
    dtimes = jnp.concatenate([jnp.zeros_like(t) if isinstance(d, SymbolicZero) else d for t, d in pairs])
    here = times == t[:, None]
    move = jnp.where(here.any(1), dtimes[jnp.argmax(here, 1)], 0.0)
    f = over_rows(lambda mode, t, y: field(up_to(theta, t), mode, t, y), modes, t, y)
    return (t, y), (dt + move, dy + f * move[:, None])
