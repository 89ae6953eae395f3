"""Six coordinates after Kamman: three translations, and three body-fixed angles turned about x, then y, then z.

    X = (R, p),  R = R(x, q_1) R(y, q_2) R(z, q_3),  p = (q_4, q_5, q_6) in the parent's axes        qd = v
    S = [W  0; 0  R^T]        W = [c2 c3   s3  0;  -c2 s3   c3  0;  s2  0  1]
    b = (Wd v_ang,  -w x R^T v_lin)                                                    w = W v_ang

W is singular at q_2 = +-pi/2, where the first and the third axis fall together; `Free` has no such place.
"""

from typing import ClassVar

import jax.numpy as jnp
from jax import Array

from .._spatial._pose import Pose
from .._spatial._vector import cross, join, matvec, sin_cos, stack, transpose, vecmat
from ._abstract import AbstractJoint


def turn_123(s: Array, c: Array) -> Array:
    return stack([
        stack([c[1] * c[2], -c[1] * s[2], s[1]]),
        stack([c[0] * s[2] + s[0] * s[1] * c[2], c[0] * c[2] - s[0] * s[1] * s[2], -s[0] * c[1]]),
        stack([s[0] * s[2] - c[0] * s[1] * c[2], s[0] * c[2] + c[0] * s[1] * s[2], c[0] * c[1]]),
    ])  # fmt: skip


def spin_123(s: Array, c: Array) -> Array:
    """W: angular velocity in the child's axes from the rates of the angles."""
    rows = [[c[1] * c[2], s[2], 0.0], [-c[1] * s[2], c[2], 0.0], [s[1], 0.0, 1.0]]
    return stack([stack(row) for row in rows])


class Angles123(AbstractJoint):
    """Nothing is held; the orientation is given by three angles, which lock at q[1] = +-90 degrees.

    Coordinates: three angles in rad, then the position in m along the parent marker's axes; the speeds are their rates.
    """

    nq: ClassVar[int] = 6
    nv: ClassVar[int] = 6

    def pose(self, q: Array, t: Array) -> Pose:
        return Pose(turn_123(*sin_cos(q[:3])), q[3:])

    def subspace(self, q: Array, t: Array) -> Array:
        s, c = sin_cos(q[:3])
        W = spin_123(s, c)
        zero = jnp.zeros_like(W)
        return join(jnp.concatenate([W, zero], 1), jnp.concatenate([zero, transpose(turn_123(s, c))], 1))

    def twist(self, q: Array, v: Array, t: Array) -> Array:
        s, c = sin_cos(q[:3])
        return join(matvec(spin_123(s, c), v[:3]), vecmat(v[3:], turn_123(s, c)))

    def bias(self, q: Array, v: Array, t: Array) -> Array:
        s, c = sin_cos(q[:3])
        v12, v13, v23 = v[0] * v[1], v[0] * v[2], v[1] * v[2]
        spin_rate = stack([
            c[2] * (v23 - s[1] * v12) - s[2] * c[1] * v13,
            s[2] * (s[1] * v12 - v23) - c[2] * c[1] * v13,
            c[1] * v12,
        ])  # fmt: skip
        slide = vecmat(v[3:], turn_123(s, c))
        return join(spin_rate, -cross(matvec(spin_123(s, c), v[:3]), slide))

    def constraint(self, rel: Pose, t: Array) -> Array:
        return rel.translation[:0]
