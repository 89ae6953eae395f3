"""ROOTS of small systems that cannot be solved by hand, and their derivatives.

    r(s) = 0             s <- s - a r_s^-1 r, with a halved while a step makes |r| larger                            (1)
    ds = -r_s^-1 dr      the implicit function theorem; never the derivative of the iteration                      (2)

If Newton's method does not arrive, s is nan: no false solution leaves as a true one.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

_TRIALS = 80
_HALVINGS = 8


def root(residual: Callable[[Array], Array], start: Array) -> Array:
    """s (n,) with residual(s) = 0, from `start`, which has no derivative."""
    return lax.custom_root(jax.jit(residual), lax.stop_gradient(start), newton, _solve)  # jit: it is traced once


def newton(residual: Callable[[Array], Array], start: Array, first: Callable[[Array], Array] | None = None) -> Array:
    """(1), for s (n,), or (n, batch) where each sample goes its own way. No derivative goes through it.

    A turn evaluates residual and slope where s might go, and says where to look next: a program holds them once,
    whatever is tried, and a residual may be all the dynamics of a mechanism. `first(r)` is the step to take from
    `start`, if it is not Newton's.
    """
    size = lambda a: jnp.abs(a).max(0)
    eps = np.finfo(start.dtype).eps
    far = lambda s, step: size(step) > eps**0.6 * (1e-3 + size(s))
    columns = jnp.eye(len(start), dtype=start.dtype).reshape(len(start), len(start), *(1,) * (start.ndim - 1))
    columns = jnp.broadcast_to(columns, (len(start), *start.shape))

    def turn(carry):
        tried, s, reached, step, halvings, count = carry
        r, slope = jax.vmap(lambda e: jax.jvp(residual, (tried,), (e,)), out_axes=(None, 1))(columns)
        good = (size(r) <= reached) | (halvings >= _HALVINGS) | ~far(tried, step)
        new, reach = solve_matrix(slope, r), size(r)
        if first is not None:
            new, reach = jnp.where(count == 0, -first(r), new), jnp.where(count == 0, jnp.inf, reach)
        keep = lambda new, old: jnp.where(good, new, old)
        s, reached, step, halvings = keep(tried, s), keep(reach, reached), keep(new, step), keep(0, halvings + 1)
        return s - 0.5**halvings * step, s, reached, step, halvings, count + 1

    going = lambda carry: far(carry[1], carry[3]).any() & (carry[5] < _TRIALS)
    unknown, none = jnp.full_like(start, jnp.inf), jnp.zeros(start.shape[1:], int)
    begin = (start, start, size(unknown), unknown, none, jnp.zeros((), int))
    tried, s, _, step, _, _ = lax.while_loop(going, turn, begin)
    return jnp.where(far(s, step), jnp.nan, tried)


def _solve(linear: Callable[[Array], Array], b: Array) -> Array:
    return solve_matrix(jax.jacfwd(linear)(jnp.zeros_like(b)), b)


def solve_matrix(A: Array, b: Array) -> Array:
    """A^-1 b, components first: (n, n, ...) and (n, ...)."""
    if len(b) == 1:
        return b / A[0]
    x = jnp.linalg.solve(jnp.moveaxis(A, (0, 1), (-2, -1)), jnp.moveaxis(b, 0, -1)[..., None])
    return jnp.moveaxis(x[..., 0], -1, 0)
