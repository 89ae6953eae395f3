"""Slender elements between two markers: bar, and beams of small strain that may turn far (Sol 1983, 3.4).

The markers' x axes lie along the undeformed beam, from the first to the second. With the chord's length r and direction
d in the first marker, and y', z' the axes of the second there, the strains are those of Besseling (1974), as sines:

    elongation        r - length + length sum_y,z (2 a^2 - a b + 2 b^2) / 30                                        (1)
    twist             (z . y' - y . z') / 2
    about y           a = d . z,    b = d . z'            turn of each end out of the chord
    about z           a = -d . y,   b = -d . y'

    E = EA/(2 L) elongation^2 + GJ/(2 L) twist^2 + sum_y,z 2 EI/L (a^2 + a b + b^2)        F = -K (e + beta ed)      (2)

The last part of (1) is the length that bending takes from the chord (Meijaard 1996): it brings the stiffness by tension
and buckling. K is Euler and Bernoulli's; strains do not change when both markers move together.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from .._constraints._geometry import length_and_direction
from .._spatial._axis import as_array
from .._spatial._pose import Pose
from ._abstract import AbstractConnection
from ._numbers import LAG, LENGTH, Quantity, check_numbers
from ._spring import SpringDamper

AXIAL = Quantity("N", least=0.0)
BENDING = Quantity("N m^2", least=0.0)


def bar(name: str, first: Any, second: Any, EA, length, beta=0.0) -> SpringDamper:
    """A bar between the origins of two markers: a spring of stiffness EA / length.

    `EA` is Young's modulus times area, N; `length` the free one, m; `beta` the damping per stiffness, s.
    """
    k = as_array(EA) / as_array(length)
    return SpringDamper(name, first, second, k=k, c=as_array(beta) * k, length=length)


def _bowed(length: Array, a: Array, b: Array) -> Array:
    """The length that bending takes from the chord, (1)."""
    return length * (2.0 * a * a - a * b + 2.0 * b * b) / 30.0


def _bent(a: Array, b: Array) -> Array:
    """L/EI times the moments at the two ends, (2)."""
    return jnp.stack([4.0 * a + 2.0 * b, 2.0 * a + 4.0 * b])


class PlanarBeam(AbstractConnection):
    """A straight beam in the xy plane of its markers: it stretches, and bends about z.

    **Arguments:**

    - `EA`: Young's modulus times area, N.
    - `EI`: Young's modulus times second moment of area, N m^2.
    - `length`: free length, m, above zero.
    - `beta`: damping per stiffness, s, zero or more.
    """

    EA: Array = eqx.field(converter=as_array)
    EI: Array = eqx.field(converter=as_array)
    length: Array = eqx.field(converter=as_array)
    beta: Array = eqx.field(converter=as_array, default=0.0)

    def __check_init__(self):
        check_numbers(f"PlanarBeam {self.name!r}", self, EA=AXIAL, EI=BENDING, length=LENGTH, beta=LAG)

    def strain(self, t: Array, x: Pose) -> Array:
        r, d = length_and_direction(x.translation)
        a, b = -d[1], -d @ x.rotation[:, 1]
        return jnp.stack([r - self.length + _bowed(self.length, a, b), a, b])

    def _stress(self, e: Array) -> Array:
        """K e."""
        return jnp.concatenate([self.EA * e[:1], self.EI * _bent(e[1], e[2])]) / self.length

    def load(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return -self._stress(e + self.beta * ed)

    def energy(self, t: Array, e: Array, z: Array) -> Array:
        return 0.5 * e @ self._stress(e)

    def dissipation(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return self.beta * ed @ self._stress(ed)


class Beam(AbstractConnection):
    """A straight beam along the x axes of its markers: it stretches, twists, and bends about y and z.

    **Arguments:**

    - `EA`: Young's modulus times area, N.
    - `GJ`: torsional stiffness, N m^2.
    - `EIy`, `EIz`: bending stiffness about the markers' y and z axes, N m^2.
    - `length`: free length, m, above zero.
    - `beta`: damping per stiffness, s, zero or more.
    """

    EA: Array = eqx.field(converter=as_array)
    GJ: Array = eqx.field(converter=as_array)
    EIy: Array = eqx.field(converter=as_array)
    EIz: Array = eqx.field(converter=as_array)
    length: Array = eqx.field(converter=as_array)
    beta: Array = eqx.field(converter=as_array, default=0.0)

    def __check_init__(self):
        check_numbers(f"Beam {self.name!r}", self, EA=AXIAL, GJ=BENDING, EIy=BENDING, EIz=BENDING)
        check_numbers(f"Beam {self.name!r}", self, length=LENGTH, beta=LAG)

    def strain(self, t: Array, x: Pose) -> Array:
        r, d = length_and_direction(x.translation)
        along = d @ x.rotation
        about_y, about_z = (d[2], along[2]), (-d[1], -along[1])
        longer = r - self.length + _bowed(self.length, *about_y) + _bowed(self.length, *about_z)
        return jnp.stack([longer, 0.5 * (x.rotation[2, 1] - x.rotation[1, 2]), *about_y, *about_z])

    def _stress(self, e: Array) -> Array:
        """K e."""
        straight = jnp.stack([self.EA * e[0], self.GJ * e[1]])
        return jnp.concatenate([straight, self.EIy * _bent(e[2], e[3]), self.EIz * _bent(e[4], e[5])]) / self.length

    def load(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return -self._stress(e + self.beta * ed)

    def energy(self, t: Array, e: Array, z: Array) -> Array:
        return 0.5 * e @ self._stress(e)

    def dissipation(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return self.beta * ed @ self._stress(ed)
