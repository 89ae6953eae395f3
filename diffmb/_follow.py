"""FOLLOW: loads that depend on multipliers, as a traction does on the normal force that a contact constraint exerts.

    M vd + c + G^T lam = tau(t, q, v, z, u, s)         G vd = gamma         s = lam of the followed rows           (1)

For given s (1) is linear, and gives lam(s): what remains is a small nonlinear system, r(s) = lam(s)_followed - s = 0,
solved and differentiated in `_roots.py` (Sol 1983, 9.3: Newton's method for the normal load of a cam).

In a simulation the factors of (1) are at hand. With K its matrix, E the rows of lam that are followed and W(s) the
loads that follow, all that Newton's method needs is

    E lam(s) = E lam(0) + B W(s)         B = (K^-1 E^T)^T on the speeds, as K is symmetric                          (2)
    K - [W_s; 0] E                       the matrix of (1) with respect to (vd, lam): K^-1 and a correction by 1 - B W_s
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ._model import Model
from ._pseudo_inverse import product
from ._roots import newton, root, solve_matrix
from ._saddle import Chosen


def with_followed(model: Model, u: Array, multipliers: Callable[[Array], Array]) -> Array:
    """u (nu,) with the multipliers behind it that connections follow; `multipliers(u)` are all of them, (nc,)."""
    rows = model.followed
    if not len(rows):
        return u
    follow = lambda s: multipliers(jnp.concatenate([u, s]))[rows]
    alone = jnp.zeros(len(rows), u.dtype)  # from here to lam(0): without what the loads that follow would change
    return jnp.concatenate([u, root(lambda s: follow(s) - s, alone, first=lambda r: r)])


# --- batch axis last from here on ---------------------------------------------------------------------------------


class Response(eqx.Module):
    """(2): the factors K, and how the followed multipliers answer to loads."""

    K: Chosen
    E: Array  # (followed, rows, batch)
    B: Array  # (followed, nv, batch)

    def settle(self, b1: Array, b2: Array, loads: Callable[[Array], Array]) -> tuple[Array, Array]:
        """(vd, lam) of (1), with b1 = tau - c without the loads W(s) = `loads(s)` that follow, and b2 = gamma."""
        alone = product(self.E, self.K.solve(b1, b2)[1])
        residual = lambda s: alone + product(self.B, loads(s)) - s
        shape = jax.eval_shape(residual, alone).shape
        s = newton(residual, jnp.zeros(shape, b1.dtype), first=lambda r: r)
        return self.K.solve(b1 + loads(s), b2)

    def solve(self, W_s: Array, b1: Array, b2: Array) -> tuple[Array, Array]:
        """The matrix of (1) solved for any right-hand side."""
        s = solve_matrix(self._own(W_s), product(self.E, self.K.solve(b1, b2)[1]))
        return self.K.solve(b1 + product(W_s, s), b2)

    def solve_transposed(self, W_s: Array, b1: Array, b2: Array) -> tuple[Array, Array]:
        turned = lambda A: jnp.swapaxes(A, 0, 1)
        p = solve_matrix(turned(self._own(W_s)), product(turned(W_s), self.K.solve(b1, b2)[0]))
        return self.K.solve(b1, b2 + product(turned(self.E), p))

    def _own(self, W_s: Array) -> Array:
        return jnp.eye(len(self.B), dtype=W_s.dtype)[..., None] - product(self.B, W_s)


def response(K: Chosen, chosen: Array, followed: np.ndarray) -> Response:
    """How the rows `followed` answer, of which `chosen` are in K."""
    E = jnp.where(chosen[None] == jnp.asarray(followed)[:, None, None], 1.0, 0.0).astype(K.G.dtype)
    nothing = jnp.zeros_like(K.G[0])
    return Response(K, E, jnp.stack([K.solve(nothing, row)[0] for row in E]))
