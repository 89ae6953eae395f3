"""A marker that moves against another as a function of time says: all six coordinates prescribed.

    vee(skew part of W^T R) = 0       W(t), w(t): the wanted rotation and translation of the second marker in the first
    p - w = 0                         lam: the moment and the force that this takes, with the opposite sign

Sol 1983, ch. 6: prescribed attitude coordinates. The first three rows vanish half a turn away from W too.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
from jax import Array

from .._joints._lift import as_params, as_pose, lift
from .._joints._rows import PLACE, TURN, no_turn
from .._spatial._pose import Pose
from .._spatial._vector import join, matmul, transpose
from ._abstract import AbstractConstraint
from ._numbers import check_sample, example


class PrescribedPose(AbstractConstraint):
    """Moves `second` in `first` as the function `pose` says.

    **Arguments:**

    - `pose`: `f(t, params)` for a scalar t. It returns a `Pose`, or the tuple (rotation (3, 3), translation (3,)), of
        the second marker in the first, and must be smooth.
    - `params`: numbers that `pose` uses, in any tree; they are differentiable, unlike those that `pose` closes over.
    """

    pose: Callable = eqx.field(static=True)
    params: Any = eqx.field(converter=as_params, default=None)
    nh: ClassVar[int] = 6
    nn: ClassVar[int] = 0

    def __check_init__(self):
        title = f"PrescribedPose {self.name!r}"
        check_sample(title, self.pose, lambda *args: self._wanted(*args).translation, (*example(()), self.params), (3,))

    def _wanted(self, t: Array, params: Any) -> Pose:
        return as_pose(f"PrescribedPose {self.name!r}", self.pose(t, params), t)

    def phi(self, t: Array, x: Pose) -> Array:
        wanted = lift(self._wanted, x.translation.ndim - 1, t, self.params)
        turned = matmul(transpose(wanted.rotation), x.rotation)
        return join(no_turn(Pose(turned, x.translation)), x.translation - wanted.translation)

    def row_names(self) -> tuple[str, ...]:
        return TURN + PLACE
