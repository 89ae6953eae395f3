"""GUESS: where a search starts. Loops are closed along it, multipliers balance the loads as well as they can.

Without anything better the mechanism goes from its start to its end at constant speeds,

    q(s) = retract(q_0, s d)      d = difference(q_0, q_f)      v = d / T

with loops closed step by step (what the end fixes is led there, the rest follows), so that no branch is changed.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._assembly import assemble
from .._closure import constraint_jacobian, constraint_rate, constraint_residual
from .._dynamics import inverse_dynamics
from .._errors import MechanismError
from .._kinematics import difference, retract, unit_quaternions
from .._model import Model
from .._trajectory import Trajectory
from ._problem import Condition, Problem
from ._system import System
from ._transcription import Mesh, Unknowns


class Guess:
    """A motion to start from, by functions of many fractions f (n,) of the duration T, s.

    - `states(f)`: (n, nx) numbers (q, v, z); `inputs(f)`: (n, nu), in the order of the problem's inputs.
    """

    def __init__(self, T: float, states: Callable[[Any], Any], inputs: Callable[[Any], Any]):
        self.T, self.states, self.inputs = float(T), states, inputs

    def course(self) -> "Guess":
        return self


def course_of(problem: Problem, given: Any) -> Guess:
    """From nothing, a trajectory, a solution, or as it is."""
    if given is None:
        return _straight(problem)
    if isinstance(given, Trajectory):
        return _along(problem, given)
    if hasattr(given, "course"):
        return given.course()
    raise MechanismError(
        f"guess is {type(given).__name__}; give None, a trajectory of mb.simulate, a solution, or mb.control.Guess"
    )


def _put(problem: Problem, c: Condition, x: np.ndarray) -> np.ndarray:
    """x with the numbers of a condition, inside the bounds, at rest where nothing else is said."""
    m = problem.model
    x = np.clip(x, *problem.limits["x"])
    x[m.nq : m.nq + m.nv] = 0.0
    x[np.array(c.which, int)] = c.values
    return x


def _held(m: Model, x: np.ndarray, c: Condition) -> dict[str, np.ndarray]:
    """The coordinates of joints that a condition fixes."""
    parts = {j: m.coordinates(j) for j in m.inboard}
    return {j: x[p] for j, p in parts.items() if p.stop > p.start and set(range(p.start, p.stop)) <= set(c.which)}


def _way(problem: Problem, steps: int = 16) -> np.ndarray:
    """States from start to end. Loops are closed step by step, so that they stay on the branch of the start."""
    m = problem.model
    neutral = np.concatenate([m.pack(problem.guess), np.zeros(m.nv), m.start_states()])
    x0 = _put(problem, problem.start, neutral)
    loops = bool((m.levels == 0).any())
    if loops:
        held = _held(m, x0, problem.start)
        x0[: m.nq] = assemble(m, held, guess={j: x0[m.coordinates(j)] for j in m.inboard if j not in held}).q
    x1 = _put(problem, problem.end, x0)
    d = np.asarray(difference(m, jnp.asarray(x0[: m.nq]), jnp.asarray(x1[: m.nq])))
    move = jax.jit(lambda s: retract(m, jnp.asarray(x0[: m.nq]), s * d))
    way, q = [], x0[: m.nq]
    for s in np.linspace(0.0, 1.0, steps + 1):
        x = (1 - s) * x0 + s * x1
        x[: m.nq] = move(s)
        if loops and s > 0:
            held = _held(m, x, problem.end)
            before = {j: q[m.coordinates(j)] for j in m.inboard if j not in held}
            state = assemble(m, held, guess=before, throw=False)
            x[: m.nq] = state.q if bool(state.ok) else q
        q = x[: m.nq]
        way.append(x)
    return np.stack(way)


def _straight(problem: Problem) -> Guess:
    """Along `_way` at the pace of the guessed duration."""
    m, T = problem.model, problem.duration[2]
    way = jnp.asarray(_way(problem))
    last = len(way) - 1

    @jax.jit
    def states(fractions):
        def one(s):
            k = jnp.clip(jnp.floor(s * last).astype(int), 0, last - 1)
            d = difference(m, way[k, : m.nq], way[k + 1, : m.nq])
            q = retract(m, way[k, : m.nq], (s * last - k) * d)
            z = (1 - s) * way[0, m.nq + m.nv :] + s * way[-1, m.nq + m.nv :]
            return jnp.concatenate([*closest(m, q, d * last / T, s * T), z])

        return jax.vmap(one)(fractions)

    lower, upper = problem.limits["u"]
    finite = np.isfinite(lower) & np.isfinite(upper)
    u = np.clip(0.5 * (np.where(finite, lower, 0.0) + np.where(finite, upper, 0.0)), lower, upper)
    return Guess(T, lambda f: np.asarray(states(jnp.asarray(f))), lambda f: np.tile(u, (len(f), 1)))


def closest(m: Model, q: Array, v: Array, t: Any, steps: int = 4) -> tuple[Array, Array]:
    """(q, v) with loops closed, by least-squares steps."""
    if not m.nc or not (m.levels <= 1).any():
        return q, v
    t = jnp.asarray(t, q.dtype)
    if (m.levels == 0).any():
        rows = np.flatnonzero(m.levels == 0)

        def once(_, q):
            G = constraint_jacobian(m, q, t)[rows]
            step = jnp.linalg.pinv(G, rtol=1e-8) @ constraint_residual(m, q, t)
            return retract(m, q, -step * jnp.minimum(1.0, 0.5 / jnp.maximum(jnp.abs(step).max(), 1e-12)))

        q = jax.lax.fori_loop(0, steps, once, q)
    G = constraint_jacobian(m, q, t)[np.flatnonzero(m.levels <= 1)]
    return q, v - jnp.linalg.pinv(G, rtol=1e-8) @ constraint_rate(m, q, v, t)


def _along(problem: Problem, traj: Trajectory) -> Guess:
    """A simulation of the same model, its inputs those that the problem chooses."""
    m = problem.model
    if (traj.model.nq, traj.model.nv, traj.model.nz) != (m.nq, m.nv, m.nz) or traj.ts.ndim != 1:
        raise MechanismError(
            "the guess is a trajectory of another model, or a batch of them; simulate the problem's model"
        )
    ts = np.asarray(traj.ts)
    T = float(np.clip(ts[-1] - ts[0], problem.duration[0], problem.duration[1]))
    when = lambda f: jnp.asarray(ts[0] + f * (ts[-1] - ts[0]))

    def states(f: np.ndarray) -> np.ndarray:
        own = np.concatenate([np.asarray(a) for a in (traj.q, traj.v, traj.z)], 1)
        found = np.stack([np.interp(when(f), ts, own[:, k]) for k in range(own.shape[1])], 1)
        q = jax.vmap(lambda q: unit_quaternions(m, q))(jnp.asarray(found[:, : m.nq]))
        return np.concatenate([q, found[:, m.nq :]], 1)

    def inputs(f: np.ndarray) -> np.ndarray:
        tau, u = jax.vmap(traj.inputs)(when(f))
        columns = [(tau if which == "tau" else u)[:, start:stop] for _, which, start, stop in problem.places]
        return np.concatenate([np.zeros((len(f), 0)), *map(np.asarray, columns)], 1)

    return Guess(T, states, inputs)


def unknowns(system: System, mesh: Mesh, course: Guess) -> Unknowns:
    """The unknowns of a mesh along a course."""
    f, m = mesh.fractions, system.model
    x, u = course.states(f), course.inputs(f[1:])
    _, nl, n0, ne, _ = system.sizes
    lam = np.zeros((len(u), nl))
    if nl:
        vd = np.gradient(x[:, m.nq : m.nq + m.nv], f * course.T, axis=0)[1:]
        lam = np.asarray(_multipliers(system, jnp.asarray(f[1:] * course.T), jnp.asarray(x[1:]), vd, jnp.asarray(u)))
    zeros = lambda k: np.zeros((len(u), k))
    return Unknowns(x, lam, zeros(n0), zeros(ne), u, np.asarray(course.T))


def _multipliers(system: System, ts: Array, xs: Array, vds: Any, us: Array) -> Array:
    """lam of least squares."""

    @jax.jit
    @jax.vmap
    def one(t, x, vd, u):
        q, v, z = system.split(x)
        none = jnp.zeros(system.model.nc, q.dtype)
        rest = system.motion(t, q, v, z, u, none)[0] - inverse_dynamics(system.model, q, v, vd, t)
        G = constraint_jacobian(system.model, q, t)[np.array(system.rows)]
        return jnp.linalg.pinv(G.T, rtol=1e-8) @ rest

    return one(ts, xs, jnp.asarray(vds), us)
