"""RELATIVE COORDINATES of Kamman: six for each body, and the partial velocities that follow from them along the tree.

Body K hangs on its lower body J = L(K). Between marker M of J and the frame of K stand three angles and three lengths,

    X_MK = (C R(x, y1) R(y, y2) R(z, y3) D,  s)         y = (angles of all bodies, lengths s of all bodies), (6N,)

with C and D constant rotations that keep y2 away from +-pi/2 (see `choose_frames`); Kamman has C = D = 1. With R_JK
the matrix that takes components in J to components in K, a the arm from O_J to O_K in J, and primes left out,

    w_K,y  = R_JK w_J,y + [P_K]                 P_K = D^T [[c2 c3, s3, 0], [-c2 s3, c3, 0], [s2, 0, 1]]     (11)-(19)
    wd_K,y = R_JK wd_J,y + Rd_JK w_J,y + [Pd_K]                        Rd_JK = -[P_K yd_K]x R_JK            (20)
    v_K,y  = v_J,y - [a]x w_J,y + [1]                                  components in J, then to K by R_JK   (28)-(32)
    vd_K,y = vd_J,y - [ad]x w_J,y - [a]x wd_J,y                        and Rd_JK v_K,y + R_JK vd_K,y        (33), (34)

[.] stands in the columns of K's own coordinates. `partial` holds (w_K,y; v_K,y) at the origin of K, in K: the twist of
K is partial yd, and its time derivative in K is partial ydd + change yd.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .._joints._angles123 import spin_123, turn_123
from .._joints._rows import across
from .._model import Model
from .._spatial._pose import Pose
from .._spatial._vector import cross, join, sin_cos, skew, unit


class Frames(eqx.Module):
    """C and D of every body, (n, 3, 3)."""

    inner: Array
    outer: Array


class Partials(eqx.Module):
    """Poses in the world, partial velocities and their time derivatives, (n, 6, 6N)."""

    pose: Pose
    partial: Array
    change: Array


def choose_frames(joint: Pose, axes: Array) -> Frames:
    """Where a joint turns about one axis only, D lays it along the third axis: y3 is its angle and y2 stays zero. If y2
    would still start near +-pi/2, C holds the attitude at the start, and the angles count from there.

    `joint` are the poses X_MK at the start, `axes` (n, 3) the axes of single turns, zero where there is none.
    """

    def one(R, axis):
        single = axis @ axis > 0.5
        safe = jnp.where(single, axis, jnp.array([0.0, 0.0, 1.0], axis.dtype))
        D = jnp.where(single, jnp.concatenate([across(safe), safe[None]]), jnp.eye(3, dtype=R.dtype))
        locked = jnp.abs((D @ R @ D.T)[0, 2]) > 0.8
        return jnp.where(locked, R @ D.T, D.T), D

    frames = jax.vmap(one)(joint.rotation, axes)
    return Frames(*lax.stop_gradient(frames))


def single_axis(S: Array) -> Array:
    """The axis, in the child, about which a joint with subspace S (6, nv) turns if it is the only one; else zero."""
    if S.shape[1] == 0:
        return jnp.zeros(3, S.dtype)
    turns = S[:3]
    longest = turns[:, jnp.argmax((turns * turns).sum(0))]
    size = longest @ longest
    axis = unit(jnp.where(size > 1e-12, longest, jnp.array([0.0, 0.0, 1.0], S.dtype)))
    rest = turns - jnp.outer(axis, axis @ turns)
    return jnp.where((size > 1e-12) & ((rest * rest).sum() < 1e-12 * size), axis, 0.0)


def to_angles(frames: Frames, joint: Pose) -> Array:
    """y (6N,) of the poses X_MK."""

    def one(C, D, X):
        R = C.T @ X.rotation @ D.T
        angles = [jnp.arctan2(-R[1, 2], R[2, 2]), jnp.arcsin(R[0, 2]), jnp.arctan2(-R[0, 1], R[0, 0])]
        return jnp.stack(angles), X.translation

    return jnp.concatenate([part.ravel() for part in jax.vmap(one)(frames.inner, frames.outer, joint)])


def to_rates(frames: Frames, y: Array, joint: Pose, twist: Array) -> Array:
    """yd (6N,) of the twists V of K relative to M, in K, (n, 6): the inverse of P, Kamman (9)."""

    def one(D, angles, X, V):
        return jnp.linalg.solve(spin_123(*sin_cos(angles)), D @ V[:3]), X.rotation @ V[3:]

    angles = y.reshape(2, -1, 3)[0]
    return jnp.concatenate([part.ravel() for part in jax.vmap(one)(frames.outer, angles, joint, twist)])


def joint_poses(frames: Frames, y: Array) -> Pose:
    """X_MK of every body."""
    one = lambda C, D, angles, s: Pose(C @ turn_123(*sin_cos(angles)) @ D, s)
    return jax.vmap(one)(frames.inner, frames.outer, *y.reshape(2, -1, 3))


def own_partials(frames: Frames, y: Array) -> Array:
    """Twist of K relative to M, in K, by K's own six rates, (n, 6, 6): P and R^T on the diagonal."""

    def one(C, D, angles, _):
        sc = sin_cos(angles)
        zero = jnp.zeros_like(C)
        return jnp.block([[D.T @ spin_123(*sc), zero], [zero, (C @ turn_123(*sc) @ D).T]])

    return jax.vmap(one)(frames.inner, frames.outer, *y.reshape(2, -1, 3))


def own_changes(frames: Frames, y: Array, yd: Array) -> tuple[Array, Array]:
    """`own_partials`, and their time derivatives."""
    return jax.jvp(lambda y: own_partials(frames, y), (y,), (yd,))


def own_columns(count: int) -> np.ndarray:
    """The places of each body's six coordinates in y, (n, 6)."""
    angles = np.arange(3 * count).reshape(count, 3)
    return np.concatenate([angles, angles + 3 * count], 1)


def partials(model: Model, frames: Frames, y: Array, yd: Array) -> Partials:
    """(11) to (34), body after body along the connection array."""
    n = len(model.topology.bodies)
    joint, (own, own_change) = joint_poses(frames, y), own_changes(frames, y, yd)
    rates = yd[own_columns(n)]

    def body(carry, K):
        poses, P, Pd = carry
        k, J, place, X, own, own_change, rate, columns = K
        lower = jax.tree.map(lambda a: a[J], poses)
        w, v, wd, vd = P[J, :3], P[J, 3:], Pd[J, :3], Pd[J, 3:]
        R_JK = (place.rotation @ X.rotation).T
        arm, arm_rate = place.apply(X.translation), place.rotate(rate[3:])
        v, vd = v - skew(arm) @ w, vd - skew(arm_rate) @ w - skew(arm) @ wd
        Rd_JK = -skew(own[:3, :3] @ rate[:3]) @ R_JK
        partial = jnp.concatenate([R_JK @ w, R_JK @ v]).at[:, columns].add(own)
        change = jnp.concatenate([R_JK @ wd + Rd_JK @ w, R_JK @ vd + Rd_JK @ v]).at[:, columns].add(own_change)
        poses = jax.tree.map(lambda a, b: a.at[k].set(b), poses, lower @ place @ X)
        return (poses, P.at[k].set(partial), Pd.at[k].set(change)), None

    world = Pose(jnp.tile(jnp.eye(3, dtype=y.dtype), (n + 1, 1, 1)), jnp.zeros((n + 1, 3), y.dtype))
    none = jnp.zeros((n + 1, 6, 6 * n), y.dtype)
    numbers = np.arange(1, n + 1), np.asarray(model.topology.parent)
    bodies = (*numbers, model.placement, joint, own, own_change, rates, own_columns(n))
    (poses, P, Pd), _ = lax.scan(body, (world, none, none), bodies)
    return Partials(jax.tree.map(lambda a: a[1:], poses), P[1:], Pd[1:])


def momentum_terms(model: Model, p: Partials, yd: Array) -> tuple[Array, Array]:
    """The generalised mass matrix A (42) and what (43) has on the right without forces, -sum of inertia terms of yd.

    In the axes of each body, about its mass centre G: v_G = v + w x r, a_G = its derivative in K + w x v_G.
    """

    def one(mass, r, inertia, P, Pd):
        w_y, wd_y = P[:3], Pd[:3]
        v_y, vd_y = P[3:] - skew(r) @ w_y, Pd[3:] - skew(r) @ wd_y  # (32), (33)
        w, v = w_y @ yd, v_y @ yd
        a = vd_y @ yd + cross(w, v)
        moment = inertia @ (wd_y @ yd) + cross(w, inertia @ w)
        return mass * v_y.T @ v_y + w_y.T @ inertia @ w_y, -mass * v_y.T @ a - w_y.T @ moment

    A, f = jax.vmap(one)(model.mass, model.com, model.inertia, p.partial, p.change)
    return A.sum(0), f.sum(0)


def gravity_wrenches(model: Model, pose: Pose) -> Array:
    """(M, F) of gravity on every body about its origin, in its axes, (n, 6)."""

    def one(mass, r, X):
        force = mass * (X.rotation.T @ model.gravity)
        return join(cross(r, force), force)

    return jax.vmap(one)(model.mass, model.com, pose)
