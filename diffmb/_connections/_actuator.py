"""Actuators: a law of one strain, attached along a line, about an axis, along a path over several markers or to joints.

    LineActuator     e = ratio r           r: distance of the two origins, m
    AxisActuator     e = ratio angle       angle: of the second marker about an axis, rad
    PathActuator     e = ratio sum |p_i|   p_i: from one marker of the path to the next, m
    JointActuator    e = ratio . q         q: joint coordinates, m or rad

The law gives F along e (what it extends, it pushes): its power is F ed. `ratio` is a gear ratio, the pitch of a screw
(rad/m) or a moment arm (m/rad): the law then sees the motor's side. Motors, cylinders, controllers, muscles are laws.
"""

from abc import abstractmethod
from itertools import pairwise
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._bodies._marker import Marker
from .._constraints._geometry import length_and_direction
from .._errors import MechanismError
from .._spatial._axis import as_array, as_axis, is_concrete
from .._spatial._pose import Pose
from .._spatial._vector import unit
from ._abstract import AbstractConnection, AbstractJointConnection, AbstractLoad, AbstractSpan
from ._given import Rule, finite


class AbstractLaw(eqx.Module):
    """A law along one strain: the methods of a connection (see `AbstractLoad`) with numbers e, ed, F for one sample."""

    nz: ClassVar[int] = 0
    nu: ClassVar[int] = 1
    rules: ClassVar[dict[str, Rule]] = {}

    def check(self, title: str) -> None:
        """Refuses senseless numbers; `title` names the connection."""
        for what, rule in self.rules.items():
            rule.check(title, what, getattr(self, what))

    @abstractmethod
    def load(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        """F along e."""

    def zdot(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        """The rates of the states, (nz,)."""
        return jnp.zeros_like(z)

    def energy(self, t: Array, e: Array, z: Array) -> Array:
        """Stored energy, J."""
        return jnp.zeros_like(e)

    def dissipation(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        """What becomes heat, W."""
        return jnp.zeros_like(e)

    def supply(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        """What inputs and active parts bring in, W."""
        return jnp.zeros_like(e)

    def start(self) -> Array:
        """The states (nz,) from which a motion starts."""
        return jnp.zeros(self.nz)


class AbstractActuator(AbstractLoad):
    """A law and where it acts."""

    law: eqx.AbstractVar[AbstractLaw]

    @property
    def nz(self) -> int:
        return self.law.nz

    @property
    def nu(self) -> int:
        return self.law.nu

    def load(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return jnp.stack([self.law.load(t, e[0], ed[0], z, u)])

    def zdot(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return self.law.zdot(t, e[0], ed[0], z, u)

    def energy(self, t: Array, e: Array, z: Array) -> Array:
        return self.law.energy(t, e[0], z)

    def dissipation(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return self.law.dissipation(t, e[0], ed[0], z, u)

    def supply(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return self.law.supply(t, e[0], ed[0], z, u)

    def start(self) -> Array:
        return self.law.start()


def _unchanged(law: Any) -> Any:
    """Laws are looked at by `_check`, which knows the connection's name."""
    return law


def _check(load: Any, shape: tuple[int, ...] = ()) -> None:
    title = f"{type(load).__name__} {load.name!r}"
    if not isinstance(load.law, AbstractLaw):
        raise MechanismError(f"the law of {title} is {load.law!r}; give a law, for example mb.ForceInput()")
    Rule("gear ratio, screw pitch (rad/m) or moment arm (m/rad)", shape=shape).check(title, "ratio", load.ratio)
    load.law.check(f"{type(load.law).__name__} in {title}")


class LineActuator(AbstractActuator, AbstractConnection):
    """A law along the line between the origins of two markers; a positive force drives them apart.

    Where the origins coincide the line has no direction: there is no force then.

    **Arguments:**

    - `law`: what it does, for example `mb.ForceInput()`, `mb.HydraulicCylinder(...)`, `mb.Muscle(...)`.
    - `ratio`: strain of the law for 1 m: 1, or that of a screw or rack between, rad/m.
    """

    law: AbstractLaw = eqx.field(converter=_unchanged)
    ratio: Array = eqx.field(converter=as_array, default=1.0)

    def __check_init__(self):
        _check(self)

    def strain(self, t: Array, x: Pose) -> Array:
        return jnp.stack([self.ratio * length_and_direction(x.translation)[0]])


class AxisActuator(AbstractActuator, AbstractConnection):
    """A law about an axis: a positive torque turns the second marker in the positive sense, and the first one back.

    The angle is that of the second marker in the first, between -pi and pi; laws that use the angle, not only
    its rate, jump there: attach them with `mb.JointActuator`, which counts turns.

    **Arguments:**

    - `law`: what it does, for example `mb.DcMotor(...)`.
    - `axis`: in the axes of both markers: "x", "y", "z" or three numbers.
    - `ratio`: gear ratio: turns of the law (of the motor) for one turn.
    """

    law: AbstractLaw = eqx.field(converter=_unchanged)
    axis: Array = eqx.field(converter=as_axis, default="z")
    ratio: Array = eqx.field(converter=as_array, default=1.0)

    def __check_init__(self):
        _check(self)

    def strain(self, t: Array, x: Pose) -> Array:
        R, a = x.rotation, unit(self.axis)
        sine = 0.5 * a @ jnp.stack([R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1]])
        cosine = 0.5 * (R[0, 0] + R[1, 1] + R[2, 2] - a @ R @ a)
        return jnp.stack([self.ratio * jnp.arctan2(sine, cosine)])


class JointActuator(AbstractActuator, AbstractJointConnection):
    """A law on joint coordinates.

    **Arguments:**

    - `terms`: a joint's name, or a list of names and pairs (name, number of the coordinate from 0), static.
    - `law`: what it does, for example `mb.PidController(...)`.
    - `ratio`: one number for each coordinate, or one number if there is one: e = ratio . q.
    """

    law: AbstractLaw = eqx.field(converter=_unchanged)
    ratio: Array = eqx.field(converter=as_array, default=1.0)

    def __check_init__(self):
        _check(self, () if self.ratio.ndim == 0 and len(self.terms) == 1 else (len(self.terms),))

    def strain(self, t: Array, x: Array) -> Array:
        return (self.ratio * x).sum(keepdims=True)


class PathActuator(AbstractActuator, AbstractSpan):
    """A law along a path that goes straight from marker to marker: a muscle over via-points, a rope over eyelets.

    The tension is the same everywhere along it. Two neighbours on one body add a constant length. Where two of them
    meet in a motion, that piece has no direction and pulls neither.

    **Arguments:**

    - `markers`: origin, via-points, insertion, in this order, on any bodies: two or more.
    - `law`: what it does, for example `mb.Muscle(...)`.
    - `ratio`: strain of the law for 1 m.
    """

    law: AbstractLaw = eqx.field(converter=_unchanged)
    ratio: Array = eqx.field(converter=as_array, default=1.0)

    def __check_init__(self):
        _check(self)
        check_path(f"PathActuator {self.name!r}", self.markers)

    def strain(self, t: Array, x: tuple[Pose, ...]) -> Array:
        return jnp.stack([self.ratio * path_length(points(x))])


def points(x: tuple[Pose, ...]) -> tuple[Array, ...]:
    """Origins of all markers of a span in the first."""
    return (jnp.zeros_like(x[0].translation), *(pose.translation for pose in x))


def path_length(places: tuple[Array, ...]) -> Array:
    return sum(length_and_direction(b - a)[0] for a, b in pairwise(places))  # pyright: ignore[reportReturnType]


def check_path(title: str, markers: tuple[Marker, ...]) -> None:
    """Refuses neighbours that are one point of one body."""
    for k, (a, b) in enumerate(pairwise(markers)):
        if a.body != b.body or not is_concrete(a.position, b.position):
            continue
        if np.array_equal(np.asarray(a.position), np.asarray(b.position)):
            place = np.asarray(a.position).tolist()
            raise MechanismError(
                f"points {k} and {k + 1} of {title} coincide, both at {place} on {a.body!r}; leave one of them out"
            )


class ForceInput(AbstractLaw):
    """The input, times a gain: a given force or torque; with a piston's area as gain, the ideal hydraulic actuator
    F = a i driven by its pressure (Sol 1983).

    **Arguments:**

    - `gain`: N or N m for an input of one; m^2 if the input is a pressure in Pa.
    """

    gain: Array = eqx.field(converter=as_array, default=1.0)
    rules: ClassVar = {"gain": finite("N, N m or m^2")}

    def load(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return self.gain * u[0]

    def supply(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return self.gain * u[0] * ed
