"""SIMULATE: a model and a consistent state through time.

    traj = simulate(model, state, ts)

The parts: `_motion.py` is the right-hand side, `_manifold.py` keeps states closed, `_advance.py` is the loop of diffrax
steps, `_event.py` what happens on the way, `_replay.py` the derivative. Here the user's arguments become a plan, and
what the loop found becomes a `Trajectory` or an error in words. The loop runs at times that stand still; what a change
of the requested times adds is, with f the rate of the state (`_timing.py`),

    dy(ts_j) = f dts_j at fixed start          dy0 = -f dts_0 at fixed end                                        (1)
"""

import dataclasses
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from ._arguments import (
    as_control,
    as_events,
    as_flag,
    as_limit,
    as_meter,
    as_named_inputs,
    as_projection,
    as_slots,
    as_start,
    as_states,
    as_times,
    switched,
)
from ._checks import as_model
from ._diagnosis import describe, in_a_program, is_stiff
from ._errors import MechanismError
from ._event import Event
from ._knots import rows_at_knots
from ._known import with_known
from ._manifold import unknown_rows
from ._motion import with_candidates
from ._plan import Plan, Theta
from ._progress import Found
from ._replay import record, solve
from ._results import RESULTS
from ._solver import Auto, as_solver, explicit, implicit
from ._spatial._axis import is_concrete
from ._timing import later
from ._trajectory import Rows, Trajectory, saved_rows, trajectory


def simulate(
    model: Any,
    state: Any,
    ts: Any,
    *,
    solver: Any = None,
    controller: Any = None,
    project: Any = True,
    inputs: Any = None,
    events: Any = (),
    off: Any = (),
    z: Any = None,
    dense: Any = False,
    adjoint: Any = None,
    max_steps: Any = 1_000_000,
    max_events: Any = 64,
    throw: Any = True,
    progress: Any = False,
) -> Trajectory:
    """Moves a mechanism through the times `ts`.

    **Arguments:**

    - `model`: from `mb.compile`; `state`: from `mb.assemble` at the first time, or a pair (q, v), which is assembled.
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
    - `progress`: True for a live line on stderr, or a progress meter of diffrax.

    Forward and reverse derivatives and Hessians go through it with respect to the state, the times, `inputs`, params of
    events, and every number of the model. `jax.vmap` runs a batch; give it `throw=False`.
    """
    model = as_model(model)
    ts, times = as_times(model, ts)
    state, events = as_start(model, state, ts, times), as_events(events)
    y0 = jnp.concatenate([state.q, state.v, as_states(model, z, state.q)])
    controller, control = as_control(controller, y0)
    project, feedback = as_projection(project, ts.dtype)
    dense, throw = as_flag("dense", dense), as_flag("throw", throw)
    max_steps, max_events = as_limit("max_steps", max_steps), as_limit("max_events", max_events)
    numbers = (feedback, tuple(e.params for e in events), control, jnp.asarray(max_steps))
    theta = Theta(model, as_named_inputs(model, inputs, ts), *numbers)
    limits = (len(ts), as_slots(adjoint), max_events * bool(events))
    plan = Plan(None, controller, project, _kinds(events), *limits, as_meter(progress))
    on = switched(model, off, events, ts)
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


def _with(plan: Plan, solver: Any) -> Plan:
    return Plan(solver, *(getattr(plan, name) for name in list(plan.__dataclass_fields__)[1:]))


@eqx.filter_jit
def _run(plan: Plan, theta: Theta, y0: Array, ts: Array, on: Any, dense: bool) -> tuple[Found, Rows]:
    """The loop, with (1)."""
    still = jax.lax.stop_gradient(ts)
    mode, never = unknown_rows(theta.model, on, y0), jnp.full_like(ts[0], jnp.inf)
    y0 = later(False, theta, mode, never, ts[0], y0, still[0] - ts[0])
    if dense:
        found, steps = record(plan, theta, y0, still, on)
        if theta.inputs.knots is not None:
            t1, y1 = rows_at_knots(theta, steps.t1, steps.y1, steps.mode)
            steps = eqx.tree_at(lambda s: (s.t1, s.y1), steps, (t1, y1))
        return found, saved_rows(ts, found, steps)
    found = solve(plan, theta, y0, still, on)
    modes = jax.tree.map(lambda a: a[:-1], found.modes)
    ends = still.at[0].set(jnp.inf)  # a row at a knot is before it, but for the first
    ys = later(True, theta, modes, ends, still, found.ys[:-1], ts - still)
    found = eqx.tree_at(lambda f: f.ys, found, jnp.concatenate([ys, found.ys[-1:]]))
    return found, saved_rows(ts, found, None)


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
    quietly = dataclasses.replace(trial, progress=None)
    found, rows = run(quietly, theta=eqx.tree_at(lambda th: th.max_steps, theta, pilot))
    if found.result != RESULTS.max_steps:
        return found, rows, trial
    plan = _with(plan, as_solver(implicit())) if is_stiff(theta, found) else trial
    return *run(plan), plan


def _checked(plan: Plan, theta: Theta, traj: Trajectory, found: Found, throw: bool) -> Trajectory:
    fine = (found.result == RESULTS.successful) | (found.result == RESULTS.event)
    if not throw:
        return traj
    if is_concrete(fine, traj.q):
        if not bool(fine):
            raise MechanismError(describe(plan, theta, found))
        return traj
    index, words = found.result._value, in_a_program()
    return eqx.tree_at(lambda t: t.q, traj, eqx.branched_error_if(traj.q, ~fine, index, words))
