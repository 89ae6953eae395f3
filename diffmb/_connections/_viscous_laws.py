"""Viscoelastic laws with internal states; sums run over the branches i. With d = e - rest, F = -T:

Generalised Maxwell (Prony series); z_i is how far the dashpot of a branch has gone,

    T = k d + sum k_i (d - z_i)              zd_i = (d - z_i) / tau_i                                              (1)
    E = k d^2 / 2 + sum k_i (d - z_i)^2 / 2              D = sum k_i (d - z_i)^2 / tau_i

Quasi-linear (Fung 1972): the elastic response S(d) = a (exp(b d) - 1) convolved with the relaxation function
G(t) = 1 - sum g_i (1 - exp(-t / tau_i)); z_i is the load that has relaxed,

    T = S(d) - sum g_i z_i                   zd_i = (S(d) - z_i) / tau_i                                           (2)

Fung gives no energy. With W' = S and s_i the strain of z_i = S(s_i), the gap W(d) - W(s) - S(s) (d - s) >= 0 has the
slope S(d) - z in d and -(d - s) in z, so that with

    E = (1 - sum g_i) W(d) + sum g_i (W(d) - W(s_i) - z_i (d - s_i))         D = sum g_i (d - s_i) (S(d) - z_i) / tau_i

energy is balanced, and D >= 0 because S rises.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._errors import MechanismError
from .._spatial._axis import as_array, is_concrete
from ._law import AbstractLaw
from ._numbers import PLACE, STIFFNESS, Quantity, check_numbers


def _as_row(values) -> Array:
    return jnp.atleast_1d(as_array(values))


class PronyLaw(AbstractLaw):
    """Generalised Maxwell solid: a spring beside branches of a spring and a dashpot in series.

    One branch is the standard linear solid; with k = 0 it is a Maxwell fluid. A motion starts with relaxed branches at
    `rest`.

    **Arguments:**

    - `k`: the stiffness that remains, N/m or N m/rad, zero or more.
    - `branches`: stiffnesses (n,) of the branches, N/m or N m/rad, zero or more.
    - `times`: their relaxation times (n,), s, above zero.
    - `rest`: free length or angle, m or rad.
    """

    k: Array
    branches: Array
    times: Array
    rest: Array
    size: int = eqx.field(static=True)

    def __init__(self, k, branches, times, rest=0.0):
        self.k, self.branches, self.times, self.rest = as_array(k), _as_row(branches), _as_row(times), as_array(rest)
        self.size = self.branches.shape[0]

    def check(self, title: str) -> None:
        check_numbers(title, self, k=STIFFNESS, branches=Quantity(STIFFNESS.unit, least=0.0, shape=(None,)), rest=PLACE)
        check_numbers(title, self, times=Quantity("s", above=0.0, shape=self.branches.shape))

    @property
    def nz(self) -> int:
        return self.size

    def load(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        d = e - self.rest
        return -self.k * d - (self.branches * (d - z)).sum()

    def zdot(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return (e - self.rest - z) / self.times

    def energy(self, t: Array, e: Array, z: Array) -> Array:
        d = e - self.rest
        return 0.5 * (self.k * d * d + (self.branches * (d - z) ** 2).sum())

    def dissipation(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return (self.branches * (e - self.rest - z) ** 2 / self.times).sum()


class FungLaw(AbstractLaw):
    """Fung's quasi-linear viscoelastic solid: an exponential spring that relaxes, as tendons and ligaments do.

    Where e is below `rest` it pushes with less than a. States are loads and stay above -a by themselves.

    **Arguments:**

    - `a`, `b`: the elastic load a (exp(b d) - 1): N or N m, and 1/m or 1/rad, both above zero.
    - `parts`: how much of the load each branch relaxes (n,), zero or more, together at most 1.
    - `times`: relaxation times (n,), s, above zero.
    - `rest`: free length or angle, m or rad.
    """

    a: Array
    b: Array
    parts: Array
    times: Array
    rest: Array
    size: int = eqx.field(static=True)

    def __init__(self, a, b, parts, times, rest=0.0):
        self.a, self.b, self.rest = as_array(a), as_array(b), as_array(rest)
        self.parts, self.times = _as_row(parts), _as_row(times)
        self.size = self.parts.shape[0]

    def check(self, title: str) -> None:
        check_numbers(title, self, a=Quantity("N or N m", above=0.0), b=Quantity("1/m or 1/rad", above=0.0), rest=PLACE)
        check_numbers(title, self, parts=Quantity("(a pure number)", least=0.0, shape=(None,)))
        check_numbers(title, self, times=Quantity("s", above=0.0, shape=self.parts.shape))
        if is_concrete(self.parts) and float(np.sum(self.parts)) > 1.0 + 1e-6:
            raise MechanismError(f"the parts of {title} add up to {np.sum(self.parts):g}; give at most 1 in all")

    @property
    def nz(self) -> int:
        return self.size

    def _elastic(self, d: Array) -> Array:
        return self.a * jnp.expm1(self.b * d)

    def _work(self, d: Array) -> Array:
        return self._elastic(d) / self.b - self.a * d

    def _relaxed(self, z: Array) -> Array:
        """The strain at which the spring carries z."""
        return jnp.log1p(z / self.a) / self.b

    def load(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return (self.parts * z).sum() - self._elastic(e - self.rest)

    def zdot(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return (self._elastic(e - self.rest) - z) / self.times

    def energy(self, t: Array, e: Array, z: Array) -> Array:
        d, s = e - self.rest, self._relaxed(z)
        return self._work(d) - (self.parts * (self._work(s) + z * (d - s))).sum()

    def dissipation(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        d = e - self.rest
        return (self.parts * (d - self._relaxed(z)) * (self._elastic(d) - z) / self.times).sum()
