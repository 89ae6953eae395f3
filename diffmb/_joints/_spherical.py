"""Spherical joint: any rotation, as a quaternion q = (w, x, y, z).

    X = (R(q) / |q|^2, 0)        S = [I; 0]: v is the angular velocity of the child in the child's axes
    qd = q (0, v) / 2            retract(q, d) = q exp(d)            difference(q0, q1) = log(q0^-1 q1)

Division by |q|^2 keeps the rotation orthonormal, and V = S v exact, when integration lets the length of q drift.
"""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from .._spatial._pose import Pose, quat_conjugate, quat_exp, quat_log, quat_multiply, quat_rate, quat_to_rotation
from .._spatial._vector import join, unit
from ._abstract import AbstractConstantJoint
from ._rows import PLACE


class Spherical(AbstractConstantJoint):
    """A ball joint; no orientation is singular.

    Coordinates: unit quaternion (w, x, y, z) of the child marker in the parent marker. Speeds: angular velocity in the
    child marker's axes, rad/s.
    """

    nq: ClassVar[int] = 4
    nv: ClassVar[int] = 3

    def pose(self, q: Array, t: Array) -> Pose:
        rotation = quat_to_rotation(q)
        return Pose(rotation, jnp.zeros_like(rotation[0]))

    def constant_subspace(self) -> np.ndarray:
        return np.eye(6, 3, dtype=int)

    def twist(self, q: Array, v: Array, t: Array) -> Array:
        return join(v, jnp.zeros_like(v))

    def qdot(self, q: Array, v: Array) -> Array:
        return quat_rate(q, v)

    def retract(self, q: Array, step: Array) -> Array:
        return quat_multiply(q, quat_exp(step))

    def difference(self, start: Array, end: Array) -> Array:
        """The `step` with `retract(start, step) == end`, the shorter way round."""
        return quat_log(quat_multiply(quat_conjugate(start), end))

    def unit(self, q: Array) -> Array:
        return unit(q)

    def neutral(self) -> Array:
        return jnp.asarray([1.0, 0.0, 0.0, 0.0])

    def constraint(self, rel: Pose, t: Array) -> Array:
        return rel.translation

    def row_names(self) -> tuple[str, ...]:
        return PLACE
