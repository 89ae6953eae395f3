"""QUIET: how long the steps of an explicit method may be where the mechanism rests.

Where nothing moves no step has an error, and steps would grow until the changes of the state, whose derivative they
are as well, run away: a change dy is multiplied by the stability polynomial R(h f_y). So where a step moves the state
by next to nothing, a disturbance d of it is taken along, and its steps have to be accurate too,

    e(y + d) <= rtol max(|d0|, |y1(y + d) - y|)         d <- y1(y + d) - y1(y)                                      (1)

in the scale of the controller, s = atol / rtol + |y|, with d0 as it was at first. A trial is one more turn of the loop,
from y + d, which moves nothing; there is one before each step that is longer than those that have been tried. A
mechanism that starts at rest is disturbed along all its motions; one that comes to rest, along its last motion, which
is a change of the state like any other (f solves the equation of the changes): what has died away in the one has died
away in the other, and steps may be as long as stability lets them be.

Implicit methods are not held back: they are chosen to pass over what is fast.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

from ._esdirk import Esdirk
from ._plan import Plan, Theta

_LARGE = 10.0  # times that: it is made smaller, so that changes stay linear
_FINEST = 1e-11  # accuracy of a disturbance that is asked for at most
_ROUND_OFF = 20.0  # times that of the numbers: errors below say nothing
_GROWTH = 10.0


class Quiet(eqx.Module):
    """The disturbance d at the start of the next step and at its end, the longest step that has been tried or follows
    from it, whether longer ones are wanted here, and whether the trial of the next step has been passed."""

    change: Array
    end: Array
    most: Array
    held: Array
    passed: Array


class Verdict(eqx.Module):
    """What is known after an attempt: whether a step that is fine has to be tried first, and how long a step that was
    tried may be."""

    quiet: Quiet
    untried: Array
    failed: Array
    better: Array

    def h(self, before: Array) -> Array:
        """The length to go on with if nothing was taken."""
        return jnp.where(self.failed, jnp.minimum(self.better, 0.9 * before), before)


def at_rest(plan: Plan, theta: Theta, y: Array) -> Quiet | None:
    """At the start; None if the method or the controller needs no trials."""
    if plan.controller is None or isinstance(plan.solver, Esdirk):
        return None
    no = jnp.asarray(False)
    return Quiet(_pattern(_scale(theta, y)), y, jnp.zeros((), y.dtype), no, no)


def _scale(theta: Theta, y: Array) -> Array:
    rtol, atol = theta.control
    return atol / jnp.maximum(rtol, _FINEST) + jnp.abs(y)


def _pattern(scale: Array) -> Array:
    """A disturbance that is along no motion in particular."""
    n = np.arange(1, scale.shape[0] + 1)
    return scale * jnp.asarray(_disturbance(scale.dtype) * np.cos(2.4 * n * n), scale.dtype)


def _disturbance(dtype: Any) -> float:
    """d0, in the scale of the controller: changes of it are linear, and errors in it above round-off."""
    return float(np.finfo(dtype).eps) ** 0.25


def is_trial(quiet: Quiet, length: Array) -> Array:
    """Whether the next attempt is one."""
    return quiet.held & ~quiet.passed & (length > 0.5 * quiet.most)


def disturbed(quiet: Quiet, trial: Array, y: Array, solver_state: Any) -> tuple[Array, Any]:
    """Where an attempt starts, and the solver's state there: a trial asks for its own first slope."""
    if solver_state is not None:
        first, slope = solver_state
        solver_state = first | trial, slope
    return y + jnp.where(trial, quiet.change, 0.0), solver_state


def judge_rest(
    plan: Plan, theta: Theta, quiet: Quiet, trial: Array, y: Array, a: Any, length: Array, keep: Array, ctrl: Array
) -> Verdict:
    """(1), after an attempt `a` of this length from y, which the controller would `keep`, and go on with `ctrl`."""
    rtol, scale = jnp.maximum(theta.control[0], _FINEST), _scale(theta, y)
    size = lambda x: jnp.abs(x / scale).max(initial=0.0)
    first, least = _disturbance(y.dtype), _ROUND_OFF * float(np.finfo(y.dtype).eps)
    ratio = size(a.error) / jnp.maximum(rtol * jnp.maximum(first, size(a.raw - y)), least)
    ratio = jnp.where(jnp.isfinite(ratio), ratio, jnp.inf)
    better = length * jnp.clip(0.9 * ratio ** (-1.0 / plan.solver.error_order(plan.terms())), 0.1, _GROWTH)
    still = (jnp.abs(a.y - y) <= jnp.sqrt(rtol) * scale).all()
    untried = keep & still & ~trial & ~quiet.passed & (length > quiet.most)
    goes = keep & ~untried & ~trial
    shrunk = lambda x, most: x * jnp.minimum(1.0, most / jnp.maximum(size(x), 1e-30))
    change = jnp.where(goes & quiet.passed, shrunk(quiet.end - a.y, _LARGE * first), quiet.change)
    after = Quiet(
        jnp.where(goes & ~still, shrunk(a.y - y, first), change),
        jnp.where(trial, a.y, quiet.end),
        jnp.where(trial, better, quiet.most),
        jnp.where(goes, still & (ctrl > quiet.most), quiet.held | untried),
        trial & (ratio <= 1.0),
    )
    return Verdict(after, untried, trial & (ratio > 1.0), better)


def untried_where(changed: Array, quiet: Quiet | None) -> Quiet | None:
    """Nothing is known any more where the mechanism itself has changed."""
    return None if quiet is None else eqx.tree_at(lambda r: r.most, quiet, jnp.where(changed, 0.0, quiet.most))
