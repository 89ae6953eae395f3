"""Why a simulation failed, in words: when, where, and what to do."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ._assembly import describe_worst
from ._closure import constraint_jacobian, constraint_rate, constraint_residual
from ._esdirk import Esdirk
from ._mobility import scale_rows
from ._model import Model
from ._plan import Plan, Theta, field, split
from ._progress import Found
from ._results import RESULTS
from ._watch import look

_AWAY = 1e5  # rad/s or m/s


def describe(plan: Plan, theta: Theta, found: Found) -> str:
    """The message of a failure."""
    model, t, y = theta.model, float(found.t), found.y
    h = float(found.h if plan.controller is not None else theta.control[0])
    steps = int(found.counts.accepted)
    done = f"{steps} step{'s' * (steps != 1)}, the next of {h:.2g} s" if steps else "it is the first step"
    message = RESULTS[found.result]
    if found.result == RESULTS.inconsistent:
        q, v, _ = split(model, y)
        return f"{message}: {_worst(model, q, v, t)}"
    if found.result == RESULTS.nonfinite:
        return f"at t = {t:.6g} s {message}{_who(plan, theta, found)}; {done}"
    if found.result == RESULTS.drift:
        left = f"; up to {float(found.counts.error):.2g} m or rad were open before" if not plan.project else ""
        return f"just after t = {t:.6g} s {message} (at {_opening(theta, found)}{left}); {done}"
    if found.result == RESULTS.max_stored:
        done += f"; {plan.slots} are kept"
    hint = _singular(model, y, t) + _fast(model, y)
    if (not hint and found.result == RESULTS.max_steps) or found.result == RESULTS.step_too_small:
        tried = int(found.counts.tried)
        hint += f"; {tried - int(found.counts.accepted)} of {tried} attempts were rejected"
        if is_stiff(theta, found):
            rate = fastest(theta, found)[0]
            hint += f"; the fastest mode decays at {rate:.3g} 1/s: it is stiff, use solver=mb.implicit()"
    return f"at t = {t:.6g} s {message}; {done}{hint}"


def in_a_program() -> list[str]:
    """The message for each of RESULTS where nothing can be looked at: under `jax.jit` and `jax.vmap`."""
    advice = (
        "run it outside of jax.jit to see when and where, or pass throw=False and look at .result (under jax.vmap each "
        "member has its own)"
    )
    return [f"a simulation fails; {advice}: {words}" for words in RESULTS._index_to_message]


def _singular(model: Model, y: Array, t: float) -> str:
    """Says so if the mechanism is near an attitude where its rows lose rank."""
    if not model.nc:
        return ""
    G = np.asarray(scale_rows(model, constraint_jacobian(model, split(model, y)[0], t)))
    s = np.linalg.svd(G, compute_uv=False)
    weak = s[(s > 1e-9 * s[0]) & (s < 1e-2 * s[0])]
    if not len(weak):
        return ""
    return (
        f"; it is near a singular attitude (margin {weak.min() / s[0]:.2g}): a dead point, which a drive cannot pass, "
        "or a fork of motions, which longer steps (a looser tolerance, another solver) pass more easily than short ones"
    )


def _opening(theta: Theta, found: Found) -> str:
    """The row that opens most when the motion goes straight on, with the way round its loop."""
    model, h = theta.model, float(found.h)
    q, _, _ = split(model, found.y + h * field(theta, found.mode, found.t, found.y))
    rows = np.abs(np.asarray(constraint_residual(model, q, float(found.t) + h)))
    names = [n for n, level in zip(model.row_names, model.levels, strict=True) if level == 0]
    return describe_worst(model, names, rows).rsplit(" stays open", 1)[0] if len(rows) else "a row of speeds"


def _worst(model: Model, q: Array, v: Array, t: float) -> str:
    rows = np.abs(np.asarray(constraint_residual(model, q, t)))
    names = [n for n, level in zip(model.row_names, model.levels, strict=True) if level == 0]
    rate = np.abs(np.asarray(constraint_rate(model, q, v, t)))
    if not len(rows) or (rows.max() <= 1e-6 and rate.max(initial=0.0) > rows.max()):
        names = [n for n, level in zip(model.row_names, model.levels, strict=True) if level <= 1]
        return f"{describe_worst(model, names, rate)} m/s or rad/s"
    return f"{describe_worst(model, names, rows)} m or rad"


def _fast(model: Model, y: Array) -> str:
    """Says which joint runs away, if one does."""
    v = np.abs(np.asarray(split(model, y)[1]))
    if v.max(initial=0.0) < _AWAY:
        return ""
    name = next(n for n in model.inboard if v.max() in v[model.speeds(n)])
    return f"; joint {name!r} runs away, at {v.max():.2g} rad/s or m/s"


def _who(plan: Plan, theta: Theta, found: Found) -> str:
    """What is not a number at the last state, or where it is about to go: conditions of events, rates of joints and
    connections."""
    if plan.events:
        g = np.asarray(look(plan, theta, found.mode, found.t, found.y).g)
        names = [repr(event.name) for event, value in zip(plan.events, g, strict=True) if not np.isfinite(value)]
        if names:
            return f" (the condition of event {', '.join(names)} is not finite)"
    said = _not_finite(theta, found, found.t, found.y)
    if said:
        return f" (in the rates of {said})"
    rate = field(theta, found.mode, found.t, found.y)
    for h in np.asarray(found.h) * 4.0 ** np.arange(-1, 12):
        said = _not_finite(theta, found, found.t + h, found.y + h * rate)
        if said:
            return f" (a little later, in the rates of {said}){_fast(theta.model, found.y)}"
    why = "at the last state everything is finite"
    if isinstance(plan.solver, Esdirk):
        why += "; Newton's method for the stages may have run away: take smaller steps"
    return f" (a little later: {why}){_fast(theta.model, found.y)}"


def _not_finite(theta: Theta, found: Found, t: Array, y: Array) -> str:
    """Names of what has a rate there that is not a number."""
    model = theta.model
    qd, vd, zd = (np.asarray(x) for x in split(model, field(theta, found.mode, t, y)))
    joints = [
        name
        for name in model.inboard
        if not (np.isfinite(vd[model.speeds(name)]).all() and np.isfinite(qd[model.coordinates(name)]).all())
    ]
    states = [name for name in model.connection_names if not np.isfinite(zd[model.states(name)]).all()]
    bodies = [model.topology.bodies[model.inboard.index(name)] for name in joints[:3]]
    where = [f"joint {j!r} (body {b!r})" for j, b in zip(joints, bodies, strict=False)]
    where += [f"connection {name!r}" for name in states[:3]]
    return ", ".join(where) + (", ..." if len(joints) > 3 else "")


def fastest(theta: Theta, found: Found) -> tuple[float, float]:
    """The largest rate at which a motion decays, 1/s, and the largest magnitude of an eigenvalue."""
    J = jax.jacfwd(lambda y: field(theta, found.mode, found.t, y))(found.y)
    if not bool(jnp.isfinite(J).all()):
        return 0.0, 0.0
    values = np.linalg.eigvals(np.asarray(J))
    return float(max(0.0, -values.real.min(initial=0.0))), float(np.abs(values).max(initial=0.0))


def is_stiff(theta: Theta, found: Found) -> bool:
    """Whether the steps are as long as stability lets them be: |lambda| h near the border of an explicit method."""
    decay, size = fastest(theta, found)
    return decay * float(found.h) > 1.0 and decay > 0.3 * size
