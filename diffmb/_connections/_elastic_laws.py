"""Springs with a damper beside them. With d = e - rest, and F = -T:

    LinearLaw        T = preload + k d + c ed        E = preload d + k d^2 / 2        D = c ed^2
    PotentialLaw     T = V'(d) + c ed                E = V(d)
    TableLaw         T = s(e) + c ed                 E = integral of s from the first knot, exact

s is the monotone cubic through the table (Fritsch and Carlson 1980, slopes of Fritsch and Butland 1984): on a piece
of width h with x = (e - e_i) / h, end values f and slopes m,

    s = f_0 + h m_0 x + (3 df - 2 h m_0 - h m_1) x^2 + (h m_0 + h m_1 - 2 df) x^3,        df = f_1 - f_0            (1)

continuous with its slope, without overshoot; beyond the table it goes on straight.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._constraints._numbers import check_sample, example
from .._errors import MechanismError
from .._joints._lift import as_params
from .._spatial._axis import as_array, is_concrete
from ._law import AbstractLaw
from ._numbers import DAMPING, LOAD, PLACE, STIFFNESS, Quantity, check_numbers


class LinearLaw(AbstractLaw):
    """Linear spring and damper.

    **Arguments:**

    - `k`: stiffness, N/m or N m/rad, zero or more.
    - `c`: damping, N s/m or N m s/rad, zero or more.
    - `rest`: free length or angle, m or rad.
    - `preload`: the load at `rest`, N or N m.
    """

    k: Array = eqx.field(converter=as_array)
    c: Array = eqx.field(converter=as_array, default=0.0)
    rest: Array = eqx.field(converter=as_array, default=0.0)
    preload: Array = eqx.field(converter=as_array, default=0.0)

    def check(self, title: str) -> None:
        check_numbers(title, self, k=STIFFNESS, c=DAMPING, rest=PLACE, preload=LOAD)

    def load(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return -self.preload - self.k * (e - self.rest) - self.c * ed

    def energy(self, t: Array, e: Array, z: Array) -> Array:
        d = e - self.rest
        return (self.preload + 0.5 * self.k * d) * d

    def dissipation(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return self.c * ed * ed


class PotentialLaw(AbstractLaw):
    """A spring by its energy, a function that you write; the load is its slope.

    **Arguments:**

    - `potential`: `potential(d, params)`: energy in J over d = e - rest, for one sample, smooth. Static.
    - `params`: numbers that it uses, in any tree; differentiable.
    - `c`: damping, N s/m or N m s/rad, zero or more.
    - `rest`: free length or angle, m or rad.
    """

    potential: Callable = eqx.field(static=True)
    params: Any = eqx.field(converter=as_params, default=None)
    c: Array = eqx.field(converter=as_array, default=0.0)
    rest: Array = eqx.field(converter=as_array, default=0.0)

    def check(self, title: str) -> None:
        check_numbers(title, self, c=DAMPING, rest=PLACE)
        check_sample(title, self.potential, self.potential, (*example(()), self.params), ())

    def load(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        slope = jax.jvp(lambda d: self._energy(d), (e - self.rest,), (jnp.ones_like(e),))[1]
        return -slope - self.c * ed

    def _energy(self, d: Array) -> Array:
        return jnp.asarray(self.potential(d, self.params))

    def energy(self, t: Array, e: Array, z: Array) -> Array:
        return self._energy(e - self.rest)

    def dissipation(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return self.c * ed * ed


class TableLaw(AbstractLaw):
    """A spring by measured points, with a monotone cubic between them and straight lines beyond.

    **Arguments:**

    - `at`: lengths or angles (n,), rising, m or rad.
    - `loads`: tension or moment there (n,), N or N m.
    - `c`: damping, N s/m or N m s/rad, zero or more.
    """

    at: Array = eqx.field(converter=as_array)
    loads: Array = eqx.field(converter=as_array)
    c: Array = eqx.field(converter=as_array, default=0.0)

    def check(self, title: str) -> None:
        size = (len(self.at) if self.at.ndim else None,)
        check_numbers(title, self, at=Quantity("m or rad", shape=(None,)), loads=Quantity("N or N m", shape=size))
        check_numbers(title, self, c=DAMPING)
        if len(self.at) < 2:
            raise MechanismError(f"the table of {title} has one point; give two or more")
        if is_concrete(self.at) and (np.diff(np.asarray(self.at)) <= 0.0).any():
            raise MechanismError(f"the at of {title} is {np.asarray(self.at).tolist()}; sort the points: it must rise")

    def _slopes(self) -> Array:
        """Of the cubic at the knots: weighted harmonic means, zero where the table turns."""
        h = jnp.diff(self.at)
        chord = jnp.diff(self.loads) / h
        left, right = chord[:-1], chord[1:]
        before, after = 2.0 * h[1:] + h[:-1], h[1:] + 2.0 * h[:-1]
        same = left * right > 0.0
        below = jnp.where(same, before * right + after * left, 1.0)
        inner = jnp.where(same, (before + after) * left * right / below, 0.0)
        return jnp.concatenate([chord[:1], inner, chord[-1:]])

    def _spring(self, e: Array) -> tuple[Array, Array]:
        """(load, energy) at e, (1)."""
        h, df, m = jnp.diff(self.at), jnp.diff(self.loads), self._slopes()
        done = jnp.cumsum(h * 0.5 * (self.loads[1:] + self.loads[:-1]) + h * h * (m[:-1] - m[1:]) / 12.0)
        done = jnp.concatenate([jnp.zeros_like(done[:1]), done])
        within = jnp.clip(e, self.at[0], self.at[-1])
        i = jnp.clip(jnp.searchsorted(self.at, within) - 1, 0, h.size - 1)
        x, rise, first, last = (within - self.at[i]) / h[i], df[i], h[i] * m[i], h[i] * m[i + 1]
        b, c = 3.0 * rise - 2.0 * first - last, first + last - 2.0 * rise
        load = self.loads[i] + x * (first + x * (b + x * c))
        energy = done[i] + h[i] * x * (self.loads[i] + x * (first / 2.0 + x * (b / 3.0 + x * c / 4.0)))
        over, slope = e - within, jnp.where(e < self.at[0], m[0], m[-1])
        return load + slope * over, energy + (load + 0.5 * slope * over) * over

    def load(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return -self._spring(e)[0] - self.c * ed

    def energy(self, t: Array, e: Array, z: Array) -> Array:
        return self._spring(e)[1]

    def dissipation(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return self.c * ed * ed
