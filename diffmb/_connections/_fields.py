"""Fields that act at a marker's origin p, seen in the first marker, and the drag of air or water.

    UniformField    F = f                                        E = -f . p
    PointField      F = -m p / (p . p + a^2)^(3/2)               E = -m / sqrt(p . p + a^2)
    Drag            F = -(c + b |w|) w,    w = v - wind          D = (c + b |w|) w . w,    supply = F . wind

Gravity of the ground is in the mechanism. Take "world" as the first marker unless the field moves with a body.
"""

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from .._constraints._geometry import length_and_direction
from .._spatial._axis import as_array
from .._spatial._pose import Pose
from .._spatial._vector import dot, join, vecmat
from ._abstract import AbstractConnection
from ._numbers import Quantity, check_numbers


class UniformField(AbstractConnection):
    """A constant force at the second origin: weight in another field, buoyancy, a dead load.

    **Arguments:**

    - `force`: in the first marker's axes (3,), N.
    """

    force: Array = eqx.field(converter=as_array)

    def __check_init__(self):
        check_numbers(f"UniformField {self.name!r}", self, force=Quantity("N", shape=(3,)))

    def strain(self, t: Array, x: Pose) -> Array:
        return x.translation

    def load(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return self.force

    def energy(self, t: Array, e: Array, z: Array) -> Array:
        return -self.force @ e


class PointField(AbstractConnection):
    """The first origin attracts the second with the inverse square of their distance.

    **Arguments:**

    - `strength`: force times distance squared, N m^2: positive attracts, negative repels.
    - `core`: distance within which the field softens, m, zero or more; with zero the origins must not meet.
    """

    strength: Array = eqx.field(converter=as_array)
    core: Array = eqx.field(converter=as_array, default=0.0)

    def __check_init__(self):
        title = f"PointField {self.name!r}"
        check_numbers(title, self, strength=Quantity("N m^2"), core=Quantity("m", least=0.0))

    def strain(self, t: Array, x: Pose) -> Array:
        return x.translation

    def load(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return -self.strength * e * (e @ e + self.core * self.core) ** -1.5

    def energy(self, t: Array, e: Array, z: Array) -> Array:
        return -self.strength * (e @ e + self.core * self.core) ** -0.5


class Drag(AbstractConnection):
    """Drag at the second origin against its velocity relative to the wind: linear and quadratic.

    **Arguments:**

    - `quadratic`: N s^2/m^2, zero or more: half the density times drag coefficient times area.
    - `linear`: N s/m, zero or more.
    - `wind`: velocity of the air (3,) in the first marker's axes, m/s.
    """

    quadratic: Array = eqx.field(converter=as_array)
    linear: Array = eqx.field(converter=as_array, default=0.0)
    wind: Array = eqx.field(converter=as_array, default=(0.0, 0.0, 0.0))

    def __check_init__(self):
        c, b, wind = Quantity("N s/m", least=0.0), Quantity("N s^2/m^2", least=0.0), Quantity("m/s", shape=(3,))
        check_numbers(f"Drag {self.name!r}", self, linear=c, quadratic=b, wind=wind)

    def _flow(self, x: Pose, xd: Array) -> tuple[Array, Array, Array]:
        """Force, w and the wind, in the second marker's axes."""
        wind = vecmat(self.wind, x.rotation)
        w = xd[3:] - wind
        return -(self.linear + self.quadratic * length_and_direction(w)[0]) * w, w, wind

    def load(self, t: Array, x: Pose, xd: Array, z: Array, u: Array) -> Array:
        force = self._flow(x, xd)[0]
        return join(jnp.zeros_like(force), force)

    def dissipation(self, t: Array, x: Pose, xd: Array, z: Array, u: Array) -> Array:
        force, w, _ = self._flow(x, xd)
        return -dot(force, w)

    def supply(self, t: Array, x: Pose, xd: Array, z: Array, u: Array) -> Array:
        force, _, wind = self._flow(x, xd)
        return dot(force, wind)
