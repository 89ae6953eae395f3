"""Twists, wrenches and rigid-body inertias, angular part first, about one common point and axes.

    V = (w, v)        v: velocity of the material point at the reference point
    F = (m, f)        m: moment about the reference point
    motion  V x U = (w x u_w,  w x u_v + v x u_w)
    force   V x* F = (w x m + v x f,  w x f)                     (V x U) . F = -U . (V x* F)
"""

from jax import Array

from ._pose import Pose
from ._vector import cross, join, matvec, stack


def cross_motion(V: Array, U: Array) -> Array:
    w, v = V[:3], V[3:]
    return join(cross(w, U[:3]), cross(w, U[3:]) + cross(v, U[:3]))


def cross_force(V: Array, F: Array) -> Array:
    w, v = V[:3], V[3:]
    return join(cross(w, F[:3]) + cross(v, F[3:]), cross(w, F[3:]))


def carry_motion(X: Pose, U: Array) -> Array:
    """Twist given in B (about B's origin) as seen in A: (R w,  R v + p x R w)."""
    w = matvec(X.rotation, U[:3])
    return join(w, matvec(X.rotation, U[3:]) + cross(X.translation, w))


def body_twist(X: Pose, Xdot: Pose) -> Array:
    """Twist of B in A, in B's axes at B's origin, from the time derivative of the pose: (vee(R^T Rdot), R^T pdot)."""
    R, dR = X.rotation, Xdot.rotation
    spin = [sum(R[m, i] * dR[m, k] for m in range(3)) for i, k in ((2, 1), (0, 2), (1, 0))]
    back = [sum(R[m, i] * Xdot.translation[m] for m in range(3)) for i in range(3)]
    return stack(spin + back)
