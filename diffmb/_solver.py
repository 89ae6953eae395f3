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

from ._checks import check_positive, check_tolerances, check_whole, is_number, kind_of
from ._errors import MechanismError
from ._esdirk import Esdirk
from ._plan import FixedStep
from ._spatial._axis import is_concrete


class Auto(eqx.Module):
    """Chooses between an explicit and an implicit method by what stops the explicit one from longer steps.

    **Arguments:**

    - `pilot`: attempts of the explicit method after which it is judged.
    """

    pilot: Any = eqx.field(static=True, default=300)

    def __check_init__(self):
        check_whole("Auto", "pilot", self.pilot, "attempts")


class StoredSteps(eqx.Module):
    """How many accepted steps a run keeps when its derivative is asked for; memory grows with it, time does not."""

    steps: Any = eqx.field(static=True, default=4096, converter=lambda n: int(n) if isinstance(n, np.integer) else n)

    def __check_init__(self):
        check_whole("StoredSteps", "steps", self.steps, "steps")


class Tolerance(eqx.Module):
    """Adaptive steps whose error stays below `atol + rtol * |y|` in each; `atol` is `rtol` unless it is given.

    `atol` may be an array, one number for each of (q, v, z).
    """

    rtol: Any
    atol: Any = None

    def __check_init__(self):
        check_tolerances("Tolerance", self.rtol, self.rtol if self.atol is None else self.atol)


class Baumgarte(eqx.Module):
    """Feedback instead of projection: errors of constraints decay at `rate`, 1/s (critically damped).

    Its gain is part of the answer; a projection is not. Use it to compare with programs that have nothing else. A run
    without projection ends as `drift` where constraints are open by more than 0.1 m or rad; `traj.stats` has how open
    they were.
    """

    rate: Any = 10.0

    def __check_init__(self):
        check_positive("Baumgarte: rate", self.rate, "a rate in 1/s, such as 10.0")


def explicit(order: Any = 5) -> Any:
    """An explicit method: order 3 (Bosh3), 5 (Tsit5) or 8 (Dopri8)."""
    methods = {3: diffrax.Bosh3, 5: diffrax.Tsit5, 8: diffrax.Dopri8}
    if order not in list(methods):
        raise MechanismError(f"there is no explicit method of order {order!r} here; 3, 5 and 8 are")
    return methods[order]()


def implicit(order: Any = 5) -> Any:
    """An implicit method for stiff systems: order 3, 4 or 5 (Kvaerno)."""
    methods = {3: diffrax.Kvaerno3, 4: diffrax.Kvaerno4, 5: diffrax.Kvaerno5}
    if order not in list(methods):
        raise MechanismError(f"there is no implicit method of order {order!r} here; 3, 4 and 5 are")
    return methods[order]()


def as_solver(solver: Any) -> Any:
    """The solver, made ready for the loop: plain stage loops, one Jacobian a step for implicit stages."""
    solver = explicit() if solver is None else solver
    if not isinstance(solver, diffrax.AbstractRungeKutta):
        raise MechanismError(f"solver is {_not_a_solver(solver)}")
    if isinstance(solver, diffrax.AbstractImplicitSolver):
        return Esdirk(type(solver))
    if isinstance(solver.tableau, diffrax.MultiButcherTableau):
        raise MechanismError(f"solver {type(solver).__name__} splits the field in two, which a mechanism's does not do")
    return dataclasses.replace(solver, scan_kind="lax")


_EXPLICIT = ("explicit", "rk45", "rk23", "dop853", "tsit5", "dopri5", "dopri8")
_IMPLICIT = ("implicit", "radau", "bdf", "lsoda", "stiff")


def _not_a_solver(solver: Any) -> str:
    """What it is, and what to give instead."""
    ours = "give mb.explicit(), mb.implicit(), mb.Auto() or a Runge-Kutta method of diffrax, such as diffrax.Tsit5()"
    name = getattr(solver, "__name__", None)
    if solver in (explicit, implicit, Auto):
        return f"mb.{name} itself; call it: mb.{name}()"
    if isinstance(solver, type) and issubclass(solver, diffrax.AbstractRungeKutta):
        return f"the class {name}; make one: diffrax.{name}()"
    if isinstance(solver, str):
        meant = "mb.explicit()" if solver.lower() in _EXPLICIT else "mb.implicit()"
        return f"the string {solver!r}; {f'give {meant}' if solver.lower() in _EXPLICIT + _IMPLICIT else ours}"
    if isinstance(solver, diffrax.AbstractSRK | diffrax.EulerHeun | diffrax.ItoMilstein | diffrax.StratonovichMilstein):
        return f"{type(solver).__name__}, a method for stochastic equations; {ours}"
    if isinstance(solver, diffrax.AbstractSolver):
        return f"{type(solver).__name__}, which diffrax does not write as a Runge-Kutta method; {ours}"
    return f"{kind_of(solver)}; {ours}"


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
        return None, (number(controller.dt),)
    if not isinstance(controller, diffrax.PIDController):
        raise MechanismError(f"controller is {_not_a_controller(controller)}")
    check_tolerances("PIDController", controller.rtol, controller.atol)
    rtol, own = controller.rtol, dataclasses.replace(controller, rtol=0.0, atol=0.0)
    if is_concrete(rtol) and float(rtol) < 50 * eps:
        more = '; set jax.config.update("jax_enable_x64", True)' if eps > 1e-12 else ""
        kept = f"{np.dtype(dtype).name} can keep (about {50 * eps:.1g})"
        raise MechanismError(f"rtol = {float(rtol):g} is below what {kept}: take a larger one{more}")
    try:
        hash(own)
    except TypeError as error:
        raise MechanismError("the settings of a PIDController other than rtol and atol are plain numbers") from error
    return own, (number(rtol), number(controller.atol))


def _not_a_controller(controller: Any) -> str:
    """What it is, and what to give instead."""
    if is_number(controller) and 0 < controller < 1:
        return f"the number {controller:g}; give mb.Tolerance({controller:g}), or mb.FixedStep({controller:g})"
    ours = "give mb.Tolerance(rtol), mb.FixedStep(dt) or diffrax.PIDController(rtol=..., atol=...)"
    if isinstance(controller, diffrax.AbstractStepSizeController):
        return f"{type(controller).__name__} of diffrax; {ours}"
    return f"{kind_of(controller)}; {ours}"
