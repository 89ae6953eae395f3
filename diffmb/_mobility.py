"""MOBILITY: how many ways a mechanism can move here, by rank and not by count.

    nd = nv - rank(G_h)              degrees of freedom; G_h: holonomic rows (Sol 1983, ch. 5)
    Gruebler: nv - rows of G_h       right only where no row is redundant and the attitude is regular
    velocities v with G v = 0        admissible directions, nonholonomic rows included: they take away speeds, not nd

The rows of each element are divided by the length of its longest one, so that singular values compare.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ._checks import as_time, check_coordinates
from ._closure import constraint_jacobian
from ._constraints._drive import Driven
from ._model import Model
from ._pseudo_inverse import rank_tolerance


class Mobility(eqx.Module):
    """What `mb.mobility` found; `print` it for a report.

    - `dof`: degrees of freedom; `gruebler`: what counting rows would give.
    - `rank`: of the holonomic rows; `singular_values` of these, scaled element by element.
    - `distance`: the smallest singular value that is not round-off, beside the largest. It goes to 0 towards a singular
        attitude; in it, `rank` has dropped and `dof` has risen.
    - `velocity_dof`: independent admissible speeds, fewer than `dof` if there are nonholonomic rows.
    - `directions`: (nv, velocity_dof), orthonormal admissible speeds.
    - `redundant`: rows that follow from the others, by name.
    """

    dof: Array
    rank: Array
    singular_values: Array
    distance: Array
    velocity_dof: Array
    basis: Array  # (nv, nv): rows are directions, the admissible ones last
    jacobian: Array  # (rows, nv), scaled
    gruebler: int = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    speeds: tuple[str, ...] = eqx.field(static=True)

    @property
    def directions(self) -> Array:
        nv = self.basis.shape[0]
        return self.basis[nv - int(self.velocity_dof) :].T

    @property
    def redundant(self) -> tuple[str, ...]:
        """Rows left over when independent ones have been taken, the most independent first, ties by order."""
        rest = np.array(self.jacobian)
        left = list(range(len(rest)))
        for _ in range(int(self.rank)):
            size = np.linalg.norm(rest[left], axis=1)
            best = left[int(np.argmax(size > size.max() * (1 - 1e-6)))]
            left.remove(best)
            along = rest[best] / np.linalg.norm(rest[best])
            rest = rest - np.outer(rest @ along, along)
        return tuple(self.names[k] for k in left)

    def __repr__(self) -> str:
        try:
            dof, rank = int(self.dof), int(self.rank)
        except Exception:  # being traced
            return f"Mobility(gruebler={self.gruebler}, rows={len(self.names)})"
        lines = [
            f"Mobility: {dof} degrees of freedom (Gruebler's count: {self.gruebler}), {int(self.velocity_dof)} speeds",
            f"  {len(self.names)} holonomic rows of rank {rank}, distance to singularity {float(self.distance):.3g}",
        ]
        if self.redundant:
            lines.append(f"  redundant: {', '.join(self.redundant)}")
        for k, direction in enumerate(np.asarray(self.directions).T):
            order = np.argsort(-np.abs(direction))[:4]
            parts = ", ".join(f"{direction[i]:+.3f} {self.speeds[i]}" for i in order if abs(direction[i]) > 1e-6)
            lines.append(f"  direction {k + 1}: {parts}")
        return "\n".join(lines)


def mobility(model: Model, q, t: Any = 0.0, *, drives: bool = False) -> Mobility:
    """Degrees of freedom, redundant rows and admissible speeds at `q`; drives count as constraints only on request."""
    q = check_coordinates(model, q)
    G = constraint_jacobian(model, q, as_time(t, q))
    driven = np.array([isinstance(g.kind, Driven) for g in model.closing for _ in g.names for _ in g.levels], bool)
    used = np.ones(model.nc, bool) if drives else ~driven
    holonomic = np.flatnonzero(used & (model.levels == 0))
    every = np.flatnonzero(used & (model.levels <= 1))
    scaled = scale_rows(model, G)
    _, s, rank = _rank(scaled[holonomic])
    Vt, _, rank_all = _rank(scaled[every])
    largest = s.max(initial=np.finfo(G.dtype).tiny)
    beyond = jnp.where(s > 1e3 * np.finfo(G.dtype).eps * largest, s, jnp.inf)
    distance = jnp.minimum(beyond.min(initial=jnp.inf) / largest, 1.0)
    names = tuple(model.row_names[k] for k in holonomic)
    gruebler = model.nv - len(holonomic)
    dof, speed_dof = model.nv - rank, model.nv - rank_all
    return Mobility(dof, rank, s, distance, speed_dof, Vt, scaled[holonomic], gruebler, names, speed_names(model))


def speed_names(model: Model) -> tuple[str, ...]:
    """The speeds by joint, numbered where a joint has several: "A", "frame[0]"."""
    return tuple(
        f"{name}[{k}]" if stop - start > 1 else name
        for name, start, stop in ((n, model.speeds(n).start, model.speeds(n).stop) for n in model.inboard)
        for k in range(stop - start)
    )


def scale_rows(model: Model, G: Array) -> Array:
    """The rows of each element divided by the length of its longest: units drop out, a row that vanishes shows."""
    return G * row_scales(model, G)[:, None]


def row_scales(model: Model, G: Array) -> Array:
    """(nc,): one over the length of the longest row of the element; zero if it is nothing beside other elements'."""
    if model.nc == 0:
        return jnp.zeros(0, G.dtype)
    sizes = [g.rows for g in model.closing for _ in g.names]
    element = np.repeat(np.arange(len(sizes)), sizes)
    size = jnp.sqrt((G * G).sum(1))
    longest = jax.ops.segment_max(size, element, num_segments=int(element.max()) + 1)[element]
    kept = longest > np.finfo(G.dtype).eps ** 0.625 * size.max()
    return jnp.where(kept, 1.0 / jnp.where(kept, longest, 1.0), 0.0)


def _rank(G: Array) -> tuple[Array, Array, Array]:
    """Right singular vectors (nv, nv), singular values and how many count."""
    if G.shape[0] == 0:
        return jnp.eye(G.shape[1], dtype=G.dtype), jnp.zeros(0, G.dtype), jnp.asarray(0)
    _, s, Vt = jnp.linalg.svd(G, full_matrices=True)
    tolerance = rank_tolerance(G.dtype) ** 0.5
    return Vt, s, (s > tolerance * jnp.maximum(s.max(initial=0.0), 1e-300)).sum()
