"""Dry friction, on any strain. With F = -T, the speed v = ed, its size |v| = sqrt(v^2 + slip^2), and

    g(v) = N (mu + (mu_static - mu) exp(-(v / stribeck)^2))          N = normal + |lam|                            (1)

    FrictionLaw      T = g v / |v| + c v                             D = T v
    LuGreLaw         T = k z + c_b(v) zd + c v                       zd = v - k |v| z / g                          (2)

(2) is the LuGre model (Canudas de Wit, Olsson, Astrom and Lischinsky 1995): bristles of stiffness k bend by z before
they slide. It stores E = k z^2 / 2 and turns into heat

    D = k (k |v| / g) z^2 - c_b (k |v| / g) z v + (c_b + c) v^2,

which is never negative if c_b |v| <= 4 g. A constant c_b breaks that at high speed (the model then returns heat), so
the bristles' damping falls off as c_b = c_0 / (1 + c_0 |v| / (4 g)): any numbers are passive. With |v| smooth,
derivatives exist at rest; the price is a creep of about `slip` while sticking: choose it far below the
speeds of interest.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from .._constraints._geometry import length_and_direction
from .._errors import MechanismError
from .._spatial._axis import as_array, is_concrete
from ._law import AbstractLaw
from ._numbers import DAMPING, Quantity, check_numbers

SPEED = Quantity("m/s or rad/s", above=0.0)


def _names(names: Any) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


class Grip(eqx.Module):
    """How much friction there can be: (1), and the speed below which it is smoothed.

    **Arguments:**

    - `mu`: coefficient of sliding friction, zero or more; for turning, times the radius at which it acts, m.
    - `normal`: normal load, N, zero or more, added to the multipliers of `contact`.
    - `mu_static`: coefficient at rest, at least `mu`; the same as `mu` if left out.
    - `stribeck`: the speed at which friction has fallen most of the way from rest to sliding, m/s or rad/s.
    - `slip`: the speed below which friction is smoothed, m/s or rad/s, above zero.
    - `contact`: names of constraints or joints whose multipliers press, static.
    """

    mu: Array = eqx.field(converter=as_array)
    normal: Array = eqx.field(converter=as_array)
    mu_static: Array | None = eqx.field(converter=lambda mu: mu if mu is None else as_array(mu), default=None)
    stribeck: Array = eqx.field(converter=as_array, default=0.1)
    slip: Array = eqx.field(converter=as_array, default=1e-3)
    contact: tuple[str, ...] = eqx.field(static=True, converter=_names, default=())

    def check(self, title: str) -> None:
        coefficient = Quantity("(or m)", least=0.0)
        check_numbers(title, self, mu=coefficient, normal=Quantity("N", least=0.0), stribeck=SPEED, slip=SPEED)
        if self.mu_static is not None:
            check_numbers(title, self, mu_static=coefficient)
            if is_concrete(self.mu, self.mu_static) and float(self.mu_static) < float(self.mu):
                rest, moving = float(self.mu_static), float(self.mu)
                raise MechanismError(f"the mu_static of {title} is {rest:g}; give at least mu, {moving:g}")

    def size(self, v: Array) -> Array:
        """|v|."""
        return jnp.sqrt(v * v + self.slip * self.slip)

    def limit(self, v: Array, lam: Array) -> Array:
        """g(v)."""
        normal = self.normal + length_and_direction(lam)[0] if self.contact else self.normal
        if self.mu_static is None:
            return normal * self.mu
        return normal * (self.mu + (self.mu_static - self.mu) * jnp.exp(-((v / self.stribeck) ** 2)))


class FrictionLaw(AbstractLaw):
    """Coulomb friction with Stribeck's fall and viscous friction, smoothed near zero speed. It slides under any load.

    **Arguments:**

    - `grip`: a `Grip`.
    - `c`: viscous friction, N s/m or N m s/rad, zero or more.
    """

    grip: Grip
    c: Array = eqx.field(converter=as_array, default=0.0)

    def check(self, title: str) -> None:
        self.grip.check(title)
        check_numbers(title, self, c=DAMPING)

    @property
    def follows(self) -> tuple[str, ...]:
        return self.grip.contact

    def load(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return -self.grip.limit(ed, u) * ed / self.grip.size(ed) - self.c * ed

    def dissipation(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return -self.load(t, e, ed, z, u) * ed


class LuGreLaw(AbstractLaw):
    """Friction with pre-sliding: bristles that bend like a spring, then slide. State: their deflection, m or rad.

    **Arguments:**

    - `grip`: a `Grip` with mu and normal above zero.
    - `k`: stiffness of the bristles, N/m or N m/rad, above zero.
    - `c_bristle`: damping of the bristles at rest, N s/m or N m s/rad, zero or more.
    - `c`: viscous friction, N s/m or N m s/rad, zero or more.
    """

    grip: Grip
    k: Array = eqx.field(converter=as_array)
    c_bristle: Array = eqx.field(converter=as_array, default=0.0)
    c: Array = eqx.field(converter=as_array, default=0.0)

    def check(self, title: str) -> None:
        self.grip.check(title)
        check_numbers(title, self.grip, mu=Quantity("(or m)", above=0.0), normal=Quantity("N", above=0.0))
        check_numbers(title, self, k=Quantity("N/m or N m/rad", above=0.0), c_bristle=DAMPING, c=DAMPING)

    @property
    def nz(self) -> int:
        return 1

    @property
    def follows(self) -> tuple[str, ...]:
        return self.grip.contact

    def _rates(self, v: Array, u: Array) -> tuple[Array, Array]:
        """k |v| / g, and the damping c_b."""
        share = self.grip.size(v) / self.grip.limit(v, u)
        return self.k * share, self.c_bristle / (1.0 + 0.25 * self.c_bristle * share)

    def load(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        rate, damping = self._rates(ed, u)
        return -self.k * z[0] - damping * (ed - rate * z[0]) - self.c * ed

    def zdot(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return ed - self._rates(ed, u)[0] * z

    def energy(self, t: Array, e: Array, z: Array) -> Array:
        return 0.5 * self.k * z[0] * z[0]

    def dissipation(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        rate, damping = self._rates(ed, u)
        return rate * z[0] * (self.k * z[0] - damping * ed) + (damping + self.c) * ed * ed
