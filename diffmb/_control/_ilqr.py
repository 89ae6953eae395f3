"""ITERATIVE LQR: inputs and feedback that keep a mechanism near what the running cost asks for (Li and Todorov 2004).

Steps of equal length, inputs constant in each, x_(k+1) = f_k(x_k, u_k) by one Runge-Kutta step (loops closed after it),
cost = sum l_k + terminal. Backwards from V = terminal, with first derivatives of f and second of l,

    Q_x = l_x + f_x^T V_x       Q_u = l_u + f_u^T V_x       Q_xx = l_xx + f_x^T V_xx f_x     ...                     (1)
    du = k + K dx               k = -(Q_uu + r)^-1 Q_u      K = -(Q_uu + r)^-1 Q_ux                                 (2)

where inputs at their bounds stay there (Tassa, Mansard and Todorov 2014, with as many passes as there are inputs).
Forwards with k scaled down until the cost falls enough; r grows when nothing does, and shrinks when all goes well.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._assembly import assemble
from .._errors import MechanismError
from .._inputs import Table
from .._simulate import simulate
from .._trajectory import Trajectory
from ._guess import course_of
from ._problem import Problem
from ._shooting import shoot
from ._system import System, choose_system

_SCALES = 0.5 ** np.arange(12)


class Track(eqx.Module):
    """Where iLQR stands: inputs (steps, nu), regularisation, cost, size of Q_u, iterations. Arrays only."""

    u: np.ndarray = eqx.field(converter=np.asarray)
    shift: np.ndarray = eqx.field(converter=np.asarray)
    cost: np.ndarray = eqx.field(converter=np.asarray)
    optimality: np.ndarray = eqx.field(converter=np.asarray)
    count: np.ndarray = eqx.field(converter=np.asarray)


class Tracking(eqx.Module):
    """What iLQR found.

    - `ts` (steps + 1), `q`, `v`, `z`: times and states; `u` (steps, nu): inputs, constant in each step.
    - `gains` (steps, nu, nx): u + gains (x - x_k), with x = (q, v, z), corrects disturbances to first order.
    - `cost`, `optimality` (largest Q_u of an input that is free), `converged`, `reason`, `progress` for `resume=`.
    """

    ts: np.ndarray
    q: np.ndarray
    v: np.ndarray
    z: np.ndarray
    u: np.ndarray
    gains: np.ndarray
    cost: float
    optimality: float
    progress: Track
    problem: Problem
    converged: bool = eqx.field(static=True)
    reason: str = eqx.field(static=True)

    def trajectory(self, **options: Any) -> Trajectory:
        """The same motion by `mb.simulate` with the inputs found: an independent check."""
        m, p = self.problem.model, self.problem
        held = np.concatenate([self.u, self.u[-1:]])
        inputs = {name: Table(self.ts, held[:, p.input(name)], "hold") for name, *_ in p.places}
        start = assemble(m, jnp.asarray(self.q[0]), jnp.asarray(self.v[0]))
        return simulate(m, start, self.ts, inputs=inputs, z=jnp.asarray(self.z[0]), **options)


def _step(system: System, x: Array, u: Array, t: Array, dt: Array) -> tuple[Array, Array]:
    return shoot(system, x, u, u, t, dt, 1)


@eqx.filter_jit
def _roll(system: System, x0: Array, us: Array, ts: Array, dt: Array) -> tuple[Array, Array]:
    """States (steps + 1, nx) and cost."""

    def one(x, at):
        u, t = at
        after, cost = _step(system, x, u, t, dt)
        return after, (x, cost)

    last, (xs, costs) = jax.lax.scan(one, x0, (us, ts))
    return jnp.concatenate([xs, last[None]]), costs.sum() + system.terminal(ts[-1] + dt, last)


def _derivatives(system: System, xs: Array, us: Array, ts: Array, dt: Array) -> tuple:
    """fx, fu, gradient and Hessian of the cost in (x, u) of each step."""
    nx = xs.shape[1]

    def one(x, u, t):
        w = jnp.concatenate([x, u])
        f = lambda w: _step(system, w[:nx], w[nx:], t, dt)
        (F, g), H = jax.jacfwd(f)(w), jax.jacfwd(jax.jacfwd(lambda w: f(w)[1]))(w)
        return F[:, :nx], F[:, nx:], g, H

    return jax.vmap(one)(xs[:-1], us, ts)


def _gains(Quu: Array, Qu: Array, Qux: Array, u: Array, lower: Array, upper: Array) -> tuple[Array, Array, Array]:
    """(2), and which inputs are free."""
    n = len(u)
    fixed, k = jnp.zeros(n, bool), jnp.zeros(n, u.dtype)
    free, H = ~fixed, Quu
    for _ in range(n + 1):
        held = jnp.where(fixed, jnp.clip(k, lower - u, upper - u), 0.0)
        free = ~fixed
        H = jnp.where(free[:, None] & free, Quu, 0.0) + jnp.diag(jnp.where(free, 0.0, 1.0))
        k = jnp.where(free, -jnp.linalg.solve(H, jnp.where(free, Qu + Quu @ held, 0.0)), held)
        fixed = fixed | (u + k < lower) | (u + k > upper)
    K = -jnp.linalg.solve(H, jnp.where(free[:, None], Qux, 0.0))
    return jnp.clip(k, lower - u, upper - u), jnp.where(fixed[:, None], 0.0, K), ~fixed


@eqx.filter_jit
def _sweep(system: System, x0: Array, us: Array, ts: Array, dt: Array, shift: Array, limits: Array) -> tuple:
    """One backward and one forward pass: best inputs, their cost, expected fall, gains, size of Q_u, least Q_uu."""
    xs, cost = _roll(system, x0, us, ts, dt)
    nx, T = xs.shape[1], ts[-1] + dt
    end = lambda x: system.terminal(T, x)
    start = (jax.grad(end)(xs[-1]), jax.hessian(end)(xs[-1]))

    def back(V, at):
        (Vx, Vxx), (fx, fu, g, H, u) = V, at
        F = jnp.concatenate([fx, fu], 1)
        g, H = g + F.T @ Vx, H + F.T @ Vxx @ F
        Qu, Qux, Quu = g[nx:], H[nx:, :nx], H[nx:, nx:]
        k, K, free = _gains(Quu + shift * jnp.eye(len(u)), Qu, Qux, u, *limits)
        Vx = g[:nx] + K.T @ Quu @ k + K.T @ Qu + Qux.T @ k
        Vxx = H[:nx, :nx] + K.T @ Quu @ K + K.T @ Qux + Qux.T @ K
        least = jnp.linalg.eigvalsh(Quu).min() + shift
        return (Vx, 0.5 * (Vxx + Vxx.T)), (k, K, -k @ Qu - 0.5 * k @ Quu @ k, jnp.abs(jnp.where(free, Qu, 0.0)), least)

    blocks = (*_derivatives(system, xs, us, ts, dt), us)
    _, (k, K, falls, sizes, least) = jax.lax.scan(back, start, blocks, reverse=True)

    def forward(scale):
        def one(x, at):
            u, x_old, k, K, t = at
            u = jnp.clip(u + scale * k + K @ (x - x_old), *limits)
            after, cost = _step(system, x, u, t, dt)
            return after, (u, cost)

        last, (new, costs) = jax.lax.scan(one, x0, (us, xs[:-1], k, K, ts))
        return new, costs.sum() + end(last)

    tried, costs = jax.vmap(forward)(jnp.asarray(_SCALES, us.dtype))
    best = jnp.nanargmin(jnp.where(jnp.isfinite(costs), costs, jnp.inf))
    return tried[best], costs[best], cost, falls.sum(), K, sizes.max(), least.min()


def ilqr(problem: Problem, steps: int = 100, *, guess: Any = None, tolerance: float = 1e-8, max_iterations: int = 200,
         callback: Callable[[Track], Any] | None = None, resume: Track | None = None, throw: bool = True
         ) -> Tracking:  # fmt: skip
    """Inputs and feedback gains for a fixed duration by iterative LQR: quick, for tracking and stabilising.

    The start must be fixed; what is wanted on the way and at the end is said by the costs, the reference in `params`.
    Of the bounds those of inputs are kept. `tolerance`: of the fall of the cost, relative, that one more iteration
    promises. The others as in `collocation`.
    """
    _check(problem)
    T = problem.duration[2]
    dt = T / steps
    ts = np.arange(steps) * dt
    course = course_of(problem, guess)
    x = np.array(course.states(np.array([0.0, 1.0])))
    system = choose_system(problem, T, x, np.array([0.0, 1.0]))
    x[0, np.array(problem.start.which, int)] = problem.start.values
    x0 = jnp.asarray(x[0])
    lower, upper = problem.limits["u"]
    u = np.clip(course.inputs(ts / T), lower, upper)
    nan = np.asarray(np.nan)
    at = Track(u, np.asarray(0.0), nan, nan, np.asarray(0)) if resume is None else resume
    args = jnp.asarray(ts), jnp.asarray(dt)
    limits = jnp.asarray(problem.limits["u"])
    reason = "the limit of iterations was reached; raise max_iterations, or give a better guess"
    done, K = False, np.zeros((steps, problem.nu, problem.nx))
    while int(at.count) < max_iterations:
        found = _sweep(system, x0, jnp.asarray(at.u), *args, jnp.asarray(at.shift), limits)
        new, better, cost, fall, K, size, least = map(np.asarray, found)
        if fall <= tolerance * (1 + abs(cost)) and least > 0 and at.shift <= 1e-6:
            at, done, reason = Track(at.u, at.shift, cost, size, at.count), True, "converged"
            break
        good = least > 0 and better < cost
        shift = at.shift / 10.0 if good else np.maximum(at.shift * 10.0, 1e-6)
        at = Track(
            new if good else at.u, np.where(shift < 1e-9, 0.0, shift), np.where(good, better, cost), size, at.count + 1
        )
        if shift > 1e10:
            reason = "no step makes the cost smaller; the motion may be unstable from the guess: give a better one"
            break
        if callback is not None and callback(at) is True:
            reason = "stopped by the callback"
            break
    if throw and not done and not reason.startswith("stopped"):
        raise MechanismError(f"iLQR failed after {int(at.count)} iterations: {reason} (cost {float(at.cost):.6g})")
    xs, cost = _roll(system, x0, jnp.asarray(at.u), *args)
    q, v, z = (np.asarray(part) for part in system.split(xs))
    return Tracking(np.append(ts, T), q, v, z, np.asarray(at.u), np.asarray(K), float(cost), float(at.optimality), at,
                    problem, done, reason)  # fmt: skip


def _check(problem: Problem) -> None:
    if problem.duration[0] < problem.duration[1]:
        raise MechanismError("iLQR needs a fixed duration; collocation finds a free one")
    if problem.end.which or problem.end.function is not None or problem.path:
        raise MechanismError(
            "iLQR knows no conditions at the end or on the way; put them into the costs, or use collocation"
        )
    if len(problem.start.which) < problem.nx:
        raise MechanismError("iLQR starts from a fixed state; give 'q' and 'v' of every joint in start=")
