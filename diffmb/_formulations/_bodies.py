"""Bodies and joints one by one, for formulations: between coordinates of the model and motions of its bodies.

A body is where its joint frame J is; twists and their rates are in J's axes at J's origin. With P the parent's frame,
X_PJ = X_PM X_MJ(q, t) (see `_model.py`) and A = Ad(X_PJ^-1),

    V_j  = A V_p + V_ij                     V_ij = S v + s            relative twist                              (1)
    Vd_j = A Vd_p + Vd_ij + A V_p x V_ij    Vd_ij = S vd + b          componentwise rates                         (2)

Back from poses to coordinates, from `near` on, with E = X_MJ(q)^-1 X_MJ and e = (vee(skew part of R_E), p_E):

    q <- retract(q, S+ e)                   three steps, S+ of the start: exact to third derivatives              (3)
    v = S+ (V_ij - s)        vd = S+ (Vd_ij - b)        S+ = (S^T S)^-1 S^T                                       (4)

Arrays over bodies have their axis in front. What belongs to a joint's speeds is padded with zeros to a common width w.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .._definite import definite
from .._joints._locate import pose_misfit
from .._kinematics import retract
from .._model import JointGroup, Model
from .._spatial._inertia import inertia_about, inertia_matrix
from .._spatial._pose import Pose
from .._spatial._twist import carry_columns, carry_motion, cross_motion


class Bodies(eqx.Module):
    """Poses X_WJ and twists V (n, 6) of all bodies."""

    pose: Pose
    twist: Array


class Joints(eqx.Module):
    """The tree joints at a state (q, v): subspaces S (n, 6, w) with S+, twists S v + s and biases b (n, 6)."""

    q: Array
    v: Array
    S: Array
    S_plus: Array
    twist: Array
    bias: Array


def by_joint(model: Model, one: Callable[..., Any], *args: tuple[Any, str]) -> list[tuple[JointGroup, Any]]:
    """`one(kind, *parts)` for the joints of each kind; an argument is an array and whether it goes by coordinates
    ("q"), by speeds ("v") or by bodies ("b")."""
    top = model.topology
    starts, sizes = {"q": top.q_start, "v": top.v_start}, {"q": top.nqs, "v": top.nvs}

    def share(group: JointGroup, array: Any, which: str) -> Any:
        if which == "b":
            return jax.tree.map(lambda a: a[np.asarray(group.bodies)], array)
        index = [[starts[which][b] + k for k in range(sizes[which][b])] for b in group.bodies]
        return array[np.asarray(index, int).reshape(len(group.bodies), -1)]

    return [(g, jax.vmap(one)(g.kind, *(share(g, *arg) for arg in args))) for g in model.groups]


def over_bodies(parts: list[tuple[JointGroup, Any]]) -> Any:
    """What was found for each kind, in the order of the bodies."""
    order = np.argsort(np.concatenate([np.asarray(group.bodies) for group, _ in parts]))
    return jax.tree.map(lambda *a: jnp.concatenate(a)[order], *(part for _, part in parts))


def width(model: Model) -> int:
    """w: the most speeds that a joint has, and at least one."""
    return max(1, *model.topology.nvs)


def subspace(model: Model, kind: Any, q: Array, t: Array) -> Array:
    """S of one joint, (6, w)."""
    S = kind.subspace(q, t)
    return jnp.concatenate([S, jnp.zeros((6, width(model) - S.shape[1]), S.dtype)], 1)


def pad(model: Model, v: Array) -> Array:
    """Speeds (or loads) by bodies, (n, w, ...), with zeros behind."""
    top = model.topology
    index = [[s + k if k < size else top.nv for k in range(width(model))] for s, size in zip(top.v_start, top.nvs)]
    return jnp.concatenate([v, jnp.zeros_like(v, shape=(1, *v.shape[1:]))])[np.asarray(index)]


def unpad(model: Model, padded: Array) -> Array:
    """The inverse of `pad`."""
    places = [(body, k) for body, size in enumerate(model.topology.nvs) for k in range(size)]
    body, k = np.asarray(places, int).reshape(-1, 2).T
    return padded[body, k]


def present(model: Model) -> np.ndarray:
    """(n, w): 1 for speeds that a joint has, 0 for those padded."""
    return (np.arange(width(model)) < np.asarray(model.topology.nvs)[:, None]).astype(float)


def left_inverse(model: Model, S: Array) -> Array:
    """S+ of every joint, (n, w, 6)."""
    gram = jnp.swapaxes(S, 1, 2) @ S + jax.vmap(jnp.diag)(1.0 - jnp.asarray(present(model), S.dtype))
    return small_inverse(gram) @ jnp.swapaxes(S, 1, 2)


def small_inverse(A: Array) -> Array:
    """Inverses of positive definite matrices (n, w, w)."""
    one = jnp.eye(A.shape[-1], dtype=A.dtype)[..., None]
    return jnp.moveaxis(definite(jnp.moveaxis(A, 0, -1)).solve(one), -1, 0)


def adjoint(X: Pose) -> Array:
    """Ad(X), (6, 6)."""
    return carry_columns(X, jnp.eye(6, dtype=X.translation.dtype))


def to_child(model: Model, pose: Pose) -> tuple[Pose, Array]:
    """X_PJ and A = Ad(X_PJ^-1) of every body, for the joints' poses X_MJ."""
    X = jax.vmap(Pose.__matmul__)(model.placement, pose)
    return X, jax.vmap(lambda X: adjoint(X.inverse()))(X)


def with_world(field: Array) -> Array:
    """A field over bodies with the world's zeros in front: index it with the numbers of parents."""
    return jnp.concatenate([jnp.zeros_like(field[:1]), field])


def absolute(model: Model, q: Array, v: Array, t: Array) -> Bodies:
    """(1) outward: where the bodies are and how they move."""
    one = lambda kind, q, v: (kind.pose(q, t), kind.twist(q, v, t))
    pose, twist = over_bodies(by_joint(model, one, (q, "q"), (v, "v")))
    X, A = to_child(model, pose)
    n = len(model.topology.bodies)

    def outward(carry, body):
        R, p, V = carry
        i, parent, X, A, twist = body
        here = Pose(R[parent], p[parent]) @ X
        put = lambda a, value: a.at[i + 1].set(value)
        return (put(R, here.rotation), put(p, here.translation), put(V, A @ V[parent] + twist)), None

    start = (jnp.broadcast_to(jnp.eye(3, dtype=twist.dtype), (n + 1, 3, 3)), jnp.zeros((n + 1, 3), twist.dtype))
    walk = (jnp.arange(n), jnp.asarray(model.topology.parent), X, A, twist)
    (R, p, V), _ = lax.scan(outward, (*start, jnp.zeros((n + 1, 6), twist.dtype)), walk)
    return Bodies(Pose(R[1:], p[1:]), V[1:])


def parents(model: Model, bodies: Bodies) -> Bodies:
    """The parent of every body, the world included."""
    index = np.asarray(model.topology.parent)
    world = jnp.eye(3, dtype=bodies.twist.dtype)[None]
    R = jnp.concatenate([world, bodies.pose.rotation])[index]
    return Bodies(Pose(R, with_world(bodies.pose.translation)[index]), with_world(bodies.twist)[index])


def relative(model: Model, bodies: Bodies) -> tuple[Pose, Array, Array]:
    """X_MJ and V_ij of every joint from the motions of the bodies, and the A V_p x V_ij of (2)."""
    above = parents(model, bodies)

    def one(place, P, Vp, X, V):
        carried = carry_motion(X.inverse() @ P, Vp)
        return (P @ place).inverse() @ X, V - carried, cross_motion(carried, V - carried)

    return jax.vmap(one)(model.placement, above.pose, above.twist, bodies.pose, bodies.twist)


def locate(model: Model, pose: Pose, t: Array, near: Array) -> Array:
    """(3): coordinates at which the joints have these poses."""
    near, still = lax.stop_gradient((near, t))
    S = over_bodies(by_joint(model, lambda kind, q: subspace(model, kind, q, still), (near, "q")))
    S_plus = lax.stop_gradient(left_inverse(model, S))

    def newton(q, _):
        return retract(model, q, unpad(model, jnp.einsum("nij,nj->ni", S_plus, misfits(model, pose, q, t)))), None

    return lax.scan(newton, near, None, length=3)[0]


def misfits(model: Model, pose: Pose, q: Array, t: Array) -> Array:
    """e of every joint, (n, 6): zero where `pose` is the pose at q."""
    return over_bodies(by_joint(model, lambda kind, q, X: pose_misfit(kind, q, X, t), (q, "q"), (pose, "b")))


def joints(model: Model, pose: Pose, twist: Array, t: Array, near: Array) -> Joints:
    """(3) and (4): the joints that have these poses and twists, as far as they can."""
    q = locate(model, pose, t, near)
    still = lambda kind, q: (subspace(model, kind, q, t), kind.twist(q, jnp.zeros(kind.nv, q.dtype), t))
    S, s = over_bodies(by_joint(model, still, (q, "q")))
    S_plus = left_inverse(model, S)
    speeds = jnp.einsum("nij,nj->ni", S_plus, twist - s)
    v = unpad(model, speeds)
    b = over_bodies(by_joint(model, lambda kind, q, v: kind.bias(q, v, t), (q, "q"), (v, "v")))
    return Joints(q, v, S, S_plus, jnp.einsum("nij,nj->ni", S, speeds) + s, b)


def inertias(model: Model) -> Array:
    """(n, 6, 6): the inertia of each body about J, constant in its axes; (2.3) of Wijckmans away from the centroid."""
    eye = jnp.eye(3, dtype=model.mass.dtype)
    one = lambda mass, com, inertia: inertia_matrix(inertia_about(mass, com, inertia, eye))
    return jax.vmap(one)(model.mass, model.com, model.inertia)


def relative_rates(model: Model, bodies: Bodies) -> Array:
    """E, (n, 6, 6n): of each body the rate of its own twist, less that of its parent's carried over."""
    n, parent = len(bodies.twist), np.asarray(model.topology.parent)
    A = jax.vmap(lambda X, P: adjoint(X.inverse() @ P))(bodies.pose, parents(model, bodies).pose)
    E = jnp.zeros((n, 6, n + 1, 6), A.dtype).at[np.arange(n), :, np.arange(n) + 1].set(jnp.eye(6, dtype=A.dtype))
    return E.at[np.arange(n), :, parent].add(-A)[:, :, 1:].reshape(n, 6, 6 * n)


def complements(model: Model, own: Joints) -> tuple[np.ndarray, Array]:
    """C of all joints, (rows, 6), and the body (from 0) that each row belongs to."""
    P = jnp.eye(6, dtype=own.S.dtype) - own.S @ own.S_plus
    best = jax.vmap(_pivots)(lax.stop_gradient(P))
    places = [(body, k) for body, nv in enumerate(model.topology.nvs) for k in range(6 - nv)]
    body, k = np.asarray(places, int).reshape(-1, 2).T
    return body, P[body, best[body, k]]


def _pivots(P: Array) -> Array:
    """Rows of a projector, each time the one with most left after elimination of those before it."""

    def step(carry, _):
        rest, size = carry
        row = jnp.argmax(size)
        rest = rest - jnp.outer(rest[:, row], rest[row]) / jnp.maximum(rest[row, row], 1e-9)
        return (rest, jnp.minimum(size, jnp.diag(rest)).at[row].set(-1.0)), row

    return lax.scan(step, (P, jnp.diag(P)), None, length=6)[1]
