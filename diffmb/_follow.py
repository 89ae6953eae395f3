"""FOLLOW: loads that depend on multipliers, as a traction does on the normal force that a contact constraint exerts.

    M vd + c + G^T lam = tau(t, q, v, z, u, s)         G vd = gamma         s = lam of the followed rows           (1)

For given s (1) is linear, and gives lam(s): what remains is a small nonlinear system for s,

    r(s) = lam(s)_followed - s = 0                     s <- s - r_s^-1 r                                             (2)

whose derivative is that of r at the solution (implicit function theorem), never that of the iteration. If Newton's
method does not arrive s is nan, so that no false load leaves as a true one.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ._model import Model

_ITERATIONS = 40
_HALVINGS = 6


def with_followed(model: Model, u: Array, multipliers: Callable[[Array], Array]) -> Array:
    """u (nu,) with the multipliers behind it that connections follow; `multipliers(u)` are all of them, (nc,)."""
    rows = model.followed
    if not len(rows):
        return u
    residual = lambda s: multipliers(jnp.concatenate([u, s]))[rows] - s
    start = jnp.zeros(len(rows), u.dtype)
    return jnp.concatenate([u, lax.custom_root(residual, start, _newton, _solve)])


def _newton(residual: Callable[[Array], Array], start: Array) -> Array:
    """(2), from the multipliers without the loads that follow them; a step that does not help is halved."""
    size = lambda r: jnp.abs(r).max()
    small = lambda s: 64.0 * np.finfo(s.dtype).eps * (1.0 + jnp.abs(s).max())

    def once(carry):
        s, r, count = carry
        step = _solve_matrix(jax.jacfwd(residual)(s), r)

        def shorter(inner):
            part, _, tried = inner
            return 0.5 * part, residual(s - 0.5 * part * step), tried + 1

        worse = lambda inner: (size(inner[1]) > size(r)) & (inner[2] < _HALVINGS)
        whole = jnp.ones((), s.dtype)
        part, new, _ = lax.while_loop(worse, shorter, (whole, residual(s - step), jnp.asarray(0)))
        return s - part * step, new, count + 1

    going = lambda carry: (size(carry[1]) > small(carry[0])) & (carry[2] < _ITERATIONS)
    first = start + residual(start)
    s, r, _ = lax.while_loop(going, once, (first, residual(first), jnp.asarray(0)))
    return jnp.where(size(r) <= 1e4 * small(s), s, jnp.nan)


def _solve(linear: Callable[[Array], Array], b: Array) -> Array:
    return _solve_matrix(jax.jacfwd(linear)(jnp.zeros_like(b)), b)


def _solve_matrix(A: Array, b: Array) -> Array:
    return b / A[0, 0] if b.shape[0] == 1 else jnp.linalg.solve(A, b)
