"""Where a law of one strain is mounted.

    AlongLine       e = |p|                                     p from the first origin to the second
    AlongAxis       e = a . p                                   a: unit axis in the first marker
    AboutAxis       e: how far R turns about a                  within (-pi, pi); it jumps beyond
    OnCoordinate    e = q                                       counts every turn

The load on the markers follows from the derivative of e.
"""

from typing import Any

import equinox as eqx
from jax import Array

from .._constraints._coupling import as_terms
from .._constraints._geometry import length_and_direction
from .._errors import MechanismError
from .._spatial._axis import as_axis
from .._spatial._pose import Pose
from .._spatial._vector import dot, unit
from ._abstract import AbstractConnection, AbstractJointConnection, AbstractLoad
from ._law import AbstractLaw, check_law
from ._turns import turn_about


class AbstractMount(AbstractLoad):
    """A connection that feels one strain and answers by a law."""

    law: eqx.AbstractVar[AbstractLaw]

    def __check_init__(self):
        check_law(f"{type(self).__name__} {self.name!r}", self.law)

    @property
    def nz(self) -> int:
        return self.law.nz

    @property
    def follows(self) -> tuple[str, ...]:
        return self.law.follows

    def load(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return -self.law.tension(e[0], ed[0], z, u)[None]

    def zdot(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return self.law.zdot(e[0], ed[0], z, u)

    def energy(self, t: Array, e: Array, z: Array) -> Array:
        return self.law.energy(e[0], z)

    def dissipation(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return self.law.dissipation(e[0], ed[0], z, u)


class AlongLine(AbstractMount, AbstractConnection):
    """A law of the distance between the markers' origins, m.

    Where they meet the line has no direction: there is no force, and its derivatives are zero. For a linear spring without
    free length take `SpringDamper`, which is exact there.

    **Arguments:**

    - `law`: what it answers, for example `LinearLaw`, `RopeLaw`, `PronyLaw`.
    """

    law: AbstractLaw

    def strain(self, t: Array, x: Pose) -> Array:
        return length_and_direction(x.translation)[0][None]


class AlongAxis(AbstractMount, AbstractConnection):
    """A law of how far the second origin lies along an axis of the first marker, m; its force acts along that axis.

    **Arguments:**

    - `law`: what it answers.
    - `axis`: "x", "y", "z" or three numbers, in the first marker's axes.
    """

    law: AbstractLaw
    axis: Array = eqx.field(converter=as_axis)

    def strain(self, t: Array, x: Pose) -> Array:
        return dot(unit(self.axis), x.translation)[None]


class AboutAxis(AbstractMount, AbstractConnection):
    """A law of how far the second marker is turned about an axis of the first, rad, within (-pi, pi).

    Use it where the markers turn about that common axis, a torsion bar say; tilting adds nothing to the angle. On a
    joint's coordinate, `OnCoordinate` counts any number of turns.

    **Arguments:**

    - `law`: what it answers, in N m and rad.
    - `axis`: "x", "y", "z" or three numbers, in the first marker's axes.
    """

    law: AbstractLaw
    axis: Array = eqx.field(converter=as_axis)

    def strain(self, t: Array, x: Pose) -> Array:
        return turn_about(unit(self.axis), x.rotation)[None]


def _one_term(term: Any) -> tuple[tuple[str, int], ...]:
    pair = isinstance(term, str) or (isinstance(term, tuple) and len(term) == 2 and isinstance(term[1], int))
    return as_terms("a connection on a coordinate", (term,) if pair else term)


class OnCoordinate(AbstractMount, AbstractJointConnection):
    """A law of one joint coordinate, m or rad: a torsion spring, friction or stops in a joint.

    **Arguments:**

    - `terms`: the joint's name, or a pair (name, number of the coordinate from 0), static.
    - `law`: what it answers.
    """

    terms: tuple[tuple[str, int], ...] = eqx.field(static=True, converter=_one_term)
    law: AbstractLaw

    def __check_init__(self):
        if len(self.terms) > 1:
            raise MechanismError(f"connection {self.name!r} is given {len(self.terms)} coordinates; give one")

    def strain(self, t: Array, x: Array) -> Array:
        return x
