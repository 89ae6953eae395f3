"""Contact that gives way: sphere or disc on a plane, sphere on sphere (Hunt and Crossley 1975).

At the point of contact, with depth d, normal m, the velocity v of the second body's point relative to the first, its
closing speed dd = -m . v and slip w = v + dd m:

    N = k d^n s(c dd)          as in `_one_sided_laws.py`: never pulls, E = k d^(n + 1) / (n + 1)
    f = N m - mu N w / sqrt(w . w + slip^2)               D = heat of N + mu N w . w / sqrt(w . w + slip^2)

Nothing jumps: load and first derivatives are continuous at touch (exponent above 1) and at zero slip.
"""

from abc import abstractmethod

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from .._constraints._geometry import length_and_direction
from .._errors import MechanismError
from .._spatial._axis import as_array
from .._spatial._pose import Pose
from .._spatial._vector import cross, dot, join, vecmat
from ._abstract import AbstractConnection
from ._numbers import LENGTH, Quantity, check_numbers
from ._one_sided_laws import PRESS, press_energy, press_heat, press_load


class ContactLaw(eqx.Module):
    """How hard the surfaces are, and how they rub.

    **Arguments:**

    - `k`: stiffness, N/m^n, zero or more.
    - `c`: damping, s/m: on approach the load grows by the factor 1 + c dd; restitution is about 1 - (2/3) c speed.
    - `n`: exponent, 1 or more: 3/2 for bodies that touch in a point (Hertz).
    - `mu`: coefficient of friction, zero or more.
    - `slip`: slip speed below which friction is smoothed, m/s, above zero.
    """

    k: Array = eqx.field(converter=as_array)
    c: Array = eqx.field(converter=as_array, default=0.0)
    n: Array = eqx.field(converter=as_array, default=1.5)
    mu: Array = eqx.field(converter=as_array, default=0.0)
    slip: Array = eqx.field(converter=as_array, default=1e-3)

    def check(self, title: str) -> None:
        mu, slip = Quantity("(a pure number)", least=0.0), Quantity("m/s", above=0.0)
        check_numbers(f"the law of {title}", self, **PRESS, mu=mu, slip=slip)

    def rubbed(self, w: Array) -> Array:
        """Friction over normal load."""
        return self.mu * w / jnp.sqrt(dot(w, w) + self.slip * self.slip)


class AbstractContact(AbstractConnection):
    """Contact of two surfaces."""

    law: eqx.AbstractVar[ContactLaw]

    @abstractmethod
    def touch(self, x: Pose) -> tuple[Array, Array, Array]:
        """(d, m, arm): depth, normal towards the second body, and the point of contact from the second origin, both
        in the second marker's axes."""

    def _meet(self, x: Pose, xd: Array) -> tuple[Array, Array, Array, Array, Array]:
        """d, dd, m, w and arm."""
        d, m, arm = self.touch(x)
        v = xd[3:] + cross(xd[:3], arm)
        dd = -dot(m, v)
        return d, dd, m, v + dd * m, arm

    def load(self, t: Array, x: Pose, xd: Array, z: Array, u: Array) -> Array:
        d, dd, m, w, arm = self._meet(x, xd)
        force = press_load(self.law.k, self.law.n, self.law.c, d, dd) * (m - self.law.rubbed(w))
        return join(cross(arm, force), force)

    def energy(self, t: Array, x: Pose, z: Array) -> Array:
        return press_energy(self.law.k, self.law.n, self.touch(x)[0])

    def dissipation(self, t: Array, x: Pose, xd: Array, z: Array, u: Array) -> Array:
        law, (d, dd, _, w, _) = self.law, self._meet(x, xd)
        rubbing = press_load(law.k, law.n, law.c, d, dd) * dot(law.rubbed(w), w)
        return press_heat(law.k, law.n, law.c, d, dd) + rubbing


def _check(contact: AbstractContact, **radii: Quantity) -> None:
    title = f"{type(contact).__name__} {contact.name!r}"
    check_numbers(title, contact, **radii)
    if not isinstance(contact.law, ContactLaw):
        raise MechanismError(f"the law of {title} is {contact.law!r}; give mb.ContactLaw(k=1e5, c=0.3, mu=0.5), say")
    contact.law.check(title)


class SphereOnPlane(AbstractContact):
    """A sphere about the second origin, on the xy plane of the first marker; z points to the free side.

    **Arguments:**

    - `radius`: m, above zero.
    - `law`: a `ContactLaw`.
    """

    radius: Array = eqx.field(converter=as_array)
    law: ContactLaw

    def __check_init__(self):
        _check(self, radius=LENGTH)

    def touch(self, x: Pose) -> tuple[Array, Array, Array]:
        m, height = x.rotation[2], x.translation[2]
        return self.radius - height, m, -height * m


class DiscOnPlane(AbstractContact):
    """The edge of a thin disc in the xy plane of the second marker, on the xy plane of the first; z points to the free
    side. A disc that lies flat has no lowest point: keep it from there.

    **Arguments:**

    - `radius`: m, above zero.
    - `law`: a `ContactLaw`.
    """

    radius: Array = eqx.field(converter=as_array)
    law: ContactLaw

    def __check_init__(self):
        _check(self, radius=LENGTH)

    def touch(self, x: Pose) -> tuple[Array, Array, Array]:
        m = x.rotation[2]
        steep, up = length_and_direction(m[:2])
        arm = -self.radius * join(up, jnp.zeros_like(up[:1]))
        return self.radius * steep - x.translation[2], m, arm


class SphereOnSphere(AbstractContact):
    """Two spheres about the markers' origins. They touch half way into their overlap.

    **Arguments:**

    - `first_radius`, `second_radius`: m, above zero.
    - `law`: a `ContactLaw`.
    """

    first_radius: Array = eqx.field(converter=as_array)
    second_radius: Array = eqx.field(converter=as_array)
    law: ContactLaw

    def __check_init__(self):
        _check(self, first_radius=LENGTH, second_radius=LENGTH)

    def touch(self, x: Pose) -> tuple[Array, Array, Array]:
        apart, m = length_and_direction(vecmat(x.translation, x.rotation))
        d = self.first_radius + self.second_radius - apart
        return d, m, -(self.second_radius - 0.5 * d) * m
