"""Rigid-body inertia about a common point, as numbers that add up when bodies do.

    (m, h, I):  h = m c,   I = R I_c R^T + h.c 1 - h c^T              c: centre of mass from the common point
    momentum    (I w + h x v,  m v - h x w)                           of a twist (w, v)

Stored as (13, *batch): m, h (3), I (9, row by row).
"""

import jax.numpy as jnp
from jax import Array

from ._bilinear import Sparse, bilinear
from ._vector import CROSS, join, matmul, skew, transpose

_STEINER = Sparse(
    (9, 3, 3),
    tuple((4 * i, k, k, 1.0) for i in range(3) for k in range(3) if k != i)
    + tuple((3 * i + j, i, j, -1.0) for i in range(3) for j in range(3) if j != i),
)
_MOMENTUM = Sparse(
    (6, 13, 6),
    (
        *((i, 4 + 3 * i + k, k, 1.0) for i in range(3) for k in range(3)),
        *((i, 1 + j, 3 + k, c) for i, j, k, c in CROSS.terms),
        *((3 + i, 0, 3 + i, 1.0) for i in range(3)),
        *((3 + i, 1 + j, k, -c) for i, j, k, c in CROSS.terms),
    ),
)


def inertia_about(mass: Array, com: Array, inertia: Array, rotation: Array) -> Array:
    """From mass, centre of mass (from the common point, its axes) and inertia about it in body axes."""
    h = mass * com
    turned = matmul(matmul(rotation, inertia), transpose(rotation))
    turned = turned.reshape(9, *turned.shape[2:]) + bilinear(_STEINER, h, com)
    return join(mass[None], h, turned)


def inertia_times(J: Array, V: Array) -> Array:
    """Momentum (or load) of a twist (or acceleration)."""
    return bilinear(_MOMENTUM, J, V)


def inertia_matrix(J: Array) -> Array:
    """The symmetric (6, 6, *batch) matrix of the same map."""
    H = skew(J[1:4])
    diagonal = jnp.eye(3, dtype=J.dtype).reshape(3, 3, *(1 for _ in J.shape[1:])) * J[0]
    top = jnp.concatenate([J[4:].reshape(3, 3, *J.shape[1:]), H], 1)
    return jnp.concatenate([top, jnp.concatenate([-H, diagonal], 1)])
