"""A point of one body held by geometry of another: p is the origin of the second marker in the first.

    Distance          |p| - length = 0                     lam: the force in a massless rod
    PointOnLine       n_i . p = 0, i = 1, 2                n_1, n_2: unit vectors that complete the axis
    PointOnPlane      n . p = 0                            n: unit normal
    PointOnSurface    f(p, params) = 0
    PointOnPath       n_i . (p - c(s)) = 0, i = 1, 2       c'(s) . (p - c(s)) = 0 gives s;  n_1, n_2 complete c'(s)

The rows of all but `PointOnSurface` are lengths along unit vectors, so that their multipliers are forces.
The n_i of a path turn with c'(s) and are differentiated with it, so the rows are functions of p that have every
derivative; where another coordinate axis becomes the one least along c', n_1 and n_2 turn about it in one jump.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import numpy as np
from jax import Array

from .._errors import MechanismError
from .._joints._lift import as_component, as_params, lift
from .._joints._rows import SIDE, across, no_side
from .._spatial._axis import as_array, as_axis
from .._spatial._pose import Pose
from .._spatial._vector import dot, matvec, unit
from ._abstract import AbstractConstraint
from ._geometry import length_and_direction, nearest, point_and_velocity
from ._numbers import check_length, check_sample, example


class Distance(AbstractConstraint):
    """Keeps the origins of the markers `length` (m, above zero) apart, like a rod without mass on two ball joints.

    The rod has no direction, and its row no derivative, where the origins coincide.
    """

    length: Array = eqx.field(converter=as_array)
    nh: ClassVar[int] = 1
    nn: ClassVar[int] = 0

    def __check_init__(self):
        check_length(f"Distance {self.name!r}", "length", self.length)

    def phi(self, t: Array, x: Pose) -> Array:
        return (length_and_direction(x.translation)[0] - self.length)[None]

    def row_names(self) -> tuple[str, ...]:
        return ("distance",)


class PointOnLine(AbstractConstraint):
    """Keeps the origin of `second` on the line through the origin of `first` along `axis` (in its frame)."""

    axis: Array = eqx.field(converter=as_axis, default="x")
    nh: ClassVar[int] = 2
    nn: ClassVar[int] = 0

    def phi(self, t: Array, x: Pose) -> Array:
        return no_side(x, unit(self.axis))

    def row_names(self) -> tuple[str, ...]:
        return SIDE


class PointOnPlane(AbstractConstraint):
    """Keeps the origin of `second` in the plane through the origin of `first` across `normal` (in its frame)."""

    normal: Array = eqx.field(converter=as_axis, default="z")
    nh: ClassVar[int] = 1
    nn: ClassVar[int] = 0

    def phi(self, t: Array, x: Pose) -> Array:
        return dot(unit(self.normal), x.translation)[None]

    def row_names(self) -> tuple[str, ...]:
        return ("off the plane",)


class PointOnSurface(AbstractConstraint):
    """Keeps the origin of `second` on a surface that is fixed in `first`.

    **Arguments:**

    - `surface`: `f(point, params)` for one point (3,), m, in the first marker: zero on the surface, smooth, with a
        gradient that does not vanish there. The multiplier is a force where the gradient has length one.
    - `params`: numbers that `surface` uses, in any tree; they are differentiable, unlike those that it closes over.
    """

    surface: Callable = eqx.field(static=True)
    params: Any = eqx.field(converter=as_params, default=None)
    nh: ClassVar[int] = 1
    nn: ClassVar[int] = 0

    def __check_init__(self):
        title = f"PointOnSurface {self.name!r}"
        check_sample(title, self.surface, self.surface, (*example((3,)), self.params), ())

    def phi(self, t: Array, x: Pose) -> Array:
        sample = lambda point, params: as_component(self.surface(point, params), point)[None]
        return lift(sample, x.translation.ndim - 1, x.translation, self.params)

    def row_names(self) -> tuple[str, ...]:
        return ("off the surface",)


def _as_span(value: Any) -> tuple[float, ...]:
    return tuple(float(end) for end in value)


class PointOnPath(AbstractConstraint):
    """Keeps the origin of `second` on a curve that is fixed in `first`, and leaves it free to turn.

    **Arguments:**

    - `curve`: `c(s, params)` for a scalar s, a point (3,), m, in the first marker; three times differentiable, c' not
        zero.
    - `params`: numbers that `curve` uses, in any tree; they are differentiable, unlike those that `curve` closes over.
    - `span`: the first and the last s of the search for the nearest point, static: one period of a closed curve, or
        the part of an open one that the point visits.
    - `samples`: how many places in the span the search begins with. They must tell the nearest branch of the curve
        from the others: their spacing should be below the smallest radius of curvature.
    """

    curve: Callable = eqx.field(static=True)
    params: Any = eqx.field(converter=as_params, default=None)
    span: tuple[float, ...] = eqx.field(static=True, converter=_as_span, default=(0.0, 1.0))
    samples: int = eqx.field(static=True, default=64)
    nh: ClassVar[int] = 2
    nn: ClassVar[int] = 0

    def __check_init__(self):
        title = f"PointOnPath {self.name!r}"
        if len(self.span) != 2 or not np.isfinite(self.span).all() or not self.span[0] < self.span[1]:
            raise MechanismError(f"{title} has span={self.span}; give the first s and a larger last s of the search")
        if self.samples < 2:
            raise MechanismError(f"{title} has samples={self.samples}; give 2 or more")
        check_sample(title, self.curve, self.curve, (*example(()), self.params), (3,))

    def _sample(self, p: Array, params: Any) -> Array:
        s = nearest(self.curve, (self.span[0], self.span[1], self.samples), params, p)
        foot, velocity = point_and_velocity(self.curve, s, params)
        return matvec(across(unit(velocity)), p - foot)

    def phi(self, t: Array, x: Pose) -> Array:
        return lift(self._sample, x.translation.ndim - 1, x.translation, self.params)

    def row_names(self) -> tuple[str, ...]:
        return SIDE
