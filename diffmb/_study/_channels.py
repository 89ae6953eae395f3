"""CHANNELS: what a study looks at, by name, and responses: channels reduced to one number.

    joint       .coordinate  .speed  .acceleration            with [k] where there are several
    body        .position .velocity .acceleration             .x .y .z, or nothing for the length of the vector
    or marker   .angular_velocity .angular_acceleration       the same;   .angle about z
    any part    .force .moment                                 what it exerts on its child or second marker, world axes
    drive       .load            connection .state            with [k]
    whole       energy  kinetic_energy  potential_energy

    max min mean rms range final first integral peak (largest absolute value); with a target, of (channel - target)^2
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from .._bodies._marker import Marker
from .._config._schema import Response
from .._connections._abstract import AbstractLoad
from .._constraints._drive import AbstractDrive
from .._errors import StudyError
from .._joints._abstract import AbstractJoint
from .._mechanism import Mechanism
from .._names import WORLD, nearest
from .._trajectory import Trajectory

_FRAME: dict[str, tuple[Callable[[Any], Array], str]] = {
    "position": (lambda m: m.pose.translation, "m"),
    "velocity": (lambda m: m.twist[:, 3:], "m/s"),
    "acceleration": (lambda m: m.acceleration[:, 3:], "m/s^2"),
    "angular_velocity": (lambda m: m.twist[:, :3], "rad/s"),
    "angular_acceleration": (lambda m: m.acceleration[:, :3], "rad/s^2"),
    "angle": (lambda m: jnp.unwrap(m.angle), "rad"),
}
_WRENCH = {"moment": (slice(0, 3), "N m"), "force": (slice(3, 6), "N")}
_JOINT = {"coordinate": "rad or m", "speed": "rad/s or m/s", "acceleration": "rad/s^2 or m/s^2"}
_WHOLE = ("energy", "kinetic_energy", "potential_energy")
_NAME = re.compile(r"(?P<part>.+?)\.(?P<what>[a-z_]+)(?:\.(?P<axis>[xyz]))?(?:\[(?P<index>\d+)\])?")


@dataclass(frozen=True)
class Channel:
    """A parsed channel: `read(traj)` gives (times,)."""

    name: str
    unit: str
    read: Callable[[Trajectory], Array]


def channel(name: str, mech: Mechanism, markers: Mapping[str, Marker]) -> Channel:
    """The channel of that name; refused with the nearest one if there is none."""
    if name in _WHOLE:
        return Channel(name, "J", lambda traj: getattr(traj, name)())
    match = _NAME.fullmatch(name)
    if not match:
        raise StudyError(f'the channel "{name}" is not known; write "part.quantity", such as "crank.position.x"')
    part, what, axis, index = match["part"], match["what"], match["axis"], match["index"]
    known = quantities(part, mech, markers, name)
    if what not in known:
        raise StudyError(f'the channel "{name}": "{part}" has no {what}; {nearest(what, list(known))}')
    unit, read = known[what]
    return Channel(name, unit, lambda traj: _component(read(traj), name, axis, index))


def quantities(
    part: str, mech: Mechanism, markers: Mapping[str, Marker], name: str
) -> dict[str, tuple[str, Callable[[Trajectory], Array]]]:
    """Unit and reader of everything that the part has over time."""
    if part in markers or part in [body.name for body in mech.bodies]:
        frame = markers.get(part, part)
        return {what: (unit, lambda traj, of=of: of(traj[frame])) for what, (of, unit) in _FRAME.items()}
    if part not in mech:
        every = [p.name for p in mech.parts if p.name != WORLD] + list(markers)
        raise StudyError(f'the channel "{name}": there is no part "{part}"; {nearest(part, every)}')
    own = mech[part]
    found: dict[str, tuple[str, Callable[[Trajectory], Array]]] = {
        what: (unit, lambda traj, rows=rows: traj.reaction(part)[:, rows]) for what, (rows, unit) in _WRENCH.items()
    }
    if isinstance(own, AbstractJoint):
        found["coordinate"] = (_JOINT["coordinate"], lambda traj: traj.coordinate(part))
        found["speed"] = (_JOINT["speed"], lambda traj: traj.speed(part))
        found["acceleration"] = (_JOINT["acceleration"], lambda traj: traj.vd[:, traj.model.speeds(part)])
    if isinstance(own, AbstractDrive):
        found["load"] = ("N m or N", lambda traj: traj.load(part))
    if isinstance(own, AbstractLoad):
        found["state"] = ("that of the connection", lambda traj: traj.state(part))
    return found


def _component(values: Array, name: str, axis: str | None, index: str | None) -> Array:
    """One number for each time."""
    if values.ndim == 1:
        if axis or index not in (None, "0"):
            raise StudyError(f'the channel "{name}" is one number; leave {axis or f"[{index}]"} away')
        return values
    if values.shape[1] == 1 and index in (None, "0"):
        return values[:, 0]
    if axis or index:
        k = "xyz".index(axis) if axis else int(index or 0)
        if k >= values.shape[1]:
            raise StudyError(f'the channel "{name}" has {values.shape[1]} numbers, counted from 0')
        return values[:, k]
    if values.shape[1] == 3:
        square = (values * values).sum(1)
        still = square == 0.0  # a length has no derivative there: zero is one of those it could have
        return jnp.where(still, 0.0, jnp.sqrt(jnp.where(still, 1.0, square)))
    raise StudyError(f'the channel "{name}" has {values.shape[1]} numbers; choose one, such as "{name}[0]"')


_REDUCE: dict[str, Callable[[Array, Array], Array]] = {
    "max": lambda t, y: y.max(),
    "min": lambda t, y: y.min(),
    "mean": lambda t, y: jnp.trapezoid(y, t) / (t[-1] - t[0]),
    "rms": lambda t, y: jnp.sqrt(jnp.trapezoid(y * y, t) / (t[-1] - t[0])),
    "range": lambda t, y: y.max() - y.min(),
    "final": lambda t, y: y[-1],
    "first": lambda t, y: y[0],
    "integral": lambda t, y: jnp.trapezoid(y, t),
    "peak": lambda t, y: jnp.abs(y).max(),
}


def response(own: Response, values: Array, ts: np.ndarray) -> Array:
    """The number that a response makes of a channel; `ts` are the times, known before anything runs."""
    late = -np.inf if own.start is None else own.start
    early = np.inf if own.end is None else own.end
    rows = np.flatnonzero((ts >= late - 1e-12) & (ts <= early + 1e-12))
    if len(rows) < (1 if own.reduce in ("max", "min", "final", "first", "range", "peak") else 2):
        raise StudyError(f'the response of "{own.channel}" looks at {own.start} to {own.end} s, where no times are')
    y, t = values[rows[0] : rows[-1] + 1], jnp.asarray(ts[rows[0] : rows[-1] + 1])
    if own.target is None:
        return _REDUCE[own.reduce](t, y)
    target = np.asarray(own.target)
    if target.ndim and len(target) != len(rows):
        raise StudyError(f'the response of "{own.channel}" has {len(target)} targets for {len(rows)} times')
    return _REDUCE[own.reduce](t, (y - target) ** 2)
