"""TIMING: states a little later than where they are known, which is what a derivative by the requested times asks for.

    y(t + d) = y + d f(t, y) + ...                        d is zero, but it has derivatives                          (1)
    dy(t + d) = dy + d (f_y dy + f_t dt + f_theta dtheta) + f(t + d, y(t + d)) dd                                   (2)

(2) is exact in d up to its first power, so that (1) is in second derivatives. The middle term is zero; nothing is
computed of it but its derivative by d, when that is asked for.
"""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.custom_derivatives import SymbolicZero

from ._knots import up_to
from ._linear import linear
from ._manifold import renewed
from ._plan import Mode, Theta, field
from ._replay import moving_parts
from ._tiles import over_rows


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def later(rows: bool, theta: Theta, mode: Mode, ends: Array, t: Array, y: Array, d: Array) -> Array:
    """(1), for one state, or for rows of them; tables of inputs are as before the knots at `ends`."""
    return y


@partial(later.defjvp, symbolic_zeros=True)
def _later_rule(rows, primals, tangents):
    theta, mode, ends, t, y, d = primals
    dtheta, _, _, dt, dy, dd = tangents
    (moved, dy), numbers, join = moving_parts((theta, y), (dtheta, dy))
    dt = jnp.zeros_like(t) if isinstance(dt, SymbolicZero) else dt
    dy = linear(
        lambda fixed, x: x[2],
        lambda fixed, ybar: (*jax.tree.map(jnp.zeros_like, (fixed[0][1], fixed[3])), ybar),
        (numbers, mode, ends, t, y, d),
        (moved, dt, dy),
        y,
        like=(partial(_along, rows, join), partial(_back, rows, join)),
    )
    y = later(rows, theta, mode, ends, t, y, d)  # which depends on d in the second derivative
    if not isinstance(dd, SymbolicZero):
        dy = dy + _rate(rows, theta, mode, ends, t + d, y) * (dd[:, None] if rows else dd)
    return y, dy


def _rate(rows: bool, theta: Theta, mode: Mode, ends: Array, t: Array, y: Array) -> Array:
    if rows:
        return over_rows(lambda mode, end, t, y: field(up_to(theta, end), mode, t, y), mode, ends, t, y)
    mode = renewed(*lax.stop_gradient((theta.model, y, t, mode)))
    return field(up_to(theta, ends), mode, t, y)


def _along(rows: bool, join: Any, fixed: Any, x: Any) -> Array:
    """(2) without its last term."""
    ((leaves, moving), mode, ends, t, y, d), (moved, dt, dy) = fixed, x
    rate = lambda moving, t, y: _rate(rows, join(leaves, moving), mode, ends, t, y)
    change = jax.jvp(rate, (moving, t, y), (moved, dt, dy))[1]
    return dy + change * (d[:, None] if rows else d)


def _back(rows: bool, join: Any, fixed: Any, ybar: Array) -> Any:
    (_, moving), _, _, t, y, _ = fixed
    like = jax.tree.map(jnp.zeros_like, (moving, t, y))
    return jax.linear_transpose(lambda *x: _along(rows, join, fixed, x), *like)(ybar)
