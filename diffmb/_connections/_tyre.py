"""Tyres on a plane: the first marker is the ground (z is its normal), the second the wheel's centre (y is its axis).

With n the normal and y the axis, s = |n - (n . y) y| is the cosine of the camber. The wheel touches the ground at its
lowest point C, rho = height / s below its centre in its own plane, and is pressed in by delta = radius - rho:

    F_rho = max(k delta + c chi(delta) deltad, 0)        for delta > 0; never pulls        E = k delta^2 / 2
    normal load N = F_rho / s along n at C               (n . velocity of C = s rhod)

(radial spring-damper, Attia 2006). chi rises smoothly from 0 to 1 while delta goes from 0 to `ramp`: no jump at
touchdown. `SlipTyre` adds bristles with the deflections zeta along the heading h = y x n / s and across, l = n x h:

    zetad = vs - g zeta          vs: velocity of C along h, l          vr: rolling speed, that of the centre - vs
    F = -chi (kt zeta + d zetad)       E = chi kt zeta^2 / 2       D = chi (kt g zeta^2 + d g zeta zetad + d zetad^2)
    d = ct / (1 + ct g / (4 kt))       below 4 kt / g, so that D >= 0
    g = kt w / (mu N B m(r))     w = sqrt(vr^2 + creep^2)              r^2 = sum (B vs / w)^2
    m(r) = sin(C atan(r - E (r - atan(r)))) / r

for each of the two directions with its own kt and (B, C, mu, E). In steady slip, zeta = vs / g is the magic formula
F = -mu N sin(C atan(...)) B vs / (w r) (Pacejka; combined slip by similarity: the slips B vs / w on a circle), and
mu B C N / kt is the relaxation length. Since g > 0 whatever the slip, the tyre is passive in transients too. At
standstill g = kt |vs| / (mu N sin(C pi / 2)): bristles with dry friction (Dahl). N in g is kept above `least`; chi
depends on delta, so the bristles' energy adds chi' kt zeta^2 / 2 to F_rho.
"""

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from .._errors import MechanismError
from .._spatial._axis import as_array, is_concrete
from .._spatial._pose import Pose
from ._abstract import AbstractConnection
from ._numbers import LENGTH, Quantity, check_numbers

STIFFNESS, DAMPING = Quantity("N/m", least=0.0), Quantity("N s/m", least=0.0)

_SQUARE_OF_SLIP = 1e-10  # added to r^2, so that m is smooth at zero slip; moves the curve by 1e-10 of itself


class Radial(eqx.Module):
    """Radial spring-damper of a tyre."""

    radius: Array = eqx.field(converter=as_array)
    k: Array = eqx.field(converter=as_array)
    c: Array = eqx.field(converter=as_array)
    ramp: Array = eqx.field(converter=as_array)

    def check(self, title: str) -> None:
        check_numbers(title, self, radius=LENGTH, ramp=LENGTH, k=STIFFNESS, c=DAMPING)

    def depth(self, rho: Array) -> Array:
        """delta, zero above the ground."""
        return jnp.maximum(self.radius - rho, 0.0)

    def touch(self, rho: Array) -> tuple[Array, Array]:
        """chi and its derivative by delta."""
        part = jnp.clip((self.radius - rho) / self.ramp, 0.0, 1.0)
        return part * part * (3.0 - 2.0 * part), 6.0 * part * (1.0 - part) / self.ramp

    def force(self, rho: Array, rhod: Array) -> Array:
        return jnp.maximum(self.k * self.depth(rho) - self.c * self.touch(rho)[0] * rhod, 0.0)

    def energy(self, rho: Array) -> Array:
        return 0.5 * self.k * self.depth(rho) ** 2

    def heat(self, rho: Array, rhod: Array) -> Array:
        return (self.k * self.depth(rho) - self.force(rho, rhod)) * rhod


class RadialTyre(AbstractConnection):
    """A wheel that stands on a plane on a radial spring and damper, without friction.

    **Arguments:**

    - `first`, `second`: marker on the ground with z as its normal; marker at the wheel's centre with y as its axis.
    - `radius`: of the wheel, m. `k`: radial stiffness, N/m. `c`: radial damping, N s/m.
    - `ramp`: depth over which the damper sets in, m.
    """

    radius: Array = eqx.field(converter=as_array)
    k: Array = eqx.field(converter=as_array)
    c: Array = eqx.field(converter=as_array, default=0.0)
    ramp: Array = eqx.field(converter=as_array, default=1e-3)

    def __check_init__(self):
        self._radial.check(f"RadialTyre {self.name!r}")

    @property
    def _radial(self) -> Radial:
        return Radial(self.radius, self.k, self.c, self.ramp)

    def strain(self, t: Array, x: Pose) -> Array:
        upright = jnp.sqrt(x.rotation[2, 0] ** 2 + x.rotation[2, 2] ** 2)
        return jnp.stack([x.translation[2] / upright])

    def load(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return self._radial.force(e, ed)

    def energy(self, t: Array, e: Array, z: Array) -> Array:
        return self._radial.energy(e[0])

    def dissipation(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return self._radial.heat(e[0], ed[0])


class SlipTyre(AbstractConnection):
    """A tyre with slip forces by the magic formula and two states, the deflections of its bristles along and across the
    heading, m. Smooth at zero slip and at standstill; no aligning moment, no rolling resistance.

    **Arguments:**

    - `first`, `second`, `radius`, `k`, `c`, `ramp`: as in `mb.RadialTyre`.
    - `kx`, `ky`: stiffness of the tyre along and across, N/m. `cx`, `cy`: its damping, N s/m, felt at low speed.
    - `longitudinal`, `lateral`: (B, C, mu, E) of the magic formula: stiffness, shape (between 0 and 2), friction,
        curvature (at most 1); forces are mu times the load.
    - `creep`: speed below which rolling is not told from standing, m/s; a parked wheel creeps with this speed times its
        slip.
    - `least`: load below which the bristles let go, N.
    """

    radius: Array = eqx.field(converter=as_array)
    k: Array = eqx.field(converter=as_array)
    c: Array = eqx.field(converter=as_array)
    kx: Array = eqx.field(converter=as_array)
    ky: Array = eqx.field(converter=as_array)
    longitudinal: Array = eqx.field(converter=as_array, default=(12.0, 1.6, 1.0, 0.5))
    lateral: Array = eqx.field(converter=as_array, default=(10.0, 1.3, 1.0, -1.0))
    cx: Array = eqx.field(converter=as_array, default=0.0)
    cy: Array = eqx.field(converter=as_array, default=0.0)
    ramp: Array = eqx.field(converter=as_array, default=1e-3)
    creep: Array = eqx.field(converter=as_array, default=1e-2)
    least: Array = eqx.field(converter=as_array, default=10.0)

    def __check_init__(self):
        title = f"SlipTyre {self.name!r}"
        self._radial.check(title)
        units = {"kx": "N/m", "ky": "N/m", "creep": "m/s", "least": "N"}
        above = {what: Quantity(unit, above=0.0) for what, unit in units.items()}
        check_numbers(title, self, **above, cx=DAMPING, cy=DAMPING)
        for what in ("longitudinal", "lateral"):
            value = getattr(self, what)
            check_numbers(title, self, **{what: Quantity("(B, C, mu, E)", shape=(4,))})
            if is_concrete(value):
                B, C, mu, E = (float(v) for v in value)
                if not (B > 0.0 and 0.0 < C < 2.0 and mu > 0.0 and E <= 1.0):
                    raise MechanismError(
                        f"the {what} of {title} is (B, C, mu, E) = ({B:g}, {C:g}, {mu:g}, {E:g}); give B > 0, 0 < "
                        "C < 2, mu > 0 and E <= 1, else the force would turn round at large slip"
                    )

    @property
    def nz(self) -> int:
        return 2

    @property
    def _radial(self) -> Radial:
        return Radial(self.radius, self.k, self.c, self.ramp)

    def _contact(self, x: Pose) -> tuple[Array, Array, Array, Array]:
        """rho, s, the directions (n, h, l) as rows in the wheel's axes, and C from its centre."""
        n = x.rotation[2]
        s = jnp.sqrt(n[0] * n[0] + n[2] * n[2])
        zero = jnp.zeros_like(s)
        heading, down = jnp.stack([n[2], zero, -n[0]]) / s, jnp.stack([-n[0], zero, -n[2]]) / s
        rho = x.translation[2] / s
        return rho, s, jnp.stack([n, heading, jnp.cross(n, heading)]), rho * down

    def _slip(self, x: Pose, xd: Array) -> tuple[Array, Array, Array]:
        """rhod, vs (2,), vr."""
        _, s, axes, arm = self._contact(x)
        speed = axes @ (xd[3:] + jnp.cross(xd[:3], arm))
        return speed[0] / s, speed[1:], axes[1] @ xd[3:] - speed[1]

    def _release(self, x: Pose, xd: Array) -> Array:
        """g (2,)."""
        rho, s = self._contact(x)[:2]
        rhod, vs, vr = self._slip(x, xd)
        load = self._radial.force(rho, rhod) / s
        load = load + self.least * jnp.exp(-load / self.least)
        B, C, mu, E = jnp.stack([self.longitudinal, self.lateral], 1)
        w = jnp.sqrt(vr * vr + self.creep * self.creep)
        slips = B * vs / w
        r = jnp.sqrt(slips @ slips + _SQUARE_OF_SLIP)
        shape = jnp.sin(C * jnp.arctan(r - E * (r - jnp.arctan(r)))) / r
        return self._stiffness * w / (mu * load * B * shape)

    @property
    def _stiffness(self) -> Array:
        return jnp.stack([self.kx, self.ky])

    def _damper(self, g: Array) -> Array:
        """d (2,)."""
        given = jnp.stack([self.cx, self.cy])
        return given / (1.0 + given * g / (4.0 * self._stiffness))

    def _bristles(self, z: Array) -> Array:
        return 0.5 * (self._stiffness * z * z).sum()

    def load(self, t: Array, x: Pose, xd: Array, z: Array, u: Array) -> Array:
        rho, s, axes, arm = self._contact(x)
        on, slope = self._radial.touch(rho)
        normal = (self._radial.force(rho, self._slip(x, xd)[0]) + slope * self._bristles(z)) / s
        damped = self._damper(self._release(x, xd)) * self.zdot(t, x, xd, z, u)
        force = jnp.concatenate([normal[None], -on * (self._stiffness * z + damped)]) @ axes
        return jnp.concatenate([jnp.cross(arm, force), force])

    def zdot(self, t: Array, x: Pose, xd: Array, z: Array, u: Array) -> Array:
        return self._slip(x, xd)[1] - self._release(x, xd) * z

    def energy(self, t: Array, x: Pose, z: Array) -> Array:
        rho = self._contact(x)[0]
        return self._radial.energy(rho) + self._radial.touch(rho)[0] * self._bristles(z)

    def dissipation(self, t: Array, x: Pose, xd: Array, z: Array, u: Array) -> Array:
        rho = self._contact(x)[0]
        g, rate = self._release(x, xd), self.zdot(t, x, xd, z, u)
        slid = self._stiffness * g * z * z + self._damper(g) * rate * (rate + g * z)
        return self._radial.heat(rho, self._slip(x, xd)[0]) + self._radial.touch(rho)[0] * slid.sum()
