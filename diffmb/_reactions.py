"""REACTIONS: the wrench that every joint, constraint, connection and drive exerts, from the balance of the bodies.

    F_i = J_i (A_i - g) + V_i x* J_i V_i - external and connection wrenches + row loads      load that moves body i
    inward sum of F                                   what joint i transmits from its parent to body i (Sol 1983, ch. 8)
    -P^T lam                                          what a cut joint or constraint exerts on its second marker

The wrench of a tree joint holds everything that passes through it: the reaction, tau, and the load of drives and
couplings, and of joint connections, on its coordinates; these loads alone are entries of their own, as the shortest
wrench w with S^T w = load.
Where redundant rows leave the multipliers free, the shortest multipliers are used and the entry is marked.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ._batch import batch_last
from ._bodies._marker import Marker
from ._checks import Wrenches, as_time, as_wrenches
from ._closing import CoordinateGroup, MarkerGroup
from ._closure import by_elements, frames_of, place, row_loads
from ._configuration import Configuration, accelerations, configuration, twists, world_inertias
from ._constrained import check_inner, constrained_dynamics, factors, held_rows
from ._dynamics import Pairs, check_motion, loads
from ._errors import MechanismError
from ._kinematics import kinematics
from ._loads import loads_by_group, with_connections
from ._model import Model
from ._names import nearest
from ._spatial._pose import Pose
from ._spatial._vector import cross, join, matmul, matvec, transpose, vecmat
from ._sweep import each, sum_inward
from ._walk import walk


class Reactions(eqx.Module):
    """Wrenches (moment, force) on the child of each joint, or on the second marker of each constraint or connection, at
    its origin.

    `reactions["B"]` is one of them, (6,). `reactions.unique("B")`, (6,), is False for components that redundant rows
    leave undetermined: there the shortest multipliers decided.
    A coupling (or connection) of several joints has one entry for each: `reactions["gear: A"]`.
    """

    wrenches: Array  # (entries, 6)
    determined: Array  # (entries, 6)
    names: tuple[str, ...] = eqx.field(static=True)

    def __getitem__(self, name: str) -> Array:
        return self.wrenches[self._index(name)]

    def unique(self, name: str) -> Array:
        return self.determined[self._index(name)]

    def _index(self, name: str) -> int:
        if name not in self.names:
            raise MechanismError(f"there is no reaction {name!r}; {nearest(name, self.names)}")
        return self.names.index(name)


def reactions(
    model: Model, q, v, tau=None, t: Any = 0.0, wrenches: Wrenches | None = None, frame: str | Marker = "world", *,
    z=None, u=None, on=None,
) -> Reactions:  # fmt: skip
    """The wrench at every joint, constraint, connection and drive while the mechanism moves as `dynamics` says.

    **Arguments:**

    - `q`, `v`, `tau`, `t`, `wrenches`, `z`, `u`, `on`: as in `dynamics`.
    - `frame`: the axes of the components: "world", "child" or "parent" for the markers of each joint (second and first
        for a constraint or connection), or a body or `Marker`.
    """
    q, v, tau = check_motion(model, q, v, "tau", tau)
    t = as_time(t, q)
    pairs = as_wrenches(wrenches)
    inner = check_inner(model, q, v, tau, t, pairs, z, u, on)
    found, parent, child, loose = _reactions(model, q, v, tau, t, pairs, *inner)
    if frame == "child" or frame == "parent":
        axes = child if frame == "child" else parent
    elif frame == "world":
        axes = jnp.broadcast_to(jnp.eye(3, dtype=q.dtype), child.shape)
    else:
        axes = jnp.broadcast_to(kinematics(model, q, t=t)[frame].pose.rotation, child.shape)
    turn = jax.vmap(lambda w, R: jnp.concatenate([R.T @ w[:3], R.T @ w[3:]]))
    free = jnp.abs(jax.vmap(lambda w: turn(w, axes))(loose)).max(0, initial=0.0)
    return Reactions(turn(found, axes), free < np.finfo(q.dtype).eps ** 0.5, _entries(model))


def _entries(model: Model) -> tuple[str, ...]:
    """Tree joints body by body, then the elements and the connections group by group."""
    groups, joint_of = (*model.closing, *model.connections), lambda speed: _joint_of(model, speed)
    return (*model.inboard, *(name for group in groups for name in group.wrench_names(joint_of)))


def _joint_of(model: Model, speed: int) -> str:
    return model.inboard[int(walk(model.topology).speed_body[speed])]


@batch_last
def _reactions(model: Model, q, v, tau, t, wrenches: Pairs, z, u, on):
    vd, lam = constrained_dynamics(model, q, v, tau, t, wrenches, z, u, on)
    c = configuration(model, q, t)
    J = world_inertias(model, c)
    V, own = twists(model, c, q, v, t)
    A = accelerations(model, c, own, vd)
    rows = held_rows(model, c, q, v, vd, V, A, t, on)
    F = with_connections(model, c, q, v, V, t, z, u, on, loads(model, c, J, V, A, wrenches), tau)[0]
    if rows:
        F = F + row_loads(model, c, rows, lam)[0]
    found, parent, child, points = _tree_entries(model, c, F)
    parts = [(found, parent, child)]
    held = zip(model.closing, rows, by_elements(model, lam), strict=True)
    exerted = [(group, -each(vecmat)(share, r.slope)) for group, r, share in held]
    for group, load in (*exerted, *loads_by_group(model, c, q, v, V, t, z, u, on)):
        if isinstance(group, MarkerGroup):
            parts.append(_marker_entries(group, c, load))
        else:
            parts.append(_coordinate_entries(model, c, group, load, parent, child, points))
    batch = max(x.shape[-1] for part in parts for x in part)
    spread = lambda x: jnp.broadcast_to(x, (*x.shape[:-1], batch))
    together = [jnp.concatenate([spread(part[k]) for part in parts]) for k in range(3)]
    return *together, _loose(model, c, J, rows, together[0])


def _tree_entries(model: Model, c: Configuration, F: Array) -> tuple[Array, Array, Array, Array]:
    """What each inboard joint puts on its child as the user wrote it (reversed joints turn over), axes and points."""
    total = sum_inward(model.topology, F)
    inner = each(Pose.__matmul__)(frames_of(c, np.asarray(model.topology.parent) - 1), model.placement)
    backward = np.asarray(model.topology.reversed)
    flip = backward[:, None, None]
    point = jnp.where(flip, inner.translation, c.pose.translation) - c.centre
    wrench = each(lambda w, arm: join(w[:3] - cross(arm, w[3:]), w[3:]))(total, point)
    wrench = wrench * jnp.where(flip, -1.0, 1.0)
    turned = flip[..., None]
    parent = jnp.where(turned, c.pose.rotation, inner.rotation)
    return wrench, parent, jnp.where(turned, inner.rotation, c.pose.rotation), point


def _marker_entries(group: MarkerGroup, c: Configuration, load: Array) -> tuple[Array, Array, Array]:
    where = place(group, c)
    wrench = each(lambda w, R: join(matvec(R, w[:3]), matvec(R, w[3:])))(load, where.rotation)
    parent = each(lambda R, X: matmul(R, transpose(X.rotation)))(where.rotation, where.pose)
    return wrench, parent, where.rotation


def _coordinate_entries(model: Model, c: Configuration, group: CoordinateGroup, load, parent, child, points):
    """The shortest wrench on the child, at its marker, that puts `load` on the joint's speeds."""
    found, bodies = [], []
    for e, speeds in enumerate(group.speeds):
        for body in dict.fromkeys(int(walk(model.topology).speed_body[s]) for s in speeds):
            own = [k for k, s in enumerate(speeds) if int(walk(model.topology).speed_body[s]) == body]
            mine = model.topology.v_start[body] + np.arange(model.topology.nvs[body])
            arm, sign = points[body], -1.0 if model.topology.reversed[body] else 1.0
            S = sign * each(lambda s: join(s[:3], s[3:] + cross(s[:3], arm)))(c.columns[mine])
            tau = jnp.zeros((len(mine), load.shape[-1]), load.dtype)
            for k in own:
                tau = tau.at[speeds[k] - mine[0]].add(load[e, k])
            gram = jnp.einsum("aiz,biz->zab", S, S)
            right = jnp.broadcast_to(tau, (len(mine), gram.shape[0])).T[..., None]
            found.append(jnp.einsum("aiz,za->iz", S, jnp.linalg.solve(gram, right)[..., 0]))
            bodies.append(body)
    index = np.asarray(bodies)
    return jnp.stack(found), parent[index], child[index]


def _loose(model: Model, c: Configuration, J: Array, rows, like: Array) -> Array:
    """How each entry changes, (nc, entries, 6, batch), when lam moves along what redundant rows leave free."""
    if not rows:
        return jnp.zeros((0, *like.shape), like.dtype)
    f, one = factors(model, c, J, rows), jnp.eye(model.nc, dtype=like.dtype)[..., None]
    N = jax.vmap(f.redundant, 1, 1)(jnp.broadcast_to(one, (*one.shape[:2], f.G.shape[-1])))

    def moved(n):  # one column of N
        parts = [_tree_entries(model, c, row_loads(model, c, rows, n)[0])[0]]
        for group, r, share in zip(model.closing, rows, by_elements(model, n), strict=True):
            load = each(vecmat)(share, r.slope)
            if isinstance(group, MarkerGroup):
                parts.append(_marker_entries(group, c, load)[0])
                continue
            joints = [len({_joint_of(model, s) for s in speeds}) for speeds in group.speeds]
            any_of = jnp.repeat(jnp.abs(load).max(1, keepdims=True), np.asarray(joints), 0)
            parts.append(jnp.broadcast_to(any_of, (any_of.shape[0], 6, any_of.shape[-1])))
        known = like.shape[0] - sum(p.shape[0] for p in parts)  # connections do not depend on lam
        parts += [jnp.zeros((known, 6, 1), like.dtype)] if known else []
        return jnp.concatenate([jnp.broadcast_to(p, (*p.shape[:-1], like.shape[-1])) for p in parts])

    return jax.vmap(moved, 1)(N)
