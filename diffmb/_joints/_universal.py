"""Universal (Hooke's, Cardan) joint: rotation by q_1 about the axis a_1, then by q_2 about the turned axis a_2.

X = (R(a_1, q_1) R(a_2, q_2), 0)
S = [(u, 0)  (a_2, 0)]            u = R(a_2, q_2)^T a_1: the first axis seen by the child
b = (u x a_2  v_1 v_2, 0)         since ud = u x a_2 v_2
"""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._errors import MechanismError
from .._spatial._axis import as_axis, is_concrete
from .._spatial._pose import Pose, rotation_about
from .._spatial._vector import cross, dot, join, matmul, matvec, stack, unit, vecmat
from ._abstract import AbstractJoint
from ._rows import PLACE


class Universal(AbstractJoint):
    """Turns about `axis1`, fixed in the parent marker, and about `axis2`, fixed in the child marker.

    Coordinates: two angles in rad. The axes are usually perpendicular; they must not be parallel.
    """

    axis1: Array = eqx.field(converter=as_axis, default="x")
    axis2: Array = eqx.field(converter=as_axis, default="y")
    nq: ClassVar[int] = 2
    nv: ClassVar[int] = 2

    def __check_init__(self):
        if is_concrete(self.axis1, self.axis2):
            first, second = np.asarray(self.axis1), np.asarray(self.axis2)
            if np.linalg.norm(np.cross(first, second)) < 1e-6:
                raise MechanismError(
                    f"the axes of joint {self.name!r} are parallel ({first.tolist()}, {second.tolist()}), so its two "
                    "angles are one; give two different axes or use Revolute"
                )

    def _axes(self, q: Array) -> tuple[Array, Array]:
        """u and a_2."""
        second = unit(self.axis2)
        return vecmat(unit(self.axis1), rotation_about(second, q[1])), second

    def pose(self, q: Array, t: Array) -> Pose:
        rotation = matmul(rotation_about(unit(self.axis1), q[0]), rotation_about(unit(self.axis2), q[1]))
        return Pose(rotation, jnp.zeros_like(rotation[0]))

    def subspace(self, q: Array, t: Array) -> Array:
        spin = stack(self._axes(q), 1)
        return join(spin, jnp.zeros_like(spin))

    def twist(self, q: Array, v: Array, t: Array) -> Array:
        first, second = self._axes(q)
        spin = first * v[0] + second * v[1]
        return join(spin, jnp.zeros_like(spin))

    def bias(self, q: Array, v: Array, t: Array) -> Array:
        spin = cross(*self._axes(q)) * (v[0] * v[1])
        return join(spin, jnp.zeros_like(spin))

    def constraint(self, rel: Pose, t: Array) -> Array:
        first, second = unit(self.axis1), unit(self.axis2)
        angle = dot(first, matvec(rel.rotation, second)) - dot(first, second)
        return join(angle[None], rel.translation)

    def row_names(self) -> tuple[str, ...]:
        return ("angle of the axes",) + PLACE
