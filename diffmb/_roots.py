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

_ITERATIONS = 50
_HALVINGS = 8


def root(residual: Callable[[Array], Array], start: Array) -> Array:
    """s (n,) with residual(s) = 0, from `start`, which has no derivative."""
    return lax.custom_root(jax.jit(residual), lax.stop_gradient(start), _newton, _solve)  # jit: it is traced once


def _newton(residual: Callable[[Array], Array], start: Array) -> Array:
    size = lambda a: jnp.abs(a).max()
    eps = np.finfo(start.dtype).eps
    far = lambda s, step: size(step) > eps**0.6 * (1e-3 + size(s))

    def once(carry):
        s, r, _, count = carry
        step = _solve_matrix(jax.jacfwd(residual)(s), r)

        def shorter(inner):
            part, _, tried = inner
            return 0.5 * part, residual(s - 0.5 * part * step), tried + 1

        worse = lambda inner: ~(size(inner[1]) <= size(r)) & (inner[2] < _HALVINGS) & far(s, step)
        whole = jnp.ones((), s.dtype)
        part, new, _ = lax.while_loop(worse, shorter, (whole, residual(s - step), jnp.asarray(0)))
        return s - part * step, new, step, count + 1

    going = lambda carry: far(carry[0], carry[2]) & (carry[3] < _ITERATIONS)
    s, _, step, _ = lax.while_loop(going, once, (start, residual(start), jnp.full_like(start, jnp.inf), jnp.asarray(0)))
    return jnp.where(far(s, step), jnp.nan, s)


def _solve(linear: Callable[[Array], Array], b: Array) -> Array:
    return _solve_matrix(jax.jacfwd(linear)(jnp.zeros_like(b)), b)


def _solve_matrix(A: Array, b: Array) -> Array:
    return b / A[0, 0] if b.shape[0] == 1 else jnp.linalg.solve(A, b)
