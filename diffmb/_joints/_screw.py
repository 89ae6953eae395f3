"""Screw: rotation by the angle q about a fixed axis a, with p metres of translation along it per radian.

    X = (R(a, q), a p q)        S = (a, a p)

The axis is an eigenvector of R, so S does not change. A thread of lead l (metres per turn) has p = l / (2 pi).
"""

from typing import ClassVar

import equinox as eqx
from jax import Array

from .._errors import MechanismError
from .._spatial._axis import as_array, as_axis
from .._spatial._pose import Pose, rotation_about
from .._spatial._twist import axial
from .._spatial._vector import dot, join, unit
from ._abstract import AbstractConstantJoint
from ._rows import SIDE, TILT, no_side, no_tilt


class Screw(AbstractConstantJoint):
    """Turns about `axis` and slides along it; coordinate: angle in rad.

    **Arguments:**

    - `axis`: "x", "y", "z" or a vector in the marker's frame.
    - `pitch`: translation per radian, m/rad; positive for a right-handed thread.
    """

    axis: Array = eqx.field(converter=as_axis, default="z")
    pitch: Array = eqx.field(converter=as_array, kw_only=True)
    nq: ClassVar[int] = 1
    nv: ClassVar[int] = 1

    def __check_init__(self):
        if self.pitch.shape != ():
            raise MechanismError(
                f"the pitch of joint {self.name!r} has shape {self.pitch.shape}; give one number, metres per radian"
            )

    def pose(self, q: Array, t: Array) -> Pose:
        axis = unit(self.axis)
        return Pose(rotation_about(axis, q[0]), axis * (self.pitch * q[0]))

    def constant_subspace(self) -> Array:
        axis = unit(self.axis)
        return join(axis, axis * self.pitch)[:, None]

    def constraint(self, rel: Pose, t: Array) -> Array:
        axis = unit(self.axis)
        wanted = rotation_about(axis, dot(axis, rel.translation) / self.pitch)
        slip = dot(axis, axial(rel.rotation, wanted)) * self.pitch
        return join(no_tilt(rel, axis), no_side(rel, axis), slip[None])

    def row_names(self) -> tuple[str, ...]:
        return TILT + SIDE + ("thread",)
