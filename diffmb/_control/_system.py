"""The equations of a problem at one instant, implicit and explicit.

Implicit, with rows e of the constraints that are independent (fixed for the whole problem), a unit-norm row for each
quaternion, and pseudo-multipliers mu, eta that keep positions closed (Gear, Gupta and Leimkuhler 1985; zero but for
the error of the mesh):

    qd - N (v + G_0^T mu) - Q^T eta = 0                  M vd + c + G_e^T lam - tau = 0         zd - zdot = 0        (1)
    phi_e = 0      |quaternion|^2 - 1 = 0                (G v - nu)_e = 0                        (G vd - gamma)_e = 0

each row of constraint at the levels where it exists: 0 has phi and rate, 1 the rate alone, 2 the acceleration alone.
Explicit, for shooting and for the error of a mesh, with the same rows:

    xd = f(t, x, u)          x = (q, v, z)                                                                          (2)
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._batch import batch_last
from .._closure import (
    all_rows,
    constraint_jacobian,
    constraint_rate,
    constraint_residual,
    positions,
    rate_rows,
    rates,
    row_loads,
    row_values,
)
from .._configuration import accelerations, configuration, twists, world_inertias
from .._dynamics import loads, project
from .._kinematics import qdot, retract, unit_quaternions
from .._model import Model
from .._motion import choose, connection_motion, rates_of
from ._problem import Condition, Problem


class System(eqx.Module):
    """The problem with its independent rows chosen."""

    problem: Problem
    rows: tuple[int, ...] = eqx.field(static=True)
    start_rows: tuple[int, ...] = eqx.field(static=True, default=())
    end_rows: tuple[int, ...] = eqx.field(static=True, default=())

    @property
    def model(self) -> Model:
        return self.problem.model

    def _level(self, *levels: int) -> np.ndarray:
        return np.array([r for r in self.rows if self.model.levels[r] in levels], int)

    def _places(self, level: int, *levels: int) -> np.ndarray:
        """Where the chosen rows of these levels stand among the rows up to `level`."""
        upto = np.flatnonzero(self.model.levels <= level)
        return np.searchsorted(upto, self._level(*levels))

    @property
    def quaternions(self) -> tuple[slice, ...]:
        """The coordinates of joints that hold a unit quaternion."""
        m = self.model
        parts = [(m.coordinates(j), m.speeds(j)) for j in m.inboard]
        return tuple(c for c, s in parts if c.stop - c.start > s.stop - s.start)

    @property
    def sizes(self) -> tuple[int, int, int, int, int]:
        """Of x, lam, mu, eta, u."""
        p = self.problem
        return p.nx, len(self.rows), len(self._level(0)), len(self.quaternions), p.nu

    def split(self, x: Any) -> tuple[Any, Any, Any]:
        nq, nv = self.model.nq, self.model.nv
        return x[..., :nq], x[..., nq : nq + nv], x[..., nq + nv :]

    def motion(self, t: Array, q: Array, v: Array, z: Array, u: Array, lam: Array) -> tuple[Array, Array]:
        """(tau, zd) with the loads of connections; some follow the multipliers lam (nc,), which are unknowns here."""
        tau, u = self.problem.loads(u)
        if not self.model.connections:
            return tau, z
        u = jnp.concatenate([u, lam[self.model.followed]])
        more, zd = connection_motion(self.model, q, v, t, z, u, None)
        return tau + more, zd

    def norms(self, q: Array) -> Array:
        """|quaternion|^2 - 1 of each."""
        if not self.quaternions:
            return jnp.zeros(0, q.dtype)
        square = q * q - unit_quaternions(self.model, q) ** 2
        return jnp.stack([square[part].sum() for part in self.quaternions])

    def residual(self, t: Array, dt: Array, xd: Array, x: Array, lam: Array, mu: Array, eta: Array, u: Array) -> Array:
        """(1), its rates multiplied with dt; xd is the change of x in dt."""
        m, (q, v, z), (qd, vd, zd) = self.model, self.split(x), self.split(xd)
        lam = self.wide(self.rows, lam)
        tau, zdot = self.motion(t, q, v, z, u, lam)
        load, push, phi, rate, acceleration = _equations(m, q, v, vd / dt, t, lam, self.wide(self._level(0), mu))
        change = qdot(m, q, v + push)
        if self.quaternions:
            change = change + 0.5 * jax.vjp(self.norms, q)[1](eta)[0]
        return jnp.concatenate([
            qd - dt * change, dt * (load - tau), zd - dt * zdot, self.norms(q), phi[self._places(0, 0)],
            rate[self._places(1, 0, 1)], acceleration[self._level(2)]
        ])  # fmt: skip

    def wide(self, rows: Any, values: Array) -> Array:
        """(nc,): values at these rows, zero elsewhere."""
        return jnp.zeros(self.model.nc, values.dtype).at[np.asarray(rows, int)].set(values)

    def closed(self, t: Array, q: Array, v: Array) -> Array:
        """Rows of position and velocity level, and of quaternions."""
        m, found = self.model, [self.norms(q)]
        if len(self._level(0)):
            found.append(constraint_residual(m, q, t)[self._places(0, 0)])
        if len(self._level(0, 1)):
            found.append(constraint_rate(m, q, v, t)[self._places(1, 0, 1)])
        return jnp.concatenate(found)

    def row_names(self) -> list[str]:
        """The rows of `residual` in words."""
        p, names = self.problem, self.model.row_names
        states = p.state_names()
        loop = lambda what, rows: [f"{what} of {names[r]!r}" for r in rows]
        found = [f"the rate of the {n}" for n in states[: self.model.nq]]
        found += [n.replace("speed", "the motion at the speed") for n in states[self.model.nq :][: self.model.nv]]
        found += [f"the rate of the {n}" for n in states[self.model.nq + self.model.nv :]]
        found += self.closed_names()
        return found + loop("the acceleration", self._level(2))

    def closed_names(self) -> list[str]:
        names = self.model.row_names
        joints = [j for j in self.model.inboard if self.model.coordinates(j) in self.quaternions]
        found = [f"the norm of the quaternion of joint {j!r}" for j in joints]
        found += [f"the closure of {names[r]!r}" for r in self._level(0)]
        return found + [f"the closure (speed) of {names[r]!r}" for r in self._level(0, 1)]

    def rate(self, t: Array, x: Array, u: Array) -> Array:
        """(2)."""
        q, v, z = self.split(x)
        tau, u = self.problem.loads(u)
        places = min(self.model.nc, self.model.nv)
        chosen = jnp.asarray([*self.rows, *[-1] * (places - len(self.rows))], q.dtype)
        vd, zd = rates_of(self.model, chosen, q, v, z, tau, u, t, None)
        return jnp.concatenate([qdot(self.model, q, v), vd, zd])

    def closest(self, t: Array, x: Array) -> Array:
        """x, nearly closed, with loops closed: two least-squares steps on phi, one on the speeds."""
        q, v, z = self.split(x)
        q = unit_quaternions(self.model, q)
        for _ in range(2 * bool(len(self._level(0)))):
            G = constraint_jacobian(self.model, q, t)[self._level(0)]
            q = retract(self.model, q, -_shortest(G, constraint_residual(self.model, q, t)[self._places(0, 0)]))
        if len(self._level(0, 1)):
            G = constraint_jacobian(self.model, q, t)[self._level(0, 1)]
            v = v - _shortest(G, constraint_rate(self.model, q, v, t)[self._places(1, 0, 1)])
        return jnp.concatenate([q, v, z])

    def running(self, t: Array, x: Array, u: Array) -> Array:
        p = self.problem
        if callable(p.running):
            return jnp.asarray(p.running(t, *self.split(x), u, p.params), x.dtype)
        return jnp.asarray(p.running or 0.0, x.dtype)

    def terminal(self, t: Array, x: Array) -> Array:
        p = self.problem
        return jnp.zeros((), x.dtype) if p.terminal is None else p.terminal(t, *self.split(x), p.params)

    def path(self, t: Array, x: Array, u: Array) -> Array:
        p = self.problem
        parts = [jnp.atleast_1d(c.function(t, *self.split(x), u, p.params)) for c in p.path]
        return jnp.concatenate([jnp.ravel(part) for part in parts]) if parts else jnp.zeros(0, x.dtype)

    def path_limits(self) -> tuple[np.ndarray, np.ndarray, list[str]]:
        """(lower, upper, names) of the rows of `path`."""
        p, lower, upper, names = self.problem, [], [], []
        sizes = [jax.ShapeDtypeStruct(s, p.model.mass.dtype) for s in ((), (p.nx,), (p.nu,))]
        for c in p.path:
            call = lambda t, x, u: jnp.ravel(c.function(t, *self.split(x), u, p.params))
            size = jax.eval_shape(call, *sizes).shape[0]
            lower.append(np.broadcast_to(np.asarray(c.lower, float), (size,)))
            upper.append(np.broadcast_to(np.asarray(c.upper, float), (size,)))
            names += [f"path {c.name!r}" + (f" row {k}" if size > 1 else "") for k in range(size)]
        together = lambda parts: np.concatenate([np.zeros(0), *parts])
        return together(lower), together(upper), names

    def condition(self, at: str, t: Array, x: Array) -> Array:
        """All that is asked for at the "start" or the "end": fixed places, then residuals of the user's function."""
        c: Condition = getattr(self.problem, at)
        found = [x[np.array(c.which, int)] - jnp.asarray(c.values, x.dtype)]
        if c.function is not None:
            found.append(jnp.ravel(jnp.asarray(c.function(t, *self.split(x), self.problem.params), x.dtype)))
        return jnp.concatenate(found)

    def condition_names(self, at: str) -> list[str]:
        c, names = getattr(self.problem, at), self.problem.state_names()
        found = [f"{at}: {names[k]} = {value:g}" for k, value in zip(c.which, c.values)]
        sizes = [jax.ShapeDtypeStruct(s, self.model.mass.dtype) for s in ((), (self.problem.nx,))]
        size = jax.eval_shape(lambda t, x: self.condition(at, t, x), *sizes).shape[0]
        return found + [f"{at}: row {k} of its 'residual'" for k in range(size - len(found))]

    def end_names(self) -> list[str]:
        """The rows of `at_start` and `at_end` in words."""
        first = [*(f"start: {name}" for name in self.closed_names()), *self.condition_names("start")]
        last = self.condition_names("end")
        return [first[k] for k in self.start_rows] + [last[k] for k in self.end_rows]

    def at_start(self, t: Array, x: Array) -> Array:
        """Independent rows of closure and condition."""
        q, v, _ = self.split(x)
        return jnp.concatenate([self.closed(t, q, v), self.condition("start", t, x)])[np.array(self.start_rows, int)]

    def at_end(self, t: Array, x: Array) -> Array:
        """Rows of the condition that do not follow from closure."""
        return self.condition("end", t, x)[np.array(self.end_rows, int)]


@batch_last
def _equations(model: Model, q, v, vd, t, lam, mu) -> tuple[Array, ...]:
    """From one look at the configuration: M vd + c + G^T lam, G^T mu, phi, G v - nu, G vd - gamma. Batch axis last."""
    c = configuration(model, q, t)
    V, own = twists(model, c, q, v, t)
    A = accelerations(model, c, own, vd)
    F = loads(model, c, world_inertias(model, c), V, A, ())
    if not model.nc:
        return project(model, c, F), jnp.zeros_like(v), lam, lam, lam
    if (model.levels == 2).any():
        rows = all_rows(model, c, q, v, vd, V, A, t)
        speed, acceleration = rates(model, c, q, v, V, t), row_values(rows, c)
    else:
        rows = rate_rows(model, c, q, v, V, t)
        speed, acceleration = row_values(rows, c), lam
    (F_lam, lam_direct), (F_mu, mu_direct) = (row_loads(model, c, rows, y) for y in (lam, mu))
    push = project(model, c, F_mu) + mu_direct
    return project(model, c, F + F_lam) + lam_direct, push, positions(model, c, q, t), speed, acceleration


def _shortest(G: Array, b: Array) -> Array:
    return G.T @ jnp.linalg.solve(G @ G.T, b)


def choose_system(problem: Problem, T: Any, xs: Any, fractions: Any) -> System:
    """The problem with rows chosen that are independent along a guess: xs (points, nx) at fractions of T."""
    ts, m = jnp.asarray(fractions) * T, problem.model
    rows: tuple[int, ...] = ()
    xs = jnp.asarray(xs)
    if m.nc:
        mask = jnp.ones(m.nc, xs.dtype)
        q = xs[:, : m.nq]
        found = jax.jit(jax.vmap(lambda q, t: (choose(m, q, t, mask), constraint_jacobian(m, q, t))))(q, ts)
        rows = _best(*map(np.asarray, found))
    system = System(problem, rows)
    closed = lambda t, x: system.closed(t, *system.split(x)[:2])
    count = jax.eval_shape(closed, ts[0], xs[0]).shape[0]
    chosen = []
    for at, k in (("start", 0), ("end", -1)):
        rows_of = lambda x: jnp.concatenate([closed(ts[k], x), system.condition(at, ts[k], x)])
        chosen.append(_independent(np.asarray(jax.jit(jax.jacfwd(rows_of))(xs[k]))))
    end = tuple(r - count for r in chosen[1] if r >= count)
    return System(problem, rows, chosen[0], end)


def _best(candidates: np.ndarray, G: np.ndarray) -> tuple[int, ...]:
    """Of the sets of rows chosen along the guess, the one that stays the most independent."""
    rank = (candidates >= 0).sum(1).max()
    sets = {tuple(sorted(int(r) for r in c if r >= 0)) for c in candidates if (c >= 0).sum() == rank}
    norms = np.maximum(np.linalg.norm(G, axis=2, keepdims=True), 1e-12)
    worst = lambda rows: np.linalg.svd((G / norms)[:, list(rows)], compute_uv=False)[:, -1].min() if rows else 1.0
    return max(sorted(sets), key=worst)


def _independent(J: np.ndarray) -> tuple[int, ...]:
    """Rows that are independent of those before them."""
    basis, found = np.zeros((0, J.shape[1])), []
    for k, row in enumerate(J):
        rest = row - basis.T @ (basis @ row)
        rest = rest - basis.T @ (basis @ rest)
        if np.linalg.norm(rest) > 1e-6 * max(np.linalg.norm(row), 1e-12):
            basis = np.vstack([basis, rest / np.linalg.norm(rest)])
            found.append(k)
    return tuple(found)
