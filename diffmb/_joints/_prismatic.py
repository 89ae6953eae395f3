"""Prismatic joint: translation by q along a fixed axis a.

X = (I, a q)        S = (0, a)
"""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from .._spatial._axis import as_axis
from .._spatial._pose import Pose
from .._spatial._vector import eye, join, unit
from ._abstract import AbstractConstantJoint
from ._rows import SIDE, TURN, no_side, no_turn


class Prismatic(AbstractConstantJoint):
    """Slides along `axis` ("x", "y", "z" or a vector in the marker's frame); coordinate: way in m."""

    axis: Array = eqx.field(converter=as_axis, default="z")
    nq: ClassVar[int] = 1
    nv: ClassVar[int] = 1

    def pose(self, q: Array, t: Array) -> Pose:
        way = unit(self.axis) * q[0]
        return Pose(jnp.broadcast_to(eye(3, way), (3,) + way.shape), way)

    def constant_subspace(self) -> Array:
        return join(jnp.zeros_like(self.axis), unit(self.axis))[:, None]

    def constraint(self, rel: Pose, t: Array) -> Array:
        return join(no_turn(rel), no_side(rel, unit(self.axis)))

    def row_names(self) -> tuple[str, ...]:
        return TURN + SIDE
