"""Poses, and the rotations inside them.

    X_AB = (R_AB, p_AB)          X_AB @ X_BC = X_AC          x_A = R_AB x_B + p_AB

Quaternions are wxyz and unit: R = I + 2 w [e]x + 2 [e]x^2 with e the vector part. Angles and rotation vectors go
through functions that are smooth at zero, so derivatives of every order exist there.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from ._axis import as_array
from ._vector import cross, dot, eye, join, matmul, matvec, outer, sin_cos, skew, stack, transpose, unit


class Pose(eqx.Module):
    """Pose of a frame B in a frame A: `X_AB`. `rotation` is (3, 3, *batch), `translation` (3, *batch), metres."""

    rotation: Array
    translation: Array

    @classmethod
    def identity(cls, dtype: Any = float) -> "Pose":
        return cls(jnp.eye(3, dtype=dtype), jnp.zeros(3, dtype=dtype))

    @classmethod
    def translate(cls, position) -> "Pose":
        position = jnp.asarray(position)
        return cls(eye(3, position), position)

    @classmethod
    def rotate_by(cls, rotation) -> "Pose":
        rotation = jnp.asarray(rotation)
        return cls(rotation, jnp.zeros_like(rotation[0]))

    def __matmul__(self, other: "Pose") -> "Pose":
        return Pose(matmul(self.rotation, other.rotation), self.apply(other.translation))

    def inverse(self) -> "Pose":
        inverse = transpose(self.rotation)
        return Pose(inverse, -matvec(inverse, self.translation))

    def apply(self, point: Array) -> Array:
        """Coordinates in A of a point given in B."""
        return self.translation + matvec(self.rotation, point)

    def rotate(self, vector: Array) -> Array:
        """Components in A of a vector given in B."""
        return matvec(self.rotation, vector)

    def rate(self, twist: Array) -> "Pose":
        """The time derivative of its entries, for a twist of B relative to A in B's axes at B's origin."""
        return Pose(matmul(self.rotation, skew(twist[:3])), matvec(self.rotation, twist[3:]))


def rotation_about(axis: Any, angle: Any) -> Array:
    """Rodrigues: R = a a^T + cos (I - a a^T) + sin [a]x for a unit axis (3, *batch) and an angle, rad."""
    axis, angle = as_array(axis), as_array(angle)
    s, c = sin_cos(angle)
    along = outer(axis, axis)
    return along + c * (eye(3, axis) - along) + s * skew(axis)


def _sinc_sqrt(x: Array) -> Array:
    """sin(sqrt(x)) / sqrt(x), smooth at x = 0 in every derivative (series below 1e-2, exact to round-off there)."""
    small = x < 1e-2
    root = jnp.sqrt(jnp.where(small, 1.0, x))
    series = 1.0
    for k in (7, 6, 5, 4, 3, 2, 1):
        series = 1.0 - x * series / (2 * k * (2 * k + 1))
    return jnp.where(small, series, jnp.sin(root) / root)


def _cos_sqrt(x: Array) -> Array:
    """cos(sqrt(x)), smooth at x = 0."""
    small = x < 1e-2
    root = jnp.sqrt(jnp.where(small, 1.0, x))
    series = 1.0
    for k in (7, 6, 5, 4, 3, 2, 1):
        series = 1.0 - x * series / (2 * k * (2 * k - 1))
    return jnp.where(small, series, jnp.cos(root))


def _slope_sqrt(x: Array) -> Array:
    """(sin(r) / r - cos(r)) / x with r = sqrt(x), smooth at x = 0 (series below 1, where the difference cancels)."""
    small = x < 1.0
    above = jnp.where(small, 1.0, x)
    root = jnp.sqrt(above)
    series = 1.0
    for k in (10, 9, 8, 7, 6, 5, 4, 3, 2, 1):
        series = 1.0 - jnp.where(small, x, 0.0) * series / (2 * k * (2 * k + 3))
    return jnp.where(small, series / 3.0, (jnp.sin(root) / root - jnp.cos(root)) / above)


def quat_exp(vector: Array) -> Array:
    """Unit quaternion of a rotation vector (3, *batch)."""
    quarter = 0.25 * dot(vector, vector)
    return join(_cos_sqrt(quarter)[None], 0.5 * _sinc_sqrt(quarter) * vector)


def quat_log(quat: Array) -> Array:
    """Rotation vector of a unit quaternion, the shorter way round; smooth at the identity.

    With w >= 0 and s = |e|: angle = 2 atan2(s, w), vector = e * angle / s. The series of atan(y)/y in y^2 = s^2/w^2
    serves near the identity.
    """
    quat = jnp.where(quat[0] < 0, -quat, quat)
    w, e = quat[0], quat[1:]
    square = dot(e, e)
    small = square < 1e-4 * w * w
    y2 = jnp.where(small, square, 0.0) / jnp.where(small, w * w, 1.0)
    series = 0.0
    for k in (15, 13, 11, 9, 7, 5, 3, 1):
        series = 1.0 / k - y2 * series
    s = jnp.sqrt(jnp.where(small, 1.0, square))
    return e * 2.0 * jnp.where(small, series / jnp.where(small, w, 1.0), jnp.arctan2(s, w) / s)


def quat_multiply(a: Array, b: Array) -> Array:
    w = a[0] * b[0] - dot(a[1:], b[1:])
    return join(w[None], a[0] * b[1:] + b[0] * a[1:] + cross(a[1:], b[1:]))


def quat_conjugate(a: Array) -> Array:
    return join(a[:1], -a[1:])


def quat_to_rotation(quat: Array) -> Array:
    """Orthonormal also for a quaternion that has drifted from unit length: every entry is divided by its square."""
    w, e = quat[0], quat[1:]
    square = dot(e, e)
    return (eye(3, e) * (w * w - square) + 2.0 * outer(e, e) + 2.0 * w * skew(e)) / (w * w + square)


def quat_rate(quat: Array, spin: Array) -> Array:
    """qd = q (0, w) / 2 for the angular velocity w in the turned frame's axes."""
    e = quat[1:]
    return 0.5 * join(-dot(e, spin)[None], quat[0] * spin + cross(e, spin))


def twist_displacement(turn: Array, velocity: Array) -> Array:
    """How far a frame's origin gets, in its first axes, by the constant body twist (turn, velocity) in unit time.

    p = int_0^1 exp([w]x s) ds v = sinc(a) v + (1 - cos a) / a^2 w x v + (1 - sinc(a)) / a^2 w (w . v),  a = |w|, all
    written in the half angle, where nothing cancels.
    """
    quarter = 0.25 * dot(turn, turn)
    sinc, cos, slope = _sinc_sqrt(quarter), _cos_sqrt(quarter), _slope_sqrt(quarter)
    along = 0.25 * (sinc * sinc - cos * slope) * dot(turn, velocity)
    return sinc * cos * velocity + 0.5 * sinc * sinc * cross(turn, velocity) + along * turn


def twist_velocity(turn: Array, displacement: Array) -> Array:
    """The velocity whose `twist_displacement` with this turn (up to a full one) is `displacement`."""
    quarter = 0.25 * dot(turn, turn)
    sinc, cos, slope = _sinc_sqrt(quarter), _cos_sqrt(quarter), _slope_sqrt(quarter)
    across = cos * displacement + 0.25 * slope * dot(turn, displacement) * turn
    return across / sinc - 0.5 * cross(turn, displacement)


def rotation_to_quat(rotation: Array) -> Array:
    """Unit quaternion with w >= 0: the best conditioned of the four classical formulas (Shepperd 1978)."""
    m = rotation
    one = jnp.ones_like(m[0, 0])
    # Rows of 4 q q^T; the row with the largest diagonal entry is q up to a factor.
    rows = stack([
        stack([one + m[0, 0] + m[1, 1] + m[2, 2], m[2, 1] - m[1, 2], m[0, 2] - m[2, 0], m[1, 0] - m[0, 1]]),
        stack([m[2, 1] - m[1, 2], one + m[0, 0] - m[1, 1] - m[2, 2], m[0, 1] + m[1, 0], m[0, 2] + m[2, 0]]),
        stack([m[0, 2] - m[2, 0], m[0, 1] + m[1, 0], one - m[0, 0] + m[1, 1] - m[2, 2], m[1, 2] + m[2, 1]]),
        stack([m[1, 0] - m[0, 1], m[0, 2] + m[2, 0], m[1, 2] + m[2, 1], one - m[0, 0] - m[1, 1] + m[2, 2]]),
    ])  # fmt: skip
    diagonal = stack([rows[k, k] for k in range(4)])
    best = jnp.argmax(diagonal, axis=0)
    row = rows[0]
    for k in (1, 2, 3):
        row = jnp.where(best == k, rows[k], row)
    quat = unit(row)
    return jnp.where(quat[0] < 0, -quat, quat)
