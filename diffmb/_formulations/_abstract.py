"""FORMULATIONS: other ways to the same motion, each in coordinates of its own.

    x, xd = embed(q, v, t)                   own coordinates and speeds of a state of the model
    xdd, lam = accelerate(x, xd, tau, t)     own equations; lam belongs to the rows of the model
    q, v = project(x, xd, t)                 back to the model
    vd = d/dt v(x, xd, t)                    so all formulations compare with each other and with `mb.dynamics`   (1)

A pose does not count turns, and gears do: with everything goes `near`, coordinates of the model close by, which a
simulation carries along (qd = N(q) v). They choose the turn and start the search for q; nothing else depends on them.

Errors of the constraints decay by feedback (Baumgarte 1972) while a simulation runs,

    phidd + 2 a phid + a^2 phi = 0           a: `feedback`, 1/s; zero in `dynamics`                               (2)

No formulation uses another one, or the mass matrix and elimination of the trunk. They share the description: joints,
elements and connections one by one (`_bodies.py`, `_elements.py`), and this page. Written for one sample; batches by
`jax.vmap`.
"""

from abc import abstractmethod
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .._assembly import State
from .._checks import as_time, check_coordinates, check_speeds
from .._errors import MechanismError
from .._kinematics import qdot, unit_quaternions
from .._model import Model


class Accelerations(eqx.Module):
    """What moves a mechanism: `vd` (nv,), and the multipliers `lam` (nc,) of the model's rows."""

    vd: Array
    lam: Array


class Simulation(eqx.Module):
    """Coordinates `q` (times, nq) and speeds `v` (times, nv) of the model at `ts`; `steps` taken on the way."""

    ts: Array
    q: Array
    v: Array
    steps: Array


class AbstractFormulation(eqx.Module):
    """A way to the accelerations of a model. `x` and `xd` may be any trees of arrays.

    **Arguments:**

    - `model`: from `mb.compile`. Connections with states, or that follow multipliers, are refused.
    """

    model: eqx.AbstractVar[Model]

    def __check_init__(self):
        for group in self.model.connections:
            if group.kind.nz or group.kind.follows:
                why = "has states of its own" if group.kind.nz else f"follows the multipliers of {group.kind.follows}"
                raise MechanismError(
                    f"connection {group.names[0][0]!r} {why}, which {type(self).__name__} does not carry; "
                    "use mb.dynamics and mb.simulate"
                )

    @property
    @abstractmethod
    def unknowns(self) -> tuple[int, int]:
        """(number of own coordinates, size of the largest linear system of one evaluation)."""

    @abstractmethod
    def embed(self, q: Array, v: Array, t: Array) -> tuple[Any, Any]:
        """(x, xd) of a state of the model."""

    @abstractmethod
    def accelerate(self, x: Any, xd: Any, tau: Array, t: Array, near: Array, feedback: Any) -> tuple[Any, Array]:
        """(xdd, lam): the rate of xd, and the multipliers of the model's rows, for loads tau at its speeds."""

    @abstractmethod
    def project(self, x: Any, xd: Any, t: Array, near: Array) -> tuple[Array, Array]:
        """(q, v) of the model."""

    def project_rates(self, x: Any, xd: Any, xdd: Any, t: Array, near: Array) -> Array:
        """vd by (1); a closed form may take its place."""
        speeds = lambda x, xd, t: self.project(x, xd, t, near)[1]
        return jax.jvp(speeds, (x, xd, t), (self.flow(x, xd), xdd, jnp.ones_like(t)))[1]

    def flow(self, x: Any, xd: Any) -> Any:
        """The rate of x."""
        return xd

    def dynamics(self, q, v, tau=None, t: Any = 0.0) -> Accelerations:
        """Accelerations and multipliers at a consistent (q, v). Arguments as in `mb.dynamics`."""
        q = check_coordinates(self.model, q)
        v, tau = check_speeds(self.model, "v", v, q), check_speeds(self.model, "tau", tau, q)
        t = as_time(t, q)
        x, xd = self.embed(q, v, t)
        xdd, lam = self.accelerate(x, xd, tau, t, q, 0.0)
        return Accelerations(self.project_rates(x, xd, xdd, t, q), lam)

    def simulate(
        self, state: State | tuple, ts: Any, tau=None, *, rtol: Any = 1e-8, atol: Any = 1e-8, feedback: Any = 20.0,
        max_steps: int = 4096,
    ) -> Simulation:  # fmt: skip
        """Moves the mechanism through the times `ts` in the formulation's own coordinates (Tsitouras 5(4)).

        **Arguments:**

        - `state`: from `mb.assemble`, or a consistent pair (q, v), at the first time.
        - `ts`: increasing times, s; steps end at each of them.
        - `tau`: constant loads (nv,) at the speeds of the model, zero by default.
        - `rtol`, `atol`: tolerances of a step.
        - `feedback`: the rate at which errors of constraints decay, 1/s.
        - `max_steps`: limit.

        Forward and reverse derivatives go through it.
        """
        q, v = (state.q, state.v) if isinstance(state, State) else state
        q = check_coordinates(self.model, q)
        v, tau = check_speeds(self.model, "v", v, q), check_speeds(self.model, "tau", tau, q)
        ts = jnp.asarray(ts, q.dtype)

        def field(t: Any, y: Any, args: Any) -> Any:
            (x, xd, near), (own, tau, feedback) = y, args
            xdd, _ = own.accelerate(x, xd, tau, t, near, feedback)
            return own.flow(x, xd), xdd, qdot(own.model, near, own.project(x, xd, t, near)[1])

        found = diffrax.diffeqsolve(
            diffrax.ODETerm(field), diffrax.Tsit5(), ts[0], ts[-1], None, (*self.embed(q, v, ts[0]), q),
            (self, tau, jnp.asarray(feedback, q.dtype)), saveat=diffrax.SaveAt(ts=ts), max_steps=max_steps,
            stepsize_controller=diffrax.ClipStepSizeController(diffrax.PIDController(rtol, atol), step_ts=ts),
            adjoint=diffrax.DirectAdjoint(),
        )  # fmt: skip
        x, xd, near = found.ys  # pyright: ignore[reportGeneralTypeIssues]
        near = jax.vmap(lambda q: unit_quaternions(self.model, q))(near)
        return Simulation(ts, *jax.vmap(self.project)(x, xd, ts, near), found.stats["num_steps"])
