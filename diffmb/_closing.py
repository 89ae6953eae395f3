"""What closes a mechanism: its cut joints, constraints, couplings and drives as stacked elements with numbered rows.
Its connections, which have loads and states instead of rows, are stacked in the same way.

Elements of one kind are stacked, so that one call per kind serves them all. The rows of the multipliers lam stand group
by group and element by element in it; each element has its rows of position level (nh) first, then those of velocity
level (nn), then those of acceleration level (na). States z and inputs u of the connections stand in the same order.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ._bodies._marker import Marker
from ._connections._abstract import (
    AbstractConnection,
    AbstractJointConnection,
    AbstractLoad,
    AbstractSpan,
    check_load,
    plain,
)
from ._constraints._abstract import AbstractConstraint, AbstractCoupling, AbstractElement, bare
from ._constraints._coupling import Coordinates
from ._constraints._cut_joint import cut
from ._constraints._drive import AbstractDrive, Driven
from ._errors import MechanismError
from ._mechanism import Mechanism
from ._names import nearest
from ._spatial._pose import Pose, quat_to_rotation
from ._spatial._seen import passed_on
from ._topology import Topology


class AbstractGroup(eqx.Module):
    """Elements (or connections) of one kind. `names[e]` are the names that e answers to: its own, that of its drive."""

    kind: Any  # AbstractElement or, among connections, AbstractLoad
    names: tuple[tuple[str, ...], ...] = eqx.field(static=True)

    @property
    def rows(self) -> int:
        """Rows of one element."""
        return self.kind.nh + self.kind.nn + self.kind.na

    @property
    def levels(self) -> tuple[int, ...]:
        """The level of each row of one element: 0 position, 1 velocity, 2 acceleration."""
        return (0,) * self.kind.nh + (1,) * self.kind.nn + (2,) * self.kind.na

    @abstractmethod
    def wrench_names(self, joint_of: Callable[[int], str]) -> list[str]:
        """The names of the wrenches that the elements exert; `joint_of` names the joint of a speed."""


class MarkerGroup(AbstractGroup):
    """Elements between markers: their frames X_JM in the joint frames of the bodies (numbers from 0, -1 the world).

    A connection of several markers has several pairs here, of its first marker and each of the others; `tips` are the
    names of the wrenches on the second markers of all pairs.
    """

    first: Pose
    second: Pose
    ends: tuple[tuple[int, int], ...] = eqx.field(static=True)
    tips: tuple[str, ...] = eqx.field(static=True)

    def wrench_names(self, joint_of: Callable[[int], str]) -> list[str]:
        return list(self.tips)


class CoordinateGroup(AbstractGroup):
    """Elements between joint coordinates: the places of these in q and of their speeds in v."""

    coordinates: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    speeds: tuple[tuple[int, ...], ...] = eqx.field(static=True)

    def wrench_names(self, joint_of: Callable[[int], str]) -> list[str]:
        """One for each joint that an element acts on."""
        found = []
        for own, speeds in zip(self.names, self.speeds, strict=True):
            joints = dict.fromkeys(map(joint_of, speeds))
            found += [f"{own[-1]}: {joint}" if len(joints) > 1 else own[-1] for joint in joints]
        return found


def rows_by_name(closing: Sequence[AbstractGroup]) -> dict[str, slice]:
    """The rows of each element among all rows, by its names."""
    found, start = {}, 0
    for group in closing:
        for names in group.names:
            found |= dict.fromkeys(names, slice(start, start + group.rows))
            start += group.rows
    return found


def wanted_joints(mechanism: Mechanism) -> set[str]:
    """Joints whose coordinates a drive, a coupling or a joint connection needs: better not cut."""
    parts = (*mechanism.constraints, *mechanism.connections)
    wanted = {joint for c in parts if isinstance(c, AbstractCoupling | AbstractJointConnection) for joint, _ in c.terms}
    return wanted | {d.target if isinstance(d.target, str) else d.target[0] for d in mechanism.drives}


def close(
    mechanism: Mechanism, topology: Topology, inboard: tuple[str, ...], frame: Pose, stack: Callable[[Sequence], Any]
) -> tuple[MarkerGroup | CoordinateGroup, ...]:
    """Groups of all elements. `frame` is X_JB, stacked over bodies; `stack` stacks equal pytrees."""
    driven = _drives_by_target(mechanism, inboard)
    elements = [(cut(mechanism.joints[k]), None) for k in topology.cuts]
    elements += [(c, driven.pop(c.name, None)) for c in mechanism.constraints]
    elements += [(_coordinates(topology, inboard, drive), drive) for drive in driven.values()]
    kinds = [bare(element) if drive is None else _drive(bare(element), drive) for element, drive in elements]
    members = [(kind, *part) for kind, part in zip(kinds, elements, strict=True) if kind.nh + kind.nn + kind.na]
    return tuple(_group(group, topology, inboard, frame, stack) for group in _alike(members))


def connect(
    mechanism: Mechanism,
    topology: Topology,
    inboard: tuple[str, ...],
    frame: Pose,
    stack: Callable[[Sequence], Any],
    rows: dict[str, slice],
) -> tuple[MarkerGroup | CoordinateGroup, ...]:
    """Groups of all connections; arguments as in `close`, and the rows of all elements by name."""
    groups = _alike([(plain(load), load, None) for load in mechanism.connections])
    for group in groups:
        load = group[0][1]
        for name in load.follows:
            if name not in rows:
                who = f"connection {load.name!r} follows {name!r}, which has no multipliers"
                raise MechanismError(f"{who}; {nearest(name, list(rows))}")
        check_load(load, sum(rows[name].stop - rows[name].start for name in load.follows))
    return tuple(_group(group, topology, inboard, frame, stack) for group in groups)


def _between_markers(part: AbstractElement | AbstractLoad) -> bool:
    return isinstance(part, AbstractConstraint | AbstractConnection | AbstractSpan)


def _markers(part: Any) -> tuple[Marker, ...]:
    return part.markers if isinstance(part, AbstractConnection | AbstractSpan) else (part.first, part.second)


def _alike(members: list) -> list[list]:
    """(kind, part, drive) with the same class, static fields and shapes together, in order of first appearance."""
    found: dict[Any, list] = {}
    for kind, part, drive in members:
        leaves, structure = jax.tree.flatten(kind)
        size = len(_markers(part) if _between_markers(part) else part.terms)
        key = (_between_markers(part), size, structure, tuple(jnp.shape(leaf) for leaf in leaves))
        found.setdefault(key, []).append((kind, part, drive))
    return list(found.values())


def _group(members: list, topology: Topology, inboard, frame: Pose, stack) -> MarkerGroup | CoordinateGroup:
    kind = stack([kind for kind, _, _ in members])
    names = tuple(tuple(dict.fromkeys([e.name] if d is None else [e.name, d.name])) for _, e, d in members)
    if _between_markers(members[0][1]):
        number = {"world": -1} | {name: i for i, name in enumerate(topology.bodies)}
        pairs = [(_markers(e)[0], other) for _, e, _ in members for other in _markers(e)[1:]]
        ends = tuple((number[a.body], number[b.body]) for a, b in pairs)
        numbers = [stack([(m.rotation, m.position) for m in side]) for side in zip(*pairs, strict=True)]
        sides = zip(zip(*ends, strict=True), numbers, strict=True)
        first, second = (passed_on(_in_joint_frames, tuple(bodies), frame, *x) for bodies, x in sides)
        tips = tuple(tip for own, (_, e, _) in zip(names, members, strict=True) for tip in _tips(own[0], _markers(e)))
        return MarkerGroup(kind, names, first, second, ends, tips)
    places = [_places(topology, inboard, e, d) for _, e, d in members]
    return CoordinateGroup(kind, names, tuple(q for q, _ in places), tuple(v for _, v in places))


def _tips(name: str, markers: tuple[Marker, ...]) -> list[str]:
    """The names of the wrenches on all but the first marker: the part's own, or with the bodies if they are several."""
    bodies = [marker.body for marker in markers[1:]]
    if len(bodies) == 1:
        return [name]
    count = lambda k: f" {bodies[: k + 1].count(bodies[k])}" if bodies.count(bodies[k]) > 1 else ""
    return [f"{name}: {body}{count(k)}" for k, body in enumerate(bodies)]


@partial(jax.jit, static_argnums=0)
def _in_joint_frames(bodies: tuple[int, ...], frame: Pose, rotation: Array, position: Array) -> Pose:
    """X_JM = X_JB @ X_BM for markers on the numbered bodies."""
    world = Pose.identity(frame.rotation.dtype)
    padded = jax.tree.map(lambda a, w: jnp.concatenate([a, w[None]])[np.asarray(bodies)], frame, world)
    return jax.vmap(Pose.__matmul__)(padded, Pose(jax.vmap(quat_to_rotation)(rotation), position))


def _drives_by_target(mechanism: Mechanism, inboard: tuple[str, ...]) -> dict[Any, AbstractDrive]:
    """Drives by what they drive; refuses unknown targets and targets driven twice."""
    constraints = [c.name for c in mechanism.constraints]
    joints = [*inboard, *(j.name for j in mechanism.joints if j.name not in inboard)]
    found: dict[Any, AbstractDrive] = {}
    for drive in mechanism.drives:
        name = drive.target if isinstance(drive.target, str) else drive.target[0]
        if name not in (joints if isinstance(drive.target, tuple) else [*joints, *constraints]):
            raise MechanismError(
                f"drive {drive.name!r} drives {name!r}, which is no joint or constraint; "
                f"{nearest(name, [*joints, *constraints])}"
            )
        for target, other in found.items():
            same = target == drive.target or ((isinstance(target, str) != isinstance(drive.target, str)) and (
                name == (target if isinstance(target, str) else target[0])
            ))
            if same:
                raise MechanismError(
                    f"drives {other.name!r} and {drive.name!r} both prescribe {name!r}; a coordinate has one drive, "
                    "remove one of them"
                )
        found[drive.target] = drive
    return found


def _coordinates(topology: Topology, inboard: tuple[str, ...], drive: AbstractDrive) -> Coordinates:
    """The coordinates that a drive of a joint prescribes."""
    if isinstance(drive.target, tuple):
        return Coordinates(drive.name, (drive.target,), 1)
    body = _body(inboard, topology, drive.target, f"drive {drive.name!r}")
    terms = tuple((drive.target, k) for k in range(topology.nvs[body]))
    return Coordinates(drive.name, terms, len(terms))


def _body(inboard: tuple[str, ...], topology: Topology, joint: str, who: str) -> int:
    if joint in inboard:
        return inboard.index(joint)
    if joint in topology.joint_names:
        raise MechanismError(
            f"{who} needs the coordinate of joint {joint!r}, but that joint is cut to open a loop; "
            "set cut=True on another joint of the loop"
        )
    raise MechanismError(f"{who} names {joint!r}, which is no joint; {nearest(joint, inboard)}")


def _places(
    topology: Topology, inboard, part: AbstractCoupling | AbstractJointConnection, drive: AbstractDrive | None
) -> tuple:
    """Where the part's coordinates stand in q and their speeds in v."""
    is_load = isinstance(part, AbstractJointConnection)
    who = f"drive {drive.name!r}" if drive is not None else f"{'connection' if is_load else 'coupling'} {part.name!r}"
    qs, vs = [], []
    for joint, k in part.terms:
        body = _body(inboard, topology, joint, who)
        nq, nv = topology.nqs[body], topology.nvs[body]
        if k >= nv:
            raise MechanismError(f"{who} names coordinate {k} of joint {joint!r}, which has {nv}, counted from 0")
        if nq != nv and (drive is None or drive.level == 0):
            advice = "PrescribedPose between its markers, or a drive of its speeds (VelocityDrive)"
            raise MechanismError(
                f"{who} {'needs' if is_load else 'prescribes'} the position of joint {joint!r}, whose coordinates are "
                f"a quaternion; use {'a Connection between its markers' if is_load else advice}"
            )
        qs.append(topology.q_start[body] + (k if nq == nv else 0))
        vs.append(topology.v_start[body] + k)
    return tuple(qs), tuple(vs)


def _drive(kind: AbstractElement, drive: AbstractDrive) -> Driven:
    """The element with its rows driven; refuses a function with the wrong number of values."""
    given, rows = drive.count(), kind.nh if drive.level == 0 else kind.nh + kind.nn
    if given != rows:
        raise MechanismError(
            f"the function of drive {drive.name!r} gives {given} numbers, but {drive.target!r} has {rows} to prescribe "
            "at this level"
        )
    return Driven("", kind, drive.function, drive.level, drive.params)
