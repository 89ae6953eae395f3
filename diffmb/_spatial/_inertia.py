"""Rigid-body inertia about a common point, as the ten numbers that add up when bodies do.

    (m, h, I):  h = m c,   I = R I_c R^T + m (c.c 1 - c c^T)          c: centre of mass from the common point
    momentum    (I w + h x v,  m v - h x w)                           of a twist (w, v)

Stored as (10, *batch): m, hx, hy, hz, Ixx, Iyy, Izz, Ixy, Ixz, Iyz.
"""

from jax import Array

from ._vector import cross, dot, join, matmul, matvec, stack, transpose


def inertia_about(mass: Array, com: Array, inertia: Array, rotation: Array) -> Array:
    """From mass, centre of mass (from the common point, its axes) and inertia about it in body axes."""
    h = mass * com
    turned = matmul(matmul(rotation, inertia), transpose(rotation))
    square = dot(h, com)
    diagonal = [turned[k, k] + square - h[k] * com[k] for k in range(3)]
    products = [turned[i, k] - h[i] * com[k] for i, k in ((0, 1), (0, 2), (1, 2))]
    return stack([mass, h[0], h[1], h[2], *diagonal, *products])


def _moments(J: Array) -> Array:
    xx, yy, zz, xy, xz, yz = (J[k] for k in range(4, 10))
    return stack([stack([xx, xy, xz]), stack([xy, yy, yz]), stack([xz, yz, zz])])


def inertia_times(J: Array, V: Array) -> Array:
    """Momentum (or load) of a twist (or acceleration)."""
    h, w, v = J[1:4], V[:3], V[3:]
    return join(matvec(_moments(J), w) + cross(h, v), J[0] * v - cross(h, w))


def inertia_matrix(J: Array) -> Array:
    """The symmetric (6, 6, *batch) matrix of the same map."""
    m, (x, y, z) = J[0], (J[k] for k in (1, 2, 3))
    o = x * 0.0
    top = [[J[4], J[7], J[8], o, -z, y], [J[7], J[5], J[9], z, o, -x], [J[8], J[9], J[6], -y, x, o]]
    low = [[o, z, -y, m, o, o], [-z, o, x, o, m, o], [y, -x, o, o, o, m]]
    return stack([stack(row) for row in top + low])
