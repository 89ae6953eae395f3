"""Bodies on a plane: the x-y plane of the first marker, with z its normal, the body above it.

With R, p the pose of the second marker in the first, a = R e_z its axle, v = R V_lin the velocity of its origin and
w = R V_ang its spin, l the vector from its origin to the contact:

    RollingDisc      p_z - r sin = 0          sin = sqrt(a_x^2 + a_y^2): of the angle between axle and normal
                     (v + w x l)_x,y = 0      l = r (a_z a_x / sin,  a_z a_y / sin,  -sin)
    RollingSphere    p_z - r = 0
                     (v + w x l)_x,y = 0      l = (0, 0, -r)
    Skate            m . v = 0                m = z x b / |z x b|, b = R d the blade

The multiplier of the holonomic row is the normal force, those of the others are the friction forces. The skate is Sol's
example of a nonholonomic constraint (1983, ch. 3): tan(y3) y1d - y2d = 0, here in a form that has no pole.
"""

from typing import ClassVar

import equinox as eqx
from jax import Array

from .._spatial._axis import as_array, as_axis
from .._spatial._pose import Pose
from .._spatial._vector import cross, dot, join, matvec, stack, unit
from ._abstract import AbstractConstraint
from ._geometry import length_and_direction
from ._numbers import check_length

_CONTACT = ("off the plane", "slip x", "slip y")


def _slip(x: Pose, xd: Array, lever: Array) -> Array:
    """In-plane velocity of the point of the second body at `lever` from its origin."""
    return (matvec(x.rotation, xd[3:]) + cross(matvec(x.rotation, xd[:3]), lever))[:2]


class RollingDisc(AbstractConstraint):
    """A thin disc with a sharp edge that rolls without slip on the x-y plane of `first`.

    **Arguments:**

    - `second`: its origin is the centre of the disc, its z axis the axle.
    - `radius`: m, above zero.

    A disc that lies flat touches all round and has no contact point: stay away from there.
    """

    radius: Array = eqx.field(converter=as_array)
    nh: ClassVar[int] = 1
    nn: ClassVar[int] = 2

    def __check_init__(self):
        check_length(f"RollingDisc {self.name!r}", "radius", self.radius)

    def phi(self, t: Array, x: Pose) -> Array:
        lean = length_and_direction(x.rotation[:2, 2])[0]
        return (x.translation[2] - self.radius * lean)[None]

    def pfaff(self, t: Array, x: Pose, xd: Array) -> Array:
        lean, across = length_and_direction(x.rotation[:2, 2])
        lever = self.radius * join(x.rotation[2, 2] * across, -lean[None])
        return _slip(x, xd, lever)

    def row_names(self) -> tuple[str, ...]:
        return _CONTACT


class RollingSphere(AbstractConstraint):
    """A sphere of `radius` (m) about the origin of `second` that rolls without slip on the x-y plane of `first`."""

    radius: Array = eqx.field(converter=as_array)
    nh: ClassVar[int] = 1
    nn: ClassVar[int] = 2

    def __check_init__(self):
        check_length(f"RollingSphere {self.name!r}", "radius", self.radius)

    def phi(self, t: Array, x: Pose) -> Array:
        return (x.translation[2] - self.radius)[None]

    def pfaff(self, t: Array, x: Pose, xd: Array) -> Array:
        return _slip(x, xd, stack([0.0, 0.0, -self.radius]))

    def row_names(self) -> tuple[str, ...]:
        return _CONTACT


class Skate(AbstractConstraint):
    """A blade at the origin of `second` that does not move sideways in the x-y plane of `first`.

    It may leave the plane, lean and turn; add a `PointOnPlane` or a `Planar` joint to keep it there.

    **Arguments:**

    - `direction`: of the blade, in the second marker; "x", "y", "z" or a vector. It must not be upright.
    """

    direction: Array = eqx.field(converter=as_axis, default="x")
    nh: ClassVar[int] = 0
    nn: ClassVar[int] = 1

    def pfaff(self, t: Array, x: Pose, xd: Array) -> Array:
        blade = matvec(x.rotation, unit(self.direction))
        along = length_and_direction(blade[:2])[1]
        velocity = matvec(x.rotation, xd[3:])
        return dot(stack([-along[1], along[0]]), velocity[:2])[None]

    def row_names(self) -> tuple[str, ...]:
        return ("sideways",)
