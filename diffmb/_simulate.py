"""SIMULATE: a model and a consistent state through time.

    traj = simulate(model, state, ts)

The parts: `_motion.py` is the right-hand side, `_manifold.py` keeps states closed, `_advance.py` is the loop of diffrax
steps, `_event.py` what happens on the way, `_replay.py` the derivative. Here the user's arguments become a plan, and
what the loop found becomes a `Trajectory` or an error in words. Two things depend on the requested times alone, with
f the rate of the state,

    dy(ts_j) = f dts_j at fixed start          dy0 = -f dts_0 at fixed end                                        (1)
"""

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.custom_derivatives import SymbolicZero

from ._assembly import State, assemble
from ._checks import as_switches, check_states
from ._diagnosis import describe, is_stiff
from ._errors import MechanismError
from ._event import Event
from ._inputs import as_inputs
from ._knots import before, rows_at_knots
from ._known import with_known
from ._manifold import renewed, unknown_rows
from ._model import Model
from ._motion import with_candidates
from ._plan import Mode, Plan, Theta, field
from ._progress import Found
from ._replay import record, solve
from ._results import RESULTS
from ._solver import Auto, Baumgarte, StoredSteps, as_controller, as_solver, explicit, implicit
from ._spatial._axis import is_concrete
from ._tiles import over_rows
from ._trajectory import Rows, Trajectory, saved_rows, trajectory


def simulate(
    model: Model,
    state: State | tuple,
    ts: Any,
    *,
    solver: Any = None,
    controller: Any = None,
    project: bool | Baumgarte = True,
    inputs: Mapping[str, Any] | None = None,
    events: Any = (),
    off: Any = (),
    z: Any = None,
    dense: bool = False,
    adjoint: StoredSteps | None = None,
    max_steps: int = 1_000_000,
    max_events: int = 64,
    throw: bool = True,
    progress: Any = False,
) -> Trajectory:
    """Moves a mechanism through the times `ts`.

    **Arguments:**

    - `state`: from `mb.assemble`, at the first time; or a pair (q, v), which is assembled first.
    - `ts`: increasing times, s; the first is the start. Steps end at each of them.
    - `solver`: `mb.explicit()` by default, `mb.implicit()` for stiff systems, `mb.Auto()`, or a method of diffrax.
    - `controller`: `mb.Tolerance(1e-8)` by default, `mb.FixedStep(dt)`, or a `diffrax.PIDController`.
    - `project`: whether each step ends on the constraint manifold; `mb.Baumgarte(rate)` for feedback instead.
    - `inputs`: loads at joints and inputs of connections by name: functions of t, `mb.Table`s, numbers, arrays over ts.
    - `events`: `mb.Event`s and `mb.impact`s; `off`: names of what is switched off at the start.
    - `z`: states of connections at the start.
    - `dense`: whether to keep every accepted step instead of the times `ts` alone, for `traj.resample`.
    - `adjoint`: `mb.StoredSteps`, how many steps are kept when a derivative is asked for.
    - `max_steps`, `max_events`: limits.
    - `throw`: whether a failure is an error; else look at `traj.result`, and at what there is.
    - `progress`: True for a live display, or a progress meter of diffrax.

    Forward and reverse derivatives and Hessians go through it with respect to the state, the times, `inputs`, params of
    events, and every number of the model. `jax.vmap` runs a batch; give it `throw=False`.
    """
    ts = _times(ts, model)
    if not isinstance(state, State):
        state = assemble(model, jnp.asarray(state[0]), jnp.asarray(state[1]), t=ts[0])
    _check_start(state, ts)
    ts, events = ts.astype(state.q.dtype), _as_events(events)
    controller, control = as_controller(controller, ts.dtype)
    feedback = jnp.asarray(project.rate, ts.dtype) if isinstance(project, Baumgarte) else None
    numbers = (feedback, tuple(e.params for e in events), control, jnp.asarray(max_steps))
    theta = Theta(model, as_inputs(model, inputs, ts), *numbers)
    limits = (len(ts), (adjoint or StoredSteps()).steps, max_events * bool(events))
    plan = Plan(None, controller, project is True, _kinds(events), *limits, _meter(progress))
    y0 = jnp.concatenate([state.q, state.v, check_states(model, z, state.q)])
    on = _switched(model, off, events, ts)
    run = partial(_run, theta=_looked_at(theta), y0=y0, ts=ts, on=on, dense=dense)
    if isinstance(solver, Auto):
        found, rows, plan = _choose(plan, solver, run)
    else:
        plan = _with(plan, as_solver(solver))
        found, rows = run(plan)
    return _checked(plan, theta, trajectory(plan, theta, rows, found), found, throw)


def _looked_at(theta: Theta) -> Theta:
    """With what can be said of the model before a program is made of it."""
    return dataclasses.replace(theta, model=with_candidates(with_known(theta.model)))


def _kinds(events: tuple[Event, ...]) -> tuple[Event, ...]:
    """The events without their numbers."""
    return tuple(eqx.tree_at(lambda e: e.params, e, None, is_leaf=lambda x: x is None) for e in events)


def _meter(progress: Any) -> Any:
    return diffrax.TextProgressMeter() if progress is True else progress or None


def _with(plan: Plan, solver: Any) -> Plan:
    return Plan(solver, *(getattr(plan, name) for name in list(plan.__dataclass_fields__)[1:]))


@eqx.filter_jit
def _run(plan: Plan, theta: Theta, y0: Array, ts: Array, on: Any, dense: bool) -> tuple[Found, Rows]:
    """The loop, with (1)."""
    y0 = _started(theta, y0, ts[0], on)
    still = jax.lax.stop_gradient(ts)
    if dense:
        found, steps = record(plan, theta, y0, still, on)
        if theta.inputs.knots is not None:
            t1, y1 = rows_at_knots(theta, steps.t1, steps.y1, steps.mode)
            steps = eqx.tree_at(lambda s: (s.t1, s.y1), steps, (t1, y1))
        return found, saved_rows(ts, found, steps)
    found = solve(plan, theta, y0, still, on)
    ys = _timed(theta, found.ys[:-1], ts, found.modes)
    found = eqx.tree_at(lambda f: f.ys, found, jnp.concatenate([ys, found.ys[-1:]]))
    return found, saved_rows(ts, found, None)


@jax.custom_jvp
def _timed(theta: Theta, ys: Array, ts: Array, modes: Mode) -> Array:
    return ys


@partial(_timed.defjvp, symbolic_zeros=True)
def _timed_rule(primals, tangents):
    theta, ys, ts, modes = primals
    _, dys, dts, _ = tangents
    dys = jnp.zeros_like(ys) if isinstance(dys, SymbolicZero) else dys
    if not isinstance(dts, SymbolicZero):
        modes = jax.tree.map(lambda a: a[:-1], modes)
        at = ts
        if theta.inputs.knots is not None:  # a row at a knot is before it
            at = ts.at[1:].set(before(theta.inputs, ts[1:]))
        dys = dys + over_rows(lambda mode, t, y: field(theta, mode, t, y), modes, at, ys) * dts[:, None]
    return ys, dys


@jax.custom_jvp
def _started(theta: Theta, y0: Array, t0: Array, on: Any) -> Array:
    return y0


@partial(_started.defjvp, symbolic_zeros=True)
def _started_rule(primals, tangents):
    theta, y0, t0, on = primals
    _, dy0, dt0, _ = tangents
    dy0 = jnp.zeros_like(y0) if isinstance(dy0, SymbolicZero) else dy0
    if not isinstance(dt0, SymbolicZero):
        mode = renewed(theta.model, y0, t0, unknown_rows(theta.model, on, y0))
        dy0 = dy0 - field(theta, jax.lax.stop_gradient(mode), t0, y0) * dt0
    return y0, dy0


def _choose(plan: Plan, auto: Auto, run: Any) -> tuple[Found, Rows, Plan]:
    """Runs the explicit method for a while; goes on with it, or starts again with the implicit one."""
    if not is_concrete(*jax.tree.leaves((run.keywords["y0"], run.keywords["ts"]))):
        raise MechanismError(
            "solver=mb.Auto() decides by a trial run, which jax.jit and jax.vmap do not allow; call it once outside to "
            "see what it chooses (traj.stats.solver), and name that"
        )
    theta = run.keywords["theta"]
    trial = _with(plan, as_solver(explicit()))
    pilot = jnp.minimum(theta.max_steps, auto.pilot)
    found, rows = run(trial, theta=eqx.tree_at(lambda th: th.max_steps, theta, pilot))
    if found.result != RESULTS.max_steps:
        return found, rows, trial
    plan = _with(plan, as_solver(implicit())) if is_stiff(theta, found) else trial
    return *run(plan), plan


# --- what a user hands over ---------------------------------------------------------------------------------------


def _times(ts: Any, model: Model) -> Array:
    ts = jnp.asarray(ts)
    ts = ts if jnp.issubdtype(ts.dtype, jnp.floating) else ts.astype(model.mass.dtype)
    if ts.ndim != 1 or ts.shape[0] < 2:
        raise MechanismError(f"ts has shape {ts.shape}; give the times as one list, at least the first and the last")
    if is_concrete(ts):
        numbers = np.asarray(ts)
        if not np.isfinite(numbers).all():
            raise MechanismError("ts holds a time that is not a finite number")
        bad = np.flatnonzero(np.diff(numbers) <= 0)
        if len(bad):
            k = int(bad[0])
            pair = f"ts[{k + 1}] = {numbers[k + 1]:g} follows {numbers[k]:g}"
            raise MechanismError(f"the times ts must increase, but {pair}")
    return ts


def _check_start(state: State, ts: Array) -> None:
    if is_concrete(state.ok) and not np.all(np.asarray(state.ok)):
        raise MechanismError("the state was not assembled (state.ok is False); mb.assemble(..., throw=True) says why")
    if not is_concrete(state.t, ts):
        return
    at, start = float(np.asarray(state.t)), float(np.asarray(ts)[0])
    if abs(at - start) > 1e-9 * max(1.0, abs(start)):
        raise MechanismError(f"the state is at t = {at:g} s, but ts starts at {start:g}; assemble it with t={start:g}")


def _as_events(events: Any) -> tuple[Event, ...]:
    events = (events,) if isinstance(events, Event) else tuple(events)
    for event in events:
        if not isinstance(event, Event):
            raise MechanismError(f"events holds a {type(event).__name__}; give mb.Event(...) or mb.impact(...)")
    return events


def _switched(model: Model, off: Any, events: tuple[Event, ...], like: Array) -> Array | None:
    """1 for what is on; None if nothing is ever switched."""
    on = as_switches(model, off, like)
    switching = any(event.action is not None for event in events)
    return jnp.ones(len(model.switches), like.dtype) if on is None and switching else on


def _checked(plan: Plan, theta: Theta, traj: Trajectory, found: Found, throw: bool) -> Trajectory:
    fine = (found.result == RESULTS.successful) | (found.result == RESULTS.event)
    if not throw:
        return traj
    if is_concrete(fine, traj.q):
        if not bool(fine):
            raise MechanismError(describe(plan, theta, found))
        return traj
    message = "a simulation fails; run it outside of jax.jit to see why, or pass throw=False and look at .result"
    return eqx.tree_at(lambda t: t.q, traj, eqx.error_if(traj.q, ~fine, message))
