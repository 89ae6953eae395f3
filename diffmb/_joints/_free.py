"""Free joint: all six freedoms, q = (p, e) with the position p in the parent's axes and a quaternion e = (w, x, y, z).

X = (R(e) / |e|^2, p)        S = I: v = (angular velocity, velocity of the origin), both in the child's axes
pd = R v_lin                 ed = e (0, v_ang) / 2
retract(q, d) = X exp(d)     difference(q0, q1) = log(X0^-1 X1)          the screw motion of a constant twist
"""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from .._spatial._pose import (
    Pose,
    quat_conjugate,
    quat_exp,
    quat_log,
    quat_multiply,
    quat_rate,
    quat_to_rotation,
    twist_displacement,
    twist_velocity,
)
from .._spatial._vector import join, matvec, unit, vecmat
from ._abstract import AbstractConstantJoint


class Free(AbstractConstantJoint):
    """Nothing is held: a body that flies.

    Coordinates: position in m along the parent marker's axes, then a unit quaternion (w, x, y, z). Speeds: angular
    velocity in rad/s, then velocity of the child marker's origin in m/s, both in the child marker's axes.
    """

    nq: ClassVar[int] = 7
    nv: ClassVar[int] = 6

    def pose(self, q: Array, t: Array) -> Pose:
        return Pose(quat_to_rotation(q[3:]), q[:3])

    def constant_subspace(self) -> np.ndarray:
        return np.eye(6, dtype=int)

    def twist(self, q: Array, v: Array, t: Array) -> Array:
        return v

    def qdot(self, q: Array, v: Array) -> Array:
        return join(matvec(quat_to_rotation(q[3:]), v[3:]), quat_rate(q[3:], v[:3]))

    def retract(self, q: Array, step: Array) -> Array:
        way = matvec(quat_to_rotation(q[3:]), twist_displacement(step[:3], step[3:]))
        return join(q[:3] + way, quat_multiply(q[3:], quat_exp(step[:3])))

    def difference(self, start: Array, end: Array) -> Array:
        """The `step` with `retract(start, step) == end`, the shorter way round."""
        turn = quat_log(quat_multiply(quat_conjugate(start[3:]), end[3:]))
        return join(turn, twist_velocity(turn, vecmat(end[:3] - start[:3], quat_to_rotation(start[3:]))))

    def unit(self, q: Array) -> Array:
        return join(q[:3], unit(q[3:]))

    def neutral(self) -> Array:
        return jnp.asarray([0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0])

    def constraint(self, rel: Pose, t: Array) -> Array:
        return rel.translation[:0]
