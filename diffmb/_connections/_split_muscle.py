"""A muscle with several heads, or a tendon that splits: heads in parallel that share one activation.

Head k goes along a path over markers of its own and others that all share, with e_k its length:

    e = (e_1, ..., e_n)        z = (a, w_1, ..., w_n)        F_k, wd_k, E_k, D_k, P_k: of head k alone with activation a
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from .._errors import MechanismError
from .._spatial._pose import Pose
from ._abstract import AbstractSpan
from ._muscle import Muscle
from ._path import check_path, path_length, points


def _as_paths(paths: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(int(k) for k in path) for path in paths)


class SplitMuscle(AbstractSpan):
    """Heads of a muscle in parallel, with one excitation as input (0 to 1) and the states (activation, w of each head).

    **Arguments:**

    - `markers`: all points that the heads use, a list of `Marker`s or names of bodies.
    - `paths`: for each head the numbers of its markers in order, static: [(0, 1, 2), (0, 1, 3)] splits behind 1.
    - `heads`: one `mb.Muscle` for each path; activation and its dynamics are those of the first.
    """

    paths: tuple[tuple[int, ...], ...] = eqx.field(static=True, converter=_as_paths)
    heads: tuple[Muscle, ...] = eqx.field(converter=tuple)

    def __check_init__(self):
        title, count = f"SplitMuscle {self.name!r}", len(self.markers)
        if len(self.paths) != len(self.heads) or not self.heads:
            raise MechanismError(
                f"{title} has {len(self.heads)} heads and {len(self.paths)} paths; give a path for each head"
            )
        for path in self.paths:
            if len(path) < 2 or not all(0 <= k < count for k in path):
                raise MechanismError(
                    f"{title} has the path {path} over {count} markers; name two or more of them, from 0 to {count - 1}"
                )
            check_path(title, tuple(self.markers[k] for k in path))
        unused = set(range(count)) - {k for path in self.paths for k in path}
        if unused:
            raise MechanismError(f"{title} has markers {sorted(unused)} that no path uses; leave them out")
        for k, head in enumerate(self.heads):
            if not isinstance(head, Muscle):
                raise MechanismError(f"head {k} of {title} is {type(head).__name__}; give an mb.Muscle")
            head.check(f"head {k} of {title}")

    @property
    def nz(self) -> int:
        return 1 + len(self.heads)

    @property
    def nu(self) -> int:
        return 1

    def _each(self, method: Any, e: Array, z: Array) -> list[Array]:
        return [
            method(head, length, jnp.stack([z[0], w])) for head, length, w in zip(self.heads, e, z[1:], strict=True)
        ]

    def strain(self, t: Array, x: tuple[Pose, ...]) -> Array:
        places = points(x)
        return jnp.stack([path_length(tuple(places[k] for k in path)) for path in self.paths])

    def load(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return jnp.stack(self._each(lambda head, e, z: head.load(t, e, ed, z, u), e, z))

    def zdot(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        rates = self._each(lambda head, e, z: head.rate(e, *z), e, z)
        return jnp.stack([self.heads[0].dynamics.rate(z[0], u[0]), *rates])

    def energy(self, t: Array, e: Array, z: Array) -> Array:
        return jnp.stack(self._each(lambda head, e, z: head.energy(t, e, z), e, z)).sum()

    def dissipation(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return jnp.stack(self._each(lambda head, e, z: head.dissipation(t, e, ed, z, u), e, z)).sum()

    def supply(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return jnp.stack(self._each(lambda head, e, z: head.supply(t, e, ed, z, u), e, z)).sum()

    def start(self) -> Array:
        a = self.heads[0].activation
        return jnp.stack([a, *(head.equilibrium(head.rest(), a) for head in self.heads)])
