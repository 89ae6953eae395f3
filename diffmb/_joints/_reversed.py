"""A joint walked from its child to its parent, with the same coordinates and speeds.

    Xr = X^-1        Vr = -Ad V        Sr = -Ad S        br = -Ad b                    Ad = Ad(X)

since Xr^-1 Xrd = -Xd X^-1 = -X (X^-1 Xd) X^-1, and Ad' = Ad ad(V) adds nothing to the bias: ad(V) V = 0.
"""

import equinox as eqx
from jax import Array

from .._spatial._pose import Pose
from .._spatial._twist import carry_columns, carry_motion
from ._abstract import AbstractJoint, kind_of


class Reversed(AbstractJoint):
    """`inner` seen from the other side: its child marker is the parent here. Made by `reverse`."""

    inner: AbstractJoint = eqx.field(converter=kind_of)

    @property
    def nq(self) -> int:
        return self.inner.nq

    @property
    def nv(self) -> int:
        return self.inner.nv

    def pose(self, q: Array, t: Array) -> Pose:
        return self.inner.pose(q, t).inverse()

    def twist(self, q: Array, v: Array, t: Array) -> Array:
        return -carry_motion(self.inner.pose(q, t), self.inner.twist(q, v, t))

    def subspace(self, q: Array, t: Array) -> Array:
        return -carry_columns(self.inner.pose(q, t), self.inner.subspace(q, t))

    def bias(self, q: Array, v: Array, t: Array) -> Array:
        return -carry_motion(self.inner.pose(q, t), self.inner.bias(q, v, t))

    def qdot(self, q: Array, v: Array) -> Array:
        return self.inner.qdot(q, v)

    def retract(self, q: Array, step: Array) -> Array:
        return self.inner.retract(q, step)

    def difference(self, start: Array, end: Array) -> Array:
        return self.inner.difference(start, end)

    def unit(self, q: Array) -> Array:
        return self.inner.unit(q)

    def neutral(self) -> Array:
        return self.inner.neutral()

    def constraint(self, rel: Pose, t: Array) -> Array:
        return self.inner.constraint(rel.inverse(), t)

    def row_names(self) -> tuple[str, ...]:
        return self.inner.row_names()


def reverse(joint: AbstractJoint) -> Reversed:
    """The same connection with parent and child exchanged."""
    return Reversed(joint.name, joint.child, joint.parent, inner=joint, cut=joint.cut)
