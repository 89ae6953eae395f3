"""Schoenmakers' joint: rotation by q_1 about an axis h and translation by q_2 along another axis d.

    X = (R(h, q_1), d q_2)
    S = [(h, 0)  (0, u)]              u = R(h, q_1)^T d: the slide seen by the child
    b = (0, u x h  v_1 v_2)           since ud = u x h v_1

Schoenmakers 1991, sec. 2.1 (after Bae, Kim and Haug): body j turns by theta about h and its attachment point lies at
a d, with the unit vectors h and d both fixed to body i. So the child slides along a direction that does not turn with
it, and turns where it has arrived. With h = d it is the cylindrical joint.
"""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from .._spatial._axis import as_axis
from .._spatial._pose import Pose, rotation_about
from .._spatial._vector import cross, join, stack, unit, vecmat
from ._abstract import AbstractJoint
from ._rows import SIDE, TILT, no_side, no_tilt


class RotationTranslation(AbstractJoint):
    """Slides along `slide` and turns about `axis`, both fixed in the parent marker ("x", "y", "z" or a vector).

    Coordinates: angle in rad, way in m; the speeds are their rates.
    """

    axis: Array = eqx.field(converter=as_axis, default="z")
    slide: Array = eqx.field(converter=as_axis, default="x")
    nq: ClassVar[int] = 2
    nv: ClassVar[int] = 2

    def _axes(self, q: Array) -> tuple[Array, Array]:
        """u and h."""
        axis = unit(self.axis)
        return vecmat(unit(self.slide), rotation_about(axis, q[0])), axis

    def pose(self, q: Array, t: Array) -> Pose:
        return Pose(rotation_about(unit(self.axis), q[0]), unit(self.slide) * q[1])

    def subspace(self, q: Array, t: Array) -> Array:
        slide, axis = self._axes(q)
        zero = jnp.zeros_like(slide)
        return stack([join(axis, zero), join(zero, slide)], 1)

    def twist(self, q: Array, v: Array, t: Array) -> Array:
        slide, axis = self._axes(q)
        return join(axis * v[0], slide * v[1])

    def bias(self, q: Array, v: Array, t: Array) -> Array:
        rate = cross(*self._axes(q)) * (v[0] * v[1])
        return join(jnp.zeros_like(rate), rate)

    def constraint(self, rel: Pose, t: Array) -> Array:
        return join(no_tilt(rel, unit(self.axis)), no_side(rel, unit(self.slide)))

    def row_names(self) -> tuple[str, ...]:
        return TILT + SIDE
