"""TRAJECTORY: what a simulation found, by name; what is not stored is computed when it is asked for, for all times."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ._advance import Found, Steps
from ._bodies._marker import Marker
from ._constrained import Dynamics, dynamics
from ._dynamics import kinetic_energy, potential_energy
from ._inputs import Inputs
from ._kinematics import Motion, kinematics
from ._model import Model
from ._plan import Plan, Theta, split
from ._reactions import reactions
from ._results import RESULTS
from ._spatial._axis import is_concrete


class Statistics(eqx.Module):
    """How a run went.

    - `solver`: the method that took the steps.
    - `steps`, `rejected`: accepted and rejected ones.
    - `constraint_error`: largest |phi| left after a step, m or rad.
    - `largest_correction`: of a coordinate, by projection.
    """

    steps: Array
    rejected: Array
    constraint_error: Array
    largest_correction: Array
    solver: str = eqx.field(static=True)


class Trajectory(eqx.Module):
    """A motion over time.

    - `ts`, `q`, `v`, `z`: times, coordinates, speeds, states of connections, one row for each time.
    - `result`: how it ended, one of `mb.RESULTS`; `reached`: the number of requested times that were reached.
    - `stats`: see `mb.Statistics`.
    - `event_times`, `event_numbers`: when events happened, and which (-1: none).

    `traj["rocker"]` is the motion of a body over time (`.pose`, `.twist`, `.acceleration`); a `Marker` picks a frame.
    """

    ts: Array
    q: Array
    v: Array
    z: Array
    on: Array | None
    model: Model
    inputs: Inputs
    result: Any
    reached: Array
    stats: Statistics
    event_times: Array
    event_numbers: Array
    event_names: tuple[str, ...] = eqx.field(static=True)

    def __getitem__(self, frame: str | Marker) -> Motion:
        at = lambda t, q, v, vd: kinematics(self.model, q, v, vd, t)[frame]
        return jax.vmap(at)(self.ts, self.q, self.v, self.vd)

    def coordinate(self, joint: str) -> Array:
        """The joint's coordinates over time: (times,) if it has one, else (times, nq)."""
        return _column(self.q[:, self.model.coordinates(joint)])

    def speed(self, joint: str) -> Array:
        """The joint's speeds over time."""
        return _column(self.v[:, self.model.speeds(joint)])

    def state(self, connection: str) -> Array:
        """The states of a connection over time."""
        return _column(self.z[:, self.model.states(connection)])

    def dynamics(self) -> Dynamics:
        """Accelerations and multipliers over time."""
        return _dynamics(self)

    @property
    def vd(self) -> Array:
        """Accelerations over time, (times, nv)."""
        return self.dynamics().vd

    def multipliers(self, name: str) -> Array:
        """Multipliers of a cut joint, constraint, coupling or drive over time, (times, rows)."""
        return jax.vmap(lambda d: d.multipliers(name))(self.dynamics())

    def load(self, name: str) -> Array:
        """What a drive exerts over time, N or N m."""
        return jax.vmap(lambda d: d.load(name))(self.dynamics())

    def reaction(self, name: str, frame: str | Marker = "world") -> Array:
        """The wrench of a joint, constraint, drive or connection over time, (times, 6); see `mb.reactions`."""
        return _reactions(self, name, frame)

    def kinetic_energy(self) -> Array:
        return _over_time(self, lambda t, q, v, z: kinetic_energy(self.model, q, v, t))

    def potential_energy(self) -> Array:
        """Of gravity and of connections that store energy, J."""
        return _over_time(self, lambda t, q, v, z: potential_energy(self.model, q, t, z=z))

    def energy(self) -> Array:
        """Kinetic plus potential energy over time, J."""
        return self.kinetic_energy() + self.potential_energy()

    @property
    def energy_change(self) -> Array:
        """The largest change of the energy since the start, J; round-off and tolerance when nothing does work."""
        energy = self.energy()
        return jnp.abs(energy - energy[0]).max()

    def __repr__(self) -> str:
        if not is_concrete(self.ts, self.result._value) or self.ts.ndim != 1:
            return f"Trajectory({self.ts.shape} times)"
        s, ended = self.stats, RESULTS[self.result] or "successful"
        return (
            f"Trajectory: {len(self.ts)} times from {float(self.ts[0]):.6g} to {float(self.ts[-1]):.6g} s, {s.solver}, "
            f"{int(s.steps)} steps ({int(s.rejected)} rejected), "
            f"constraint error {float(s.constraint_error):.2g}; {ended}"
        )


def _column(found: Array) -> Array:
    return found[:, 0] if found.shape[1] == 1 else found


def _over_time(traj: Trajectory, fun: Any) -> Array:
    return jax.vmap(fun)(traj.ts, traj.q, traj.v, traj.z)


@eqx.filter_jit
def _dynamics(traj: Trajectory) -> Dynamics:
    def at(t, q, v, z, on):
        tau, u = traj.inputs(t)
        return dynamics(traj.model, q, v, tau, t, z=z, u=u, on=on)

    return jax.vmap(at)(traj.ts, traj.q, traj.v, traj.z, traj.on)


@eqx.filter_jit
def _reactions(traj: Trajectory, name: str, frame: Any) -> Array:
    def at(t, q, v, z, on):
        tau, u = traj.inputs(t)
        return reactions(traj.model, q, v, tau, t, frame=frame, z=z, u=u, on=on)[name]

    return jax.vmap(at)(traj.ts, traj.q, traj.v, traj.z, traj.on)


class Rows(eqx.Module):
    """What is saved: times, states and switches, as many as were asked for; `count` of them were reached."""

    ts: Array
    ys: Array
    on: Array | None
    count: Array


def saved_rows(ts: Array, found: Found, steps: Steps | None) -> Rows:
    """Rows of fixed number. After an event that stops the run, the others repeat the state there; rows that no step
    reached are nan."""
    if steps is not None:
        return Rows(*_all_steps(found, steps), found.counts.accepted + 1)
    late = (jnp.arange(ts.shape[0]) >= found.reached) & (found.result == RESULTS.event)
    ys = jnp.where(late[:, None], found.ys[-1], found.ys[:-1])
    on = found.modes.on
    on = None if on is None else jnp.where(late[:, None], on[-1], on[:-1])
    stopped = (found.result == RESULTS.event).astype(int)
    return Rows(jnp.where(late, _stop(found), ts) if found.log.times.size else ts, ys, on, found.reached + stopped)


def trajectory(plan: Plan, theta: Theta, rows: Rows, found: Found) -> Trajectory:
    """What a run found; cut to the rows that were reached, if that number is known."""
    if is_concrete(*jax.tree.leaves((rows, found.result))) and jnp.ndim(rows.count) == 0:
        keep = min(int(rows.count), rows.ts.shape[0])
        rows = jax.tree.map(lambda a: jnp.asarray(np.asarray(a)[:keep]) if jnp.ndim(a) else a, rows)
    q, v, z = split(theta.model, rows.ys)
    counts, log = found.counts, found.log
    stats = Statistics(
        counts.accepted, counts.tried - counts.accepted, counts.error, counts.drift, type(plan.solver).__name__
    )
    names = tuple(event.name for event in plan.events)
    found_events = (log.times, log.which, names)
    return Trajectory(
        rows.ts, q, v, z, rows.on, theta.model, theta.inputs, found.result, found.reached, stats, *found_events
    )


def _stop(found: Found) -> Array:
    """The time of the last event: its derivative is that of the event."""
    return found.log.times[jnp.maximum(found.log.count - 1, 0)]


def _all_steps(found: Found, steps: Steps) -> tuple[Array, Array, Any]:
    """Times, states and switches at the start and after every accepted step; beyond the last one it is repeated."""
    n = jnp.arange(steps.t1.shape[0])
    last = jnp.minimum(n, found.counts.accepted - 1)
    ts = jnp.concatenate([steps.t0[:1], steps.t1[last]])
    ys = jnp.concatenate([steps.y0[:1], steps.y1[last]])
    on = None if steps.mode.on is None else jnp.concatenate([steps.mode.on[:1], steps.mode.on[last]])
    return ts, ys, on
