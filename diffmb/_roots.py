"""ROOTS of small systems that cannot be solved by hand, and their derivatives.

    r(s) = 0             s <- s - a r_s^-1 r, with a halved while a step makes |r| larger                            (1)
    s <- s - J^-1 r(s)   at its end, with the fixed slope J = r_s that it had there                               (2)

(1) is not differentiated. Each step (2) changes nothing but derivatives, which it makes right to one order more: the
first is the implicit function theorem, ds = -J^-1 dr.

If Newton's method does not arrive, s is nan: no false solution leaves as a true one.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

_TRIALS = 80
_HALVINGS = 8
_ORDERS = 4  # of derivatives


def root(residual: Callable[[Array], Array], start: Array) -> Array:
    """s (n,) with residual(s) = 0, from `start`, which has no derivative."""
    of, numbers = jax.closure_convert(residual, start)
    fixed = lax.stop_gradient(numbers)
    s, slope = newton(lambda s: of(s, *fixed), lax.stop_gradient(start))
    back = jnp.linalg.inv(slope)
    return lax.fori_loop(0, _ORDERS, lambda _, s: s - back @ of(s, *numbers), s)  # (2)


def newton(residual: Callable[[Array], Array], start: Array, first: Callable | None = None) -> tuple[Array, Array]:
    """(1), for s (n,), or (n, batch) where each sample goes its own way, and r_s near there. Not to be differentiated.

    A turn evaluates residual and slope where s might go, and says where to look next: a program holds them once,
    whatever is tried, and a residual may be all the dynamics of a mechanism. `first(r)` is the step to take from
    `start`, if it is not Newton's.
    """
    size = lambda a: jnp.abs(a).max(0)
    eps, half = np.finfo(start.dtype).eps, jnp.asarray(0.5, start.dtype)
    far = lambda s, step: size(step) > eps**0.6 * (1e-3 + size(s))
    columns = jnp.eye(len(start), dtype=start.dtype).reshape(len(start), len(start), *(1,) * (start.ndim - 1))
    columns = jnp.broadcast_to(columns, (len(start), *start.shape))

    def turn(carry):
        tried, s, reached, step, halvings, _, count = carry
        r, slope = jax.vmap(lambda e: jax.jvp(residual, (tried,), (e,)), out_axes=(None, 1))(columns)
        good = (size(r) <= reached) | (halvings >= _HALVINGS) | ~far(tried, step)
        new, reach = solve_matrix(slope, r), size(r)
        if first is not None:
            new, reach = jnp.where(count == 0, -first(r), new), jnp.where(count == 0, jnp.inf, reach)
        keep = lambda new, old: jnp.where(good, new, old)
        s, reached, step, halvings = keep(tried, s), keep(reach, reached), keep(new, step), keep(0, halvings + 1)
        return s - half**halvings * step, s, reached, step, halvings, slope, count + 1

    going = lambda carry: far(carry[1], carry[3]).any() & (carry[6] < _TRIALS)
    unknown, none = jnp.full_like(start, jnp.inf), jnp.zeros(start.shape[1:], int)
    begin = (start, start, size(unknown), unknown, none, jnp.zeros_like(columns), jnp.zeros((), int))
    tried, s, _, step, _, slope, _ = lax.while_loop(going, turn, begin)
    return jnp.where(far(s, step), jnp.nan, tried), slope


def solve_matrix(A: Array, b: Array) -> Array:
    """A^-1 b, components first: (n, n, ...) and (n, ...)."""
    if len(b) == 1:
        return b / A[0]
    x = jnp.linalg.solve(jnp.moveaxis(A, (0, 1), (-2, -1)), jnp.moveaxis(b, 0, -1)[..., None])
    return jnp.moveaxis(x[..., 0], -1, 0)
