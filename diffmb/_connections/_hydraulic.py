"""Hydraulic cylinder with two chambers, fed through a servo-valve with four edges.

    V_a = volume_a + area_a (e - middle)        V_b = volume_b - area_b (e - middle)
    F = area_a p_a - area_b p_b - friction ed
    V_a p_a' = bulk (q_sa - q_at - q_ab - area_a ed)        V_b p_b' = bulk (q_sb - q_bt + q_ab + area_b ed)

    edges      q_sa = valve o(u) r(p_s - p_a)        q_at = valve o(-u) r(p_a - p_t)
               q_sb = valve o(-u) r(p_s - p_b)       q_bt = valve o(u) r(p_b - p_t)
    opening    o(u) = (u + sqrt(u^2 + underlap^2)) / 2
    orifice    r(d) = d / (d^2 + laminar^2)^(1/4)    the square root of d, linear where the flow is laminar
    leakage    q_ab = leakage (p_a - p_b)

A volume V of oil at pressure p holds V h, and oil that flows at p carries W for each unit of volume,

    h = bulk (exp(p / bulk) - 1) - p            W = bulk (exp(p / bulk) - 1)

(h - bulk h' = -p makes the balance exact: W is p + p^2 / (2 bulk) + ...). An edge turns (W_1 - W_2) q into heat.
"""

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from .._errors import MechanismError
from .._spatial._axis import as_array, is_concrete
from ._law import AbstractLaw
from ._numbers import Quantity, check_numbers

AREA, VOLUME, PRESSURE = (Quantity(unit, above=0.0) for unit in ("m^2", "m^3", "Pa"))
LEAST_PRESSURE = Quantity("Pa", least=0.0)


class HydraulicCylinder(AbstractLaw):
    """States: the pressures of the two chambers, Pa; input: opening of the valve, -1 to 1 (1 extends).

    A motion must stay where both volumes are positive.

    **Arguments:**

    - `area_a`, `area_b`: of the piston on the side that extends and on the other, m^2.
    - `volume_a`, `volume_b`: of the chambers and their lines where e = `middle`, m^3.
    - `middle`: strain in the middle of the stroke, m.
    - `valve`: flow through a fully open edge for a drop of 1 Pa, m^3/(s Pa^(1/2)).
    - `supply_pressure`, `tank_pressure`: Pa.
    - `bulk`: bulk modulus of the oil with its lines, Pa.
    - `leakage`: past the piston, m^3/(s Pa). `friction`: viscous, N s/m.
    - `underlap`: opening of the edges in the middle of the valve, above zero.
    - `laminar`: drop of pressure below which the flow is laminar, Pa.
    - `pressure_a`, `pressure_b`: from which a motion starts, Pa; half of the supply by default.
    """

    area_a: Array = eqx.field(converter=as_array)
    area_b: Array = eqx.field(converter=as_array)
    volume_a: Array = eqx.field(converter=as_array)
    volume_b: Array = eqx.field(converter=as_array)
    middle: Array = eqx.field(converter=as_array)
    valve: Array = eqx.field(converter=as_array)
    supply_pressure: Array = eqx.field(converter=as_array)
    tank_pressure: Array = eqx.field(converter=as_array, default=1e5)
    bulk: Array = eqx.field(converter=as_array, default=1.4e9)
    leakage: Array = eqx.field(converter=as_array, default=0.0)
    friction: Array = eqx.field(converter=as_array, default=0.0)
    underlap: Array = eqx.field(converter=as_array, default=1e-3)
    laminar: Array = eqx.field(converter=as_array, default=1e5)
    pressure_a: Array | None = eqx.field(converter=lambda p: None if p is None else as_array(p), default=None)
    pressure_b: Array | None = eqx.field(converter=lambda p: None if p is None else as_array(p), default=None)

    def check(self, title: str) -> None:
        check_numbers(title, self, area_a=AREA, area_b=AREA, volume_a=VOLUME, volume_b=VOLUME, middle=Quantity("m"))
        check_numbers(title, self, valve=Quantity("m^3/(s Pa^(1/2))", least=0.0))
        check_numbers(title, self, supply_pressure=PRESSURE, tank_pressure=LEAST_PRESSURE, bulk=PRESSURE)
        check_numbers(title, self, leakage=Quantity("m^3/(s Pa)", least=0.0), friction=Quantity("N s/m", least=0.0))
        check_numbers(title, self, underlap=Quantity("of the full opening", above=0.0), laminar=PRESSURE)
        for what in ("pressure_a", "pressure_b"):
            if getattr(self, what) is not None:
                check_numbers(title, self, **{what: LEAST_PRESSURE})
        high, low = self.supply_pressure, self.tank_pressure
        if is_concrete(high, low) and not float(high) > float(low):
            raise MechanismError(
                f"{title} has supply_pressure {float(high):g} Pa; give more than its tank's {float(low):g} Pa"
            )

    @property
    def nz(self) -> int:
        return 2

    @property
    def nu(self) -> int:
        return 1

    def _volumes(self, e: Array) -> tuple[Array, Array]:
        moved = e - self.middle
        return self.volume_a + self.area_a * moved, self.volume_b - self.area_b * moved

    def _flows(self, z: Array, u: Array) -> tuple[Array, Array, Array, Array, Array]:
        """q_sa, q_at, q_sb, q_bt, q_ab."""
        rounded = jnp.sqrt(u[0] * u[0] + self.underlap * self.underlap)
        forth, back = 0.5 * self.valve * (rounded + u[0]), 0.5 * self.valve * (rounded - u[0])
        orifice = lambda drop: drop / jnp.sqrt(jnp.sqrt(drop * drop + self.laminar * self.laminar))
        (a, b), high, low = z, self.supply_pressure, self.tank_pressure
        leak = self.leakage * (a - b)
        return (
            forth * orifice(high - a),
            back * orifice(a - low),
            back * orifice(high - b),
            forth * orifice(b - low),
            leak,
        )

    def _carried(self, p: Array) -> Array:
        """W."""
        return self.bulk * jnp.expm1(p / self.bulk)

    def load(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return self.area_a * z[0] - self.area_b * z[1] - self.friction * ed

    def zdot(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        (a, b), (sa, at, sb, bt, ab) = self._volumes(e), self._flows(z, u)
        into_a, into_b = sa - at - ab - self.area_a * ed, sb - bt + ab + self.area_b * ed
        return jnp.stack([self.bulk * into_a / a, self.bulk * into_b / b])

    def energy(self, t: Array, e: Array, z: Array) -> Array:
        a, b = self._volumes(e)
        return a * (self._carried(z[0]) - z[0]) + b * (self._carried(z[1]) - z[1])

    def dissipation(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        sa, at, sb, bt, ab = self._flows(z, u)
        a, b, high, low = (self._carried(p) for p in (*z, self.supply_pressure, self.tank_pressure))
        edges = (high - a) * sa + (a - low) * at + (high - b) * sb + (b - low) * bt
        return edges + (a - b) * ab + self.friction * ed * ed

    def supply(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        sa, at, sb, bt, _ = self._flows(z, u)
        return self._carried(self.supply_pressure) * (sa + sb) - self._carried(self.tank_pressure) * (at + bt)

    def start(self) -> Array:
        half = 0.5 * self.supply_pressure
        return jnp.stack([half if p is None else p for p in (self.pressure_a, self.pressure_b)])
