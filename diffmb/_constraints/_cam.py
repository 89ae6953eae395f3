"""A roller on a cam: the profile is fixed in the x-y plane of the first marker, the roller's centre is the origin of
the second.

With d(p) the distance of the roller's centre p from the profile (`_profile.py`), n the outward normal at the contact
and tau = (-n_y, n_x) the tangent, v = R V_lin the velocity of the centre and w = R V_ang the spin of the roller,

    CamContact          d(p) - r = 0                       lam: the normal force
    RollingOnProfile    d(p) - r = 0
                        tau . v - r w_z = 0                lam: the friction force

The second is tau . (v + w x l) with l = -r n. Sol 1983, (9.1.1) and (9.1.2): cam and roller of an injection pump. The
rows say nothing about motion along z or about the attitude of the roller: joints keep it in the plane. Where two
pieces of a C1 profile meet, the curvature jumps, and with it the accelerations.
"""

from typing import ClassVar

import equinox as eqx
from jax import Array

from .._errors import MechanismError
from .._joints._lift import lift
from .._spatial._axis import as_array
from .._spatial._pose import Pose
from .._spatial._vector import matvec
from ._abstract import AbstractConstraint
from ._numbers import check_length
from ._profile import AbstractProfile


def _as_profile(value) -> AbstractProfile:
    if not isinstance(value, AbstractProfile):
        raise MechanismError(f"{value!r} is no profile; give ArcsAndLines, SplineProfile or one that you write")
    return value


def _gap(profile: AbstractProfile, radius: Array, p: Array) -> Array:
    return (profile.contact(p)[0] - radius)[None]


def _slip(profile: AbstractProfile, radius: Array, p: Array, velocity: Array, spin: Array) -> Array:
    normal = profile.contact(p)[1]
    return (normal[0] * velocity[1] - normal[1] * velocity[0] - radius * spin)[None]


class CamContact(AbstractConstraint):
    """Keeps a roller on a profile; it may slip.

    **Arguments:**

    - `profile`: an `AbstractProfile` in the x-y plane of the first marker.
    - `radius`: of the roller, m; zero for a knife edge, that is, a point on the profile. In a hollow of the profile it
        must be smaller than the hollow's radius.
    """

    profile: AbstractProfile = eqx.field(converter=_as_profile)
    radius: Array = eqx.field(converter=as_array, default=0.0)
    nh: ClassVar[int] = 1
    nn: ClassVar[int] = 0

    def __check_init__(self):
        check_length(f"CamContact {self.name!r}", "radius", self.radius, least=0.0)

    def phi(self, t: Array, x: Pose) -> Array:
        return lift(_gap, x.translation.ndim - 1, self.profile, self.radius, x.translation[:2])

    def row_names(self) -> tuple[str, ...]:
        return ("contact",)


class RollingOnProfile(AbstractConstraint):
    """Keeps a roller on a profile, and lets it roll there without slip; it turns about the z axis of `first`.

    **Arguments:**

    - `profile`, `radius`: as for `CamContact`, the radius above zero.
    """

    profile: AbstractProfile = eqx.field(converter=_as_profile)
    radius: Array = eqx.field(converter=as_array)
    nh: ClassVar[int] = 1
    nn: ClassVar[int] = 1

    def __check_init__(self):
        check_length(f"RollingOnProfile {self.name!r}", "radius", self.radius)

    def phi(self, t: Array, x: Pose) -> Array:
        return lift(_gap, x.translation.ndim - 1, self.profile, self.radius, x.translation[:2])

    def pfaff(self, t: Array, x: Pose, xd: Array) -> Array:
        velocity, spin = matvec(x.rotation, xd[3:])[:2], matvec(x.rotation, xd[:3])[2]
        return lift(_slip, xd.ndim - 1, self.profile, self.radius, x.translation[:2], velocity, spin)

    def row_names(self) -> tuple[str, ...]:
        return ("contact", "slip")
