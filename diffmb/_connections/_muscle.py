"""Hill-type muscles along a path of length e (curves and activation: `_muscle_curves.py`; F0, L, S: see below).

The fibre has the normalised length l and stands at the angle alpha to the tendon; its height h = sin(pennation) stays.
Along the tendon it takes L w, so that l = sqrt(w^2 + h^2) and cos(alpha) = w / l:

    e = L w + S s                                                           s: tendon's length, in S
    f_t(s) = (a f_l(l) f_v(v) + f_p(l) + damping v) cos(alpha)              v = ld / vmax = cos(alpha) wd / vmax    (1)
    F = -F0 f_t(s)         E = F0 (S int f_t + L int f_p)
    D = F0 L damping vmax v^2        P = -F0 L ld a f_l f_v                 what the contractile part does

States: activation a and w, the normalised fibre length along the tendon (l itself without pennation): unlike l it may
take any positive value. (1) gives v without iteration over states: see `MuscleCurves.fibre_velocity`.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .._errors import MechanismError
from .._spatial._axis import as_array, is_concrete
from ._law import AbstractLaw
from ._muscle_curves import Activation, MuscleCurves, muscle_curves
from ._numbers import LENGTH, Quantity, check_numbers

_SHORTEST, _HALVINGS = 0.05, 60


def _given(value: Any) -> Array | None:
    return None if value is None else as_array(value)


_QUANTITIES = {
    "force": Quantity("N", above=0.0),
    "fibre": LENGTH,
    "tendon": Quantity("m", least=0.0),
    "pennation": Quantity("rad", least=0.0, most=1.4),
    "vmax": Quantity("fibre lengths/s", above=0.0),
    "damping": Quantity("of the largest force", least=0.0),
    "activation": Quantity("of full activation", least=0.0, most=1.0),
}


class AbstractMuscle(AbstractLaw):
    """A fibre with pennation; what lies between it and the path differs."""

    force: eqx.AbstractVar[Array]
    fibre: eqx.AbstractVar[Array]
    tendon: eqx.AbstractVar[Array]
    pennation: eqx.AbstractVar[Array]
    vmax: eqx.AbstractVar[Array]
    damping: eqx.AbstractVar[Array]
    activation: eqx.AbstractVar[Array]
    curves: eqx.AbstractVar[MuscleCurves]
    dynamics: eqx.AbstractVar[Activation]

    def check(self, title: str) -> None:
        check_numbers(title, self, **_QUANTITIES)
        self.curves.check(title)
        self.dynamics.check(title)

    @property
    def nu(self) -> int:
        return 1

    def shape(self, w: Array) -> tuple[Array, Array]:
        """l and cos(alpha)."""
        h = jnp.sin(self.pennation)
        l = jnp.sqrt(w * w + h * h)
        return l, w / l

    def heat(self, v: Array) -> Array:
        return self.force * self.fibre * self.vmax * self.damping * v * v

    def work(self, a: Array, w: Array, v: Array) -> Array:
        """Power of the contractile part."""
        strength = a * self.curves.active_force(self.shape(w)[0]) * self.curves.velocity_factor(v)
        return -self.force * self.fibre * self.vmax * v * strength


class Muscle(AbstractMuscle):
    """A Hill-type muscle with an elastic tendon. Input: excitation, 0 to 1. States: activation, and the fibre's length
    along the tendon in optimal lengths. Mount it with `mb.AlongLine` or, over via-points, `mb.AlongPath`.

    A motion starts in equilibrium for `activation` and the path's `length`.

    **Arguments:**

    - `force`: largest isometric force, N. `fibre`: optimal fibre length, m. `tendon`: slack length, m.
    - `pennation`: angle of the fibre to the tendon at optimal length, rad, 0 to 1.4.
    - `vmax`: largest shortening velocity, fibre lengths per second.
    - `damping`: of the fibre, as a part of `force` at vmax; 0.1 after Millard et al. 2013. Without it, a fibre that
        is not activated moves without bound.
    - `activation`: at the start. `length`: of the path at the start, m; by default that of a fibre at its optimal
        length on a slack tendon.
    - `curves`: `mb.muscle_curves()`, or a set of your own. `dynamics`: `mb.Activation(rise, fall)`.
    """

    force: Array = eqx.field(converter=as_array)
    fibre: Array = eqx.field(converter=as_array)
    tendon: Array = eqx.field(converter=as_array)
    pennation: Array = eqx.field(converter=as_array, default=0.0)
    vmax: Array = eqx.field(converter=as_array, default=10.0)
    damping: Array = eqx.field(converter=as_array, default=0.1)
    activation: Array = eqx.field(converter=as_array, default=0.01)
    length: Array | None = eqx.field(converter=_given, default=None)
    curves: MuscleCurves = eqx.field(default_factory=muscle_curves)
    dynamics: Activation = eqx.field(default_factory=Activation)

    def check(self, title: str) -> None:
        super().check(title)
        check_numbers(title, self, tendon=LENGTH)
        if self.length is not None:
            check_numbers(title, self, length=LENGTH)
            least = self.tendon * self.curves.slack() + _SHORTEST * self.fibre
            if is_concrete(self.length, least) and not float(self.length) > float(least):
                raise MechanismError(
                    f"{title} starts with a path of {float(self.length):g} m, in which its tendon is slack: there is "
                    f"no equilibrium; give length above {float(least):g} m, or a shorter tendon"
                )

    @property
    def nz(self) -> int:
        return 2

    def tendon_force(self, e: Array, w: Array) -> Array:
        """f_t(s)."""
        return self.curves.tendon_force((e - self.fibre * w) / self.tendon)

    def velocity(self, e: Array, a: Array, w: Array) -> Array:
        """v from (1)."""
        l, cosine = self.shape(w)
        rest = self.tendon_force(e, w) / cosine - self.curves.passive_force(l)
        return self.curves.fibre_velocity(a * self.curves.active_force(l), self.damping, rest)

    def rate(self, e: Array, a: Array, w: Array) -> Array:
        """wd."""
        return self.vmax * self.velocity(e, a, w) / self.shape(w)[1]

    def equilibrium(self, e: Array, a: Array) -> Array:
        """w at which the fibre stands still, for a path of length e (m) and activation a."""

        def excess(w):
            l, cosine = self.shape(w)
            fibre = a * self.curves.active_force(l) * self.curves.velocity_factor(jnp.zeros_like(w))
            return (fibre + self.curves.passive_force(l)) * cosine - self.tendon_force(e, w)

        def halve(excess, high):
            def step(_, ends):
                middle = 0.5 * (ends[0] + ends[1])
                above = excess(middle) > 0.0
                return jnp.where(above, ends[0], middle), jnp.where(above, middle, ends[1])

            return jax.lax.fori_loop(0, _HALVINGS, step, (jnp.full_like(high, _SHORTEST), high))[1]

        slope = lambda linear, y: y / linear(jnp.ones_like(y))
        longest = (e - self.tendon * self.curves.slack()) / self.fibre + _SHORTEST
        return jax.lax.custom_root(excess, jax.lax.stop_gradient(longest), halve, slope)

    def load(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return -self.force * self.tendon_force(e, z[1])

    def zdot(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return jnp.stack([self.dynamics.rate(z[0], u[0]), self.rate(e, *z)])

    def energy(self, t: Array, e: Array, z: Array) -> Array:
        stretched = self.tendon * self.curves.tendon_energy((e - self.fibre * z[1]) / self.tendon)
        return self.force * (stretched + self.fibre * self.curves.passive_energy(self.shape(z[1])[0]))

    def dissipation(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return self.heat(self.velocity(e, *z))

    def supply(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return self.work(z[0], z[1], self.velocity(e, z[0], z[1]))

    def rest(self) -> Array:
        """The path's length at the start, m."""
        middle = self.fibre * jnp.cos(self.pennation) + self.tendon * self.curves.slack()
        return middle if self.length is None else self.length

    def start(self) -> Array:
        return jnp.stack([self.activation, self.equilibrium(self.rest(), self.activation)])


class RigidTendonMuscle(AbstractMuscle):
    """A Hill-type muscle whose tendon keeps its length: one state, the activation. Input: excitation, 0 to 1.

    The arguments are those of `mb.Muscle`; `tendon` is the constant length, and may be zero; paths must be longer.
    """

    force: Array = eqx.field(converter=as_array)
    fibre: Array = eqx.field(converter=as_array)
    tendon: Array = eqx.field(converter=as_array)
    pennation: Array = eqx.field(converter=as_array, default=0.0)
    vmax: Array = eqx.field(converter=as_array, default=10.0)
    damping: Array = eqx.field(converter=as_array, default=0.1)
    activation: Array = eqx.field(converter=as_array, default=0.01)
    curves: MuscleCurves = eqx.field(default_factory=muscle_curves)
    dynamics: Activation = eqx.field(default_factory=Activation)

    @property
    def nz(self) -> int:
        return 1

    def _fibre(self, e: Array, ed: Array) -> tuple[Array, Array]:
        """w and v."""
        w = (e - self.tendon) / self.fibre
        return w, self.shape(w)[1] * ed / (self.fibre * self.vmax)

    def load(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        w, v = self._fibre(e, ed)
        l, cosine = self.shape(w)
        active = z[0] * self.curves.active_force(l) * self.curves.velocity_factor(v)
        return -self.force * cosine * (active + self.curves.passive_force(l) + self.damping * v)

    def zdot(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return self.dynamics.rate(z, u)

    def energy(self, t: Array, e: Array, z: Array) -> Array:
        l = self.shape((e - self.tendon) / self.fibre)[0]
        return self.force * self.fibre * self.curves.passive_energy(l)

    def dissipation(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return self.heat(self._fibre(e, ed)[1])

    def supply(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return self.work(z[0], *self._fibre(e, ed))

    def start(self) -> Array:
        return self.activation[None]
