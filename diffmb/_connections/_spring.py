"""Spring and damper along the line of two points.

With p from the first origin to the second, r = |p| its length and d = p / r,

    force on the second = -(k (r - length) + c rd) d        E = k (r - length)^2 / 2        D = c rd^2

written as -(k p - (k length - c rd) d), which is exact to every derivative where length = 0 and the origins meet.
"""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from .._constraints._geometry import length_and_direction
from .._spatial._axis import as_array
from .._spatial._pose import Pose
from .._spatial._vector import dot, join, vecmat
from ._abstract import AbstractConnection
from ._numbers import Quantity, check_numbers


class SpringDamper(AbstractConnection):
    """Pulls the origins of the markers together with the tension k (r - length) + c rd.

    Where the origins coincide the line has no direction: there is no force then, whatever the `length`.

    **Arguments:**

    - `k`: stiffness, N/m, zero or more.
    - `c`: damping, N s/m, zero or more.
    - `length`: free length, m.
    """

    k: Array = eqx.field(converter=as_array)
    c: Array = eqx.field(converter=as_array, default=0.0)
    length: Array = eqx.field(converter=as_array, default=0.0)
    batch_last: ClassVar[bool] = True

    def __check_init__(self):
        title = f"SpringDamper {self.name!r}"
        check_numbers(title, self, k=Quantity("N/m", least=0.0), c=Quantity("N s/m", least=0.0), length=Quantity("m"))

    def _line(self, x: Pose, xd: Array) -> tuple[Array, Array, Array]:
        """p and d in the second marker's axes, and rd."""
        p = vecmat(x.translation, x.rotation)
        d = length_and_direction(p)[1]
        return p, d, dot(d, xd[3:])

    def load(self, t: Array, x: Pose, xd: Array, z: Array, u: Array) -> Array:
        p, d, rate = self._line(x, xd)
        force = (self.k * self.length - self.c * rate) * d - self.k * p
        return join(jnp.zeros_like(force), force)

    def energy(self, t: Array, x: Pose, z: Array) -> Array:
        square, r = dot(x.translation, x.translation), length_and_direction(x.translation)[0]
        met = jnp.where(square == 0.0, square, 0.0)  # zero; gives the curvature that r has not where the origins meet
        return 0.5 * self.k * ((r - self.length) * (r - self.length) + met)

    def dissipation(self, t: Array, x: Pose, xd: Array, z: Array, u: Array) -> Array:
        rate = self._line(x, xd)[2]
        return self.c * rate * rate
