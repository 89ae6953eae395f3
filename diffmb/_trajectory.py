"""TRAJECTORY: what a simulation found, by name; what is not stored is computed when it is asked for, for all times."""

from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ._bodies._marker import Marker, as_marker
from ._checks import on_host
from ._constrained import Dynamics
from ._dynamics import kinetic_energy, potential_energy
from ._errors import MechanismError
from ._inputs import Inputs
from ._kinematics import moving_body
from ._model import Model
from ._over_time import FrameOverTime, dynamics_of, each_time, looked_at, powers_of, reactions_of
from ._plan import Plan, Theta, split
from ._progress import Found, Steps
from ._resample import resampled, within
from ._results import RESULTS
from ._spatial._axis import is_concrete
from ._tiles import members

SCHEMA = 2  # of datasets and files; 1 knew no batches and no kinematic simulations
STATISTICS = ("steps", "rejected", "constraint_error", "largest_correction")


class Statistics(eqx.Module):
    """How a run went.

    - `solver`: the method that took the steps.
    - `steps`, `rejected`: accepted and rejected ones.
    - `constraint_error`: largest |phi| left after a step, m or rad; without projection too.
    - `largest_correction`: of a coordinate, by projection.
    """

    steps: Array
    rejected: Array
    constraint_error: Array
    largest_correction: Array
    solver: str = eqx.field(static=True)

    def __repr__(self) -> str:
        if not is_concrete(self.steps):
            return f"Statistics({self.solver}, traced)"
        numbers = (f"{name}={np.array2string(np.asarray(getattr(self, name)), precision=3)}" for name in STATISTICS)
        return f"Statistics({', '.join(numbers)}, solver={self.solver!r})"


class Trajectory(eqx.Module):
    """A motion over time.

    - `ts`, `q`, `v`, `z`: times, coordinates, speeds, states of connections, one row for each time.
    - `result`: how it ended, one of `mb.RESULTS`; `reached`: the number of requested times that were reached.
    - `stats`: see `mb.Statistics`.
    - `event_times`, `event_numbers`: when events happened, and which (nan and -1: none).

    `traj["rocker"]` is the motion of a body over time (`.pose`, `.angle`, `.twist`, `.acceleration`, each computed when
    it is asked for); a `Marker` picks a frame. After `jax.vmap` all of it has the batch axes in front.
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

    def __getitem__(self, frame: str | Marker) -> FrameOverTime:
        moving_body(self.model.topology.bodies, as_marker(frame))
        return FrameOverTime(self, frame)

    def coordinate(self, joint: str) -> Array:
        """The joint's coordinates over time: (times,) if it has one, else (times, nq)."""
        return _column(self.q[..., self.model.coordinates(joint)])

    def speed(self, joint: str) -> Array:
        """The joint's speeds over time."""
        return _column(self.v[..., self.model.speeds(joint)])

    def state(self, connection: str) -> Array:
        """The states of a connection over time."""
        return _column(self.z[..., self.model.states(connection)])

    def dynamics(self) -> Dynamics:
        """Accelerations and multipliers over time."""
        return members(self, lambda one: dynamics_of(looked_at(one)))

    @property
    def vd(self) -> Array:
        """Accelerations over time, (times, nv)."""
        return self.dynamics().vd

    def multipliers(self, name: str) -> Array:
        """Multipliers of a cut joint, constraint, coupling or drive over time, (times, rows)."""
        return members(self, lambda one: jax.vmap(lambda d: d.multipliers(name))(one.dynamics()))

    def load(self, name: str) -> Array:
        """What a drive exerts over time, N or N m."""
        return members(self, lambda one: jax.vmap(lambda d: d.load(name))(one.dynamics()))

    def reaction(self, name: str, frame: str | Marker = "world") -> Array:
        """The wrench of a joint, constraint, drive or connection over time, (times, 6); see `mb.reactions`."""
        return members(self, lambda one: reactions_of(looked_at(one), name, frame))

    def kinetic_energy(self) -> Array:
        return each_time(self, lambda model, t, q, v, z: kinetic_energy(model, q, v, t))

    def potential_energy(self) -> Array:
        """Of gravity and of connections that store energy, J."""
        return each_time(self, lambda model, t, q, v, z: potential_energy(model, q, t, z=z))

    def energy(self) -> Array:
        """Kinetic plus potential energy over time, J."""
        return self.kinetic_energy() + self.potential_energy()

    @property
    def energy_change(self) -> Array:
        """The largest change of the energy since the start, J; round-off and tolerance when nothing does work.

        Rows that a failed run did not reach do not count.
        """
        energy = self.energy()
        change = energy - energy[..., :1]
        return jnp.abs(jnp.where(jnp.isnan(self.q).any(-1), 0.0, change)).max(-1)

    def dissipation(self) -> Array:
        """What the connections turn into heat over time, W."""
        return members(self, lambda one: powers_of(looked_at(one))[0])

    def supply(self) -> Array:
        """What inputs, time and active parts of the connections bring in over time, W; see `mb.connection_power`."""
        return members(self, lambda one: powers_of(looked_at(one))[1])

    def resample(self, ts: Any) -> "Trajectory":
        """The motion at other times (increasing, s) between the first and the last row; `_resample.py` says how.

        With `dense=True` it has the accuracy of the steps, if the method has order 5 or less, also across events and
        steps of inputs: its rows are on both sides of an event; at its very time it is the state before. Without, it is
        what the distance of the rows allows, and what jumps between two rows is smeared over that interval. States
        close like those of a step. Times that a failed run did not reach give nan, and under `jax.jit` all times
        outside of the rows.
        """
        if self.ts.ndim > 1:
            return members(self, lambda one: one.resample(ts))
        ts = _times_within(self, ts)
        ys, on = _resampled(looked_at(self), ts)
        q, v, z = split(self.model, ys)
        reached = jnp.isfinite(ys).all(1).sum()
        return eqx.tree_at(
            lambda s: (s.ts, s.q, s.v, s.z, s.on, s.reached),
            self,
            (ts, q, v, z, on, reached),
            is_leaf=lambda x: x is None,
        )

    def to_xarray(self) -> Any:
        """An `xarray.Dataset` with named dimensions and units; needs `pip install "diffmb[io]"`.

        Batch axes come in front as `batch_0`, ...; members with times of their own have them in the variable `t`.
        """
        return _dataset(self)

    def __str__(self) -> str:
        """What `print` shows: the statistics, with the change of energy, which is computed here."""
        if not is_concrete(*jax.tree.leaves(self)) or self.ts.ndim != 1:
            return repr(self)
        return f"{self!r}; energy changes by {float(self.energy_change):.2g} J"

    def __repr__(self) -> str:
        if not is_concrete(self.ts, self.result._value):
            return f"Trajectory({self.ts.shape} times, traced)"
        if self.ts.ndim != 1:
            return _in_short(self)
        s, ended = self.stats, RESULTS[self.result] or "successful"
        return (
            f"Trajectory: {len(self.ts)} times from {float(self.ts[0]):.6g} to {float(self.ts[-1]):.6g} s, {s.solver}, "
            f"{int(s.steps)} steps ({int(s.rejected)} rejected), "
            f"constraint error {float(s.constraint_error):.2g}; {ended}"
        )


def _in_short(traj: Trajectory) -> str:
    """A batch: how many members ended how."""
    *batch, times = traj.ts.shape
    kinds, counts = np.unique(np.asarray(traj.result._value), return_counts=True)
    names = {int(item._value): name for name, item in RESULTS._name_to_item.items()}
    ends = ", ".join(f"{count} {names[int(kind)]}" for kind, count in zip(kinds, counts, strict=True))
    return f"Trajectory: batch of {' x '.join(map(str, batch))}, {times} times each, {traj.stats.solver}; {ends}"


def _column(found: Array) -> Array:
    return found[..., 0] if found.shape[-1] == 1 else found


@eqx.filter_jit
def _resampled(traj: Trajectory, ts: Array) -> tuple[Array, Array | None]:
    ys = jnp.concatenate([traj.q, traj.v, traj.z], 1)
    return resampled(traj.model, traj.inputs, traj.ts, ys, traj.on, ts)


def _times_within(traj: Trajectory, ts: Any) -> Array:
    """The times as an array, refused if they do not increase or lie outside of those that were saved."""
    saved = traj.ts
    ts = jnp.asarray(on_host("ts", ts, "give times in seconds"), saved.dtype)
    if saved.ndim != 1 or saved.shape[0] < 2:
        raise MechanismError(
            f"this trajectory has times of shape {saved.shape}; resample one motion of at least two rows"
        )
    if ts.ndim != 1 or ts.shape[0] < 1:
        raise MechanismError(f"ts has shape {ts.shape}; give the times as one list")
    if is_concrete(ts, saved):
        numbers, inside = np.asarray(ts), np.asarray(within(saved, ts))
        if is_concrete(traj.result._value) and traj.result not in (RESULTS.successful, RESULTS.event):
            inside = inside | (numbers > float(saved[-1]))
        if not inside.all():
            rows = f"the rows go from {float(saved[0]):.12g} to {float(saved[-1]):.12g} s"
            raise MechanismError(f"there is no motion at t = {numbers[~inside][0]:.12g} s; {rows}")
        back = np.flatnonzero(np.diff(numbers) <= 0)
        if len(back):
            a, b = numbers[back[0] : back[0] + 2]
            raise MechanismError(f"the times ts must increase, but {b:g} follows {a:g}")
    return ts


# --- the whole of it, with names and units ------------------------------------------------------------------------


def labels(model: Model) -> dict[str, list[str]]:
    """What each dimension counts: "A" where a joint or connection has one number, else "ball[0]", "ball[1]", ..."""

    def spread(names: Iterable[str], sizes: Iterable[int]) -> list[str]:
        return [
            name if size == 1 else f"{name}[{k}]" for name, size in zip(names, sizes, strict=True) for k in range(size)
        ]

    connections = [(group.kind.nz, group.kind.nu) for group in model.connections for _ in group.names]
    return {
        "coordinate": spread(model.inboard, model.topology.nqs),
        "speed": spread(model.inboard, model.topology.nvs),
        "state": spread(model.connection_names, [nz for nz, _ in connections]),
        "input": spread(model.connection_names, [nu for _, nu in connections]),
        "switch": list(model.switches),
    }


def variables(traj: Trajectory) -> dict[str, tuple[tuple[str, ...], np.ndarray, str]]:
    """Everything over time: dimensions, numbers and unit by name. Batch axes in front have no name here."""
    numbers = _numbers
    for _ in range(traj.ts.ndim - 1):
        numbers = eqx.filter_vmap(numbers)
    vd, kinetic, potential, tau, u = numbers(traj)
    found = {
        "time": (("time",), traj.ts, "s"),
        "q": (("time", "coordinate"), traj.q, "rad or m; 1 for quaternions"),
        "v": (("time", "speed"), traj.v, "rad/s or m/s"),
        "z": (("time", "state"), traj.z, "that of the connection"),
        "vd": (("time", "speed"), vd, "rad/s^2 or m/s^2"),
        "kinetic_energy": (("time",), kinetic, "J"),
        "potential_energy": (("time",), potential, "J"),
        "tau": (("time", "speed"), tau, "N m or N"),
        "u": (("time", "input"), u, "that of the connection"),
    }
    if traj.on is not None:
        found["on"] = (("time", "switch"), traj.on, "1")
    if traj.event_names:
        found["event_time"] = (("event",), traj.event_times, "s")
        found["event_number"] = (("event",), traj.event_numbers, "1")
    return {name: (dims, np.asarray(values), unit) for name, (dims, values, unit) in found.items()}


@eqx.filter_jit
def _numbers(traj: Trajectory) -> tuple[Array, ...]:
    tau, u = jax.vmap(traj.inputs)(traj.ts)
    return traj.vd, traj.kinetic_energy(), traj.potential_energy(), tau, u


def versions() -> dict[str, str]:
    try:
        own = version("diffmb")
    except PackageNotFoundError:  # a folder on the path
        own = "unknown"
    return {"diffmb_version": own, "jax_version": jax.__version__}


def optional(package: str, what: str, extra: str = "io") -> Any:
    """A package that not everyone has; `extra` brings it."""
    try:
        return import_module(package)
    except ImportError as error:
        raise MechanismError(f'{what} needs {package}, which is not here: pip install "diffmb[{extra}]"') from error


def _dataset(traj: Trajectory) -> Any:
    xarray = optional("xarray", "traj.to_xarray()")
    if not is_concrete(*jax.tree.leaves(traj)):
        raise MechanismError("traj.to_xarray() needs numbers; return the trajectory from jax.jit and call it outside")
    batch = tuple(f"batch_{k}" for k in range(traj.ts.ndim - 1))
    found = {name: (batch + dims, values, {"units": unit}) for name, (dims, values, unit) in variables(traj).items()}
    messages = np.array([message or "successful" for message in RESULTS._index_to_message])
    once = {"result": messages[np.asarray(traj.result._value)], "reached": np.asarray(traj.reached)}
    once |= {name: np.asarray(getattr(traj.stats, name)) for name in STATISTICS}
    attrs = {"schema_version": SCHEMA, **versions(), "solver": traj.stats.solver}
    if batch:
        dims, times, unit = found.pop("time")
        rows = times.reshape(-1, times.shape[-1])
        found |= {"time": ("time", rows[0], unit)} if (rows == rows[0]).all() else {"t": (dims, times, unit)}
        found |= {name: (batch, value) for name, value in once.items()}
    else:
        attrs |= {name: value.item() for name, value in once.items()}
    if traj.event_names:
        attrs["event_names"] = list(traj.event_names)
    used = {dim for dims, *_ in found.values() for dim in dims}
    names = {dim: np.array(own, str) for dim, own in labels(traj.model).items() if dim in used}
    return xarray.Dataset(found, names, attrs)


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
        return _all_steps(found, steps)
    missing = jnp.arange(ts.shape[0]) >= found.reached
    late = missing & (found.result == RESULTS.event)
    ys = jnp.where(late[:, None], found.ys[-1], found.ys[:-1])
    ys = ys * jnp.where(missing & ~late, jnp.nan, 1.0)[:, None]  # so that their derivative is nan too, and not zero
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
    stats = Statistics(counts.accepted, counts.tried - counts.accepted, counts.error, counts.drift, plan.method)
    names = tuple(event.name for event in plan.events)
    where = np.where if is_concrete(log.times, log.which) else jnp.where  # numpy: `jax_debug_nans` looks elsewhere
    found_events = (jnp.asarray(where(log.which < 0, jnp.nan, log.times), log.times.dtype), log.which, names)
    return Trajectory(
        rows.ts, q, v, z, rows.on, theta.model, theta.inputs, found.result, found.reached, stats, *found_events
    )


def _stop(found: Found) -> Array:
    """The time of the last event: its derivative is that of the event."""
    return found.log.times[jnp.maximum(found.log.count - 1, 0)]


def _all_steps(found: Found, steps: Steps) -> Rows:
    """The start, the end of every accepted step, and the state after every event that one goes on from, at the time of
    the one before it; beyond the last row it is repeated."""
    n, last = jnp.arange(steps.t1.shape[0]), found.counts.accepted - 1
    ends = lambda start, end: jnp.concatenate([start[:1], end[jnp.minimum(n, last)]])
    count, on = last + 2, steps.mode.on
    if found.log.times.size:
        anew = jnp.concatenate([n[:1] == 0, steps.event[:-1] >= 0])  # starts that are not the end before
        rows = (jnp.stack([anew, n >= 0], 1).ravel() & (jnp.repeat(n, 2) <= last)).at[0].set(True)
        count, most = rows.sum(), len(n) + 1 + found.log.times.size
        places = jnp.nonzero(rows, size=most, fill_value=jnp.maximum(2 * last + 1, 0))[0]
        ends = lambda start, end: jnp.stack([start, end], 1).reshape(2 * len(n), *end.shape[1:])[places]
    return Rows(ends(steps.t0, steps.t1), ends(steps.y0, steps.y1), None if on is None else ends(on, on), count)
