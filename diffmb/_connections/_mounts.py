"""Where a law of one strain is mounted. Every law works in every mount.

    AlongLine        e = ratio |p|               p from the first origin to the second, m
    AlongAxis        e = ratio a . p             a: unit axis in the first marker
    AboutAxis        e = ratio angle             how far R turns about a, rad, within (-pi, pi); it jumps beyond
    AlongPath        e = ratio sum |p_i|         p_i from one marker of the path to the next, m
    OnCoordinates    e = ratio . q               joint coordinates, m or rad, which count every turn

The law gives F along e (what it extends, it pushes); the loads on the markers follow from the derivative of e. `ratio`
is a gear ratio, a screw between (rad/m) or a moment arm (m/rad): the law then sees the motor's side.
"""

from typing import Any

import equinox as eqx
from jax import Array

from .._constraints._geometry import length_and_direction
from .._errors import MechanismError
from .._spatial._axis import as_array, as_axis
from .._spatial._pose import Pose
from .._spatial._vector import dot, unit
from ._abstract import AbstractConnection, AbstractJointConnection, AbstractLoad, AbstractSpan
from ._law import AbstractLaw, check_law
from ._numbers import Quantity, check_numbers
from ._path import check_path, path_length, points
from ._turns import turn_about


class AbstractMount(AbstractLoad):
    """A connection that feels one strain and answers by a law."""

    law: eqx.AbstractVar[AbstractLaw]
    ratio: eqx.AbstractVar[Array]

    def __check_init__(self):
        title = f"{type(self).__name__} {self.name!r}"
        check_law(title, self.law)
        check_numbers(title, self, ratio=Quantity("(1, rad/m or m/rad)", shape=self._ratio_shape()))

    def _ratio_shape(self) -> tuple[int, ...]:
        return ()

    @property
    def nz(self) -> int:
        return self.law.nz

    @property
    def nu(self) -> int:
        return self.law.nu

    @property
    def follows(self) -> tuple[str, ...]:
        return self.law.follows

    def load(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return self.law.load(t, e[0], ed[0], z, u)[None]

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
    """Laws are looked at by `check_law`, which knows the connection's name."""
    return law


class AlongLine(AbstractMount, AbstractConnection):
    """A law of the distance between the markers' origins, m; what it extends, it drives apart.

    Where they meet the line has no direction: there is no force, and its derivatives are zero. For a linear spring
    without free length take `SpringDamper`, which is exact there.

    **Arguments:**

    - `law`: what it answers, for example `LinearLaw`, `RopeLaw`, `HydraulicCylinder`, `Muscle`.
    - `ratio`: strain of the law for 1 m: 1, or that of a screw or rack between, rad/m.
    """

    law: AbstractLaw = eqx.field(converter=_unchanged)
    ratio: Array = eqx.field(converter=as_array, default=1.0)

    def strain(self, t: Array, x: Pose) -> Array:
        return (self.ratio * length_and_direction(x.translation)[0])[None]


class AlongAxis(AbstractMount, AbstractConnection):
    """A law of how far the second origin lies along an axis of the first marker, m; its force acts along that axis.

    **Arguments:**

    - `law`: what it answers.
    - `axis`: "x", "y", "z" or three numbers, in the first marker's axes.
    - `ratio`: strain of the law for 1 m.
    """

    law: AbstractLaw = eqx.field(converter=_unchanged)
    axis: Array = eqx.field(converter=as_axis, default="z")
    ratio: Array = eqx.field(converter=as_array, default=1.0)

    def strain(self, t: Array, x: Pose) -> Array:
        return (self.ratio * dot(unit(self.axis), x.translation))[None]


class AboutAxis(AbstractMount, AbstractConnection):
    """A law of how far the second marker is turned about an axis of the first, rad, within (-pi, pi).

    Use it where the markers turn about that common axis, a torsion bar or a motor say; tilting adds nothing to the
    angle. Laws that use the angle, not only its rate, jump where it does: `OnCoordinates` counts any number of turns.

    **Arguments:**

    - `law`: what it answers, in N m and rad, for example `LinearLaw`, `DcMotor`.
    - `axis`: "x", "y", "z" or three numbers, in the first marker's axes.
    - `ratio`: gear ratio: turns of the law (of the motor) for one turn.
    """

    law: AbstractLaw = eqx.field(converter=_unchanged)
    axis: Array = eqx.field(converter=as_axis, default="z")
    ratio: Array = eqx.field(converter=as_array, default=1.0)

    def strain(self, t: Array, x: Pose) -> Array:
        return (self.ratio * turn_about(unit(self.axis), x.rotation))[None]


class AlongPath(AbstractMount, AbstractSpan):
    """A law of the length of a path straight from marker to marker, m: a muscle over via-points, a rope over eyelets.

    The tension is the same everywhere along it. Two neighbours on one body add a constant length. Where two of them
    meet in a motion, that piece has no direction and pulls neither.

    **Arguments:**

    - `markers`: origin, via-points, insertion, in this order, on any bodies: two or more.
    - `law`: what it answers, for example `RopeLaw`, `Muscle`.
    - `ratio`: strain of the law for 1 m.
    """

    law: AbstractLaw = eqx.field(converter=_unchanged)
    ratio: Array = eqx.field(converter=as_array, default=1.0)

    def __check_init__(self):
        check_path(f"AlongPath {self.name!r}", self.markers)

    def strain(self, t: Array, x: tuple[Pose, ...]) -> Array:
        return (self.ratio * path_length(points(x)))[None]


class OnCoordinates(AbstractMount, AbstractJointConnection):
    """A law of joint coordinates, m or rad: a torsion spring, friction, stops or a geared motor in a joint.

    **Arguments:**

    - `terms`: a joint's name, a pair (name, number of the coordinate from 0), or a list of these, static.
    - `law`: what it answers, for example `LinearLaw`, `LuGreLaw`, `PidController`.
    - `ratio`: one number for each coordinate, or one number if there is one: e = ratio . q.
    """

    law: AbstractLaw = eqx.field(converter=_unchanged)
    ratio: Array = eqx.field(converter=as_array, default=1.0)

    def __check_init__(self):
        if not self.terms:
            raise MechanismError(f"OnCoordinates {self.name!r} is given no coordinate; name a joint")

    def _ratio_shape(self) -> tuple[int, ...]:
        return () if self.ratio.ndim == 0 and len(self.terms) == 1 else (len(self.terms),)

    def strain(self, t: Array, x: Array) -> Array:
        return (self.ratio * x).sum(keepdims=True)
