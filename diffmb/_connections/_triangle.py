"""Plane element with three endpoints: a thin triangle of constant strain, in plane stress.

With the sides S = (P_2 - P_1, P_3 - P_1) at rest (2, 2) and s = (p_2 - p_1, p_3 - p_1) now (3, 2):

    C = S^-T s^T s S^-1                  Green's strains e = ((C_11 - 1) / 2, (C_22 - 1) / 2, C_12)                 (1)
    K = A h E / (1 - nu^2) [[1, nu, 0], [nu, 1, 0], [0, 0, (1 - nu) / 2]]          A h: volume
    F = -K (e + beta ed)                 energy = e . K e / 2

Sol (1983, 3.4.20) takes the in-plane coordinates of the endpoints in a frame that goes along with the element. (1) has
the same first-order part, needs no frame, and does not change under any rotation in space.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._errors import MechanismError
from .._spatial._axis import as_array, is_concrete
from .._spatial._pose import Pose
from ._abstract import AbstractSpan
from ._numbers import LAG, LENGTH, Quantity, check_numbers


class PlaneElement(AbstractSpan):
    """A thin elastic triangle between the origins of three markers.

    **Arguments:**

    - `markers`: three `Marker`s or names of bodies.
    - `points`: where their origins are at rest, in the element's plane, (3, 2), m.
    - `thickness`: m, above zero.
    - `young`: Young's modulus, N/m^2, zero or more.
    - `poisson`: Poisson's ratio, above -1 and at most 0.5.
    - `beta`: damping per stiffness, s, zero or more.
    """

    points: Array = eqx.field(converter=as_array)
    thickness: Array = eqx.field(converter=as_array)
    young: Array = eqx.field(converter=as_array)
    poisson: Array = eqx.field(converter=as_array, default=0.0)
    beta: Array = eqx.field(converter=as_array, default=0.0)

    def __check_init__(self):
        title = f"PlaneElement {self.name!r}"
        if len(self.markers) != 3:
            raise MechanismError(f"{title} has {len(self.markers)} markers; give three")
        check_numbers(title, self, points=Quantity("m", shape=(3, 2)), thickness=LENGTH, beta=LAG)
        check_numbers(title, self, young=Quantity("N/m^2", least=0.0), poisson=Quantity("(a pure number)", above=-1.0))
        if is_concrete(self.poisson) and float(self.poisson) > 0.5:
            raise MechanismError(f"the poisson of {title} is {float(self.poisson):g}; give at most 0.5")
        if is_concrete(self.points):
            points = np.asarray(self.points, float)
            if abs(np.linalg.det(points[1:] - points[0])) <= 1e-9 * np.ptp(points, axis=0).max() ** 2:
                raise MechanismError(f"the points of {title} lie on one line: {points.tolist()}; give a triangle")

    def _rest(self) -> tuple[Array, Array]:
        """S^-1, and the determinant of S: twice the area, with a sign."""
        (a, b), (c, d) = self.points[1] - self.points[0], self.points[2] - self.points[0]
        twice = a * d - b * c
        return jnp.stack([jnp.stack([d, -c]), jnp.stack([-b, a])]) / twice, twice

    def strain(self, t: Array, x: tuple[Pose, ...]) -> Array:
        F = jnp.stack([x[0].translation, x[1].translation], 1) @ self._rest()[0]
        C = F.T @ F
        return jnp.stack([0.5 * (C[0, 0] - 1.0), 0.5 * (C[1, 1] - 1.0), C[0, 1]])

    def _stress(self, e: Array) -> Array:
        """K e."""
        volume = 0.5 * jnp.abs(self._rest()[1]) * self.thickness
        nu, plain = self.poisson, jnp.stack([e[0] + self.poisson * e[1], self.poisson * e[0] + e[1]])
        return volume * self.young / (1.0 - nu * nu) * jnp.append(plain, 0.5 * (1.0 - nu) * e[2])

    def load(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return -self._stress(e + self.beta * ed)

    def energy(self, t: Array, e: Array, z: Array) -> Array:
        return 0.5 * e @ self._stress(e)

    def dissipation(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return self.beta * ed @ self._stress(ed)
