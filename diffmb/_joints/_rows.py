"""Rows that joints share when they close a loop, as functions of the pose of child in parent.

    no turn    vee(skew part of R) = 0          three rows: the axes are parallel (or half a turn away)
    no tilt    n_i . R a = 0                    two rows: the axis a of the child lies along that of the parent
    no side    n_i . p = 0                      two rows: the child's origin lies on the axis
                                                n_1, n_2: unit vectors that complete the axis
"""

import jax.numpy as jnp
from jax import Array, lax

from .._spatial._pose import Pose
from .._spatial._twist import axial
from .._spatial._vector import cross, eye, matvec, stack, unit

TURN = ("turn x", "turn y", "turn z")
PLACE = ("x", "y", "z")
TILT = ("tilt 1", "tilt 2")
SIDE = ("side 1", "side 2")


def across(axis: Array) -> Array:
    """n_1 and n_2 as rows, (2, 3, *batch), of a unit vector: from the coordinate axis that is least along it."""
    size = lax.stop_gradient(jnp.abs(axis))
    least = jnp.argmin(size + 1e-6 * jnp.arange(3).reshape(3, *(1 for _ in axis.shape[1:])), axis=0)
    first = unit(cross(axis, (jnp.arange(3).reshape(3, *(1 for _ in least.shape)) == least).astype(axis.dtype)))
    return stack([first, cross(axis, first)])


def no_turn(rel: Pose) -> Array:
    return axial(rel.rotation, eye(3, rel.translation))


def no_tilt(rel: Pose, axis: Array) -> Array:
    return matvec(across(axis), matvec(rel.rotation, axis))


def no_side(rel: Pose, axis: Array) -> Array:
    return matvec(across(axis), rel.translation)
