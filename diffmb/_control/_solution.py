"""SOLUTION: what a search found, by name, and how good it is."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._assembly import assemble
from .._closure import constraint_rate, constraint_residual
from .._errors import MechanismError
from .._simulate import simulate
from .._trajectory import Trajectory
from ._guess import Guess
from ._interior_point import Iterate
from ._problem import Problem
from ._system import System
from ._transcription import Mesh, Unknowns

REASONS = {
    "converged": "converged",
    "stopped": "stopped by the callback",
    "iterations": "the limit of iterations was reached; raise max_iterations, or give a better guess",
    "stalled": "no step improves the cost any more, though the optimality is above the tolerance",
    "infeasible": "no point nearby satisfies the conditions",
    "no direction": "the derivatives are not finite, or the conditions contradict each other everywhere nearby",
}


class Progress(eqx.Module):
    """Where a search stands: the mesh (`ends` as fractions of the duration) and the iterate on it. Arrays only: save
    them, and `resume=` goes on as if nothing had happened. `cost`, `violation`, `optimality` are those that the last
    step started from."""

    ends: np.ndarray
    iterate: Iterate

    cost = property(lambda self: float(self.iterate.errors[0]))
    violation = property(lambda self: float(self.iterate.errors[1]))
    optimality = property(lambda self: float(self.iterate.errors[2]))


class Signal(eqx.Module):
    """An input over time: polynomials on intervals."""

    ends: Array
    values: Array  # (intervals, points, numbers)
    places: tuple[float, ...] = eqx.field(static=True)

    def __call__(self, t: Array) -> Array:
        k = jnp.clip(jnp.searchsorted(self.ends, t, side="right") - 1, 0, self.values.shape[0] - 1)
        c = jnp.clip((t - self.ends[k]) / (self.ends[k + 1] - self.ends[k]), 0.0, 1.0)
        L = [jnp.prod(jnp.stack([(c - b) / (a - b) for b in self.places if b != a] or [jnp.ones_like(c)]))
             for a in self.places]  # fmt: skip
        return jnp.stack(L) @ self.values[k]


class Solution(eqx.Module):
    """An optimal motion.

    - `ts`, `q`, `v`, `z`, `u`: times, states and chosen inputs, one row for each time; `lam`: multipliers (times, nc)
        of the loops, zero for redundant rows. At a time that ends an interval inputs and multipliers are those before.
    - `cost`; `violation`: by how much the worst condition is missed; `optimality`: of the first-order conditions.
    - `reason`: why the search ended, in words; `converged`; `iterations`.
    - `errors`: the estimated error of each interval of the mesh, relative; `mesh`: the intervals.
    - `progress`: where the search stands, for `resume=`.
    """

    ts: np.ndarray
    q: np.ndarray
    v: np.ndarray
    z: np.ndarray
    u: np.ndarray
    lam: np.ndarray
    cost: float
    violation: float
    optimality: float
    errors: np.ndarray
    progress: Progress
    system: System
    inputs: np.ndarray  # (intervals, places, nu)
    places: tuple[float, ...] = eqx.field(static=True)
    mesh: Mesh = eqx.field(static=True)
    converged: bool = eqx.field(static=True)
    reason: str = eqx.field(static=True)

    @property
    def problem(self) -> Problem:
        return self.system.problem

    @property
    def duration(self) -> float:
        return float(self.ts[-1])

    @property
    def iterations(self) -> int:
        return int(self.progress.iterate.count)

    def input(self, name: str) -> np.ndarray:
        """A chosen input over time: (times,) if it is one number."""
        return _column(self.u[:, self.problem.input(name)])

    def coordinate(self, joint: str) -> np.ndarray:
        return _column(self.q[:, self.problem.model.coordinates(joint)])

    def speed(self, joint: str) -> np.ndarray:
        return _column(self.v[:, self.problem.model.speeds(joint)])

    def state(self, connection: str) -> np.ndarray:
        return _column(self.z[:, self.problem.model.states(connection)])

    def signals(self) -> dict[str, Signal]:
        """The chosen inputs as functions of time, for `mb.simulate(inputs=...)`."""
        ends = jnp.asarray(np.array(self.mesh.ends) * self.duration)
        cut = lambda name: jnp.asarray(self.inputs[:, :, self.problem.input(name)])
        return {name: Signal(ends, cut(name), self.places) for name, *_ in self.problem.places}

    def trajectory(self, ts: Any = None, **options: Any) -> Trajectory:
        """The same motion by `mb.simulate` from the start, with the inputs found: an independent check.

        By default at the ends of the mesh's intervals. What differs at the end is the error of the mesh, grown by
        whatever is unstable in the motion itself.
        """
        m = self.problem.model
        ts = np.array(self.mesh.ends) * self.duration if ts is None else ts
        start = assemble(m, jnp.asarray(self.q[0]), jnp.asarray(self.v[0]))
        return simulate(m, start, ts, inputs=self.signals(), z=jnp.asarray(self.z[0]), **options)

    def course(self) -> Guess:
        """The motion as a guess."""
        x = np.concatenate([self.q, self.v, self.z], 1)
        mesh, u = self.mesh, self.u[1:]
        return Guess(self.duration, lambda f: mesh.states_at(x, f), lambda f: mesh.values_at(u, f))

    def __repr__(self) -> str:
        worst = f", error of the mesh {self.errors.max():.1e}" if len(self.errors) else ""
        return (
            f"Solution: cost {self.cost:.8g}, {self.duration:.6g} s, {len(self.mesh.ends) - 1} intervals{worst}, "
            f"{self.iterations} iterations, violation {self.violation:.1e}, optimality {self.optimality:.1e}; "
            f"{self.reason}"
        )


def _column(found: np.ndarray) -> np.ndarray:
    return found[:, 0] if found.shape[1] == 1 else found


def all_lam(system: System, lam: np.ndarray) -> np.ndarray:
    """Multipliers of all rows, zero for those that are not in use."""
    found = np.zeros((len(lam), system.model.nc))
    found[:, np.array(system.rows, int)] = lam
    return found


def missed(system: System, fractions: np.ndarray, w: Unknowns) -> tuple[float, str]:
    """The largest miss of all rows of loops along the motion, and of all conditions at its ends, in words."""
    m, T = system.model, float(w.T)
    found: list[tuple[float, str]] = [(0.0, "nothing")]
    ends = {"start": (0.0, w.x[0]), "end": (T, w.x[-1])}
    for at, (t, x) in ends.items():
        values = np.abs(np.asarray(system.condition(at, jnp.asarray(t), jnp.asarray(x))))
        found += [(float(value), name) for value, name in zip(values, system.condition_names(at))]
    if (m.levels <= 1).any():
        ts, q, v = jnp.asarray(fractions * T), jnp.asarray(w.x[:, : m.nq]), jnp.asarray(w.x[:, m.nq : m.nq + m.nv])
        look = jax.jit(jax.vmap(lambda q, v, t: (constraint_residual(m, q, t), constraint_rate(m, q, v, t))))
        for level, values in enumerate(look(q, v, ts)):
            names = [n for n, own in zip(m.row_names, m.levels) if own <= level]
            sizes = np.abs(np.asarray(values))
            for k, name in enumerate(names):
                at = int(np.argmax(sizes[:, k]))
                what = "the closure" + (" (speed)" if level else "")
                found.append((float(sizes[at, k]), f"{what} of {name!r} at t = {float(ts[at]):.3g} s"))
    return max(found, key=lambda pair: pair[0])


def check(solution: Solution, throw: bool) -> Solution:
    if throw and not solution.converged and not solution.reason.startswith(REASONS["stopped"]):
        raise MechanismError(
            f"the search for an optimal motion failed after {solution.iterations} iterations: {solution.reason} (cost "
            f"{solution.cost:.6g}, violation {solution.violation:.1e}, optimality {solution.optimality:.1e}); "
            "throw=False gives what there is"
        )
    return solution
