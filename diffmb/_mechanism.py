"""DESCRIBE: a mechanism is named bodies, the joints, constraints, connections and drives between them, and gravity.

It is a pytree whose leaves are all the physical numbers, each one an array, so that it can be differentiated, batched
and changed (`eqx.tree_at`) without changing its structure. Names and kinds are static and checked here; numbers are
checked where they are given and once more when the mechanism is compiled.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import equinox as eqx
import numpy as np
from jax import Array

from ._bodies._rigid import RigidBody, as_number
from ._connections._abstract import AbstractConnection, AbstractJointConnection, AbstractLoad, AbstractSpan
from ._constraints._abstract import AbstractConstraint, AbstractCoupling
from ._constraints._drive import AbstractDrive
from ._errors import MechanismError
from ._joints._abstract import AbstractJoint
from ._names import WORLD, check_names, nearest
from ._spatial._axis import is_concrete

_ROWS = 20  # in a repr


class Mechanism(eqx.Module):
    """Bodies, what connects them, and gravity.

    **Arguments:**

    - `bodies`: a list of bodies; "world", the ground, is there already.
    - `joints`: a list of joints. A loop is allowed, and a body without a joint moves freely.
    - `constraints`: a list of constraints between markers and couplings of joint coordinates.
    - `connections`: a list of loads that are no constraints: springs, dampers, motors, functions that you write.
    - `drives`: a list of drives: coordinates or constraints prescribed as functions of time.
    - `gravity`: acceleration of free fall in the world's axes, m/s2.

    `mechanism["crank"]` is the part of that name.
    """

    bodies: tuple[RigidBody, ...]
    joints: tuple[AbstractJoint, ...]
    constraints: tuple[AbstractConstraint | AbstractCoupling, ...]
    connections: tuple[AbstractLoad, ...]
    drives: tuple[AbstractDrive, ...]
    gravity: Array

    def __init__(
        self, bodies, joints=(), *, constraints=(), connections=(), drives=(), gravity=(0.0, 0.0, -9.81)
    ):
        self.bodies = _parts("bodies", bodies)
        self.joints = _parts("joints", joints)
        self.constraints = _parts("constraints", constraints)
        self.connections = _parts("connections", connections)
        self.drives = _parts("drives", drives)
        self.gravity = as_number("the mechanism", "gravity", gravity, ((3,),))
        if not self.bodies:
            raise MechanismError(
                "the mechanism has no bodies; give at least one, for example bodies=[rod('crank', 0.1, mass=1)]"
            )
        between = [c for c in self.constraints if isinstance(c, AbstractConstraint)]
        check_names(
            [b.name for b in self.bodies],
            [(j.name, j.parent.body, j.child.body) for j in self.joints],
            [(c.name, c.first.body, c.second.body) for c in between],
            [(c.name, "coupling") for c in self.constraints if not isinstance(c, AbstractConstraint)]
            + [(c.name, "connection") for c in self.connections]
            + [(d.name, "drive") for d in self.drives],
        )
        _check_ends([b.name for b in self.bodies], self.connections)

    @property
    def parts(self) -> tuple:
        """Everything that has a name."""
        return (*self.bodies, *self.joints, *self.constraints, *self.connections, *self.drives)

    def __getitem__(self, name: str) -> Any:
        own = object.__getattribute__  # equinox's costs ten times as much, and there may be a thousand names to look at
        for parts in (self.bodies, self.joints, self.constraints, self.connections, self.drives):
            for part in parts if isinstance(parts, tuple) else ():  # `eqx.tree_at` looks in with empty ones wrapped
                if own(part, "name") == name:
                    return part
        if name == WORLD:
            raise MechanismError("'world' is the ground: joints may refer to it, but it has no numbers of its own")
        names = [part.name for part in self.parts]
        raise MechanismError(f"there is no part {name!r} in the mechanism; {nearest(name, names)}")

    def __contains__(self, name: object) -> bool:
        return any(part.name == name for part in self.parts)

    def __repr__(self) -> str:
        bodies = [("body", "mass [kg]", "centre of mass [m]")]
        bodies += [(body.name, _show(body.mass), _show(body.com)) for body in self.bodies[:_ROWS]]
        joints = [("joint", "kind", "parent -> child")]
        joints += [(j.name, type(j).__name__, f"{j.parent.body} -> {j.child.body}") for j in self.joints[:_ROWS]]
        rows = [("constraint", "kind", "between"), *((c.name, type(c).__name__, _ends(c)) for c in self.constraints)]
        loads = [("connection", "kind", "between"), *((c.name, type(c).__name__, _ends(c)) for c in self.connections)]
        drives = [("drive", "kind", "of"), *((d.name, type(d).__name__, str(d.target)) for d in self.drives)]
        counts = (("constraints", self.constraints), ("connections", self.connections), ("drives", self.drives))
        more = "".join(f", {len(parts)} {title}" for title, parts in counts if parts)
        gravity = _show(self.gravity)
        lines = [f"Mechanism: {len(self.bodies)} bodies, {len(self.joints)} joints{more}, gravity {gravity} m/s2"]
        lines += _table(bodies, len(self.bodies) - _ROWS)
        lines += _table(joints, len(self.joints) - _ROWS) if self.joints else []
        for table in (rows, loads, drives):
            lines += _table(table[: _ROWS + 1], len(table) - 1 - _ROWS) if len(table) > 1 else []
        return "\n".join(lines)


_HOMES = {
    "bodies": (RigidBody, "RigidBody"),
    "joints": (AbstractJoint, "Joint"),
    "constraints": (AbstractConstraint | AbstractCoupling, "Constraint or Coupling"),
    "connections": (AbstractLoad, "Connection"),
    "drives": (AbstractDrive, "Drive"),
}


def _parts(field: str, parts) -> tuple:
    """The parts as a tuple, all of them of the right kind."""
    if isinstance(parts, eqx.Module | str | dict) or not isinstance(parts, Iterable):
        raise MechanismError(f"{field} is {_call(parts)}; give a list, {field}=[...]")
    parts = tuple(parts)
    kind, title = _HOMES[field]
    for i, part in enumerate(parts):
        if not isinstance(part, kind):
            homes = [home for home, (other, _) in _HOMES.items() if isinstance(part, other)]
            advice = f"put it into {homes[0]}=[...]" if homes else f"{field} takes {title} objects"
            raise MechanismError(f"{field}[{i}] is {_call(part)}; {advice}")
    return parts


def _check_ends(bodies: Sequence[str], connections) -> None:
    """Refuses connections of unknown bodies, or of a body with itself."""
    for part in connections:
        if isinstance(part, AbstractJointConnection):
            continue
        own = [marker.body for marker in part.markers]
        roles = ("first", "second") if len(own) == 2 else tuple(f"marker {k + 1}" for k in range(len(own)))
        for role, body in zip(roles, own, strict=True):
            if body != WORLD and body not in bodies:
                raise MechanismError(
                    f"connection {part.name!r}: its {role} is on {body!r}, which is not a body; "
                    f"{nearest(body, [WORLD, *bodies])}"
                )
        if len(set(own)) == 1:
            raise MechanismError(
                f"connection {part.name!r} connects {own[0]!r} with itself; its {roles[0]} and {roles[-1]} must be on "
                "different bodies"
            )


def _ends(part) -> str:
    if isinstance(part, AbstractConnection | AbstractSpan):
        return " -> ".join(marker.body for marker in part.markers)
    if isinstance(part, AbstractConstraint):
        return f"{part.first.body} -> {part.second.body}"
    return ", ".join(f"{joint}[{k}]" for joint, k in part.terms)


def _call(part) -> str:
    """A thing by its type and its name, if it has one."""
    if isinstance(part, type):
        return f"the class {part.__name__}"
    name = getattr(part, "name", part if isinstance(part, str | int | float) else None)
    return f"a {type(part).__name__}" + (f" {name!r}" if name is not None else "")


def _show(value) -> str:
    """A number or a few; the type and shape of anything that has no few numbers, a tracer above all."""
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        return str(value)
    if not is_concrete(value) or not hasattr(value, "__array__") or value.ndim > 1 or value.size > 3:
        return f"{value.dtype}[{','.join(map(str, value.shape))}]"
    numbers = [f"{x:.6g}" for x in np.atleast_1d(np.asarray(value))]
    return f"({', '.join(numbers)})" if value.ndim else numbers[0]


def _table(rows: Sequence[tuple[str, ...]], hidden: int) -> list[str]:
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    lines = ["  " + "  ".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
    return lines + ([f"  ... {hidden} more"] if hidden > 0 else [])
