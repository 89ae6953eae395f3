"""Angles of a rotation matrix R. With its quaternion (w, v) and s = (R_32 - R_23, R_13 - R_31, R_21 - R_12) = 4 w v:

    turn about a        atan2(a . s, tr R - a . R a)              = 2 atan2(a . v, w): the part of R that turns about a;
                                                                  tilting adds nothing. Its rate is exact at any angle
    rotation vector     2 atan2(|s|, 1 + tr R) s / |s|            smooth within (-pi, pi), since 1 + tr R = 4 w^2

because a . s = 4 w (a . v) and tr R - a . R a = 2 (w^2 - (a . v)^2). Neither has branches.
"""

import jax.numpy as jnp
from jax import Array

from .._spatial._pose import quat_log


def _trace(R: Array) -> Array:
    return R[0, 0] + R[1, 1] + R[2, 2]


def _skew(R: Array) -> Array:
    """s."""
    return jnp.stack([R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1]])


def turn_about(axis: Array, R: Array) -> Array:
    """The angle about a unit axis, rad."""
    return jnp.arctan2(axis @ _skew(R), _trace(R) - axis @ R @ axis)


def rotation_vector(R: Array) -> Array:
    """Axis times angle (3,), rad."""
    return quat_log(jnp.concatenate([1.0 + _trace(R)[None], _skew(R)]))
