"""SOLVERS: which method takes the steps, and how long they are.

    explicit    Tsit5 (order 5), or Dopri8 (order 8) when few times are asked for and digits matter
    implicit    Kvaerno5 (ESDIRK, L-stable), Newton on the stages; for stiff springs, dampers, contacts, films
    auto        tries the explicit one, and goes over to the implicit one if stability limits its steps

Any Runge-Kutta method of diffrax will do. Implicit ones are run by `_esdirk.py` with their coefficients (the root
finder that diffrax 0.7 takes by default stalls on stiff mechanisms); KenCarp methods take the whole field as implicit.
"""

import dataclasses
from typing import Any

import diffrax
import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

from ._errors import MechanismError
from ._esdirk import Esdirk
from ._plan import FixedStep
from ._spatial._axis import is_concrete


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


class Tolerance(eqx.Module):
    """Adaptive steps whose error stays below `atol + rtol * |y|` in each; `atol` is `rtol` unless it is given."""

    rtol: Any
    atol: Any = None


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


def as_solver(solver: Any) -> Any:
    """The solver, made ready for the loop: plain stage loops, one Jacobian a step for implicit stages."""
    solver = explicit() if solver is None else solver
    if not isinstance(solver, diffrax.AbstractRungeKutta):
        raise MechanismError(
            f"solver is {type(solver).__name__}; give mb.explicit(), mb.implicit(), mb.Auto() or a Runge-Kutta method "
            "of diffrax, such as diffrax.Tsit5()"
        )
    if isinstance(solver, diffrax.AbstractImplicitSolver):
        return Esdirk(type(solver))
    if isinstance(solver.tableau, diffrax.MultiButcherTableau):
        raise MechanismError(f"solver {type(solver).__name__} splits the field in two, which a mechanism's does not do")
    return dataclasses.replace(solver, scan_kind="lax")


def as_controller(controller: Any, dtype: Any) -> tuple[Any, tuple[Array, ...]]:
    """The controller without numbers (None for fixed steps), and its tolerances or its step.

    1e-8 by default in double precision; tolerances that the precision cannot keep are refused.
    """
    eps = float(np.finfo(dtype).eps)
    number = lambda value: jnp.asarray(value, dtype)
    if controller is None:
        controller = Tolerance(1e-8 if eps < 1e-12 else 1e-4)
    if isinstance(controller, Tolerance):
        atol = controller.rtol if controller.atol is None else controller.atol
        controller = diffrax.PIDController(rtol=controller.rtol, atol=atol, pcoeff=0.2, icoeff=0.5)
    if isinstance(controller, FixedStep):
        if is_concrete(controller.dt) and not 0 < float(controller.dt) < np.inf:
            raise MechanismError(f"FixedStep({controller.dt}); a step is a finite time above zero, s")
        return None, (number(controller.dt),)
    if not isinstance(controller, diffrax.PIDController):
        raise MechanismError(
            f"controller is {type(controller).__name__}; give mb.Tolerance(rtol), mb.FixedStep(dt) or "
            "diffrax.PIDController(rtol=..., atol=...)"
        )
    rtol = controller.rtol
    if is_concrete(rtol) and float(rtol) < 50 * eps:
        more = '; set jax.config.update("jax_enable_x64", True)' if eps > 1e-12 else ""
        kept = f"{np.dtype(dtype).name} can keep (about {50 * eps:.1g})"
        raise MechanismError(f"rtol = {float(rtol):g} is below what {kept}: take a larger one{more}")
    return dataclasses.replace(controller, rtol=0.0, atol=0.0), (number(rtol), number(controller.atol))
