"""Revolute joint: rotation by the angle q about a fixed axis a.

X = (R(a, q), 0)        S = (a, 0)
"""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from .._spatial._axis import as_axis
from .._spatial._pose import Pose, rotation_about
from .._spatial._vector import join, unit
from ._abstract import AbstractConstantJoint
from ._rows import PLACE, TILT, no_tilt


class Revolute(AbstractConstantJoint):
    """Turns about `axis` ("x", "y", "z" or a vector in the marker's frame); coordinate: angle in rad."""

    axis: Array = eqx.field(converter=as_axis, default="z")
    nq: ClassVar[int] = 1
    nv: ClassVar[int] = 1

    def pose(self, q: Array, t: Array) -> Pose:
        rotation = rotation_about(unit(self.axis), q[0])
        return Pose(rotation, jnp.zeros_like(rotation[0]))

    def constant_subspace(self) -> Array:
        return join(unit(self.axis), jnp.zeros_like(self.axis))[:, None]

    def constraint(self, rel: Pose, t: Array) -> Array:
        return join(no_tilt(rel, unit(self.axis)), rel.translation)

    def row_names(self) -> tuple[str, ...]:
        return TILT + PLACE
