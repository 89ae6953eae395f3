"""Point on a curve: the origin of the child marker follows a curve c, without turning.

    X = (I, c(q, params))        S = (0, c'(q))        b = (0, c''(q)) v^2

The speed is the rate of the curve's parameter; it is the speed along the curve, in m/s, when that is its arc length.
The joint loses its freedom where c' = 0. For a child that turns with the curve, or freely about it, write a `Hinge`, or
put a massless body and a `Spherical` or `Revolute` joint behind this one.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from .._errors import MechanismError
from .._spatial._pose import Pose
from ._abstract import AbstractJoint
from ._lift import as_component, as_params, check_function, lift


class PointOnCurve(AbstractJoint):
    """Slides along a curve that is fixed in the parent marker; coordinate: the curve's parameter.

    **Arguments:**

    - `curve`: `c(s, params)` for a scalar s, a point (3,) in the parent marker, m; twice differentiable. The markers
        coincide at q = 0 only if c(0) = 0.
    - `params`: numbers that `curve` uses, in any tree; they are differentiable, unlike those that `curve` closes over.
    """

    curve: Callable = eqx.field(static=True)
    params: Any = eqx.field(converter=as_params, default=None)
    nq: ClassVar[int] = 1
    nv: ClassVar[int] = 1

    def __check_init__(self):
        check_function(f"PointOnCurve {self.name!r}", self.curve, self._sample, 1, self.params)

    def _sample(self, q: Array, t: Array, params: Any) -> Pose:
        point = as_component(self.curve(q[0], params), q)
        if point.shape != (3,):
            raise MechanismError(
                f"the curve of PointOnCurve {self.name!r} returns shape {point.shape}; expected (3,) for a scalar s"
            )
        return Pose(jnp.eye(3, dtype=point.dtype), point)

    def pose(self, q: Array, t: Array) -> Pose:
        return lift(self._sample, q.ndim - 1, q, t, self.params)
