"""MODEL: the mechanism as stacked arrays in tree order, with its topology beside them.

Each body is carried by its joint frame J: the marker at the outer end of the joint that leads to it. With B the
body's own frame, P its parent's joint frame and M the marker at the inner end of the joint,

    X_WJ = X_WP @ X_PM @ X_MJ(q, t)        placement X_PM = (X_BJ of the parent)^-1 @ X_BM: constant
    X_WB = X_WJ @ X_JB                     frame     X_JB = (X_BJ)^-1: constant

Joints of one kind are stacked, so that one call per kind serves them all. Compiling is plain array work on the leaves
of the mechanism: it can be traced, batched and differentiated.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ._closing import CoordinateGroup, MarkerGroup, close, connect, rows_by_name, wanted_joints
from ._errors import MechanismError
from ._joints._abstract import AbstractJoint, kind_of
from ._joints._free import Free
from ._joints._reversed import reverse
from ._mechanism import Mechanism
from ._names import nearest
from ._spatial._axis import is_concrete
from ._spatial._pose import Pose, quat_to_rotation
from ._spatial._seen import note, passed_on, stacked
from ._spatial._vector import matmul, transpose
from ._topology import Topology, build_topology
from ._validate import check_numbers, find_massless_leaves


class JointGroup(eqx.Module):
    """The joints of one kind: their parameters stacked in front, and the bodies (0-based) at their outer ends."""

    kind: AbstractJoint
    bodies: tuple[int, ...] = eqx.field(static=True)


class Model(eqx.Module):
    """A compiled mechanism. Make it with `mb.compile`."""

    groups: tuple[JointGroup, ...]
    placement: Pose  # X_PM, stacked over bodies
    frame: Pose  # X_JB, stacked over bodies
    mass: Array  # (n,)
    com: Array  # (n, 3) in J
    inertia: Array  # (n, 3, 3) about the centre of mass, axes of J
    gravity: Array  # (3,)
    closing: tuple[MarkerGroup | CoordinateGroup, ...]  # what closes loops and drives coordinates
    connections: tuple[MarkerGroup | CoordinateGroup, ...]  # what has loads, states and inputs
    topology: Topology = eqx.field(static=True)
    known: tuple[tuple[str, bytes], ...] = eqx.field(static=True, default=())  # within a run: see `_known.py`
    candidates: tuple[int, ...] | None = eqx.field(static=True, default=None)  # within a run: see `_saddle.py`
    regular: bool = eqx.field(static=True, default=False)  # ... it has them, and its mass matrix is seen to be so

    @property
    def nq(self) -> int:
        """Number of coordinates."""
        return self.topology.nq

    @property
    def nv(self) -> int:
        """Number of speeds."""
        return self.topology.nv

    @property
    def nc(self) -> int:
        """Number of constraint rows: cut joints, constraints, couplings and drives."""
        return sum(len(group.names) * group.rows for group in self.closing)

    @property
    def levels(self) -> np.ndarray:
        """(nc,): 0 for rows of position level, 1 for velocity, 2 for acceleration."""
        return np.array([level for g in self.closing for _ in g.names for level in g.levels], int)

    @property
    def elements(self) -> dict[str, slice]:
        """The rows of each cut joint, constraint, coupling and drive by name; a driven constraint has two names."""
        return rows_by_name(self.closing)

    def rows(self, name: str) -> slice:
        """Where the rows of a cut joint, constraint, coupling or drive stand in the multipliers."""
        found = self.elements
        if name not in found:
            raise MechanismError(f"{name!r} has no constraint rows; {nearest(name, list(found))}")
        return found[name]

    @property
    def row_names(self) -> tuple[str, ...]:
        """Each row in words."""
        return tuple(
            f"{names[0]}: {row}" for g in self.closing for names in g.names for row in g.kind.row_names()
        )

    @property
    def nz(self) -> int:
        """Number of states of the connections."""
        return sum(len(group.names) * group.kind.nz for group in self.connections)

    @property
    def nu(self) -> int:
        """Number of inputs of the connections."""
        return sum(len(group.names) * group.kind.nu for group in self.connections)

    @property
    def followed(self) -> np.ndarray:
        """The rows whose multipliers some connection follows, in increasing order."""
        names = {name for group in self.connections for name in group.kind.follows}
        rows = [self.elements[name] for name in names]
        return np.array(sorted({k for own in rows for k in range(own.start, own.stop)}), int)

    @property
    def connection_names(self) -> tuple[str, ...]:
        """The connections in the order of their states, inputs and switches."""
        return tuple(own for group in self.connections for (own,) in group.names)

    def states(self, name: str) -> slice:
        """Where the states of a connection stand in z."""
        return self._share(name, [group.kind.nz for group in self.connections])

    def input(self, name: str) -> slice:
        """Where the inputs of a connection stand in u."""
        return self._share(name, [group.kind.nu for group in self.connections])

    def _share(self, name: str, sizes: Sequence[int]) -> slice:
        start = 0
        for group, size in zip(self.connections, sizes, strict=True):
            for (own,) in group.names:
                if own == name:
                    return slice(start, start + size)
                start += size
        raise MechanismError(f"there is no connection {name!r}; {nearest(name, self.connection_names)}")

    def start_states(self) -> Array:
        """The states z (nz,) from which the connections start."""
        parts = [jnp.zeros(0)]
        for group in self.connections:
            own = len(group.names)
            start = jax.vmap(lambda kind, _: kind.start())(group.kind, jnp.zeros(own))
            parts.append(start.reshape(own * group.kind.nz))
        return jnp.concatenate(parts).astype(self.mass.dtype)

    @property
    def switches(self) -> tuple[str, ...]:
        """What can be switched off: the elements in the order of their rows, then the connections."""
        return tuple(names[0] for group in (*self.closing, *self.connections) for names in group.names)

    def switch(self, name: str) -> int:
        """The place of a cut joint, constraint, coupling, drive or connection among the switches."""
        owners = [names for group in (*self.closing, *self.connections) for names in group.names]
        for place, names in enumerate(owners):
            if name in names:
                return place
        known = [own for names in owners for own in names]
        raise MechanismError(f"{name!r} cannot be switched; {nearest(name, known)}")

    @property
    def row_switch(self) -> np.ndarray:
        """(nc,): the switch of each constraint row."""
        rows = [group.rows for group in self.closing for _ in group.names]
        return np.repeat(np.arange(len(rows)), rows)

    def neutral(self) -> Array:
        """Coordinates at which the two markers of every joint coincide."""
        q = [jnp.zeros(0)] * len(self.topology.bodies)
        for group in self.groups:
            for body in group.bodies:
                q[body] = group.kind.neutral()
        return jnp.concatenate(q).astype(self.mass.dtype)

    def pack(self, values: Mapping[str, Any], start: Array | None = None) -> Array:
        """Coordinates with the named joints set, the others as in `start` (neutral by default)."""
        q = self.neutral() if start is None else jnp.asarray(start)
        for name, value in values.items():
            where = self.coordinates(name)
            value = jnp.atleast_1d(jnp.asarray(value, q.dtype))
            if value.shape != (where.stop - where.start,):
                size = where.stop - where.start
                raise MechanismError(f"joint {name!r} has {size} coordinates, but {value.shape[0]} numbers were given")
            q = q.at[where].set(value)
        return q

    def unpack(self, q: Array) -> dict[str, Array]:
        """The coordinates of each joint by name."""
        return {name: q[self.coordinates(name)] for name in self.inboard}

    @property
    def inboard(self) -> tuple[str, ...]:
        """Names of the joints in the tree, body by body; a free joint that was added has the name of its body."""
        return _inboard(self.topology)

    def coordinates(self, joint: str) -> slice:
        """Where the joint's coordinates stand in q."""
        body = self._joint(joint)
        return slice(self.topology.q_start[body], self.topology.q_start[body] + self.topology.nqs[body])

    def speeds(self, joint: str) -> slice:
        """Where the joint's speeds stand in v."""
        body = self._joint(joint)
        return slice(self.topology.v_start[body], self.topology.v_start[body] + self.topology.nvs[body])

    def body(self, name: str) -> int:
        """The body's number: 0 for the world, its place in the regular numbering otherwise."""
        if name == "world":
            return 0
        if name not in self.topology.bodies:
            raise MechanismError(f"there is no body {name!r}; {nearest(name, self.topology.bodies)}")
        return self.topology.bodies.index(name) + 1

    def _joint(self, name: str) -> int:
        if name in self.inboard:
            return self.inboard.index(name)
        top = self.topology
        if name in top.joint_names:
            raise MechanismError(f"joint {name!r} closes a loop: it is cut and has no coordinates of its own")
        raise MechanismError(f"there is no joint {name!r}; {nearest(name, self.inboard)}")

    def __repr__(self) -> str:
        top = self.topology
        rows = [
            f"  {i + 1:3d} {body:<16} on {(('world',) + top.bodies)[top.parent[i]]:<16} by {self.inboard[i]}"
            for i, body in enumerate(top.bodies[:40])
        ]
        more = [f"  ... {len(top.bodies) - 40} more"] if len(top.bodies) > 40 else []
        cut = f", {len(top.cuts)} cut joints" if top.cuts else ""
        cut += f", {self.nc} constraint rows" if self.nc else ""
        loads = sum(len(group.names) for group in self.connections)
        cut += f", {loads} connections" if loads else ""
        cut += f", nz = {self.nz}" if self.nz else ""
        cut += f", nu = {self.nu}" if self.nu else ""
        return "\n".join([f"Model: {len(top.bodies)} bodies, nq = {top.nq}, nv = {top.nv}{cut}", *rows, *more])


def _inboard(top: Topology) -> tuple[str, ...]:
    return tuple(top.joint_names[j] if j >= 0 else top.bodies[i] for i, j in enumerate(top.joint))


def compile(mechanism: Any) -> Model:
    """Finds the tree, numbers it and stacks its numbers; refuses numbers that cannot be.

    Traceable: inside `jax.jit`, `jax.vmap` or `jax.grad` the checks of values are left out and the rest is array work.
    """
    if not isinstance(mechanism, Mechanism):
        what = "a compiled model already" if isinstance(mechanism, Model) else f"a {type(mechanism).__name__}"
        raise MechanismError(f"mechanism is {what}; give mb.Mechanism(bodies, joints, ...)")
    mechanism = _of_one_precision(mechanism)
    if is_concrete(*jax.tree.leaves(mechanism)):
        check_numbers(mechanism)
    wanted = wanted_joints(mechanism)
    topology = build_topology(
        tuple(body.name for body in mechanism.bodies),
        [(j.name, j.parent.body, j.child.body, j.nq, j.nv, j.cut, j.name in wanted) for j in mechanism.joints],
    )
    named = {body.name: body for body in mechanism.bodies}
    bodies = [named[name] for name in topology.bodies]
    joints = [_tree_joint(mechanism, topology, i) for i in range(len(bodies))]
    if is_concrete(*jax.tree.leaves(bodies)):
        find_massless_leaves(topology, [float(np.asarray(body.mass)) for body in bodies])

    markers = _stack([(j.parent.rotation, j.parent.position, j.child.rotation, j.child.position) for j in joints])
    numbers = _stack([(body.mass, body.com, body.inertia) for body in bodies])
    placement, frame, mass, com, inertia = passed_on(_in_joint_frames, topology, markers, numbers)
    closing = close(mechanism, topology, _inboard(topology), frame, _stack)
    connections = connect(mechanism, topology, _inboard(topology), frame, _stack, rows_by_name(closing))
    numbers = (placement, frame, mass, com, inertia, mechanism.gravity)
    return Model(_group(joints), *numbers, closing, connections, topology)


def _of_one_precision(mechanism: Mechanism) -> Mechanism:
    """All its numbers in the finest precision that one of them has."""
    inexact = eqx.is_inexact_array
    kinds = {leaf.dtype for leaf in jax.tree.leaves(mechanism) if inexact(leaf)}
    if len(kinds) < 2:
        return mechanism
    dtype = jnp.result_type(*kinds)
    return jax.tree.map(lambda a: a.astype(dtype) if inexact(a) and a.dtype != dtype else a, mechanism)


@partial(jax.jit, static_argnums=0)
def _in_joint_frames(topology: Topology, markers, numbers):
    """Placements, frames and inertial numbers seen from the joint frames J."""
    each = jax.vmap  # over bodies
    inner, outer = (
        Pose(each(quat_to_rotation)(rotation), position) for rotation, position in (markers[:2], markers[2:])
    )
    frame = each(Pose.inverse)(outer)
    root = Pose.identity(frame.rotation.dtype)
    parent = jax.tree.map(lambda r, a: jnp.concatenate([r[None], a])[np.asarray(topology.parent)], root, frame)
    mass, com, inertia = numbers
    inertia = 0.5 * (inertia + jnp.swapaxes(inertia, 1, 2))  # a derivative step may leave the symmetric matrices
    turned = each(lambda X, I: matmul(matmul(X.rotation, I), transpose(X.rotation)))(frame, inertia)
    return each(Pose.__matmul__)(parent, inner), frame, mass, each(Pose.apply)(frame, com), turned


def _tree_joint(mechanism: Mechanism, topology: Topology, body: int) -> AbstractJoint:
    """The joint that carries a body in the tree, turned to point outward."""
    index = topology.joint[body]
    if index < 0:
        return Free(topology.bodies[body], "world", topology.bodies[body])
    joint = mechanism.joints[index]
    return reverse(joint) if topology.reversed[body] else joint


def _stack(trees: Sequence[Any]) -> Any:
    """Stacks equal pytrees leaf by leaf, on the host when nothing is traced (a thousand bodies in milliseconds)."""

    def stack(*leaves: Any) -> Array:
        both = jnp.asarray(np.stack(leaves)) if is_concrete(*leaves) else jnp.stack(leaves)
        return note(both, stacked(leaves))

    return jax.tree.map(stack, *trees)


def _group(joints: Sequence[AbstractJoint]) -> tuple[JointGroup, ...]:
    """Joints with the same class, static fields and shapes go together, in order of first appearance."""
    members: dict[Any, list[tuple[int, AbstractJoint]]] = {}
    for body, joint in enumerate(joints):
        kind = kind_of(joint)
        leaves, structure = jax.tree.flatten(kind)
        members.setdefault((structure, tuple(jnp.shape(leaf) for leaf in leaves)), []).append((body, kind))
    return tuple(
        JointGroup(_stack([kind for _, kind in group]), tuple(body for body, _ in group)) for group in members.values()
    )
