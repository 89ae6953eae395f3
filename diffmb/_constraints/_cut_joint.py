"""A joint that closes a loop: its coordinates are not part of q, its 6 - nv rows are constraints instead."""

import equinox as eqx
from jax import Array

from .._joints._abstract import AbstractJoint, kind_of
from .._spatial._pose import Pose
from ._abstract import AbstractConstraint


class CutJoint(AbstractConstraint):
    """Holds the markers as `joint` allows. Made when a mechanism is compiled."""

    joint: AbstractJoint = eqx.field(converter=kind_of)

    @property
    def nh(self) -> int:
        return 6 - self.joint.nv

    @property
    def nn(self) -> int:
        return 0

    def phi(self, t: Array, x: Pose) -> Array:
        return self.joint.constraint(x, t)

    def row_names(self) -> tuple[str, ...]:
        return self.joint.row_names()


def cut(joint: AbstractJoint) -> CutJoint:
    return CutJoint(joint.name, joint.parent, joint.child, joint)
