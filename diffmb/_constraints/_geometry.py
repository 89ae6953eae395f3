"""The point of a curve that is nearest to a given one, and lengths that may vanish.

    g(s) = c'(s) . (c(s) - p) = 0          c(s): the foot of p on the curve
    ds   = -dg / g'(s)                     dg: the change of g at fixed s

The search looks at samples of the curve, then runs Newton's method between the neighbours of the best one, with
bisection where a step would leave them. The rule for ds calls the search again, so it holds at every order.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from .._joints._lift import as_component
from .._spatial._vector import dot

_STEPS = 16


def length_and_direction(a: Array) -> tuple[Array, Array]:
    """|a| and a / |a|; where a = 0 both are zero, and so are the derivatives of the length."""
    square = dot(a, a)
    none = square == 0.0
    length = jnp.sqrt(jnp.where(none, 1.0, square))
    return jnp.where(none, 0.0, length), a / length


def point_and_velocity(curve: Callable, s: Array, params: Any) -> tuple[Array, Array]:
    """c(s) and c'(s) of a curve that a user wrote."""
    return jax.jvp(lambda s: as_component(curve(s, params), s), (s,), (jnp.ones_like(s),))


def _slope(curve: Callable, s: Array, params: Any, p: Array) -> Array:
    """g(s): half the rate at which the square of the distance grows."""
    c, velocity = point_and_velocity(curve, s, params)
    return dot(velocity, c - p)


def _slope_and_rate(curve: Callable, s: Array, params: Any, p: Array) -> tuple[Array, Array]:
    return jax.jvp(lambda s: _slope(curve, s, params, p), (s,), (jnp.ones_like(s),))


@partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def nearest(curve: Callable, grid: tuple[float, float, int], params: Any, p: Array) -> Array:
    """The parameter s of the point c(s, params) nearest to p; `grid` gives the first, the last and the number of
    samples."""
    first, last, count = grid
    s = jnp.linspace(first, last, count, dtype=p.dtype)
    apart = jax.vmap(lambda s: as_component(curve(s, params), s))(s) - p
    start = s[jnp.argmin((apart * apart).sum(1))]
    spacing = (last - first) / (count - 1)

    def refine(_, state):
        low, s, high = state
        slope, rate = _slope_and_rate(curve, s, params, p)
        low, high = jnp.where(slope < 0.0, s, low), jnp.where(slope < 0.0, high, s)
        newton = s - slope / rate
        return low, jnp.where((newton >= low) & (newton <= high), newton, 0.5 * (low + high)), high

    return jax.lax.fori_loop(0, _STEPS, refine, (start - spacing, start, start + spacing))[1]


@nearest.defjvp
def _nearest_rule(curve, grid, primals, tangents):
    params, p = primals
    s = nearest(curve, grid, params, p)
    rate = _slope_and_rate(curve, s, params, p)[1]
    change = jax.jvp(lambda params, p: _slope(curve, s, params, p), primals, tangents)[1]
    return s, -change / rate
