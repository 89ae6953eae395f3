"""MESH: how large the error of each interval is, and where more intervals are needed.

Along the polynomials X, U of an interval the explicit equations give other states, on r = s + 2 Radau points,

    Y(c_k) = X(0) + h T sum_j I_kj f(t_j, X(c_j), U(c_j))         e = max_k |Y - X|(c_k) / (1 + max |X|)             (1)

(Patterson, Hager and Rao 2015): what is missing in the interval, of order s + 1 in h where the motion is smooth. An
interval above the tolerance is cut into as many pieces as that order asks for, four at most.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from . import _radau as radau
from ._system import System
from ._transcription import Mesh, Unknowns


@eqx.filter_jit
def _rates(system: System, ts: Array, xs: Array, us: Array) -> Array:
    return jax.vmap(system.rate)(ts, xs, us)


def estimate(system: System, mesh: Mesh, w: Unknowns) -> np.ndarray:
    """(1), the relative error of each interval."""
    r, n, T = mesh.s + 2, len(mesh.ends) - 1, float(w.T)
    inner = np.array(mesh.ends)[:-1, None] + mesh.h[:, None] * radau.points(r)[None] * (1 - 1e-12)
    f = inner.reshape(-1)
    x, u = mesh.states_at(w.x, f), mesh.values_at(w.u, f)
    size = 32
    while size < len(f):
        size *= 2
    pad = lambda a: jnp.asarray(np.concatenate([a, np.repeat(a[:1], size - len(a), 0)]))
    rates = np.asarray(_rates(system, pad(f * T), pad(x), pad(u)))[: len(f)].reshape(n, r, -1)
    steps = np.einsum("kj,njx->nkx", radau.integration(r), rates) * (mesh.h * T)[:, None, None]
    Y = w.x[: -1 : mesh.s][:, None] + steps
    error = np.abs(Y - x.reshape(n, r, -1)) / (1.0 + np.abs(w.x).max(0))
    return error.max((1, 2))


def refined(mesh: Mesh, errors: np.ndarray, tolerance: float) -> Mesh:
    """The mesh with intervals above the tolerance cut."""
    pieces = np.ceil((np.maximum(errors, tolerance) / tolerance) ** (1.0 / (mesh.s + 1)))
    pieces = np.where(errors > tolerance, np.clip(pieces, 2, 4), 1).astype(int)
    parts = [np.linspace(a, b, k + 1)[:-1] for a, b, k in zip(mesh.ends, mesh.ends[1:], pieces)]
    return Mesh((*np.concatenate(parts).tolist(), 1.0), mesh.s)
