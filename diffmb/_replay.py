"""REPLAY: the derivative of a simulation, step by step over the grid that the forward run has found.

A Runge-Kutta step from t0 to t1 = t0 + h, with stage slopes k_i = h f(t_i, Y_i), then the manifold:

    Y_i = y0 + sum_j a_ij k_j         y1 = y0 + sum_i b_i k_i, put on the manifold                                  (1)
    dk_i = h (f_y dY_i + f_theta dtheta)          dY_i = dy0 + sum_j a_ij dk_j                                      (2)
    (1 - h a_ii f_y) dk_i = h (f_y (dy0 + sum_{j<i} a_ij dk_j) + f_theta dtheta)        implicit stages             (3)

Where an event moves an end of a step in time, the slopes change by more, which only second derivatives ask for:

    dk_i = ... + h f_t dt_i + f_i dh          dt_i = dt0 + c_i dh          dh = dt1 - dt0                           (4)

(2) and (3) are linear, and need nothing but the slopes that the forward run kept: no derivative of an iteration, of a
step that was rejected, or of the step lengths. `_tangents` runs (2) forwards over all steps, `_cotangents` its
transpose backwards; the two are one linear map (`_linear.py`), so that JAX asks for what it needs: jvp, vjp, and,
through the slopes, Hessians.

A change that is consistent with the constraints stays so along (2) up to the error of the steps; what is left is taken
out at the end of each step, as it is for the state (`nearest_change`). States vary at fixed times; what a change of the
requested times does is said in `_simulate.py`, that of the knots of tables in `_knots.py`, and events move their own
times (`_event.py`).
"""

import dataclasses
from functools import partial
from typing import Any

import equinox as eqx
import equinox.internal as eqxi
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.custom_derivatives import SymbolicZero

from ._advance import advance
from ._apart import Joined, apart
from ._esdirk import butcher
from ._event import saltation
from ._knots import knots_move, pass_knots, up_to
from ._linear import linear
from ._manifold import nearest_change
from ._plan import Plan, Theta, field
from ._progress import Found, Steps


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def solve(plan: Plan, theta: Theta, y0: Array, ts: Array, on: Any) -> Found:
    """The run, differentiable with respect to theta and y0 (at fixed times)."""
    return advance(plan, theta, y0, ts, on, False)[0]


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def record(plan: Plan, theta: Theta, y0: Array, ts: Array, on: Any) -> tuple[Found, Steps]:
    """The run with all its steps; the slopes of the steps have derivatives too."""
    found, steps = advance(plan, theta, y0, ts, on, True)
    assert steps is not None
    return found, steps


@partial(solve.defjvp, symbolic_zeros=True)
def _solve_rule(plan, primals, tangents):
    found, steps = record(plan, *primals)
    moving, still, join = moving_parts(primals[:2], tangents[:2])
    fixed = (still, steps, found.counts.accepted, found.reached)
    forward = partial(_tangents, plan, join, False)
    backward = partial(_cotangents, plan, join, False)
    outputs = linear(forward, backward, fixed, moving, _outputs(found))
    return found, _only(found, _outputs, outputs)


@partial(record.defjvp, symbolic_zeros=True)
def _record_rule(plan, primals, tangents):
    found, steps = record(plan, *primals)
    moving, still, join = moving_parts(primals[:2], tangents[:2])
    fixed = (still, steps, found.counts.accepted, found.reached)
    forward = partial(_tangents, plan, join, True)
    backward = partial(_cotangents, plan, join, True)
    kept = partial(_kept, plan)
    outputs, dsteps = linear(forward, backward, fixed, moving, (_outputs(found), kept(steps)))
    return (found, steps), (_only(found, _outputs, outputs), _only(steps, kept, dsteps))


def _outputs(found: Any) -> tuple:
    """What a run gives that has a derivative: states, and times of events."""
    return found.ys, found.log.times


def _kept(plan: Plan, steps: Any) -> tuple:
    """What the derivative itself depends on, for the second derivative."""
    states = steps.y0, steps.y1, steps.k
    return (*states, steps.t0, steps.t1) if plan.events else states


# --- what moves ---------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Join:
    """How to put numbers that move in their places, and whether knots are among them."""

    places: tuple[int, ...]
    structure: Any
    knots: bool

    def __call__(self, leaves: list, moved: list) -> Theta:
        leaves = list(leaves)
        for k, value in zip(self.places, moved, strict=True):
            leaves[k] = value
        return jax.tree.unflatten(self.structure, leaves)


def moving_parts(primals: tuple, tangents: tuple) -> tuple[Any, Any, _Join]:
    """(tangents of what moves, all the numbers, how to join them)."""
    (theta, y0), (dtheta, dy0) = primals, tangents
    leaves, structure = jax.tree.flatten(theta)
    slopes = jax.tree.leaves(dtheta, is_leaf=lambda x: isinstance(x, SymbolicZero))
    places = tuple(k for k, d in enumerate(slopes) if not isinstance(d, SymbolicZero))
    dy0 = jnp.zeros_like(y0) if isinstance(dy0, SymbolicZero) else dy0

    join = _Join(places, structure, knots_move(dtheta.inputs))
    return ([slopes[k] for k in places], dy0), (leaves, [leaves[k] for k in places]), join


def _only(tree: Any, where: Any, value: Any) -> Any:
    """A tangent of the tree that is zero but for one part."""

    def zero(a: Array) -> Any:
        return jnp.zeros_like(a) if jnp.issubdtype(a.dtype, jnp.floating) else np.zeros(a.shape, jax.dtypes.float0)

    return eqx.tree_at(where, jax.tree.map(zero, tree), value)


# --- one step -----------------------------------------------------------------------------------------------------


def _stages(plan: Plan) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """a below the diagonal, the diagonal, b, c, of the stages that the result depends on."""
    table = plan.solver.tableau
    a, diagonal, c = butcher(table)
    used = np.flatnonzero(table.b_sol)[-1] + 1
    return a[:used, :used], diagonal[:used], np.asarray(table.b_sol)[:used], c[:used]


def _step_tangent(
    plan: Plan, join: Any, numbers: Any, step: Steps, moved: list, dy0: Array, times: Any = None
) -> tuple[Array, Array]:
    """(2) or (3) and the manifold: dy1 and the dk_i of one step; with (4) where its `times` (t0, t1) change."""
    leaves, moving = numbers
    a, diagonal, b, c = (jnp.asarray(x, dy0.dtype) for x in _stages(plan))
    h, stages = step.t1 - step.t0, len(b)
    k = step.k[:stages]
    Y = step.y0 + (a + jnp.diag(diagonal)) @ k
    at = jnp.where(c == 1.0, step.t1, step.t0 + c * h)
    implicit = bool(np.any(_stages(plan)[1]))

    def stage(dk, row):
        i, a_i, a_ii, c_i, t, Y_i = row
        rate = lambda moving, t, Y: field(up_to(join(leaves, moving), step.t1), step.mode, t, Y)
        f = lambda moving, Y: rate(moving, t, Y)
        dY, more = dy0 + a_i @ dk, None
        if times is not None:
            dh = times[1] - times[0]
            f_i, f_t = jax.jvp(lambda t: rate(moving, t, Y_i), (t,), (times[0] + c_i * dh,))
            more = h * f_t + f_i * dh
        late = lambda slope: slope if more is None else slope + more
        if not implicit:
            return dk.at[i].set(late(h * jax.jvp(f, (moving, Y_i), (moved, dY))[1])), None
        J = jax.jacfwd(lambda Y: f(moving, Y))(Y_i)
        slope = late(h * (J @ dY + jax.jvp(lambda moving: f(moving, Y_i), (moving,), (moved,))[1]))
        return dk.at[i].set(jnp.linalg.solve(jnp.eye(len(Y_i), dtype=Y.dtype) - h * a_ii * J, slope)), None

    none = jnp.zeros_like(k)
    dk, _ = lax.scan(stage, none, (jnp.arange(stages), a, diagonal, c, at, Y))
    dy = dy0 + b @ dk
    if plan.project:
        model_of = lambda moving: join(leaves, moving).model
        dy = nearest_change(model_of, moving, moved, step.mode, step.t1, step.y1, dy)
    return dy, jnp.zeros_like(step.k).at[:stages].set(dk)


def _link(plan: Plan, join: Any, whole: bool, numbers: Any, step: Steps, after: Any, moved: list, start: Any) -> tuple:
    """One step and the event that may end it: what to go on with, (dy at fixed time, dt of the event), as it starts;
    dy at its end; dt; and, if asked for the `whole`, the change of what is kept of it."""
    (dy0, dt0), (leaves, moving) = start, numbers
    dy, dk = _step_tangent(plan, join, numbers, step, moved, dy0)
    at, dt, theta_of = dy, None, lambda moving: join(leaves, moving)

    def salt(moved, dy, dt0):
        which, carried = step.event % len(plan.events), step.event >= len(plan.events)
        halts = jnp.asarray([event.action is None for event in plan.events])[which]
        y, mode = jax.tree.map(lambda a, b: jnp.where(halts, a, b), (step.y1, step.mode), after)
        before = (step.mode, which, carried, step.t1, step.y1, y)
        return saltation(plan, before, mode, moving, theta_of, moved, dy, dt0)

    if plan.events:
        none = lambda moved, dy, dt0: (dy, jnp.zeros_like(dt0), dy)
        dy, dt, at = lax.cond(step.event >= 0, salt, none, moved, dy, dt0)
    if join.knots:
        past = lambda moved, dy: pass_knots(theta_of, moving, moved, step.mode, step.t1, step.y1, dy)
        at_knot = (theta_of(moving).inputs.knots == step.t1).any() & (step.event < 0)
        dy = lax.cond(at_knot, past, lambda moved, dy: dy, moved, dy)
    if whole and plan.events:
        dy0 = dy0 + field(up_to(theta_of(moving), step.t1), step.mode, step.t0, step.y0) * dt0
        dk = _step_tangent(plan, join, numbers, step, moved, dy0, (dt0, dt))[1]
    kept = (dy0, at, dk, dt0, dt) if plan.events else (dy0, at, dk)
    return (dy, dt), at, dt, kept if whole else None


# --- all steps ----------------------------------------------------------------------------------------------------


def _at(plan: Plan, steps: Steps, n: Array) -> tuple[Steps, Any]:
    """Step n, and what the next one starts with."""
    later = jnp.minimum(n + 1, plan.slots - 1)
    return jax.tree.map(lambda a: a[n], steps), jax.tree.map(lambda a: a[later], (steps.y0, steps.mode))


def _still(plan: Plan, dy: Array) -> tuple[Array, Array | None]:
    """What a run starts with: dy, and no change of the time."""
    return dy, jnp.zeros((), dy.dtype) if plan.events else None


def _where(pred: Array, new: Any, old: Any) -> Any:
    return jax.tree.map(lambda a, b: jnp.where(pred, a, b), new, old)


def _tangents(plan: Plan, join: Any, whole: bool, fixed: Any, moving: Any) -> Any:
    """The change of states and event times; with `whole` also that of every step."""
    numbers, steps, count, _ = fixed
    (moved, dy0), like = moving, steps.y0[0]
    last = eqxi.unvmap_max(count)
    shapes = plan.outputs + 1, plan.max_events

    def turn(carry):
        n, met, start, dys, dts, kept = carry
        step, after = _at(plan, steps, n)
        end, at, dt, values = _link(plan, join, whole, numbers, step, after, moved, start)
        active = n < count
        fired = active & (step.event >= 0)
        dys = dys.at[jnp.where(active & (step.lands >= 0), step.lands, shapes[0])].set(at, mode="drop")
        dts = dts.at[jnp.where(fired, met, shapes[1])].set(dt, mode="drop") if plan.events else dts
        row = jnp.where(active, n, plan.slots)
        kept = jax.tree.map(lambda k, x: k.at[row].set(x, mode="drop"), kept, values)
        return n + 1, met + fired, _where(active & ~step.aside, end, start), dys, dts, kept

    dys = jnp.zeros((shapes[0], *like.shape), like.dtype).at[0].set(dy0)
    none = jnp.zeros((), int)
    kept = jax.tree.map(jnp.zeros_like, _kept(plan, steps)) if whole else None
    start = (none, none, _still(plan, dy0), dys, jnp.zeros(shapes[1], like.dtype), kept)
    *_, dys, dts, kept = lax.while_loop(lambda carry: carry[0] < last, turn, start)
    return ((dys, dts), kept) if whole else (dys, dts)


def _cotangents(plan: Plan, join: Any, whole: bool, fixed: Any, wanted: Any) -> Any:
    """The transpose of `_tangents`."""
    numbers, steps, count, reached = fixed
    (ys_bar, ts_bar), kept = wanted if whole else (wanted, None)
    nothing = lambda numbers, y: (_still(plan, jnp.zeros_like(y)), [jnp.zeros_like(x) for x in numbers[1]])
    events = (steps.event >= 0) & (jnp.arange(plan.slots) < count)
    step_row, state = Joined(jax.tree.map(lambda a: a[0], steps)), Joined(nothing(numbers, ys_bar[0]))
    table = step_row.table(steps, ys_bar.dtype)

    def back(numbers: Any, row: Array, later: Any, active: Array, bars: tuple, vectors: list[Array]) -> list[Array]:
        (bar, mbar), step, (still, like) = state.part(vectors), step_row.rows(row), nothing(numbers, bars[0])
        after = None if later is None else (lambda s: (s.y0, s.mode))(step_row.rows(later))
        link = partial(_link, plan, join, whole, numbers, step, after)
        after_bar = _where(step.aside, still, bar)  # of what goes on from the end of the step
        more, start_bar = jax.linear_transpose(link, like, still)((after_bar, *bars))
        start_bar = jax.tree.map(lambda s, b, a: s + (b - a), start_bar, bar, after_bar)
        mbar = jax.tree.map(lambda m, a: m + jnp.where(active, a, 0.0), mbar, more)
        return state.join((_where(active, start_bar, bar), mbar))

    def turn(carry):
        n, met, vectors = carry
        row, later = table[n], table[jnp.minimum(n + 1, plan.slots - 1)] if plan.events else None
        step, active = step_row.rows(row), n < count
        fired = active & (step.event >= 0)
        met = met - fired
        at_bar = jnp.where(step.lands >= 0, ys_bar[jnp.maximum(step.lands, 0)], 0.0)
        t_bar = jnp.where(fired, ts_bar[jnp.maximum(met, 0)], 0.0) if plan.events else None
        bars = at_bar, t_bar, jax.tree.map(lambda k: k[n], kept)
        return n - 1, met, apart(back, numbers, row, later, active, bars, vectors)

    first = (eqxi.unvmap_max(count) - 1, events.sum(), state.join(nothing(numbers, ys_bar[0])))
    (ybar, _), mbar = state.part(lax.while_loop(lambda carry: carry[0] >= 0, turn, first)[2])
    missing = jnp.arange(plan.outputs + 1)[:, None] >= jnp.where(reached < plan.outputs, reached, plan.outputs + 1)
    poison = 0.0 * jnp.where(missing, ys_bar, 0.0).sum()  # nan if a row that was not reached is asked for
    return jax.tree.map(lambda a: a + poison, (mbar, ybar + ys_bar[0]))
