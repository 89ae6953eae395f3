"""What a simulation integrates and how: the vector field on one flat vector, and the fixed choices of a run.

    y = (q, v, z)          yd = field(t, y)          theta = everything that it depends on
"""

from typing import Any

import diffrax
import equinox as eqx
import jax.numpy as jnp
from jax import Array

from ._checks import check_positive
from ._inputs import Inputs
from ._kinematics import qdot
from ._model import Model
from ._motion import rates_of
from ._tiles import Pace, running


class Theta(eqx.Module):
    """The numbers of a run: model, inputs, the rate of Baumgarte's feedback if there is one, the params of the events;
    and, of the loop itself, the tolerances (rtol, atol) or the step (dt,), and the limit of attempts."""

    model: Model
    inputs: Inputs
    feedback: Array | None
    events: tuple
    control: tuple[Array, ...]
    max_steps: Array


class Mode(eqx.Module):
    """What is fixed during a step and has no derivative: the independent rows, and what is switched on.

    The rows are `stale` when they must be chosen anew before the next step.
    """

    chosen: Array
    stale: Array
    on: Array | None  # (switches,), or None if nothing is ever switched


class FixedStep(eqx.Module):
    """Steps of the length `dt`, s, whatever their error; shorter only to meet a requested time."""

    dt: Any

    def __check_init__(self):
        check_positive("FixedStep: dt", self.dt, "a step in seconds")


class Plan(eqx.Module):
    """The fixed choices of a run. It is hashable: two equal plans share one compiled program.

    The controller has no tolerances here, and is None for fixed steps.
    """

    solver: Any = eqx.field(static=True)
    controller: Any = eqx.field(static=True)
    project: bool = eqx.field(static=True)
    events: tuple = eqx.field(static=True)
    outputs: int = eqx.field(static=True)
    slots: int = eqx.field(static=True)
    max_events: int = eqx.field(static=True)
    progress: Any = eqx.field(static=True)

    @property
    def method(self) -> str:
        """The name of the method."""
        return getattr(self.solver, "method", type(self.solver)).__name__

    def controller_of(self, theta: Theta) -> Any:
        """The controller with its tolerances."""
        return eqx.tree_at(lambda c: (c.rtol, c.atol), self.controller, theta.control)

    def terms(self) -> Any:
        return diffrax.ODETerm(lambda t, y, args: field(args[0], args[1], jnp.asarray(t), y))


def split(model: Model, y: Array) -> tuple[Array, Array, Array]:
    """(q, v, z) of y, any batch axes in front."""
    nq, nv = model.nq, model.nv
    return y[..., :nq], y[..., nq : nq + nv], y[..., nq + nv :]


def field(theta: Theta, mode: Mode, t: Array, y: Array) -> Array:
    """yd."""
    model = theta.model
    q, v, z = split(model, y)
    tau, u = theta.inputs(t)
    with running(Pace.OFTEN):
        vd, zd = rates_of(model, mode.chosen, q, v, z, tau, u, t, mode.on, theta.feedback)
        return jnp.concatenate([qdot(model, q, v), vd, zd])
