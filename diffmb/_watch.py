"""WATCH: how events are found within a step, from the conditions g and their rates at its ends.

A condition is on the side of zero where it was last. It crosses when it is on the other side at the end of a step, or
in between, as far as the cubic of Hermite says that takes g and dg/dt at both ends: with x from 0 to 1 in a step h,

    c(x) = g0 + h g0' x + (3 D - 2 h g0' - h g1') x^2 + (h g0' + h g1' - 2 D) x^3          D = g1 - g0             (1)

has its extremes at c'(x) = 0. A step is made shorter to the first extreme that lies across zero, or so near to it that
(1) may be wrong; then, where a crossing is found, until it ends just past the first one. Every event that has crossed
there is `due` and acts, in the order of the list; those after the first one in steps of no length.

After its action a condition that is still at zero is on the side to which it goes, or, if it rests, on that to which it
went; it has to leave a narrow `band` around zero before it can cross again, so that round-off is no event. A unilateral
event needs no memory: it is due wherever the gap is not above zero and closes.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ._event import conditions
from ._plan import Mode, Plan, Theta, field

_LOCATE = 80  # attempts to end a step at a crossing, at most
_SPECK = 512.0  # round-offs: a gap of that size is zero, a rate of that size is rest
_ROUGH = 256.0  # round-offs of the state, in a condition that is zero
_BLUR = 1024.0  # round-offs of the time by which an event is known
_SMALL = 1e-3  # part of a step
_DOUBT = 0.1  # of the depth of a dip: what (1) may be wrong by
_RESTS = 1e-9  # of the rate before an action: what is less afterwards is rest


class Sight(eqx.Module):
    """The conditions at a time and their rates, and what counts as nothing: of a gap, and of its rate."""

    t: Array
    g: Array
    rate: Array
    near: Array
    slow: Array


class Watch(eqx.Module):
    """What is known of the conditions where a step starts: see above; `side` is 1, -1, or 0 where it is not known."""

    sight: Sight
    side: Array
    band: Array
    due: Array


def look(plan: Plan, theta: Theta, mode: Mode, t: Array, y: Array) -> Sight:
    f, nq = field(theta, mode, t, y), theta.model.nq
    g, rate = jax.jvp(lambda t, y: conditions(plan, theta, mode, t, y), (t, y), (jnp.ones_like(t), f))
    speck = _SPECK * np.finfo(y.dtype).eps
    size = lambda x: speck * (1.0 + jnp.abs(x).max(initial=0.0))
    return Sight(t, g, rate, size(y[:nq]), size(f[:nq]))


def round_off(plan: Plan, theta: Theta, mode: Mode, t: Array, y: Array) -> Array:
    """The size of a condition that may be zero: what round-off of the state, and of lengths like it, makes of it."""
    pattern = np.cos(2.4 * np.arange(1, y.shape[0] + 1) ** 2)
    step = _ROUGH * np.finfo(y.dtype).eps * (1.0 + jnp.abs(y)) * pattern
    return jnp.abs(jax.jvp(lambda y: conditions(plan, theta, mode, t, y), (y,), (step.astype(y.dtype),))[1])


def _unilateral(plan: Plan) -> np.ndarray:
    return np.array([event.unilateral for event in plan.events])


def finite(plan: Plan, s: Sight) -> Array:
    """Whether the conditions are numbers, and the rates where they decide."""
    return (jnp.isfinite(s.g) & (jnp.isfinite(s.rate) | jnp.asarray(~_unilateral(plan)))).all()


def _pressed(plan: Plan, s: Sight) -> Array:
    """The gaps that are not above zero and close."""
    return jnp.asarray(_unilateral(plan)) & (s.g <= 0.0) & (s.rate < -s.slow)


def crossed(plan: Plan, watch: Watch, s: Sight) -> Array:
    """Which conditions are across zero in their direction."""
    direction = np.array([event.direction for event in plan.events])
    falls = (watch.side > 0) & (s.g <= -watch.band) & (direction <= 0)
    rises = (watch.side < 0) & (s.g >= watch.band) & (direction >= 0)
    return falls | rises | _pressed(plan, s)


def fires(plan: Plan, watch: Watch, s: Sight) -> Array:
    """Which events act at the end of a step: of the gaps that are closed those that close."""
    return crossed(plan, watch, s) & (_pressed(plan, s) | ~_unilateral(plan))


# --- within a step ------------------------------------------------------------------------------------------------


def extreme(watch: Watch, a: Sight, b: Sight, whole: Array) -> Array:
    """The time of the first extreme between a and b that lies across zero or next to it, by (1); infinity if none.

    In a small part of the `whole` step, or in one as short as round-off, (1) says nothing that can be relied upon.
    """
    h = b.t - a.t
    least = jnp.maximum(_SMALL * whole, _BLUR * np.finfo(a.g.dtype).eps * jnp.abs(b.t))
    m0, m1, D = h * a.rate, h * b.rate, b.g - a.g
    second, third = 3.0 * D - 2.0 * m0 - m1, m0 + m1 - 2.0 * D
    w = -second - jnp.where(second < 0, -1.0, 1.0) * jnp.sqrt(second**2 - 3.0 * third * m0)
    places = jnp.stack([w / (3.0 * third), m0 / w])  # of no number where there is none
    inside = (places > 0.0) & (places < 1.0)
    x = jnp.where(inside, places, 0.0)
    value = watch.side * (a.g + x * (m0 + x * (second + x * third)))
    depth = jnp.minimum(watch.side * a.g, watch.side * b.g) - value
    across = value < jnp.where(x > _SMALL, _DOUBT, 0.0) * jnp.maximum(depth, 0.0) - watch.band
    return a.t + h * jnp.min(jnp.where(inside & across & (watch.side != 0) & (h > least), x, jnp.inf))


def shorten(plan: Plan, watch: Watch, attempt: Callable, view: Callable, a: Any, s: Sight) -> tuple[Any, Sight]:
    """The step that ends just past the first crossing or at an extreme; and what is seen there.

    Bisection, and secants between a true pair. `low` has seen nothing, from the start on; `high` ends the step.
    """
    start, whole = watch.sight, s.t - watch.sight.t
    scale = np.finfo(s.g.dtype).eps * jnp.maximum(jnp.abs(s.t), whole)

    def narrow(carry):
        low, high, best, apex, true, count = carry
        part = low.g / (low.g - high.g)
        part = jnp.where(crossed(plan, watch, high), jnp.where((part >= 0.0) & (part <= 1.0), part, 0.5), 1.0)
        width, turned = high.t - low.t, jnp.isfinite(apex)
        nudge = jnp.where(count % 2 == 0, 2.0 * scale, -2.0 * scale)  # so that both ends close in
        guess = jnp.where(turned, apex, low.t + jnp.min(part) * width + nudge)
        guess = jnp.clip(guess, low.t + 0.5 * scale, high.t - 0.5 * scale)
        middle = jnp.where(turned | (true & (count % 3 != 2)), guess, low.t + 0.5 * width)
        new = attempt(middle)
        s = view(new)
        past = turned | worth(plan, watch, low, s, whole, jnp.isfinite(new.y).all())
        pick = lambda x, y: jax.tree.map(lambda x, y: jnp.where(past, x, y), x, y)
        (high, best), low = pick((s, new), (high, best)), pick(low, s)
        return low, high, best, extreme(watch, low, high, whole), true | ~past, count + 1

    def unfinished(carry):
        low, high, best, apex, _, count = carry
        reason = crossed(plan, watch, high).any() | ~finite(plan, high) | jnp.isfinite(apex)
        return (reason | ~jnp.isfinite(best.y).all()) & (high.t - low.t > 4.0 * scale) & (count < _LOCATE)

    none = jnp.asarray(False), jnp.asarray(0)
    _, s, a, *_ = lax.while_loop(unfinished, narrow, (start, s, a, extreme(watch, start, s, whole), *none))
    return a, s


def worth(plan: Plan, watch: Watch, a: Sight, b: Sight, whole: Array, fine: Array) -> Array:
    """Whether there is something to be found between a and b."""
    return crossed(plan, watch, b).any() | jnp.isfinite(extreme(watch, a, b, whole)) | ~(finite(plan, b) & fine)


# --- from step to step --------------------------------------------------------------------------------------------


def _known(plan: Plan, s: Sight, side: Array, band: Array, due: Array) -> Watch:
    """A gap is on its side unless it is closed."""
    gap = _unilateral(plan)
    side = jnp.where(gap, jnp.where(s.g > -0.5 * s.near, 1.0, 0.0), side)
    return Watch(s, side, jnp.where(gap, s.near, band), due)


def started(plan: Plan, s: Sight, noise: Array) -> Watch:
    """At the start: a condition at zero is where it goes."""
    zero = jnp.abs(s.g) <= noise
    goes = jnp.where(jnp.abs(s.rate) > s.slow, jnp.sign(s.rate), 0.0)
    side, band = jnp.where(zero, goes, jnp.sign(s.g)), jnp.where(zero, noise, 0.0)
    return _known(plan, s, side, band, _pressed(plan, s))


def passed(plan: Plan, watch: Watch, s: Sight) -> Watch:
    """After a step."""
    clear = jnp.abs(s.g) > watch.band
    side, band = jnp.where(clear, jnp.sign(s.g), watch.side), jnp.where(clear, 0.0, watch.band)
    return _known(plan, s, side, band, jnp.zeros_like(watch.due))


def acted(plan: Plan, watch: Watch, hits: Array, which: Array, before: Sight, noise: Array, s: Sight) -> Watch:
    """After the action of event `which`, one of those that the step `hits`; s is what is seen then."""
    blur = _blur(before, watch)
    again, mine = watch.due.any(), jnp.arange(len(plan.events)) == which
    fresh = 4.0 * jnp.abs(before.g) + blur * jnp.abs(before.rate) + noise
    other = passed(plan, watch, before)
    side = jnp.where(hits, watch.side, other.side)
    band = jnp.where(hits, jnp.where(again, watch.band, fresh), other.band)
    held = Watch(s, side, band, hits)
    due = jnp.where(_unilateral(plan), _pressed(plan, s), (hits | crossed(plan, held, s)) & ~mine)
    zero, goes = jnp.abs(s.g) <= band, jnp.abs(s.rate) * blur > _RESTS * band
    there = jnp.where(zero, jnp.where(goes, jnp.sign(s.rate), -side), jnp.sign(s.g))
    return _known(plan, s, jnp.where(mine, there, side), jnp.where(mine & ~zero, 0.0, band), due)


def carried(plan: Plan, watch: Watch, s: Sight) -> Array:
    """Which conditions do not say when they act: those that an action before theirs has moved or stopped."""
    goes = jnp.where(_unilateral(plan), s.rate < -s.slow, jnp.abs(s.rate) * _blur(s, watch) > _RESTS * watch.band)
    return watch.due & ~((jnp.abs(s.g) <= watch.band) & goes)


def _blur(s: Sight, watch: Watch) -> Array:
    """The time, s, by which the end of a step at an event is known."""
    return _BLUR * np.finfo(s.g.dtype).eps * jnp.maximum(jnp.abs(s.t), s.t - watch.sight.t)
