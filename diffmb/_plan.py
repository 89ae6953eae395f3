"""What a simulation integrates and how: the vector field on one flat vector, and the fixed choices of a run.

    y = (q, v, z)          yd = field(t, y)          theta = everything that it depends on
"""

from typing import Any

import diffrax
import equinox as eqx
import jax.numpy as jnp
from jax import Array

from ._inputs import Inputs
from ._kinematics import qdot
from ._model import Model
from ._motion import accelerations_of, connection_motion


class Theta(eqx.Module):
    """The numbers that the field depends on: model, inputs, and the rate of Baumgarte's feedback if there is one."""

    model: Model
    inputs: Inputs
    feedback: Array | None
    events: tuple = ()  # the params of each


class Mode(eqx.Module):
    """What is fixed during a step and has no derivative: the independent rows, and what is switched on.

    The rows are `stale` when they must be chosen anew before the next step.
    """

    chosen: Array
    stale: Array
    on: Array | None  # (switches,), or None if nothing is ever switched


class FixedStep(eqx.Module):
    """Steps of the length `dt`, s, whatever their error; shorter only to meet a requested time."""

    dt: float = eqx.field(static=True)


class Plan(eqx.Module):
    """The fixed choices of a run. It is hashable: two equal plans share one compiled program."""

    solver: Any = eqx.field(static=True)
    controller: Any = eqx.field(static=True)
    project: bool = eqx.field(static=True)
    events: tuple = eqx.field(static=True)
    outputs: int = eqx.field(static=True)
    max_steps: int = eqx.field(static=True)
    slots: int = eqx.field(static=True)
    max_events: int = eqx.field(static=True)
    progress: Any = eqx.field(static=True)

    @property
    def tableau(self) -> Any:
        """Butcher's numbers of the method; of its implicit half if it has two."""
        tableau = self.solver.tableau
        return tableau.tableaus[-1] if isinstance(tableau, diffrax.MultiButcherTableau) else tableau

    def terms(self) -> Any:
        own = diffrax.ODETerm(lambda t, y, args: field(args[0], args[1], jnp.asarray(t), y))
        if isinstance(self.solver.tableau, diffrax.MultiButcherTableau):
            return diffrax.MultiTerm(diffrax.ODETerm(lambda t, y, args: jnp.zeros_like(y)), own)
        return own


def split(model: Model, y: Array) -> tuple[Array, Array, Array]:
    """(q, v, z) of y, any batch axes in front."""
    nq, nv = model.nq, model.nv
    return y[..., :nq], y[..., nq : nq + nv], y[..., nq + nv :]


def field(theta: Theta, mode: Mode, t: Array, y: Array) -> Array:
    """yd."""
    model = theta.model
    q, v, z = split(model, y)
    tau, u = theta.inputs(t)
    zd = z
    if model.connections:
        more, zd = connection_motion(model, q, v, t, z, u, mode.on)
        tau = tau + more
    vd = accelerations_of(model, mode.chosen, q, v, tau, t, theta.feedback)
    return jnp.concatenate([qdot(model, q, v), vd, zd])
