"""Drives: a joint coordinate, or the value of a constraint, prescribed as a function of time.

    position         phi(t, x) - f(t) = 0                      and its two time derivatives
    velocity         rate(t, x, xd) - f(t) = 0                 and its time derivative
    acceleration     acceleration(t, x, xd, xdd) - f(t) = 0

with phi = q_k for a coordinate. The row's multiplier is the load: M vd + c + G^T lam = tau, so -lam is the generalised
load that the drive puts on the coordinate (or on the value of the constraint), and -lam f' its power. All coordinates
driven is inverse dynamics, some of them mixed dynamics (Sol 1983, ch. 6).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from .._errors import MechanismError
from .._joints._lift import as_component, as_params, lift
from ._abstract import AbstractElement
from ._numbers import count_rows, example

if TYPE_CHECKING:
    from typing import ClassVar as AbstractClassVar  # equinox's own is an instance variable to pyright
else:
    from equinox import AbstractClassVar


class AbstractDrive(eqx.Module):
    """What is prescribed, and the function of time.

    **Arguments:**

    - `name`: the drive's name, unique in the mechanism.
    - `target`: the name of a joint with all its coordinates, a pair (joint, number of the coordinate), or the name of
        a constraint or coupling, whose rows then equal the function instead of zero.
    - `function`: `f(t, params)` for a scalar t, smooth; a number, or as many as the target has.
    - `params`: numbers that `function` uses, in any tree; differentiable.
    """

    name: str = eqx.field(static=True)
    target: str | tuple[str, int] = eqx.field(static=True)
    function: Callable = eqx.field(static=True)
    params: Any = eqx.field(converter=as_params, default=None)

    level: AbstractClassVar[int]

    def __check_init__(self):
        pair = isinstance(self.target, tuple) and len(self.target) == 2 and isinstance(self.target[0], str)
        if not isinstance(self.target, str) and not (pair and isinstance(self.target[1], int)):
            raise MechanismError(
                f"drive {self.name!r} has target {self.target!r}; give a joint, a pair (joint, number) or a constraint"
            )
        self.count()

    def count(self) -> int:
        """How many numbers the function gives."""
        return count_rows(f"drive {self.name!r}", self.function, (*example(()), self.params))


class PositionDrive(AbstractDrive):
    """Prescribes a coordinate, or the value of a constraint: q(t) = f(t)."""

    level: ClassVar[int] = 0


class VelocityDrive(AbstractDrive):
    """Prescribes a speed: v(t) = f(t). The coordinate follows from where it starts."""

    level: ClassVar[int] = 1


class AccelerationDrive(AbstractDrive):
    """Prescribes an acceleration: vd(t) = f(t). Position and speed follow from where they start."""

    level: ClassVar[int] = 2


class Driven(AbstractElement):
    """`inner` with its rows equal to `function(t, params)` at position (0), velocity (1) or acceleration (2) level."""

    inner: AbstractElement
    function: Callable = eqx.field(static=True)
    level: int = eqx.field(static=True)
    params: Any

    @property
    def rows(self) -> int:
        return self.inner.nh + self.inner.nn

    @property
    def nh(self) -> int:
        return self.inner.nh if self.level == 0 else 0

    @property
    def nn(self) -> int:
        return {0: self.inner.nn, 1: self.rows, 2: 0}[self.level]

    @property
    def na(self) -> int:
        return self.rows if self.level == 2 else 0

    def flow(self, x: Any, xd: Array) -> Any:
        return self.inner.flow(x, xd)

    def _wanted(self, t: Array, like: Array) -> Array:
        def sample(t, params):
            return jnp.atleast_1d(as_component(self.function(t, params), like))

        return lift(sample, like.ndim - 1, t, self.params)

    def phi(self, t: Array, x: Any) -> Array:
        value = self.inner.phi(t, x)
        return value - self._wanted(t, value) if self.level == 0 else value[:0]

    def pfaff(self, t: Array, x: Any, xd: Array) -> Array:
        if self.level == 0:
            return self.inner.pfaff(t, x, xd)
        value = self.inner.rate(t, x, xd)
        return value - self._wanted(t, value) if self.level == 1 else value[:0]

    def acceleration(self, t: Array, x: Any, xd: Array, xdd: Array) -> Array:
        if self.level < 2:
            return super().acceleration(t, x, xd, xdd)
        value = self.inner.acceleration(t, x, xd, xdd)
        return value - self._wanted(t, value)

    def row_names(self) -> tuple[str, ...]:
        return self.inner.row_names()
