"""A given force, and controllers that hold a strain at a set-point, with an ideal source of power behind them.

    ForceInput       F = gain u                                     u: the input itself
    PdController     F = p (u - e) - d ed
    PidController    F = p (u - e) + i s + d (u - e - f) / lag      sd = u - e      fd = (u - e - f) / lag
    PositionServo    F = z - damping ed                             zd = (gain (u - e) - z) / lag

Elsewhere u is the set-point of e. The rate that damps becomes heat, all else is power brought in.
"""

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from .._spatial._axis import as_array
from ._law import AbstractLaw
from ._numbers import DAMPING, STIFFNESS, TIME, Quantity, check_numbers


class ForceInput(AbstractLaw):
    """The input, times a gain: a given force or torque; with a piston's area as gain, the ideal hydraulic actuator
    F = a i driven by its pressure (Sol 1983).

    **Arguments:**

    - `gain`: N or N m for an input of one; m^2 if the input is a pressure in Pa.
    """

    gain: Array = eqx.field(converter=as_array, default=1.0)

    def check(self, title: str) -> None:
        check_numbers(title, self, gain=Quantity("N, N m or m^2"))

    @property
    def nu(self) -> int:
        return 1

    def load(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return self.gain * u[0]

    def supply(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return self.gain * u[0] * ed


class PdController(AbstractLaw):
    """Proportional to the error, with damping; input: set-point, m or rad.

    **Arguments:**

    - `p`: N/m or N m/rad.
    - `d`: on the measured rate, N s/m or N m s/rad.
    """

    p: Array = eqx.field(converter=as_array)
    d: Array = eqx.field(converter=as_array, default=0.0)

    def check(self, title: str) -> None:
        check_numbers(title, self, p=STIFFNESS, d=DAMPING)

    @property
    def nu(self) -> int:
        return 1

    def load(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return self.p * (u[0] - e) - self.d * ed

    def dissipation(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return self.d * ed * ed

    def supply(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return self.p * (u[0] - e) * ed


class PidController(AbstractLaw):
    """Proportional, integral and filtered derivative of the error; input: set-point, m or rad.

    States: the integral s of the error (m s or rad s), and the error behind a first-order filter.

    **Arguments:**

    - `p`: N/m or N m/rad. `i`: N/(m s) or N m/(rad s). `d`: N s/m or N m s/rad.
    - `lag`: time constant of the filter of the derivative, s.
    """

    p: Array = eqx.field(converter=as_array)
    i: Array = eqx.field(converter=as_array)
    d: Array = eqx.field(converter=as_array)
    lag: Array = eqx.field(converter=as_array)

    def check(self, title: str) -> None:
        check_numbers(title, self, p=STIFFNESS, i=Quantity("N/(m s) or N m/(rad s)", least=0.0), d=DAMPING, lag=TIME)

    @property
    def nz(self) -> int:
        return 2

    @property
    def nu(self) -> int:
        return 1

    def load(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        error, slope = self.zdot(t, e, ed, z, u)
        return self.p * error + self.i * z[0] + self.d * slope

    def zdot(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        error = u[0] - e
        return jnp.stack([error, (error - z[1]) / self.lag])

    def supply(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return self.load(t, e, ed, z, u) * ed


class PositionServo(AbstractLaw):
    """The amplified error of position behind a first-order lag (Sol 1983); state: force, N; input: set-point, m or rad.

    **Arguments:**

    - `gain`: N/m or N m/rad.
    - `lag`: time constant of the amplifier, s.
    - `damping`: N s/m or N m s/rad. It is stable on any mass if damping > gain lag.
    """

    gain: Array = eqx.field(converter=as_array)
    lag: Array = eqx.field(converter=as_array)
    damping: Array = eqx.field(converter=as_array, default=0.0)

    def check(self, title: str) -> None:
        check_numbers(title, self, gain=STIFFNESS, lag=TIME, damping=DAMPING)

    @property
    def nz(self) -> int:
        return 1

    @property
    def nu(self) -> int:
        return 1

    def load(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return z[0] - self.damping * ed

    def zdot(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return (self.gain * (u - e) - z) / self.lag

    def dissipation(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return self.damping * ed * ed

    def supply(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return z[0] * ed
