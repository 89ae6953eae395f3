"""CONFIGURATION: where the tree is and how it moves, batch axis last. The public face of it is `_kinematics.py`.

About a fixed point near the tree, in world axes, with J the joint frames and s_d the column of speed d,

    X_J  = X_parent @ X_PM @ X_MJ(q, t)                       (1)  compose
    s_d  = Ad(X_J) S_d                                        (2)  columns, world
    V_J  = V_parent + sum_d s_d v_d + Ad(X_J) s               (3)  outward sum
    A_J  = A_parent + sum_d s_d vd_d + V_J x (V_J - V_parent) + Ad(X_J) b      (4)  outward sum

with S, s, b the subspace, rheonomic twist and bias of the joint in the child marker's axes. Nothing depends on the
choice of the fixed point (it follows the tree only to keep digits), so it carries no derivative.
"""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ._joints._abstract import AbstractConstantJoint
from ._model import Model
from ._spatial._inertia import inertia_about
from ._spatial._pose import Pose
from ._spatial._twist import carry_columns, carry_motion, cross_motion
from ._spatial._vector import combine, matvec
from ._sweep import compose, each, per_body, sum_outward, take
from ._walk import walk


class Configuration(eqx.Module):
    """Where everything is; batch axis last. `arm`: from the fixed point of the tree to each joint frame."""

    pose: Pose  # X_WJ, stacked over bodies
    arm: Array  # (n, 3, batch)
    centre: Array  # (n, 3, batch): the fixed point of each body's tree
    columns: Array  # (nv, 6, batch): s_d


def configuration(model: Model, q: Array, t: Array) -> Configuration:
    """(1) and (2)."""
    local = [each(lambda kind, q: kind.pose(q, t))(g.kind, x) for g, x in by_group(model, q, "q")]
    joint = Pose(_place(model, [X.rotation for X in local]), _place(model, [X.translation for X in local]))
    pose = compose(model.topology, each(Pose.__matmul__)(model.placement, joint))
    centre = lax.stop_gradient(_centres(model, pose.translation))
    arm = pose.translation - centre
    columns = []
    for group, x in by_group(model, q, "q"):
        if model.topology.nvs[group.bodies[0]] == 0:
            continue
        S = each(lambda kind, q: kind.subspace(q, t))(group.kind, x)
        here = Pose(_rows(pose.rotation, group.bodies), _rows(arm, group.bodies))
        columns.append(jnp.swapaxes(each(carry_columns)(here, S), 1, 2))
    return Configuration(pose, arm, centre, _columns_in_order(model, columns, pose.rotation))


def _centres(model: Model, position: Array) -> Array:
    """The mean of the joint frames of each tree."""
    trees = walk(model.topology).tree
    if trees.max() == 0:
        return position.mean(0, keepdims=True)
    member = (trees == np.arange(trees.max() + 1)[:, None]).astype(float)
    average = jnp.asarray(member / member.sum(1, keepdims=True), position.dtype)
    return combine(average, position)[trees]


def joint_motion(model: Model, c: Configuration, q: Array, v: Array, t: Array) -> tuple[Array, Array]:
    """Twist that each joint adds and the bias of its acceleration, both (n, 6, batch)."""
    twist = per_body(model.topology, c.columns * v[:, None])
    if all(isinstance(g.kind, AbstractConstantJoint) for g in model.groups):
        return twist, jnp.zeros_like(twist)
    twists, biases = [], []
    for (group, x), (_, speed) in zip(by_group(model, q, "q"), by_group(model, v, "v"), strict=True):
        if isinstance(group.kind, AbstractConstantJoint):
            twists.append(_rows(twist, group.bodies))
            biases.append(jnp.zeros_like(twists[-1]))
            continue
        here = Pose(_rows(c.pose.rotation, group.bodies), _rows(c.arm, group.bodies))
        twists.append(each(lambda kind, X, q, v: carry_motion(X, kind.twist(q, v, t)))(group.kind, here, x, speed))
        biases.append(each(lambda kind, X, q, v: carry_motion(X, kind.bias(q, v, t)))(group.kind, here, x, speed))
    return _place(model, twists), _place(model, biases)


def twists(model: Model, c: Configuration, q: Array, v: Array, t: Array) -> tuple[Array, Array]:
    """(3), and the bias terms of (4) joint by joint: V and V x V_joint + b."""
    joint, bias = joint_motion(model, c, q, v, t)
    V = sum_outward(model.topology, joint)
    return V, each(cross_motion)(V, joint) + bias


def accelerations(model: Model, c: Configuration, bias: Array, vd: Array | None) -> Array:
    """(4), without gravity."""
    own = bias if vd is None else bias + per_body(model.topology, c.columns * vd[:, None])
    return sum_outward(model.topology, own)


def world_inertias(model: Model, c: Configuration) -> Array:
    """Inertial numbers of each body about its tree's fixed point, (n, 13, batch)."""

    def one(mass, com, inertia, rotation, arm):
        return inertia_about(mass, arm + matvec(rotation, com), inertia, rotation)

    return each(one)(model.mass, model.com, model.inertia, c.pose.rotation, c.arm)


# --- rows of the stacked arrays -----------------------------------------------------------------------------------


def _rows(x: Array, bodies: Sequence[int]) -> Array:
    return x if tuple(bodies) == tuple(range(x.shape[0])) else take(x, np.asarray(bodies))


def _indices(model: Model, bodies: Sequence[int], which: str) -> np.ndarray:
    top = model.topology
    start, size = (top.q_start, top.nqs) if which == "q" else (top.v_start, top.nvs)
    return np.array([[start[b] + k for k in range(size[b])] for b in bodies], int).reshape(len(bodies), -1)


def by_group(model: Model, x: Array, which: str):
    """Pairs of a joint group and its coordinates (or speeds), (joints, size, batch)."""
    for group in model.groups:
        index = _indices(model, group.bodies, which)
        whole = index.size == x.shape[0] and (index.ravel() == np.arange(x.shape[0])).all()
        yield group, x.reshape(*index.shape, x.shape[-1]) if whole else take(x, index)


def _in_order(parts: Sequence[Array], order: np.ndarray) -> Array:
    batch = max(p.shape[-1] for p in parts)
    whole = jnp.concatenate([jnp.broadcast_to(p, (*p.shape[:-1], batch)) for p in parts])
    return whole if (order == np.arange(len(order))).all() else whole[np.argsort(order)]


def _place(model: Model, parts: Sequence[Array]) -> Array:
    """Puts per-group arrays into the order of the bodies."""
    return _in_order(parts, np.concatenate([np.asarray(g.bodies) for g in model.groups]))


def in_order(model: Model, parts: Sequence[Array], which: str) -> Array:
    """Puts per-group arrays (joints, size, ...) into the order of the coordinates ("q") or speeds ("v")."""
    order = np.concatenate([_indices(model, g.bodies, which).ravel() for g in model.groups])
    return _in_order([p.reshape(-1, *p.shape[2:]) for p in parts], order)


def _columns_in_order(model: Model, parts: Sequence[Array], like: Array) -> Array:
    return in_order(model, parts, "v") if parts else jnp.zeros((0, 6, like.shape[-1]), like.dtype)
