"""Fluid films: the traction of a lubricated cam and roller, and the journal bearing.

Elastohydrodynamic line contact of a cam profile and a roller of radius r, width L, with normal load N = -lam of the
contact constraint, curvature 1/R = 1/rho + 1/r, slip s = u_r - u_c of the surfaces and entrainment U = (u_r + u_c) / 2
relative to the contact point:

    b = sqrt(8 N R / (pi L E'))           p = 2 N / (pi b L)             half width and pressure (Hertz)             (1)
    h = 2.65 R (eta |U| / (E' R))^0.7 (alpha E')^0.54 (N / (E' R L))^-0.13          (Dowson and Higginson 1966)     (2)
    F = 2 b L tau0 asinh(eta_p s / (h tau0))        eta_p = eta exp(alpha p pi / 4)  (Johnson and Tevaarwerk 1977)  (3)

F brakes the slip. The load depends on the multiplier of the contact (Sol 1983, 9.1.4), which `follows` hands over; Sol
takes Houpert's coefficient (1980) instead of (3), which has the same shape.

Short journal bearing with cavitation (Ocvirk's film, impedance form of Childs, Moes and van Leeuwen 1977): with e the
eccentricity of the journal, w its spin relative to the bearing, V = ed - w/2 z x e the squeeze velocity, and n the unit
vectors of the half circle where V . n > 0, where the film carries,

    F = -eta L^3 r / c^3  int (n . V) n / (1 - e . n / c)^3 dtheta
    M = -2 pi eta L r^3 w / (c sqrt(1 - e^2 / c^2))                                                                 (4)

on the journal, and half the couple e x F of the film's shear, so that what is lost, -F . V - M w, is never negative.
The integrals are closed forms in Sommerfeld's variable.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .._constraints._profile import AbstractProfile
from .._spatial._axis import as_array
from .._spatial._pose import Pose
from ._abstract import AbstractConnection
from ._numbers import Quantity, check_numbers


class Lubrication(NamedTuple):
    """What happens in a lubricated line contact."""

    normal: Array  # load, N
    slip: Array  # m/s
    entrainment: Array  # m/s
    pressure: Array  # largest, of Hertz, Pa
    film: Array  # smallest thickness, m
    traction: Array  # N


class CamTraction(AbstractConnection):
    """The traction of a lubricated roller on a cam; `CamContact` between the same markers keeps it there.

    **Arguments:**

    - `profile`, `radius`: of the cam and the roller, as for `mb.CamContact`.
    - `contact`: the name of that constraint, whose multiplier is the normal load.
    - `width`: of the contact, m.
    - `modulus`: reduced modulus E', Pa: 2 / E' = (1 - nu1^2) / E1 + (1 - nu2^2) / E2.
    - `viscosity`: of the oil at ambient pressure, Pa s; `pressure_coefficient`: alpha, 1/Pa.
    - `eyring`: shear stress tau0 at which the oil ceases to be Newtonian, Pa.
    """

    profile: AbstractProfile
    radius: Array = eqx.field(converter=as_array)
    contact: str = eqx.field(static=True)
    width: Array = eqx.field(converter=as_array)
    modulus: Array = eqx.field(converter=as_array, default=2.3e11)
    viscosity: Array = eqx.field(converter=as_array, default=0.02)
    pressure_coefficient: Array = eqx.field(converter=as_array, default=1.8e-8)
    eyring: Array = eqx.field(converter=as_array, default=5e6)

    def __check_init__(self):
        units = {"radius": "m", "width": "m", "modulus": "Pa", "viscosity": "Pa s", "pressure_coefficient": "1/Pa",
                 "eyring": "Pa"}  # fmt: skip
        above = {name: Quantity(unit, above=0.0) for name, unit in units.items()}
        check_numbers(f"CamTraction {self.name!r}", self, **above)

    @property
    def follows(self) -> tuple[str, ...]:
        return (self.contact,)

    def _surface(self, x: Pose, xd: Array) -> tuple[Array, Array, Array, Array]:
        """The normal, the curvature 1/R, the slip and the entrainment, in the axes of the cam."""
        p, velocity, spin = x.translation[:2], (x.rotation @ xd[3:])[:2], (x.rotation @ xd[:3])[2]
        normal = self.profile.contact(p)[1]
        tangent = jnp.stack([-normal[1], normal[0]])
        along = velocity @ tangent
        turn = jax.jvp(lambda p: self.profile.contact(p)[1], (p,), (tangent,))[1] @ tangent  # 1 / (rho + r)
        flat = 1.0 - self.radius * turn
        slip = along - self.radius * spin
        return normal, 1.0 / (flat * self.radius), slip, 0.5 * slip - along * flat

    def lubrication(self, x: Pose, xd: Array, lam: Array) -> Lubrication:
        """(1) to (3), from the relative pose and twist and the multiplier of the contact."""
        _, curvature, slip, U = self._surface(x, xd)
        return self._film(curvature, slip, U, lam)

    def _film(self, curvature: Array, slip: Array, U: Array, lam: Array) -> Lubrication:
        N = 0.5 * (-lam + jnp.sqrt(lam * lam + 1e-6))  # a contact does not pull
        E, R = self.modulus, 1.0 / curvature
        b = jnp.sqrt(8.0 * N * R / (jnp.pi * self.width * E))
        pressure = 2.0 * N / (jnp.pi * b * self.width)
        speed = jnp.sqrt(U * U + 1e-8)
        film = 2.65 * R * (self.viscosity * speed / (E * R)) ** 0.7 * (self.pressure_coefficient * E) ** 0.54
        film = film * (N / (E * R * self.width)) ** -0.13
        thick = self.viscosity * jnp.exp(self.pressure_coefficient * pressure * jnp.pi / 4.0)
        stress = self.eyring * jnp.arcsinh(thick * slip / (film * self.eyring))
        return Lubrication(N, slip, U, pressure, film, 2.0 * b * self.width * stress)

    def load(self, t: Array, x: Pose, xd: Array, z: Array, u: Array) -> Array:
        normal, curvature, slip, U = self._surface(x, xd)
        traction = self._film(curvature, slip, U, u[0]).traction
        zero = jnp.zeros_like(traction)
        force = traction * jnp.stack([normal[1], -normal[0], zero])  # against the tangent
        moment = jnp.stack([zero, zero, self.radius * traction])
        return jnp.concatenate([x.rotation.T @ moment, x.rotation.T @ force])

    def dissipation(self, t: Array, x: Pose, xd: Array, z: Array, u: Array) -> Array:
        film = self.lubrication(x, xd, u[0])
        return film.traction * film.slip


class JournalBearing(AbstractConnection):
    """A journal (second marker) in an oil film inside a bearing (first marker); both turn about their z axes.

    The film has no stiffness along z and against tilting: joints keep the journal in the plane. It must stay inside the
    clearance, where the film's force grows beyond all bounds.

    **Arguments:**

    - `radius`, `length`: of the bearing, m; the theory is that of short ones, length below the diameter.
    - `clearance`: radial, m.
    - `viscosity`: Pa s.
    """

    radius: Array = eqx.field(converter=as_array)
    length: Array = eqx.field(converter=as_array)
    clearance: Array = eqx.field(converter=as_array)
    viscosity: Array = eqx.field(converter=as_array)

    def __check_init__(self):
        units = {"radius": "m", "length": "m", "clearance": "m", "viscosity": "Pa s"}
        above = {name: Quantity(unit, above=0.0) for name, unit in units.items()}
        check_numbers(f"JournalBearing {self.name!r}", self, **above)

    def film(self, x: Pose, xd: Array) -> tuple[Array, Array, Array, Array]:
        """(4): the force on the journal and the squeeze velocity, (2,), the friction M and the spin."""
        e, v, w = x.translation[:2], (x.rotation @ xd[3:])[:2], (x.rotation @ xd[:3])[2]
        V = v - 0.5 * w * jnp.stack([-e[1], e[0]])
        ratio = e / self.clearance
        strength = self.viscosity * self.length**3 * self.radius / self.clearance**3
        friction = 2.0 * jnp.pi * self.viscosity * self.length * self.radius**3 / self.clearance
        return -strength * _carried(ratio, V) @ V, V, -friction * w / jnp.sqrt(1.0 - ratio @ ratio), w

    def load(self, t: Array, x: Pose, xd: Array, z: Array, u: Array) -> Array:
        force, _, moment, _ = self.film(x, xd)
        e, zero = x.translation, jnp.zeros_like(moment)
        moment = moment - 0.5 * (e[0] * force[1] - e[1] * force[0])
        wrench = jnp.stack([zero, zero, moment]), jnp.concatenate([force, zero[None]])
        return jnp.concatenate([x.rotation.T @ wrench[0], x.rotation.T @ wrench[1]])

    def dissipation(self, t: Array, x: Pose, xd: Array, z: Array, u: Array) -> Array:
        force, V, moment, w = self.film(x, xd)
        return -force @ V - moment * w


def _carried(ratio: Array, V: Array) -> Array:
    """The integrals of n n^T / (1 - ratio . n)^3 over the half circle around V, (2, 2)."""
    square = ratio @ ratio
    none, still = square == 0.0, V @ V == 0.0
    size = jnp.sqrt(jnp.where(none, 1.0, square))
    axis = jnp.where(none, jnp.array([1.0, 0.0], V.dtype), ratio / size)
    size = jnp.where(none, 0.0, size)
    across = jnp.stack([-axis[1], axis[0]])
    V = jnp.where(still, axis, V)
    middle = jnp.arctan2(V @ across, V @ axis)  # from the eccentricity to the squeeze velocity
    root = jnp.sqrt(1.0 - square)

    def primitive(psi: Array) -> Array:
        """Of (cos^2, sin cos, sin^2) / (1 - size cos)^3, with Sommerfeld's variable chi, continued over turns."""
        turns = jnp.round(psi / (2.0 * jnp.pi))
        half = 0.5 * (psi - 2.0 * jnp.pi * turns)
        chi = 2.0 * jnp.arctan2(jnp.sqrt(1.0 + size) * jnp.sin(half), jnp.sqrt(1.0 - size) * jnp.cos(half))
        chi = chi + 2.0 * jnp.pi * turns
        s, c = jnp.sin(chi), jnp.cos(chi)
        cc = size * size * chi + 2.0 * size * s + 0.5 * (chi + s * c)
        return jnp.stack([cc, root * (0.5 * s * s - size * c), root * root * 0.5 * (chi - s * c)])

    a, b, d = (primitive(middle + 0.5 * jnp.pi) - primitive(middle - 0.5 * jnp.pi)) / root**5
    frame = jnp.stack([axis, across])
    return frame.T @ jnp.stack([jnp.stack([a, b]), jnp.stack([b, d])]) @ frame
