"""Planar joint: translation by (x, y) in the parent's x-y plane, then rotation by the angle a about z.

X = (R(z, a), (x, y, 0))                             q = (x, y, a)
V = (0, 0, ad,  c xd + s yd,  c yd - s xd,  0)       c = cos a, s = sin a
b = (0, 0, 0,   (c yd - s xd) ad,  -(c xd + s yd) ad,  0)
"""

from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from .._spatial._pose import Pose
from .._spatial._vector import join, sin_cos, stack
from ._abstract import AbstractJoint
from ._rows import TILT


class Planar(AbstractJoint):
    """Keeps the x-y planes of the markers together; turn the markers for another plane.

    Coordinates: x and y in m along the parent marker's axes, angle about z in rad; the speeds are their rates.
    """

    nq: ClassVar[int] = 3
    nv: ClassVar[int] = 3

    def pose(self, q: Array, t: Array) -> Pose:
        s, c = sin_cos(q[2])
        rotation = stack([stack([c, -s, 0.0]), stack([s, c, 0.0]), stack([0.0, 0.0, jnp.ones_like(c)])])
        return Pose(rotation, stack([q[0], q[1], 0.0]))

    def subspace(self, q: Array, t: Array) -> Array:
        s, c = sin_cos(q[2])
        along_x = stack([0.0, 0.0, 0.0, c, -s, 0.0])
        along_y = stack([0.0, 0.0, 0.0, s, c, 0.0])
        about_z = stack([0.0, 0.0, jnp.ones_like(c), 0.0, 0.0, 0.0])
        return stack([along_x, along_y, about_z], 1)

    def twist(self, q: Array, v: Array, t: Array) -> Array:
        s, c = sin_cos(q[2])
        return stack([0.0, 0.0, v[2], c * v[0] + s * v[1], c * v[1] - s * v[0], 0.0])

    def bias(self, q: Array, v: Array, t: Array) -> Array:
        s, c = sin_cos(q[2])
        return stack([0.0, 0.0, 0.0, (c * v[1] - s * v[0]) * v[2], -(c * v[0] + s * v[1]) * v[2], 0.0])

    def constraint(self, rel: Pose, t: Array) -> Array:
        return join(rel.rotation[:2, 2], rel.translation[2:])

    def row_names(self) -> tuple[str, ...]:
        return (*TILT, "off the plane")
