"""SOLVERS: which method takes the steps, and how long they are.

    explicit    Tsit5 (order 5), or Dopri8 (order 8) when few times are asked for and digits matter
    implicit    Kvaerno5 (ESDIRK, L-stable), Newton on the stages; for stiff springs, dampers, contacts, films
    auto        tries the explicit one, and goes over to the implicit one if stability limits its steps

Any Runge-Kutta method of diffrax will do. Two of its defaults are changed: the stages of implicit methods are solved
with Newton's method (the chord method that diffrax 0.7 takes by default stalls on stiff mechanisms), and KenCarp
methods take the whole field as implicit.
"""

import dataclasses
from typing import Any

import diffrax
import equinox as eqx
import jax
import numpy as np
import optimistix as optx

from ._errors import MechanismError
from ._plan import FixedStep


class Auto(eqx.Module):
    """Chooses between an explicit and an implicit method by what stops the explicit one from longer steps.

    **Arguments:**

    - `pilot`: attempts of the explicit method after which it is judged.
    """

    pilot: int = eqx.field(static=True, default=300)


class StoredSteps(eqx.Module):
    """How many accepted steps a run keeps when its derivative is asked for; memory grows with it, time does not."""

    steps: int = eqx.field(static=True, default=4096)

    def __check_init__(self):
        if not isinstance(self.steps, int) or self.steps < 1:
            raise MechanismError(f"StoredSteps({self.steps!r}); give a whole number of steps above zero")


class Baumgarte(eqx.Module):
    """Feedback instead of projection: errors of constraints decay at `rate`, 1/s (critically damped).

    Its gain is part of the answer; a projection is not. Use it to compare with programs that have nothing else.
    """

    rate: float = eqx.field(static=True, default=10.0)


def explicit(order: int = 5) -> Any:
    """An explicit method: order 3 (Bosh3), 5 (Tsit5) or 8 (Dopri8)."""
    methods = {3: diffrax.Bosh3, 5: diffrax.Tsit5, 8: diffrax.Dopri8}
    if order not in methods:
        raise MechanismError(f"there is no explicit method of order {order!r} here; 3, 5 and 8 are")
    return methods[order]()


def implicit(order: int = 5) -> Any:
    """An implicit method for stiff systems: order 3, 4 or 5 (Kvaerno)."""
    methods = {3: diffrax.Kvaerno3, 4: diffrax.Kvaerno4, 5: diffrax.Kvaerno5}
    if order not in methods:
        raise MechanismError(f"there is no implicit method of order {order!r} here; 3, 4 and 5 are")
    return methods[order]()


def is_implicit(solver: Any) -> bool:
    return isinstance(solver, diffrax.AbstractImplicitSolver)


def as_solver(solver: Any, controller: Any) -> Any:
    """The solver, made ready for the loop: plain stage loops, Newton for implicit stages."""
    solver = explicit() if solver is None else solver
    if not isinstance(solver, diffrax.AbstractRungeKutta):
        raise MechanismError(
            f"solver is {type(solver).__name__}; give mb.explicit(), mb.implicit(), mb.Auto() or a Runge-Kutta method "
            "of diffrax, such as diffrax.Tsit5()"
        )
    changes: dict[str, Any] = {"scan_kind": "lax"}
    if is_implicit(solver):
        rtol, atol = (1e-8, 1e-8) if isinstance(controller, FixedStep) else (controller.rtol, controller.atol)
        changes["root_finder"] = optx.Newton(rtol=float(rtol), atol=float(atol))
        changes["root_find_max_steps"] = 20
    return dataclasses.replace(solver, **changes)


def as_controller(controller: Any, dtype: Any) -> Any:
    """The controller, 1e-8 by default in double precision; refuses tolerances that the precision cannot keep."""
    eps = float(np.finfo(dtype).eps)
    if controller is None:
        tight = 1e-8 if eps < 1e-12 else 1e-4
        return diffrax.PIDController(rtol=tight, atol=tight, pcoeff=0.2, icoeff=0.5)
    if isinstance(controller, FixedStep):
        if not controller.dt > 0 or not np.isfinite(controller.dt):
            raise MechanismError(f"FixedStep({controller.dt}); a step is a finite time above zero, s")
        return controller
    if not isinstance(controller, diffrax.PIDController):
        raise MechanismError(
            f"controller is {type(controller).__name__}; give mb.FixedStep(dt) or "
            "diffrax.PIDController(rtol=..., atol=...)"
        )
    rtol = float(np.asarray(controller.rtol))
    if rtol < 50 * eps:
        more = '; set jax.config.update("jax_enable_x64", True)' if eps > 1e-12 else ""
        kept = f"{np.dtype(dtype).name} can keep (about {50 * eps:.1g})"
        raise MechanismError(f"rtol = {rtol:g} is below what {kept}: take a larger one{more}")
    numbers, rest = eqx.partition(controller, eqx.is_array)
    return eqx.combine(jax.tree.map(float, numbers), rest)
