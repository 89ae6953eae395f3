"""Curves of a Hill-type muscle and activation dynamics (De Groote, Kinney, Rao, Fregly 2016, Ann. Biomed. Eng. 44).

With fibre length l and velocity v, and tendon length s, normalised by optimal length, largest velocity, slack length:

    f_l(l) = sum_i b1i exp(-((l - b2i) / (b3i + b4i l))^2 / 2)                        active
    f_v(v) = d1 asinh(d2 v + d3) + d4                                                 v > 0 lengthens
    f_p(l) = (exp(kp (l - 1) / e0) - o) / (exp(kp) - o)                               passive
    f_t(s) = c1 exp(kt (s - c2)) - c3                                                 tendon

    ad = ((g + 1/2) / (rise m) + (1/2 - g) m / fall) (u - a)       m = 1/2 + 3/2 a,  g = tanh(smooth (u - a)) / 2

With y = asinh(-d2 v - d3), f_v is a straight line in y, and the fibre's balance a f_l f_v + damping v = given becomes
A y + B sinh(y) = C, which has one root for A, B >= 0.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._spatial._axis import as_array
from ._numbers import TIME, Quantity, check_numbers

_NEWTON = 12


class MuscleCurves(eqx.Module):
    """The four curves, with their coefficients: `mb.muscle_curves()`, `mb.muscle_curves_2016()` or your own.

    - `active` (4, 3): b1i to b4i. `velocity` (4,): d1 to d4, d1 and d2 negative.
    - `passive` (3,): kp, e0, o. `tendon` (4,): c1, c2, c3, kt.
    """

    active: Array = eqx.field(converter=as_array)
    velocity: Array = eqx.field(converter=as_array)
    passive: Array = eqx.field(converter=as_array)
    tendon: Array = eqx.field(converter=as_array)

    def check(self, title: str) -> None:
        shapes = {"active": (4, 3), "velocity": (4,), "passive": (3,), "tendon": (4,)}
        curves = {what: Quantity("(a coefficient)", shape=shape) for what, shape in shapes.items()}
        check_numbers(f"the curves of {title}", self, **curves)

    def active_force(self, length: Array) -> Array:
        """f_l."""
        b1, b2, b3, b4 = self.active
        away = (length - b2) / (b3 + b4 * length)
        return (b1 * jnp.exp(-0.5 * away * away)).sum()

    def velocity_factor(self, velocity: Array) -> Array:
        """f_v."""
        d1, d2, d3, d4 = self.velocity
        return d1 * jnp.arcsinh(d2 * velocity + d3) + d4

    def passive_force(self, length: Array) -> Array:
        """f_p."""
        kp, e0, o = self.passive
        return (jnp.exp(kp * (length - 1.0) / e0) - o) / (jnp.exp(kp) - o)

    def tendon_force(self, length: Array) -> Array:
        """f_t."""
        c1, c2, c3, kt = self.tendon
        return c1 * jnp.exp(kt * (length - c2)) - c3

    def passive_energy(self, length: Array) -> Array:
        """The integral of f_p from 1."""
        kp, e0, o = self.passive
        stretch = length - 1.0
        return (e0 / kp * jnp.expm1(kp * stretch / e0) - o * stretch) / (jnp.exp(kp) - o)

    def tendon_energy(self, length: Array) -> Array:
        """The integral of f_t from 1."""
        c1, c2, c3, kt = self.tendon
        return c1 / kt * (jnp.exp(kt * (length - c2)) - jnp.exp(kt * (1.0 - c2))) - c3 * (length - 1.0)

    def slack(self) -> Array:
        """The tendon's length without force."""
        c1, c2, c3, kt = self.tendon
        return c2 + jnp.log(c3 / c1) / kt

    def fibre_velocity(self, strength: Array, damping: Array, force: Array) -> Array:
        """v where strength f_v(v) + damping v = force; without damping the inverse of f_v."""
        d1, d2, d3, d4 = self.velocity
        B = -damping / d2
        return -(jnp.sinh(_root(-strength * d1, B, force - strength * d4 - B * d3)) + d3) / d2


@jax.custom_jvp
def _root(A: Array, B: Array, C: Array) -> Array:
    """y where A y + B sinh(y) = C, from outside by Newton's method, which is monotonic there."""
    tiny = jnp.finfo(C.dtype).tiny
    size = jnp.abs(C)
    y = jnp.minimum(size / jnp.maximum(A, tiny), jnp.arcsinh(size / jnp.maximum(B, tiny)))
    newton = lambda _, y: y - (A * y + B * jnp.sinh(y) - size) / (A + B * jnp.cosh(y))
    return jnp.sign(C) * jax.lax.fori_loop(0, _NEWTON, newton, y)


@_root.defjvp
def _root_rule(primals, tangents):
    (A, B, C), (dA, dB, dC) = primals, tangents
    y = _root(A, B, C)
    return y, (dC - y * dA - jnp.sinh(y) * dB) / (A + B * jnp.cosh(y))


def muscle_curves() -> MuscleCurves:
    """The coefficients of OpenSim's DeGrooteFregly2016Muscle: f_l(1) = f_v(0) = 1, f_v(-1) = f_t(1) = 0."""
    b = (
        (0.8150671134243542, 0.433004984392647, 0.1),
        (1.055033428970575, 0.716775413397760, 1.0),
        (0.162384573599574, -0.029947116970696, np.sqrt(0.125)),
        (0.063303448465465, 0.200356847296188, 0.0),
    )
    d2, d3 = -8.149, -0.374
    d1 = 1.0 / (np.arcsinh(d3) - np.arcsinh(d3 - d2))
    velocity = (d1, d2, d3, 1.0 - d1 * np.arcsinh(d3))
    return MuscleCurves(b, velocity, (4.0, 0.6, np.exp(4.0 * (0.2 - 1.0) / 0.6)), (0.2, 1.0, 0.2, np.log(6.0) / 0.049))


def muscle_curves_2016() -> MuscleCurves:
    """The coefficients as printed in 2016: f_l(1) = 0.994, f_v(0) = 1.002, f_t(1) = -0.013, f_p(1) = 0."""
    b = ((0.814, 0.433, 0.1), (1.06, 0.717, 1.0), (0.162, -0.0299, 0.354), (0.0633, 0.2, 0.0))
    return MuscleCurves(b, (-0.318, -8.149, -0.374, 0.886), (4.0, 0.6, 1.0), (0.2, 0.995, 0.25, 33.93669377311689))


class Activation(eqx.Module):
    """Activation dynamics of De Groote et al. 2016, eqs. (1)-(2), a smooth form of Winters 1995.

    **Arguments:**

    - `rise`, `fall`: time constants of activation and deactivation, s.
    - `smooth`: how sharply one passes into the other.
    """

    rise: Array = eqx.field(converter=as_array, default=0.015)
    fall: Array = eqx.field(converter=as_array, default=0.060)
    smooth: Array = eqx.field(converter=as_array, default=10.0)

    def check(self, title: str) -> None:
        check_numbers(title, self, rise=TIME, fall=TIME, smooth=Quantity("(a pure number)", above=0.0))

    def rate(self, a: Array, u: Array) -> Array:
        """ad for the excitation u."""
        m, g = 0.5 + 1.5 * a, 0.5 * jnp.tanh(self.smooth * (u - a))
        return ((g + 0.5) / (self.rise * m) + (0.5 - g) * m / self.fall) * (u - a)
