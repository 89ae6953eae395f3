"""EVENTS: something happens when a function of the state crosses zero; the motion stops, or jumps and goes on.

    g(t, y) = 0 at t*          y+ = a(t*, y-)          the row of constraints that are on may change with it         (1)

The time moves with everything that the state depends on, so a jump has more than its own derivative. With dy- and dy+
at fixed time before and after, and f-, f+ the rates of the state (saltation; Aizerman and Gantmakher 1958),

    dt* = -(g_y dy- + g_theta dtheta) / (g_t + g_y f-)                                                              (2)
    dy+ = a_y (dy- + f- dt*) + a_t dt* + a_theta dtheta - f+ dt*                                                    (3)

After the action speeds are put on the rows that are on then, by the least impulse in the metric of M: a drive that
locks acts as a plastic impact.

Several events may come at one instant: they act one after the other in the order of the list, each on what the one
before it has left, (2) and (3) for each. One whose condition says nothing about the instant, because an action before
it has carried it across zero or stopped it there, moves in time with that one.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ._assembly import shortest
from ._bodies._marker import Marker
from ._checks import kind_of
from ._closure import constraint_jacobian, constraint_rate
from ._dynamics import mass_matrix
from ._errors import MechanismError
from ._joints._lift import as_params
from ._kinematics import Motion, kinematics, qdot
from ._model import Model
from ._motion import level_rows
from ._plan import Mode, Plan, Theta, field, split


class Instant(eqx.Module):
    """The mechanism at one time, as the functions of an event see it.

    `t`, `q`, `v`, `z`: time, coordinates, speeds, states of connections; `instant["ball"]` is the motion of a body,
    `coordinate("A")` and `speed("A")` those of a joint. `instant.replace(v=...)` and `instant.switch("lock", True)`
    give changed copies.
    """

    model: Model
    t: Array
    q: Array
    v: Array
    z: Array
    on: Array | None = None

    def __getitem__(self, frame: str | Marker) -> Motion:
        return kinematics(self.model, self.q, self.v, t=self.t)[frame]

    def coordinate(self, joint: str) -> Array:
        found = self.q[self.model.coordinates(joint)]
        return found[0] if found.shape[0] == 1 else found

    def speed(self, joint: str) -> Array:
        found = self.v[self.model.speeds(joint)]
        return found[0] if found.shape[0] == 1 else found

    def replace(self, **parts: Any) -> "Instant":
        """A copy with other `q`, `v` or `z`."""
        for name, value in parts.items():
            if name not in ("q", "v", "z"):
                raise MechanismError(f"an instant has no {name!r} to replace; q, v and z can be")
            value = jnp.asarray(value)
            if value.shape != getattr(self, name).shape:
                raise MechanismError(
                    f"the new {name} of an event has shape {value.shape}, not {getattr(self, name).shape}"
                )
            self = eqx.tree_at(lambda s, name=name: getattr(s, name), self, value)
        return self

    def switch(self, name: str, on: bool) -> "Instant":
        """A copy with a constraint, drive, cut joint or connection switched on or off."""
        if self.on is None:
            raise MechanismError(f"{name!r} is switched outside of an event's action")
        return eqx.tree_at(lambda s: s.on, self, self.on.at[self.model.switch(name)].set(1.0 if on else 0.0))


class Event(eqx.Module):
    """Stops the motion, or changes it, when `condition` crosses zero.

    A condition has crossed when it was on one side of zero and is now on the other, be it by an action of another
    event; what it starts at zero counts as the side to which it goes. Two crossings within one step are seen as long
    as the cubic through the values and rates of the condition at both ends sees them; limit the steps (a requested
    time, `mb.FixedStep`) where a condition wriggles more than the motion. Rows of a trajectory at the time of an event
    hold the state after it; where an event stops the run, the last row is the state at the stop.

    **Arguments:**

    - `name`: what to call it.
    - `condition`: `condition(instant, params)`, a smooth number.
    - `action`: `action(instant, params)` gives the `Instant` to go on from; None stops the simulation.
    - `direction`: -1 for falling through zero, 1 for rising, 0 for both.
    - `params`: numbers that the two functions use, in any tree; differentiable.
    - `unilateral`: whether it acts wherever the condition is not above zero and still falls, at the start too, and
      never while it rises: what a gap does. The direction is -1 then.
    """

    name: Any = eqx.field(static=True)
    condition: Any = eqx.field(static=True)
    action: Any = eqx.field(static=True, default=None)
    direction: int = eqx.field(static=True, default=0)
    params: Any = eqx.field(converter=as_params, default=None)
    unilateral: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        if not isinstance(self.name, str) or not self.name:
            raise MechanismError(f"an event is named {self.name!r}; a name must be a non-empty string")
        for what, function in (("condition", self.condition), ("action", self.action)):
            if not callable(function) and not (function is None and what == "action"):
                raise MechanismError(
                    f"the {what} of event {self.name!r} is {kind_of(function)}; give a function of (instant, params)"
                )
        if self.unilateral and self.direction != -1:
            raise MechanismError(f"event {self.name!r} is unilateral: it acts on a gap that closes; give direction=-1")
        if self.direction not in (-1, 0, 1):
            raise MechanismError(f"event {self.name!r} has direction {self.direction!r}; give -1, 0 or 1")


def impact(name: str, gap: Callable, restitution: Any = 0.0, params: Any = None) -> Event:
    """An event that reverses the rate of a `gap(instant, params)` when it closes: newton's law, rate+ = -e rate-.

    The impulse acts along the gradient of the gap, without friction; loops and drives share it. It acts wherever the
    gap is zero or less and closes, at the start too, and not where the gap opens or rests. With restitution 0 the rate
    is zero afterwards, and nothing holds it there: where a load presses on, impacts follow each other until
    `max_events` is reached. Let an `Event` with the same gap, `direction=-1`, come after it in the list: it acts at the
    same instant, and its action can switch on a drive that holds what has landed.
    """

    def condition(instant: Instant, numbers: Any) -> Array:
        return gap(instant, numbers[1])

    def action(instant: Instant, numbers: Any) -> Instant:
        model, q, t = instant.model, instant.q, instant.t
        opening = lambda q, t: gap(eqx.tree_at(lambda s: (s.q, s.t), instant, (q, t)), numbers[1])
        along = lambda u: jax.jvp(lambda q: opening(q, t), (q,), (qdot(model, q, u),))[1]
        n = jax.vmap(along)(jnp.eye(model.nv, dtype=q.dtype))
        rate = n @ instant.v + jax.jvp(lambda t: opening(q, t), (t,), (jnp.ones_like(t),))[1]
        M, G = mass_matrix(model, q, t), _rows_on(model, instant)
        a = jnp.linalg.solve(M, n)
        x = a - shortest(M, G, G @ a)
        free = n @ x > 1e3 * np.finfo(q.dtype).eps * (n @ a)  # else the rows that are on hold the gap
        impulse = jnp.where(free, (1.0 + numbers[0]) * rate / jnp.where(free, n @ x, 1.0), 0.0)
        return instant.replace(v=instant.v - impulse * x)

    return Event(name, condition, action, -1, (restitution, params), True)


def _rows_on(model: Model, instant: Instant) -> Array:
    G = constraint_jacobian(model, instant.q, instant.t)
    return G if instant.on is None else G * instant.on[np.asarray(model.row_switch)][:, None]


def _instant(theta: Theta, mode: Mode, t: Array, y: Array) -> Instant:
    return Instant(theta.model, t, *split(theta.model, y), mode.on)


def conditions(plan: Plan, theta: Theta, mode: Mode, t: Array, y: Array) -> Array:
    """g of every event, (events,)."""
    instant = _instant(theta, mode, t, y)
    return jnp.stack([_number(event, instant, p) for event, p in zip(plan.events, theta.events, strict=True)])


def _number(event: Event, instant: Instant, params: Any) -> Array:
    """g of one event; refused in words if it is no number."""
    title = f"the condition of event {event.name!r}"
    try:
        g = jnp.asarray(event.condition(instant, params), instant.q.dtype)
    except MechanismError:
        raise
    except Exception as error:
        raise MechanismError(f"{title} fails: {type(error).__name__}: {error}") from error
    if g.size != 1:
        raise MechanismError(f"{title} gives shape {g.shape}; it is one number, such as instant.coordinate('A') - 0.5")
    return g.reshape(())


def jump(plan: Plan, theta: Theta, mode: Mode, which: Array, t: Array, y: Array) -> tuple[Array, Array | None]:
    """(1): the state after event number `which`, and what is switched on then."""
    instant = _instant(theta, mode, t, y)
    result = (instant.q, instant.v, instant.z, instant.on)
    for k, (event, params) in enumerate(zip(plan.events, theta.events, strict=True)):
        if event.action is None:
            continue
        new = event.action(instant, params)
        if not isinstance(new, Instant):
            raise MechanismError(f"the action of event {event.name!r} returns {type(new).__name__}, not an Instant")
        new = new.replace(v=_consistent(new))
        result = jax.tree.map(lambda a, b, k=k: jnp.where(which == k, a, b), (new.q, new.v, new.z, new.on), result)
    q, v, z, on = result
    return jnp.concatenate([q, v, z]), on


def _consistent(instant: Instant) -> Array:
    """The speeds nearest to those of the instant that the rows which are on allow."""
    model = instant.model
    if not (model.levels <= 1).any():
        return instant.v
    G = _rows_on(model, instant)
    rate = level_rows(model, constraint_rate(model, instant.q, instant.v, instant.t), 1)
    if instant.on is not None:
        rate = rate * instant.on[np.asarray(model.row_switch)]
    places = np.flatnonzero(model.levels <= 1)
    return instant.v - shortest(mass_matrix(model, instant.q, instant.t), G[places], rate[places])


def saltation(plan: Plan, before: Any, after: Mode, moving: list, join: Callable, moved: list, dy: Array, dt0: Array):
    """(2) and (3): dy+ and dt* and dy- + f- dt*, for `before` = (mode, which, carried, t, y, y after).

    An event that is `carried` along moves in time by `dt0`, as the one before it.
    """
    mode, which, carried, t, y, landed = before
    one = jax.nn.one_hot(which, len(plan.events), dtype=y.dtype)
    g = lambda moving, t, y: conditions(plan, join(moving), mode, t, y) @ one
    theta = join(moving)
    f = field(theta, mode, t, y)
    change = jax.jvp(lambda moving, y: g(moving, t, y), (moving, y), (moved, dy))[1]
    rate = jax.jvp(lambda t, y: g(moving, t, y), (t, y), (jnp.ones_like(t), f))[1]
    dt = jnp.where(carried, dt0, -change / jnp.where(carried, 1.0, rate))
    at = dy + f * dt
    push = lambda moving, t, y: jump(plan, join(moving), mode, which, t, y)[0]
    dy = jax.jvp(push, (moving, t, y), (moved, dt, at))[1] - field(theta, after, t, landed) * dt
    return dy, dt, at
