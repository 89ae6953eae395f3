"""Bushing: stiffness and damping for all six ways that one marker can move in another.

    e = (r, p)           r: rotation vector of the second marker in the first, p: its origin, both in the first's axes
    F = -(f_0 + K e + C ed)          E = f_0 . e + e . K e / 2          D = ed . C ed

The wrenches follow from the derivative of the strains, so virtual work is exact at large rotation (below half a turn).
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._errors import MechanismError
from .._spatial._axis import as_array, is_concrete
from .._spatial._pose import Pose
from ._abstract import AbstractConnection
from ._numbers import Quantity, check_numbers
from ._turns import rotation_vector


def _as_square(values) -> Array:
    values = as_array(values)
    return jnp.diag(values) if values.ndim == 1 else values


def _even(matrix: Array) -> Array:
    return 0.5 * (matrix + matrix.T)


class Bushing(AbstractConnection):
    """Holds the second marker near the first, elastically in all six directions. Angular parts come first.

    **Arguments:**

    - `k`: stiffness, six numbers or a symmetric matrix (6, 6) without negative eigenvalues: N m/rad, N/m and N.
    - `c`: damping, likewise: N m s/rad, N s/m and N s; none by default.
    - `preload`: moments and forces (6,) with which it opposes the strains where they are zero, N m and N.
    """

    k: Array = eqx.field(converter=_as_square)
    c: Array = eqx.field(converter=_as_square, default=(0.0,) * 6)
    preload: Array = eqx.field(converter=as_array, default=(0.0,) * 6)

    def __check_init__(self):
        title = f"Bushing {self.name!r}"
        check_numbers(title, self, preload=Quantity("N m and N", shape=(6,)))
        check_numbers(title, self, k=Quantity("N m/rad and N/m", shape=(6, 6)), c=Quantity("N s/m", shape=(6, 6)))
        for what, matrix in (("k", self.k), ("c", self.c)):
            if is_concrete(matrix):
                _check_even(f"the {what} of {title}", np.asarray(matrix, float))

    def strain(self, t: Array, x: Pose) -> Array:
        return jnp.concatenate([rotation_vector(x.rotation), x.translation])

    def load(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return -(self.preload + _even(self.k) @ e + _even(self.c) @ ed)

    def energy(self, t: Array, e: Array, z: Array) -> Array:
        return self.preload @ e + 0.5 * e @ self.k @ e

    def dissipation(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return ed @ self.c @ ed


def _check_even(title: str, matrix: np.ndarray) -> None:
    size, apart = np.abs(matrix).max(), np.abs(matrix - matrix.T)
    if apart.max() > 1e-6 * size:
        i, j = np.unravel_index(apart.argmax(), apart.shape)
        pair = f"{matrix[i, j]:g} at ({i}, {j}) and {matrix[j, i]:g} at ({j}, {i})"
        raise MechanismError(f"{title} is not symmetric: it has {pair}; make them equal")
    least = np.linalg.eigvalsh(matrix).min()
    if least < -1e-6 * size:
        raise MechanismError(f"{title} has the eigenvalue {least:g}: it would give energy away; give none below zero")
