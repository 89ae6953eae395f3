"""Angles of a rotation matrix R, smooth within (-pi, pi).

With the quaternion (w, v) of R, 1 + tr R = 4 w^2 and s = (R_32 - R_23, R_13 - R_31, R_21 - R_12) = 4 w v. So
(1 + tr R, s) is that quaternion up to a positive factor, and tells every angle without branches:

    turn about a        2 atan2(a . s, 1 + tr R)          of the part of R that turns about a; tilting adds nothing
    rotation vector     2 atan2(|s|, 1 + tr R) s / |s|
"""

import jax.numpy as jnp
from jax import Array

from .._spatial._pose import quat_log


def _long_quat(R: Array) -> Array:
    return jnp.stack([1.0 + R[0, 0] + R[1, 1] + R[2, 2], R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1]])


def turn_about(axis: Array, R: Array) -> Array:
    """The angle about a unit axis, rad."""
    quat = _long_quat(R)
    return 2.0 * jnp.arctan2(axis @ quat[1:], quat[0])


def rotation_vector(R: Array) -> Array:
    """Axis times angle (3,), rad."""
    return quat_log(_long_quat(R))
