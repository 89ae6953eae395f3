"""FOLLOW: loads that depend on multipliers, as a traction does on the normal force that a contact constraint exerts.

    M vd + c + G^T lam = tau(t, q, v, z, u, s)         G vd = gamma         s = lam of the followed rows           (1)

For given s (1) is linear, and gives lam(s): what remains is a small nonlinear system, r(s) = lam(s)_followed - s = 0,
solved and differentiated in `_roots.py` (Sol 1983, 9.3: Newton's method for the normal load of a cam).
"""

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array

from ._model import Model
from ._roots import root


def with_followed(model: Model, u: Array, multipliers: Callable[[Array], Array]) -> Array:
    """u (nu,) with the multipliers behind it that connections follow; `multipliers(u)` are all of them, (nc,)."""
    rows = model.followed
    if not len(rows):
        return u
    follow = lambda s: multipliers(jnp.concatenate([u, s]))[rows]
    start = follow(jnp.zeros(len(rows), u.dtype))  # without what the loads that follow would change
    return jnp.concatenate([u, root(lambda s: follow(s) - s, start)])
