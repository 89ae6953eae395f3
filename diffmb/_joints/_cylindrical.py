"""Cylindrical joint: rotation by q_1 about a fixed axis a and translation by q_2 along it.

X = (R(a, q_1), a q_2)        S = [(a, 0)  (0, a)]
"""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from .._spatial._axis import as_axis
from .._spatial._pose import Pose, rotation_about
from .._spatial._vector import join, stack, unit
from ._abstract import AbstractConstantJoint
from ._rows import SIDE, TILT, no_side, no_tilt


class Cylindrical(AbstractConstantJoint):
    """Turns about `axis` and slides along it ("x", "y", "z" or a vector in the marker's frame).

    Coordinates: angle in rad, way in m.
    """

    axis: Array = eqx.field(converter=as_axis, default="z")
    nq: ClassVar[int] = 2
    nv: ClassVar[int] = 2

    def pose(self, q: Array, t: Array) -> Pose:
        axis = unit(self.axis)
        return Pose(rotation_about(axis, q[0]), axis * q[1])

    def constant_subspace(self) -> Array:
        axis = unit(self.axis)
        zero = jnp.zeros_like(axis)
        return stack([join(axis, zero), join(zero, axis)], 1)

    def constraint(self, rel: Pose, t: Array) -> Array:
        axis = unit(self.axis)
        return join(no_tilt(rel, axis), no_side(rel, axis))

    def row_names(self) -> tuple[str, ...]:
        return TILT + SIDE
