"""CHANNELS: what is seen of a motion over time, by name.

    joint          A   A.speed   A.acceleration                 with [k] where there are several: ball.speed[2]
    body           .position .velocity .acceleration            .x .y .z, or nothing for the length of the vector;
                   .angular_velocity .angular_acceleration      rocker.x is short for rocker.position.x; .angle about z
    any part       .force .moment                               what it exerts on its child or second marker, world axes
    drive          .load          connection   .state           with [k]
    whole          energy  kinetic_energy  potential_energy
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax import Array

from ._bodies._marker import Marker
from ._errors import MechanismError
from ._kinematics import kinematics
from ._model import Model
from ._names import nearest
from ._tiles import over_rows
from ._trajectory import Trajectory

_MOVED = ("acceleration", "angular_acceleration")  # need the dynamics
_FRAME: dict[str, tuple[Callable[[Any], Array], str]] = {
    "position": (lambda m: m.pose.translation, "m"),
    "velocity": (lambda m: m.twist[:, 3:], "m/s"),
    "acceleration": (lambda m: m.acceleration[:, 3:], "m/s^2"),
    "angular_velocity": (lambda m: m.twist[:, :3], "rad/s"),
    "angular_acceleration": (lambda m: m.acceleration[:, :3], "rad/s^2"),
    "angle": (lambda m: jnp.unwrap(m.angle), "rad"),
    "x": (lambda m: m.pose.translation[:, 0], "m"),
    "y": (lambda m: m.pose.translation[:, 1], "m"),
    "z": (lambda m: m.pose.translation[:, 2], "m"),
}
_WRENCH = {"moment": (slice(0, 3), "N m"), "force": (slice(3, 6), "N")}
_WHOLE = ("energy", "kinetic_energy", "potential_energy")
_REST = re.compile(r"(?:\.(?P<what>[a-z_]+))?(?:\.(?P<axis>[xyz]))?(?:\[(?P<index>\d+)\])?")


@dataclass(frozen=True)
class Channel:
    """A channel that exists: `read(traj)` gives (times,) in `unit`."""

    name: str
    unit: str
    read: Callable[[Trajectory], Array]


def read_channel(traj: Trajectory, name: str) -> Array:
    """The channel of that name, (times,); refused with the nearest one if there is none."""
    return find_channel(traj.model, name).read(traj)


def find_channel(model: Model, name: str, markers: Mapping[str, Marker] | None = None) -> Channel:
    """The channel of that name; `markers` are frames by name, seen like bodies."""
    if name in _WHOLE:
        return Channel(name, "J", lambda traj: getattr(traj, name)())
    markers = markers or {}
    known = [*model.topology.bodies, *model.inboard, *model.elements, *model.connection_names, *markers]
    part = max((k for k in known if name == k or name.startswith((f"{k}.", f"{k}["))), key=len, default=None)
    match = _REST.fullmatch(name[len(part) :]) if part is not None else None
    if part is None or match is None:
        raise MechanismError(f"there is no channel {name!r}; {nearest(name.split('.')[0], known)}")
    found, what = _quantities(model, part, markers), match["what"] or "coordinate"
    if what not in found:
        raise MechanismError(f"the channel {name!r}: {part!r} has no {what}; {nearest(what, list(found))}")
    read, unit = found[what]
    return Channel(name, unit, lambda traj: _component(read(traj), name, match["axis"], match["index"]))


Read = Callable[[Trajectory], Array]


def _quantities(model: Model, part: str, markers: Mapping[str, Marker]) -> dict[str, tuple[Read, str]]:
    """Reader and unit of everything that the part has over time."""
    place = markers.get(part, part)
    frame: dict[str, tuple[Read, str]] = {
        what: (lambda traj, of=of, what=what: of(traj[place] if what in _MOVED else _motion(traj, place)), unit)
        for what, (of, unit) in _FRAME.items()
    }
    if part in markers or (part in model.topology.bodies and part not in model.inboard):
        return frame
    found: dict[str, tuple[Read, str]] = {
        what: (lambda traj, rows=rows: traj.reaction(part)[:, rows], unit) for what, (rows, unit) in _WRENCH.items()
    }
    if part in model.inboard:
        found["coordinate"] = (lambda traj: traj.coordinate(part), "rad or m")
        found["speed"] = (lambda traj: traj.speed(part), "rad/s or m/s")
        found["acceleration"] = (lambda traj: traj.vd[:, model.speeds(part)], "rad/s^2 or m/s^2")
    if part in model.connection_names:
        found["state"] = (lambda traj: traj.state(part), "that of the connection")
    if part in model.elements:
        found["load"] = (lambda traj: traj.load(part), "N m or N")
    if part in model.topology.bodies:  # a free joint that was added has the name of its body
        found = found | {what: own for what, own in frame.items() if what != "acceleration"}
    return found


def _motion(traj: Trajectory, part: str | Marker) -> Any:
    """Poses and twists alone: no dynamics."""
    return over_rows(lambda t, q, v: kinematics(traj.model, q, v, t=t)[part], traj.ts, traj.q, traj.v)


def _component(values: Array, name: str, axis: str | None, index: str | None) -> Array:
    """One number for each time."""
    if values.ndim == 1:
        if axis or index not in (None, "0"):
            raise MechanismError(f"the channel {name!r} is one number; leave {axis or f'[{index}]'} away")
        return values
    if values.shape[1] == 1 and index in (None, "0"):
        return values[:, 0]
    if axis or index:
        k = "xyz".index(axis) if axis else int(index or 0)
        if k >= values.shape[1]:
            raise MechanismError(f"the channel {name!r} has {values.shape[1]} numbers, counted from 0")
        return values[:, k]
    if values.shape[1] == 3:
        square = (values * values).sum(1)
        still = square == 0.0  # a length has no derivative there: zero is one of those it could have
        return jnp.where(still, 0.0, jnp.sqrt(jnp.where(still, 1.0, square)))
    raise MechanismError(f"the channel {name!r} has {values.shape[1]} numbers; choose one, such as {name + '[0]'!r}")
