"""Twists and wrenches, angular part first, about one common point and axes; each product is one bilinear map.

    V = (w, v)        v: velocity of the material point at the reference point
    F = (m, f)        m: moment about the reference point
    motion  V x U = (w x u_w,  w x u_v + v x u_w)
    force   V x* F = (w x m + v x f,  w x f)                     (V x U) . F = -U . (V x* F)
"""

from jax import Array

from ._bilinear import Sparse, bilinear
from ._pose import Pose
from ._vector import CROSS, cross, join, matmul, matvec, transpose


def _place(out: int, first: int, second: int, sign: float = 1.0) -> list[tuple[int, int, int, float]]:
    """The terms of a cross product of three components from `first` on and `second` on, added from `out` on."""
    return [(out + i, first + j, second + k, sign * c) for i, j, k, c in CROSS.terms]


_MOTION = Sparse((6, 6, 6), (*_place(0, 0, 0), *_place(3, 0, 3), *_place(3, 3, 0)))
_FORCE = Sparse((6, 6, 6), (*_place(0, 0, 0), *_place(0, 3, 3), *_place(3, 0, 3)))
# vee(A B^T), the axial vector of the skew part: 1/2 (e_j x e_k) over A_jm B_km
_AXIAL = Sparse(
    (3, 9, 9), tuple((i, 3 * k + m, 3 * j + m, 0.5 * c) for i, j, k, c in CROSS.terms for m in range(3))
)
_TURN = Sparse((9, 3, 9), tuple((3 * i + m, j, 3 * k + m, c) for i, j, k, c in CROSS.terms for m in range(3)))


def cross_motion(V: Array, U: Array) -> Array:
    return bilinear(_MOTION, V, U)


def cross_force(V: Array, F: Array) -> Array:
    return bilinear(_FORCE, V, F)


def axial(A: Array, B: Array) -> Array:
    """vee(A B^T) for matrices whose product A B^T is skew: the spin of a rotation B that changes by A."""
    return bilinear(_AXIAL, A.reshape(9, *A.shape[2:]), B.reshape(9, *B.shape[2:]))


def turn(w: Array, R: Array) -> Array:
    """[w]x R: how a rotation changes under the spin w."""
    return bilinear(_TURN, w, R.reshape(9, *R.shape[2:])).reshape(3, 3, *R.shape[2:])


def carry_motion(X: Pose, U: Array) -> Array:
    """Twist given in B (about B's origin) as seen in A: (R w,  R v + p x R w)."""
    w = matvec(X.rotation, U[:3])
    return join(w, matvec(X.rotation, U[3:]) + cross(X.translation, w))


def carry_columns(X: Pose, S: Array) -> Array:
    """The same for the columns of S (6, k, *batch)."""
    w = matmul(X.rotation, S[:3])
    lever = X.translation[:, None]  # cross products component by component: the columns are one more batch axis
    return join(w, matmul(X.rotation, S[3:]) + cross(lever, w))


def body_twist(X: Pose, Xdot: Pose) -> Array:
    """Twist of B in A, in B's axes at B's origin, from the time derivative of the pose: (vee(R^T Rdot), R^T pdot)."""
    back = transpose(X.rotation)
    return join(axial(back, transpose(Xdot.rotation)), matvec(back, Xdot.translation))
