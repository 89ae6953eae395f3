"""KINEMATIC SIMULATION: positions, velocities and accelerations of a mechanism whose motion is prescribed.

    phi(t, q) = 0            KSP/0: Newton at each time, from the state before, carried on along its branch
    G v = nu(t, q)           KSP/1
    G vd = gamma(t, q, v)    KSP/2                                                  (Sol 1983, ch. 5)

Drives and constraints together must leave nothing free: rank G = nv. With rows of velocity level (rolling, the skate,
speeds that are prescribed) the coordinates that they move are integrated, qd = N v(t, q), and put back on the holonomic
rows at each requested time; with rows of acceleration level so are the speeds. The derivative is that of the equations
at each time, not of the way to it.
"""

from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ._assembly import State, close, closest_speeds, describe_worst, same_side, shortest, tolerance
from ._bodies._marker import as_marker
from ._closure import (
    constraint_acceleration,
    constraint_bias,
    constraint_jacobian,
    constraint_rate,
    constraint_residual,
)
from ._dynamics import mass_matrix
from ._errors import MechanismError
from ._kinematics import Motion, difference, kinematics, moving_body, qdot, retract
from ._mobility import scale_rows
from ._model import Model
from ._spatial._axis import is_concrete
from ._tiles import members, over_rows

_SURE = 1e-6  # rad or m: attitudes that are not known better than this are refused
_PIECES = 2000  # Newton solutions between two requested times, at most
_REACH = 0.1  # rad or m that a coordinate may move between two Newton solutions on the way


class KinematicSimulation(eqx.Module):
    """What `mb.simulate_kinematics` found, stacked over times.

    - `ts`, `q`, `v`, `vd`: times, coordinates, speeds, accelerations.
    - `residual`: largest |phi|; `margin`: smallest singular value of all rows beside the largest, 0 where singular.
    - `side`: -1 where the mechanism passed a singular attitude since the time before, else 1.
    - `ok`: whether the attitude closed, is regular and continues the one before.

    `simulation["rocker"]` is the motion of a body over time. After `jax.vmap` all of it has the batch axes in front.
    """

    ts: Array
    q: Array
    v: Array
    vd: Array
    residual: Array
    margin: Array
    side: Array
    ok: Array
    model: Model

    def __getitem__(self, frame) -> Motion:
        moving_body(self.model.topology.bodies, as_marker(frame))
        at = lambda model: lambda t, q, v, vd: kinematics(model, q, v, vd, t)[frame]
        return members(self, lambda one: over_rows(at(one.model), one.ts, one.q, one.v, one.vd))

    def coordinate(self, joint: str) -> Array:
        """The joint's coordinates over time: (times,) if it has one, else (times, nq)."""
        return _column(self.q[..., self.model.coordinates(joint)])

    def speed(self, joint: str) -> Array:
        """The joint's speeds over time."""
        return _column(self.v[..., self.model.speeds(joint)])


def _column(found: Array) -> Array:
    return found[..., 0] if found.shape[-1] == 1 else found


def simulate_kinematics(model: Model, start: State | Any, ts, *, throw: bool = True) -> KinematicSimulation:
    """Moves a driven mechanism through the times `ts`.

    **Arguments:**

    - `start`: an assembled state at the first time (its speeds matter to drives of acceleration level only), or
        coordinates near it.
    - `ts`: increasing times, s.
    - `throw`: whether an attitude that does not close or is singular is an error; else look at `.ok`.
    """
    ts = jnp.asarray(ts)
    q, v = (start.q, start.v) if isinstance(start, State) else (jnp.asarray(start), jnp.zeros(model.nv))
    if ts.ndim != 1 or ts.shape[0] == 0:
        raise MechanismError(f"ts has shape {ts.shape}; give the times as one list")
    if is_concrete(ts) and (np.diff(np.asarray(ts)) <= 0).any():
        raise MechanismError("the times ts must increase")
    found = _run(model, q, v, ts.astype(q.dtype))
    simulation = KinematicSimulation(ts.astype(q.dtype), *found, model=model)
    if throw and is_concrete(simulation.ok):
        _refuse(simulation)
    elif throw:
        message = "a kinematic simulation fails; run it outside of jax.jit to see when and where"
        simulation = eqx.tree_at(lambda s: s.q, simulation, eqx.error_if(simulation.q, ~simulation.ok.all(), message))
    return simulation


@jax.jit
def _run(model: Model, q: Array, v: Array, ts: Array):
    one = jnp.ones(model.nv, q.dtype)

    def advance(carry, t):
        q, v, before, G_before = carry
        q, v = _carry(model, q, v, before, t)
        q = retract(model, q, on_manifold(model, q, t))
        G, M = constraint_jacobian(model, q, t), mass_matrix(model, q, t)
        v, rate = closest_speeds(model, M, G, q, v, t, one)
        gamma = constraint_bias(model, q, v, t)
        vd = shortest(M, G, gamma)
        agrees = _agrees(rate, v) & _agrees(jnp.abs(G @ vd - gamma).max(initial=0.0), gamma)
        norm = jnp.abs(lax.stop_gradient(constraint_residual(model, q, t))).max(initial=0.0)
        s = jnp.linalg.svd(lax.stop_gradient(scale_rows(model, G)), compute_uv=False)
        margin = s[model.nv - 1] / s[0] if model.nc >= model.nv else jnp.zeros((), q.dtype)
        side = same_side(model, G_before, G, one)
        side = jnp.where(side == 0, 1, side)
        # Near a singular attitude a small residual is a large error: norm / margin is how far q may be off.
        ok = (norm <= _SURE * margin) & (margin > singular_margin(q.dtype)) & (side > 0) & agrees
        return (q, v, t, G), (q, v, vd, norm, margin, side, ok)

    nowhere = jnp.zeros((model.nc, model.nv), q.dtype)  # no attitude before the first
    return lax.scan(advance, (q, v, ts[0], nowhere), ts)[1]


def singular_margin(dtype) -> float:
    return 1e-5 if np.finfo(dtype).eps < 1e-12 else 1e-2


def _agrees(rest: Array, like: Array) -> Array:
    """Whether what is left of velocity or acceleration rows is round-off."""
    return lax.stop_gradient(rest) <= 1e3 * tolerance(like.dtype) * (1.0 + jnp.abs(like).max(initial=0.0))


def _carry(model: Model, q: Array, v: Array, t0: Array, t1: Array) -> tuple[Array, Array]:
    """The state at t1: integrated where no holonomic row determines it, and closed."""
    if not model.nc:
        return q, v
    if not (model.levels > 0).any():
        return lax.stop_gradient(_follow(model, q, v, t0, t1)), v
    q, v = _integrate(model, q, v, t0, t1)
    M, one = mass_matrix(model, q, t1), jnp.ones(model.nv, q.dtype)
    closed = lax.stop_gradient(close(False, model, q, M, t1, one)[0])
    return retract(model, q, lax.stop_gradient(difference(model, q, closed))), v


def _follow(model: Model, q: Array, v: Array, t0: Array, t1: Array) -> Array:
    """Newton on the way to t1, in pieces short enough to stay on the branch; once if t1 is now."""
    one = jnp.ones(model.nv, q.dtype)

    def piece(carry):
        t, q, v, count, _ = carry
        h = jnp.minimum(t1 - t, _REACH / jnp.maximum(jnp.abs(v).max(), 1e-30))
        t = jnp.where(h >= t1 - t, t1, t + h)
        q = retract(model, q, h * v)
        M = mass_matrix(model, q, t)
        q, (norm, _) = close(False, model, q, M, t, one)
        v, _ = closest_speeds(model, M, constraint_jacobian(model, q, t), q, v, t, one)
        goes_on = (t < t1) & (norm <= tolerance(q.dtype)) & (count < _PIECES)
        return t, q, v, count + 1, goes_on

    carry = (t0, q, jnp.where(t1 > t0, v, 0.0), jnp.asarray(0), jnp.asarray(True))
    return lax.while_loop(lambda c: c[4], piece, lax.stop_gradient(carry))[1]


@jax.custom_jvp
def on_manifold(model: Model, q: Array, t: Array) -> Array:
    """No step: q is closed already. Its derivative is the shortest step (in the metric of M) that keeps it closed."""
    return jnp.zeros(model.nv, q.dtype)


@on_manifold.defjvp
def _on_manifold_rule(primals, tangents):
    model, q, t = primals
    rows = np.flatnonzero(model.levels == 0)
    step = on_manifold(*primals)
    if len(rows) == 0:
        return step, jnp.zeros_like(step)
    moved = jax.jvp(constraint_residual, primals, tangents)[1]
    return step, shortest(mass_matrix(model, q, t), constraint_jacobian(model, q, t)[rows], -moved)


def _integrate(model: Model, q: Array, v: Array, t0: Array, t1: Array) -> tuple[Array, Array]:
    one = jnp.ones(model.nv, q.dtype)
    still = jnp.zeros(model.nv, q.dtype)
    speeds_too = bool((model.levels == 2).any())

    def slope(t, y, _):
        q, v = y if speeds_too else (y, still)
        G = constraint_jacobian(model, q, t)
        M = mass_matrix(model, q, t)
        v, _ = closest_speeds(model, M, G, q, v, t, one)
        qd = qdot(model, q, v)
        return (qd, shortest(M, G, constraint_bias(model, q, v, t))) if speeds_too else qd

    tight = 1e-10 if np.finfo(q.dtype).eps < 1e-12 else 1e-5
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(slope),
        diffrax.Dopri8(),
        t0,
        t1,
        None,
        (q, v) if speeds_too else q,
        stepsize_controller=diffrax.PIDController(rtol=tight, atol=tight),
        max_steps=1024,
        throw=False,
    )
    failed = solution.result != diffrax.RESULTS.successful
    end = jax.tree.map(lambda y: jnp.where(failed & (t1 > t0), jnp.nan, y[-1]), solution.ys)
    return end if speeds_too else (end, v)


def _refuse(simulation: KinematicSimulation) -> None:
    ok = np.asarray(simulation.ok)
    if ok.all():
        return
    model, k = simulation.model, int(np.argmin(ok))
    t, q = float(simulation.ts[k]), simulation.q[k]
    residual = float(simulation.residual[k])
    rows = np.abs(np.asarray(constraint_residual(model, q, t)))
    names = [n for n, level in zip(model.row_names, model.levels, strict=True) if level == 0]
    if not residual <= tolerance(q.dtype):
        raise MechanismError(
            f"the drives move the mechanism where it cannot close at t = {t:.6g} s: "
            f"{describe_worst(model, names, rows)}"
        )
    rate = np.abs(np.asarray(constraint_rate(model, q, simulation.v[k], t)))
    acceleration = np.abs(np.asarray(constraint_acceleration(model, q, simulation.v[k], simulation.vd[k], t)))
    checks = ((rate, simulation.v[k], 1, "speeds"), (acceleration, simulation.vd[k], 2, "accelerations"))
    for rest, like, level, what in checks:
        if not bool(_agrees(jnp.asarray(rest).max(initial=0.0), like)):
            names = [n for n, own in zip(model.row_names, model.levels, strict=True) if own <= level]
            raise MechanismError(
                f"drives and constraints ask for {what} that contradict each other at t = {t:.6g} s: "
                f"{describe_worst(model, names, rest)}; remove one of the drives"
            )
    _, s, Vt = np.linalg.svd(np.asarray(scale_rows(model, constraint_jacobian(model, q, t))), full_matrices=True)
    count = model.nv - int((s > singular_margin(q.dtype) * max(s.max(initial=0.0), 1e-300)).sum())
    speeds = [name for name in model.inboard for _ in range(*model.speeds(name).indices(model.nv))]
    if count and (k == 0 or len(s) < model.nv):
        free = np.abs(Vt[model.nv - count :]).max(0)
        joints = list(dict.fromkeys(speeds[i] for i in np.argsort(-free)[:3] if free[i] > 1e-6))
        raise MechanismError(
            f"{count} direction{'s' * (count > 1)} of motion {'are' if count > 1 else 'is'} not prescribed at "
            f"t = {t:.6g} s, most of all in {', '.join(map(repr, joints))}: add drives, or start from a regular "
            "attitude"
        )
    loose = np.abs(Vt[-1])
    joints = list(dict.fromkeys(speeds[i] for i in np.argsort(-loose)[:3] if loose[i] > 1e-6))
    here = count or residual > _SURE * float(simulation.margin[k])
    when = f"at t = {t:.6g} s" if here else f"between t = {float(simulation.ts[k - 1]):.6g} and {t:.6g} s"
    raise MechanismError(
        f"the mechanism passes a singular attitude {when} (margin {float(simulation.margin[k]):.2g}): there the "
        f"drives do not say which way {', '.join(map(repr, joints))} move on; drive another coordinate through it, or "
        "use throw=False"
    )
