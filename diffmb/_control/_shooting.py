"""MULTIPLE SHOOTING: the motion over each interval by fixed Runge-Kutta steps, joined at the nodes.

On interval i inputs go linearly from a_i to b_i, and may jump to the next. With Phi the fourth-order map of `_rk4`,

    x_(i+1) = Phi(x_i, a_i, b_i, T)           cost = terminal + sum of the running cost, integrated alongside       (1)

Loops: the explicit equations (2) of `_system.py`, and at the end of each interval the nearest closed state. Exact first
and second derivatives come from differentiating the steps; the program is sparse, one block for each interval.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._errors import MechanismError
from ._collocation import finish, same_size
from ._guess import course_of
from ._interior_point import first_iterate, minimise
from ._nlp import Family, Program
from ._problem import Problem
from ._solution import Progress, Solution
from ._system import System, choose_system
from ._transcription import Mesh, Unknowns, at_first, at_last, selection


def rk4(rate: Callable[[Array, Array], Array], t: Array, y: Array, dt: Array) -> Array:
    """One step of the classical method; its stages are a loop, so that the rate is compiled once."""

    def stage(carry, at):
        slope, total = carry
        place, weight = at
        slope = rate(t + place * dt, y + place * dt * slope)
        return (slope, total + weight * slope), None

    stages = jnp.asarray([0.0, 0.5, 0.5, 1.0], y.dtype), jnp.asarray([1.0, 2.0, 2.0, 1.0], y.dtype) / 6.0
    (_, mean), _ = jax.lax.scan(stage, (jnp.zeros_like(y), jnp.zeros_like(y)), stages)
    return y + dt * mean


def shoot(system: System, x: Array, a: Array, b: Array, t: Array, dt: Array, steps: int) -> tuple[Array, Array]:
    """(x at the end, cost) of an interval dt."""

    def rate(tau, y):
        u = a + (tau - t) / dt * (b - a)
        return jnp.append(system.rate(tau, y[:-1], u), system.running(tau, y[:-1], u))

    def one(y, k):
        return rk4(rate, t + k * dt / steps, y, dt / steps), None

    y, _ = jax.lax.scan(one, jnp.append(x, 0.0), jnp.arange(steps, dtype=x.dtype))
    return system.closest(t + dt, y[:-1]), y[-1]


def _over_interval(steps: int) -> Callable[[Any, Array, Array], tuple[Array, Array]]:
    if steps not in _MADE:

        def interval(system: System, l: Array, s: Array) -> tuple[Array, Array]:
            """l = (x, a, b, x next, T); s: fraction at which it starts, its length."""
            nx, nu = system.problem.nx, system.problem.nu
            x, a, b, after, (T,) = jnp.split(l, np.cumsum([nx, nu, nu, nx]))
            t, dt = s[0] * T, s[1] * T
            end, cost = shoot(system, x, a, b, t, dt, steps)
            return cost, jnp.concatenate([after - end, system.path(t, x, a), system.path(t + dt, after, b)])

        _MADE[steps] = interval  # one function for each number of steps, so that compiled programs are found again
    return _MADE[steps]


_MADE: dict[int, Callable] = {}


def shooting(problem: Problem, nodes: int = 20, *, steps: int = 4, guess: Any = None, tolerance: float = 1e-8,
             max_iterations: int = 500, callback: Callable[[Progress], Any] | None = None,
             resume: Progress | None = None, throw: bool = True) -> Solution:  # fmt: skip
    """The optimal motion by multiple shooting: `nodes` intervals of `steps` Runge-Kutta steps, inputs linear in each.

    Bounds and path conditions hold at the nodes. The other arguments are those of `collocation`. It has fewer unknowns,
    and more expensive ones; collocation is the better choice where the motion is stiff or the mesh must adapt.
    """
    if nodes < 1 or steps < 1:
        raise MechanismError(f"nodes = {nodes}, steps = {steps}: at least one interval, and one step in each")
    mesh = Mesh(tuple(np.linspace(0.0, 1.0, nodes + 1).tolist()), 1)
    course = course_of(problem, guess)
    ends = np.array(mesh.ends)
    x = course.states(ends)
    system = choose_system(problem, course.T, x, ends)
    program = _program(system, ends, steps)
    if resume is None:
        u = course.inputs(np.clip(np.stack([ends[:-1], ends[1:] - 1e-9], 1).reshape(-1), 0, 1))
        y = np.concatenate([x[:-1], u.reshape(nodes, -1)], 1)
        iterate = first_iterate(program, np.concatenate([y.reshape(-1), x[-1], [course.T]]))
    else:
        iterate = same_size(program, resume.iterate)
    tell = None if callback is None else (lambda it: callback(Progress(ends, it)))
    w, it, ended = minimise(program, iterate, tolerance=tolerance, max_iterations=max_iterations, callback=tell)
    nx, nu = problem.nx, problem.nu
    y, last, T = w[: -nx - 1].reshape(nodes, nx + 2 * nu), w[-nx - 1 : -1], w[-1]
    states = np.concatenate([y[:, :nx], last[None]])
    none = np.zeros((nodes, 0))
    both = y[:, nx:].reshape(nodes, 2, nu)
    rows = np.zeros((nodes, len(system.rows)))
    found = Unknowns(states, rows, none, none, both[:, 1], T)
    return finish(system, mesh, program, found, w, it, ended, throw, both)


def _program(system: System, ends: np.ndarray, steps: int) -> Program:
    p = system.problem
    nx, nu, n = p.nx, p.nu, len(ends) - 1
    width = nx + 2 * nu
    size = n * width + nx + 1
    i = np.arange(n)[:, None]
    places = np.concatenate([i * width + np.arange(width), (i + 1) * width + np.arange(nx), 0 * i + size - 1], 1)
    numbers = np.stack([ends[:-1], np.diff(ends)], 1)
    none = np.zeros((1, 1))
    families = [
        Family(_over_interval(steps), system, selection(places, size), numbers),
        Family(at_first, system, selection([*range(nx), size - 1], size), none),
        Family(at_last, system, selection([*range(n * width, n * width + nx), size - 1], size), none),
    ]
    limits = []
    for k in (0, 1):
        x, u = p.limits["x"][k], p.limits["u"][k]
        inner = np.tile(np.concatenate([x, u, u]), (n, 1))
        inner[0, :nx] = p.limits_at(k, p.start)
        limits.append(np.concatenate([inner.reshape(-1), p.limits_at(k, p.end), [p.duration[k]]]))
    lower, upper, names = system.path_limits()
    ends_rows = np.zeros(families[1].rows + families[2].rows)
    rows = [np.concatenate([np.tile(np.concatenate([np.zeros(nx), a, a]), n), ends_rows]) for a in (lower, upper)]
    own = [*(f"the join of the {name}" for name in p.state_names()), *names, *names]
    more = system.end_names()

    def name(row: int) -> str:
        at, k = divmod(row, len(own))
        return f"{own[k]} (interval {at})" if at < n else more[row - n * len(own)]

    return Program(families, size, limits[0], limits[1], rows[0], rows[1], name)
