"""FOLLOW: loads that depend on multipliers, as a traction does on the normal force that a contact constraint exerts.

    M vd + c + G^T lam = tau(t, q, v, z, u, s)         G vd = gamma         s = lam of the followed rows           (1)

For given s (1) is linear, and gives lam(s): what remains is a small nonlinear system, lam(s)_followed - s = 0, for
Newton's method (Sol 1983, 9.3: the normal load of a cam). With K the matrix of (1), whose factors are at hand, E the
rows of lam that are followed and W(s) the loads that follow,

    E lam(s) = E lam(0) + B W(s)         B = (K^-1 E^T)^T on the speeds, as K is symmetric                          (2)
    K - [W_s; 0] E                       the matrix of (1) by (vd, lam): K^-1, and a correction by (1 - B W_s)^-1   (3)

so neither the dynamics nor their derivative need to be repeated. Batch axis last.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ._closure import spread
from ._configuration import Configuration
from ._dynamics import project
from ._loads import follows, with_connections
from ._model import Model
from ._product import product
from ._roots import newton, solve_matrix


def follower_loads(model: Model, c: Configuration, q, v, V: Array, t, z, u, on) -> Callable[[Array], Array]:
    """W(s), (nv, batch), by s (followed, batch)."""

    def loads(s: Array) -> Array:
        nothing = jnp.zeros((*V.shape[:-1], 1), q.dtype), jnp.zeros((model.nv, 1), q.dtype)
        F, tau = with_connections(model, c, q, v, V, t, z, with_multipliers(u, s), on, *nothing, follows)
        return tau - project(model, c, F)

    return loads


def slopes(loads: Callable[[Array], Array], s: Array) -> Array:
    """W_s, (nv, followed, batch)."""
    unit = jnp.broadcast_to(jnp.eye(len(s), dtype=s.dtype)[..., None], (len(s), *s.shape))
    return jax.vmap(lambda e: jax.jvp(loads, (s,), (e,))[1], out_axes=1)(unit)


def with_multipliers(u: Array, s: Array) -> Array:
    """The inputs, and behind them the multipliers that connections follow."""
    return jnp.concatenate(spread(u, s))


class Response(eqx.Module):
    """(2): the factors K (`_saddle.py`), and how the followed multipliers answer to loads."""

    K: Any
    E: Array  # (followed, rows, batch)
    B: Array  # (followed, nv, batch)

    def settle(self, b1: Array, b2: Array, loads: Callable[[Array], Array]) -> tuple[Array, Array]:
        """(vd, lam) of (1), with b1 = tau - c without the loads W(s) = `loads(s)` that follow, and b2 = gamma."""
        alone = product(self.E, self.K.solve(b1, b2)[1])
        residual = lambda s: alone + product(self.B, loads(s)) - s
        shape = jax.eval_shape(residual, alone).shape
        s, _ = newton(residual, jnp.zeros(shape, b1.dtype), first=lambda r: r)
        return self.K.solve(b1 + loads(s), b2)

    def solve(self, W_s: Array, b1: Array, b2: Array) -> tuple[Array, Array]:
        """(3), for any right-hand side."""
        s = solve_matrix(self._own(W_s), product(self.E, self.K.solve(b1, b2)[1]))
        return self.K.solve(b1 + product(W_s, s), b2)

    def solve_transposed(self, W_s: Array, b1: Array, b2: Array) -> tuple[Array, Array]:
        turned = lambda A: jnp.swapaxes(A, 0, 1)
        p = solve_matrix(turned(self._own(W_s)), product(turned(W_s), self.K.solve(b1, b2)[0]))
        return self.K.solve(b1, b2 + product(turned(self.E), p))

    def _own(self, W_s: Array) -> Array:
        return jnp.eye(len(self.B), dtype=W_s.dtype)[..., None] - product(self.B, W_s)


def response(K: Any, E: Array) -> Response:
    nothing = jnp.zeros_like(K.G[0])
    return Response(K, E, jnp.stack([K.solve(nothing, row)[0] for row in E]))


def rows_among(followed: np.ndarray, chosen: Array) -> Array:
    """E, if K has the `chosen` rows."""
    return jnp.where(chosen[None] == jnp.asarray(followed)[:, None, None], 1.0, 0.0).astype(chosen.dtype)
