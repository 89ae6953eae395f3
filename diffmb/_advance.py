"""ADVANCE: the loop that takes a state through the requested times, step by step, on the manifold.

Each turn tries one step of a diffrax solver, puts its end on the constraint manifold, and asks a diffrax step-size
controller whether to keep it; the correction counts as error too. Steps end at the requested times, so what is saved
has the accuracy of a step's end and closes to round-off. A step that would end next to a singular attitude, where
motions fork, is made shorter, so that the next one passes over it; where a requested time lies there, the step to it is
saved but not gone on from (it is made aside). When an event's condition crosses zero in a step, the step is shortened
until it ends there (`_watch.py`). The loop stops by itself at the first thing that is not a number. Under `vmap` all
members step side by side, each with its own step length, until the last one has arrived.

With `record` the loop also keeps every accepted step, from which `_replay.py` gets derivatives.
"""

from collections.abc import Callable
from typing import Any

import diffrax
import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ._apart import Joined, apart
from ._event import jump
from ._knots import up_to
from ._manifold import (
    Landing,
    approach_of,
    as_it_is,
    is_closed,
    left_open,
    nearest_state,
    open_limit,
    renewed,
    unknown_rows,
)
from ._meter import begun, ended, shown
from ._plan import Mode, Plan, Theta, field, split
from ._progress import Attempt, Counts, Entry, Found, Log, Progress, Span, Steps
from ._quiet import at_rest, disturbed, is_trial, judge_rest, untried_where
from ._results import RESULTS
from ._watch import acted, carried, finite, fires, look, passed, round_off, shorten, started, worth

_TINY = 1e-13  # of the span of time: steps below it do not arrive, even if they are accepted, as at the fork of a fold


def advance(plan: Plan, theta: Theta, y0: Array, ts: Array, on: Any, record: bool) -> tuple[Found, Steps | None]:
    """Runs from ts[0] to ts[-1]."""
    going = lambda p: (p.result == RESULTS.successful) & (p.output < plan.outputs)
    p = _start(plan, theta, y0, ts, on)
    state, (row, rows), (step, steps) = Joined(p), *_tables(plan, p, record)
    write = lambda table, number, row: lax.dynamic_update_slice_in_dim(table, row[None], number, 0)

    def once(theta: Theta, span: Span, vectors: list[Array]) -> tuple:
        p = state.part(vectors)
        new, entry = _turn(plan, record, theta, span, p, going(p))
        kept = row.row((entry.y, entry.mode), rows.dtype), None if step is None else step.row(entry.step, rows.dtype)
        return state.join(new), entry.row, entry.number, kept

    def turn(carry: tuple) -> tuple:
        vectors, rows, steps, meter = carry
        p = state.part(vectors)
        span = Span(ts[0], ts[-1], ts[jnp.minimum(p.output, plan.outputs - 1)])
        new, place, number, (kept, made) = apart(once, theta, span, vectors)
        steps = None if made is None else write(steps, number, made)
        return new, write(rows, place, kept), steps, shown(plan.progress, meter, ts, p, going(p))

    unfinished = lambda carry: eqxi.unvmap_any(going(state.part(carry[0])))
    start = state.join(p), rows, steps, begun(plan.progress)
    vectors, rows, steps, meter = lax.while_loop(unfinished, turn, start)
    p, (ys, modes) = state.part(vectors), row.rows(rows[:-1])
    ended(plan.progress, meter, ts, p)
    found = Found(ys, modes, p.output, p.t, p.y, p.h, p.mode, p.counts, p.log, p.result)
    return found, None if step is None else step.rows(steps[:-1])


def _tables(plan: Plan, p: Progress, record: bool) -> tuple:
    """What is kept, as a table with a row to spare, and how its rows are joined: states and modes at the requested
    times, of which the last one is where an event stopped the run; and steps, if they are asked for."""

    def table(like: Any, many: int) -> tuple[Joined, Array]:
        joined = Joined(like)
        return joined, jnp.tile(joined.row(like, p.y.dtype), (many + 1, 1))

    none, zero = jnp.asarray(-1), jnp.zeros_like(p.t)
    nothing = jnp.zeros_like(p.y)
    joined, rows = table((nothing, p.mode), plan.outputs + 1)
    rows = rows.at[0].set(joined.row((p.y, p.mode), p.y.dtype))
    if not record:
        return (joined, rows), (None, None)
    slopes = jnp.zeros((plan.solver.tableau.num_stages, *p.y.shape), p.y.dtype)
    blank = Steps(zero, zero, nothing, nothing, slopes, p.mode, none, none, none == 0)
    return (joined, rows), table(blank, plan.slots)


def _start(plan: Plan, theta: Theta, y: Array, ts: Array, on: Any) -> Progress:
    model, v = theta.model, split(theta.model, y)[1]
    t, zero, none = ts[0], jnp.zeros((), y.dtype), jnp.asarray(0)
    mode = unknown_rows(model, on, y)
    h = jnp.minimum(1e-3 * (ts[-1] - t), 0.05 / jnp.maximum(jnp.abs(v).max(initial=0.0), 1e-30))
    controller_state = None
    if plan.controller is None:
        (h,) = theta.control
    else:
        order, args = plan.solver.error_order(plan.terms()), (theta, mode)
        controller = plan.controller_of(theta)
        _, controller_state = controller.init(plan.terms(), t, ts[-1], y, h, args, plan.solver.func, order)
    result = RESULTS.where(is_closed(model, y, t, on), RESULTS.successful, RESULTS.inconsistent)
    result = RESULTS.where(jnp.isfinite(y).all(), result, RESULTS.nonfinite)
    watch = None
    if plan.events:
        watch = started(plan, look(plan, theta, mode, t, y), round_off(plan, theta, mode, t, y))
        result = RESULTS.where(finite(plan, watch.sight), result, RESULTS.nonfinite)
    log = Log(jnp.zeros(plan.max_events, y.dtype), jnp.full(plan.max_events, -1), none)
    state = Progress(
        t,
        y,
        h,
        mode,
        _fresh(plan, theta, mode, t, y),
        controller_state,
        jnp.asarray(1),
        result,
        approach_of(mode),
        Counts(none, none, zero, zero),
        watch,
        log,
        at_rest(plan, theta, y),
    )
    return jax.tree.map(jnp.asarray, state)


def _fresh(plan: Plan, theta: Theta, mode: Mode, t: Array, y: Array) -> Any:
    """The state of a solver that has not made a step yet."""
    return jax.tree.map(jnp.asarray, plan.solver.init(plan.terms(), t, t, y, (theta, mode)))


def _restarted(plan: Plan, theta: Theta, mode: Mode, t: Array, y: Array) -> Any:
    """The state of a solver that goes on from here with new slopes.

    A method that hands its last slope on (first step?, slope) gets the slope here and now: were it to ask for it in its
    next step, all members of a batch would have to evaluate theirs anew.
    """
    state = _fresh(plan, theta, mode, t, y)
    return state if state is None else (jnp.asarray(False), field(theta, mode, t, y))


def _held(p: Progress, a: Attempt) -> Any:
    """The solver's state after a step that was not accepted: its first slope is known now."""
    if p.solver_state is None:
        return None
    first, slope = p.solver_state
    return jnp.asarray(False), jnp.where(first, a.k[0] / (a.t1 - p.t), slope)


def _attempt(plan: Plan, theta: Theta, p: Progress, t1: Array, trial: Array | None = None) -> Attempt:
    y, state = p.y, p.solver_state
    if p.quiet is not None and trial is not None:
        y, state = disturbed(p.quiet, trial, y, state)
    raw, error, dense, solver_state, outcome = plan.solver.step(
        plan.terms(), p.t, t1, y, (up_to(theta, t1), p.mode), state, made_jump=False
    )
    failed = outcome != diffrax.RESULTS.successful
    end = (nearest_state if plan.project else left_open)(theta.model, raw, t1, p.mode)
    error = jnp.zeros_like(raw) if error is None else error
    return Attempt(t1, end, raw, error, dense["k"], solver_state, jnp.asarray(failed))


def _turn(plan: Plan, record: bool, theta: Theta, span: Span, p: Progress, going: Array) -> tuple[Progress, Entry]:
    """One attempt; nothing changes for members that are not `going`."""
    p = eqx.tree_at(lambda p: p.mode, p, renewed(theta.model, p.y, p.t, p.mode))
    stop, knot = _next_stop(theta, span, p)
    left = stop - p.t
    land = left <= 1.001 * p.h
    t1 = jnp.where(land, stop, p.t + jnp.where(left < 2.0 * p.h, 0.5 * left, p.h))
    t1 = jnp.where(p.watch.due.any(), p.t, t1) if plan.events else t1
    trial = jnp.asarray(False) if p.quiet is None else is_trial(p.quiet, t1 - p.t)
    a = _attempt(plan, theta, p, t1, trial)
    keep, h, ways, quiet, controller_state = _judged(plan, theta, p, a, land, trial)
    closed = a.end.left <= open_limit(a.y.dtype, plan.project)
    took = keep & closed & going
    fired = halt = jnp.asarray(False)
    event, after, wrong = jnp.asarray(-1), (a.y, a.end.mode, None, a.solver_state), None
    if knot is not None:  # the slopes change here
        restart = lambda _: _restarted(plan, theta, a.end.mode, stop, a.y)
        if a.solver_state is not None:  # of a method that hands its last slope on
            a = eqx.tree_at(lambda a: a.solver_state, a, _once(took & knot & land, restart, a.solver_state))
        after = (a.y, a.end.mode, None, a.solver_state)
    if plan.events:
        a, cut, event, after, wrong = _meet_events(plan, theta, p, a, took)
        land, fired = land & ~cut, event >= 0
        halt = fired & jnp.asarray([e.action is None for e in plan.events])[event % len(plan.events)]
        unmoved = p.watch.due.any()  # a step of no length says nothing about the next one
        was, new = (p.h, p.quiet, p.controller_state), (h, quiet, controller_state)
        h, quiet, controller_state = jax.tree.map(lambda x, y: jnp.where(unmoved, x, y), was, new)
    at_stop, land = land, land & (stop == span.next)
    aside = took & ways.near & land & (p.output + 1 < plan.outputs) & (True if knot is None else ~knot)
    result = _outcome(plan, theta, span, p, a, keep, closed, aside, h, halt, p.output + land == plan.outputs, wrong)
    if record:
        full = (p.counts.accepted + 1 >= plan.slots) & (result == RESULTS.successful) & (p.output + land < plan.outputs)
        result = RESULTS.where(full, RESULTS.max_stored, result)
    saved, took = took, took & ~aside
    row = jnp.where(saved & land, p.output, jnp.where(took & halt, plan.outputs, plan.outputs + 1))
    y, mode, watch, solver_state = after
    where = lambda pred, new, old: jax.tree.map(lambda x, y: jnp.where(pred, x, y), new, old)
    lands = jnp.where(land, p.output, jnp.where(halt, plan.outputs, -1))
    number = jnp.where(going, p.counts.accepted, plan.slots)  # if it is not accepted, the next one overwrites it
    step = Steps(p.t, a.t1, p.y, a.y, a.k, p.mode, lands, event, aside) if record else None
    progress = Progress(
        where(took, jnp.where(at_stop, stop, a.t1), p.t),
        where(took, y, p.y),
        where(going, h, p.h),
        where(took, mode, p.mode),
        where(took, solver_state, where(trial, p.solver_state, _held(p, a))),
        where(going & ~ways.idle & ~aside, controller_state, p.controller_state),
        p.output + (saved & land),
        RESULTS.where(going, result, p.result),
        where(took, p.approach.after(a.end, fired), p.approach.waited(ways.shy)),
        _counted(p.counts, a.end, going, saved),
        where(took, watch, p.watch),
        _noted(p.log, a.t1, event, len(plan.events)) if plan.events else p.log,
        where(going, untried_where(took & (fired | (False if knot is None else knot & at_stop)), quiet), p.quiet),
    )
    return progress, Entry(row, a.y, mode, number, step)


class _Ways(eqx.Module):
    """Why an attempt that is fine is not gone on from: its end is `near` a singular attitude, so it is made again
    shorter (`shy`); or it was no step, or one that has to be tried first (`idle`, as those that are shy)."""

    near: Array
    shy: Array
    idle: Array


def _judged(plan: Plan, theta: Theta, p: Progress, a: Attempt, land: Array, trial: Array):
    """Whether to take the step, how long the next one is, why not; what is known of rest; the controller's state."""
    length, finite = a.t1 - p.t, jnp.isfinite(a.y).all()
    keep, ctrl, controller_state = _judge(plan, theta, p, a)
    keep, no, rest = keep & finite, jnp.asarray(False), None
    idle = no
    if p.quiet is not None:
        rest = judge_rest(plan, theta, p.quiet, trial, p.y, a, length, keep, ctrl)
        idle = trial | rest.untried
        keep = keep & ~idle
    back, near = p.approach.to(a.end) if plan.controller is not None else (no, no)
    shy, keep = keep & back & ~land, keep & (land | ~back)
    shorter = jnp.where(finite, jnp.where(shy, 0.5 * length, ctrl), 0.25 * length)
    h = jnp.where(keep, jnp.where(land, jnp.maximum(ctrl, p.h), ctrl), shorter)
    if rest is None or p.quiet is None:
        return keep, h, _Ways(near, shy, shy), None, controller_state
    h = jnp.where(keep & rest.quiet.held, jnp.minimum(h, p.quiet.most), jnp.where(idle, rest.h(p.h), h))
    return keep, h, _Ways(near, shy, shy | idle), rest.quiet, controller_state


def _counted(counts: Counts, end: Landing, going: Array, saved: Array) -> Counts:
    return Counts(
        counts.tried + going,
        counts.accepted + saved,
        jnp.where(saved, jnp.maximum(counts.error, end.left), counts.error),
        jnp.where(saved, jnp.maximum(counts.drift, end.size), counts.drift),
    )


def _next_stop(theta: Theta, span: Span, p: Progress) -> tuple[Array, Array | None]:
    """The next requested time or knot of an input, and whether it is a knot; no stage sees what comes after it."""
    knots = theta.inputs.knots
    if knots is None:
        return span.next, None
    knot = jnp.where(knots > p.t, knots, jnp.inf).min()
    return jnp.minimum(span.next, knot), knot <= span.next


def _judge(plan: Plan, theta: Theta, p: Progress, a: Attempt):
    """Whether to keep the step, how long the next one should be, and the state of the controller."""
    if plan.controller is None:
        return ~a.failed, p.h, p.controller_state
    error = jnp.abs(a.error) + jnp.abs(a.y - a.raw)
    error = jnp.where(jnp.isfinite(error), error, jnp.inf)
    keep, t_next, t_end, _, state, _ = plan.controller_of(theta).adapt_step_size(
        p.t, a.t1, p.y, a.y, (theta, p.mode), error, plan.solver.error_order(plan.terms()), p.controller_state
    )
    return keep, t_end - t_next, state


def _outcome(
    plan: Plan, theta: Theta, span: Span, p: Progress, a: Attempt, keep, closed, aside, h, halt, arrived, wrong
):
    """What the attempt means for the run; the first thing that is wrong wins."""
    finite = jnp.isfinite(a.y).all()
    tiny = max(8.0 * np.finfo(a.y.dtype).eps, _TINY) * jnp.maximum(jnp.abs(p.t), span.last - span.first)
    stuck = ~keep if plan.controller is None else (h <= tiny) & ~(keep & arrived)
    result = RESULTS.where(keep & arrived, RESULTS.successful, RESULTS.max_steps)
    result = RESULTS.where(p.counts.tried + 1 >= theta.max_steps, result, RESULTS.successful)
    result = RESULTS.where(keep & halt, RESULTS.event, result)
    result = RESULTS.where(wrong == RESULTS.successful, result, wrong) if plan.events else result
    result = RESULTS.where(keep & ~arrived & ~aside & p.approach.loses(a.end), RESULTS.fork, result)
    result = RESULTS.where(keep & ~closed, RESULTS.drift, result)
    why = RESULTS.where(finite, RESULTS.where(a.failed, RESULTS.newton, RESULTS.step_too_small), RESULTS.nonfinite)
    return RESULTS.where(stuck, why, result)


# --- events -------------------------------------------------------------------------------------------------------


def _once(pred: Array, fun: Callable[[Any], Any], value: Any) -> Any:
    """fun(value) where pred, else value; it is computed only if some member of a batch needs it."""
    return lax.while_loop(lambda carry: carry[0], lambda carry: (jnp.asarray(False), fun(carry[1])), (pred, value))[1]


def _meet_events(plan: Plan, theta: Theta, p: Progress, a: Attempt, took: Array):
    """The step, shortened to the first event in it; whether it was cut; the event, as `Steps` has it; (y, mode, watch,
    solver state) to go on with; and what is wrong."""
    again, view = p.watch.due.any(), lambda a: look(plan, theta, p.mode, a.t1, a.y)
    sight = view(a)
    cut = took & ~again & worth(plan, p.watch, p.watch.sight, sight, a.t1 - p.t, jnp.asarray(True))
    nearer = lambda value: shorten(plan, p.watch, lambda t1: _attempt(plan, theta, p, t1), view, *value)
    a, sight = _once(cut, nearer, (a, sight))
    hits = jnp.where(again, p.watch.due, fires(plan, p.watch, sight)) & took
    bad = took & ~finite(plan, sight)
    over = hits.any() & (p.log.count >= plan.max_events)
    fired, which = hits.any() & ~bad & ~over, jnp.argmax(hits)

    def act(value):
        y, on = jump(plan, theta, p.mode, which, a.t1, a.y)
        mode = renewed(theta.model, y, a.t1, unknown_rows(theta.model, on, y))
        end = nearest_state(theta.model, y, a.t1, mode) if plan.project else as_it_is(y, mode)
        y, mode = end.y, end.mode
        noise = round_off(plan, theta, mode, a.t1, y)
        watch = acted(plan, p.watch, hits, which, sight, noise, look(plan, theta, mode, a.t1, y))
        return y, mode, watch, _restarted(plan, theta, mode, a.t1, y)

    after = _once(fired, act, (a.y, a.end.mode, passed(plan, p.watch, sight), a.solver_state))
    bad = bad | (fired & ~finite(plan, after[2].sight))
    wrong = RESULTS.where(bad, RESULTS.nonfinite, RESULTS.where(over, RESULTS.max_events, RESULTS.successful))
    along = len(plan.events) * carried(plan, p.watch, sight)[which]
    return a, cut | again, jnp.where(fired, which + along, -1), after, wrong


def _noted(log: Log, t: Array, event: Array, events: int) -> Log:
    fired = event >= 0
    row = jnp.where(fired, log.count, log.times.shape[0])
    times, numbers = log.times.at[row].set(t, mode="drop"), log.which.at[row].set(event % events, mode="drop")
    return Log(times, numbers, log.count + fired)
