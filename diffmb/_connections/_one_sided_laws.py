"""Ropes, bumpers and stops: they act on one side only, and never the other way.

With the depth d past the point of touch, and its rate dd:

    f = k d^n s(c dd)       s(x) = x + sqrt(1 + x^2)       E = k d^(n + 1) / (n + 1)       D = k d^n (s - 1) dd    (1)

Hunt and Crossley (1975) have s = 1 + x, which pulls when d shrinks fast. The s here is the same to first order, smooth
and positive, so that D >= 0 always. Near touch the load is as smooth as d^n: n = 1 has a kink in its slope there,
n = 3/2 (Hertz) is smooth once, n = 3 twice.
"""

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from .._errors import MechanismError
from .._spatial._axis import as_array, is_concrete
from ._law import AbstractLaw
from ._numbers import PLACE, Quantity, check_numbers

PRESS = {
    "k": Quantity("N/m^n or N m/rad^n", least=0.0),
    "c": Quantity("s/m or s/rad", least=0.0),
    "n": Quantity("(a pure number)", least=1.0),
}


def pressed(k: Array, n: Array, d: Array) -> Array:
    """k d^n, zero where nothing touches."""
    touch = d > 0.0
    return jnp.where(touch, k * jnp.where(touch, d, 1.0) ** n, 0.0)


def press_factor(c: Array, dd: Array) -> Array:
    """s of (1)."""
    x = c * dd
    return x + jnp.sqrt(1.0 + x * x)


def press_load(k: Array, n: Array, c: Array, d: Array, dd: Array) -> Array:
    """f of (1)."""
    return pressed(k, n, d) * press_factor(c, dd)


def press_energy(k: Array, n: Array, d: Array) -> Array:
    """E of (1)."""
    return pressed(k / (n + 1.0), n + 1.0, d)


def press_heat(k: Array, n: Array, c: Array, d: Array, dd: Array) -> Array:
    """D of (1)."""
    return pressed(k, n, d) * (press_factor(c, dd) - 1.0) * dd


class RopeLaw(AbstractLaw):
    """Pulls where e is above `rest`, never pushes.

    **Arguments:**

    - `k`: stiffness, N/m^n or N m/rad^n, zero or more.
    - `c`: damping as in Hunt and Crossley, s/m or s/rad: the load grows by the factor 1 + c ed.
    - `rest`: length or angle from which on it pulls, m or rad.
    - `n`: exponent, 1 or more.
    """

    k: Array = eqx.field(converter=as_array)
    c: Array = eqx.field(converter=as_array, default=0.0)
    rest: Array = eqx.field(converter=as_array, default=0.0)
    n: Array = eqx.field(converter=as_array, default=1.0)

    def check(self, title: str) -> None:
        check_numbers(title, self, **PRESS, rest=PLACE)

    def load(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return -press_load(self.k, self.n, self.c, e - self.rest, ed)

    def energy(self, t: Array, e: Array, z: Array) -> Array:
        return press_energy(self.k, self.n, e - self.rest)

    def dissipation(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return press_heat(self.k, self.n, self.c, e - self.rest, ed)


class BumperLaw(AbstractLaw):
    """Pushes where e is below `rest`, never pulls.

    **Arguments:**

    - `k`, `c`, `n`: as in `RopeLaw`, for the compression rest - e.
    - `rest`: length or angle below which it pushes, m or rad.
    """

    k: Array = eqx.field(converter=as_array)
    c: Array = eqx.field(converter=as_array, default=0.0)
    rest: Array = eqx.field(converter=as_array, default=0.0)
    n: Array = eqx.field(converter=as_array, default=1.5)

    def check(self, title: str) -> None:
        check_numbers(title, self, **PRESS, rest=PLACE)

    def load(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return press_load(self.k, self.n, self.c, self.rest - e, -ed)

    def energy(self, t: Array, e: Array, z: Array) -> Array:
        return press_energy(self.k, self.n, self.rest - e)

    def dissipation(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return press_heat(self.k, self.n, self.c, self.rest - e, -ed)


class StopLaw(AbstractLaw):
    """Stops at both ends of a range: nothing between them, and a load back into the range beyond.

    **Arguments:**

    - `low`, `high`: the ends, m or rad.
    - `k`, `c`, `n`: as in `RopeLaw`, for the depth beyond an end; n = 1 is the stiff law, n = 3 smooth to second order.
    """

    low: Array = eqx.field(converter=as_array)
    high: Array = eqx.field(converter=as_array)
    k: Array = eqx.field(converter=as_array)
    c: Array = eqx.field(converter=as_array, default=0.0)
    n: Array = eqx.field(converter=as_array, default=1.5)

    def check(self, title: str) -> None:
        check_numbers(title, self, low=PLACE, high=PLACE, **PRESS)
        if is_concrete(self.low, self.high) and float(self.low) >= float(self.high):
            ends = f"{float(self.low):g} to {float(self.high):g}"
            raise MechanismError(f"the range of {title} goes from {ends}; give low below high")

    def load(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        below = press_load(self.k, self.n, self.c, self.low - e, -ed)
        return below - press_load(self.k, self.n, self.c, e - self.high, ed)

    def energy(self, t: Array, e: Array, z: Array) -> Array:
        return press_energy(self.k, self.n, e - self.high) + press_energy(self.k, self.n, self.low - e)

    def dissipation(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        above = press_heat(self.k, self.n, self.c, e - self.high, ed)
        return above + press_heat(self.k, self.n, self.c, self.low - e, -ed)
