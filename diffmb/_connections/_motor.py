"""Direct-current motor (Sol 1983, ch. 3, with the sign of the back-emf that opposes the motion).

    T = k i - c ed            L id = u - R i - k ed            E = L i^2 / 2
    D = R i^2 + c ed^2        P = u i                          u: voltage, ed: speed of its shaft

Steady: T = k (u - k ed) / R, a line from the stall torque k u / R to the idle speed u / k; i settles with L / R.
"""

import equinox as eqx
from jax import Array

from .._spatial._axis import as_array
from ._law import AbstractLaw
from ._numbers import DAMPING, Quantity, check_numbers


class DcMotor(AbstractLaw):
    """A direct-current motor: state: current, A; input: voltage, V. The rotor's inertia belongs to a body.

    **Arguments:**

    - `k`: torque constant, N m/A, which is also that of the back-emf, V s/rad (N/A and V s/m of a linear motor).
    - `resistance`: Ohm.
    - `inductance`: H.
    - `friction`: viscous, N m s/rad, on the motor's side of the gear.
    """

    k: Array = eqx.field(converter=as_array)
    resistance: Array = eqx.field(converter=as_array)
    inductance: Array = eqx.field(converter=as_array)
    friction: Array = eqx.field(converter=as_array, default=0.0)

    def check(self, title: str) -> None:
        check_numbers(title, self, k=Quantity("N m/A or N/A"), resistance=Quantity("Ohm", least=0.0))
        check_numbers(title, self, inductance=Quantity("H", above=0.0), friction=DAMPING)

    @property
    def nz(self) -> int:
        return 1

    @property
    def nu(self) -> int:
        return 1

    def load(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return self.k * z[0] - self.friction * ed

    def zdot(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return (u - self.resistance * z - self.k * ed) / self.inductance

    def energy(self, t: Array, e: Array, z: Array) -> Array:
        return 0.5 * self.inductance * z[0] * z[0]

    def dissipation(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return self.resistance * z[0] * z[0] + self.friction * ed * ed

    def supply(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return u[0] * z[0]
