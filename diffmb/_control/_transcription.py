"""TRANSCRIPTION: a problem on a mesh of intervals becomes a sparse nonlinear program.

Interval i from t_i to t_i + h_i T has s Radau points; there the unknowns are y = (x, lam, mu, eta, u). With D of
`_radau.py` the implicit equations (1) of `_system.py` hold at each point,

    residual(t_ij, h_i T, sum_k D_jk x_ik, y_ij) = 0          x_i0 = end of the interval before                      (1)
    cost = terminal + T sum_ij h_i b_j running(t_ij, x_ij, u_ij)                                                    (2)

so that inputs and multipliers may jump from one interval to the next, and positions and speeds are closed everywhere.
To (2) a small multiple of the integral of |mu|^2 is added. As mu is an error of the mesh this does not matter to a
motion that the mesh resolves (order 2 s + 2); it forbids leaps from one branch of a loop to another within an interval.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jax import Array

from . import _radau as radau
from ._nlp import Family, Program
from ._problem import Problem
from ._system import System

_LEAP = 1e-2


class Mesh(eqx.Module):
    """Ends of the intervals as fractions of the duration, from 0 to 1, and the number of points in each."""

    ends: tuple[float, ...] = eqx.field(static=True)
    s: int = eqx.field(static=True, default=3)

    @property
    def h(self) -> np.ndarray:
        return np.diff(np.array(self.ends))

    @property
    def fractions(self) -> np.ndarray:
        """0, and the points of all intervals."""
        inner = np.array(self.ends)[:-1, None] + self.h[:, None] * radau.points(self.s)
        inner[:, -1] = self.ends[1:]
        return np.concatenate([[0.0], inner.reshape(-1)])

    def locate(self, fractions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(interval, place in it)."""
        ends = np.array(self.ends)
        k = np.clip(np.searchsorted(ends, fractions, side="right") - 1, 0, len(ends) - 2)
        return k, (fractions - ends[k]) / self.h[k]

    def states_at(self, x: np.ndarray, fractions: np.ndarray) -> np.ndarray:
        """The polynomials through x (points + 1, nx), elsewhere."""
        k, c = self.locate(fractions)
        L = radau.interpolation(np.concatenate([[0.0], radau.points(self.s)]), c)
        parts = np.stack([x[k * self.s + j] for j in range(self.s + 1)], 1)
        return np.einsum("pj,pjn->pn", L, parts)

    def values_at(self, w: np.ndarray, fractions: np.ndarray) -> np.ndarray:
        """The polynomials through inputs or multipliers w (points, n), elsewhere."""
        k, c = self.locate(fractions)
        L = radau.interpolation(radau.points(self.s), c)
        parts = np.stack([w[k * self.s + j] for j in range(self.s)], 1)
        return np.einsum("pj,pjn->pn", L, parts)


class Unknowns(eqx.Module):
    """The unknowns of a mesh by name: x (points + 1, nx), the others (points, ...), T."""

    x: np.ndarray = eqx.field(converter=np.asarray)
    lam: np.ndarray = eqx.field(converter=np.asarray)
    mu: np.ndarray = eqx.field(converter=np.asarray)
    eta: np.ndarray = eqx.field(converter=np.asarray)
    u: np.ndarray = eqx.field(converter=np.asarray)
    T: np.ndarray = eqx.field(converter=np.asarray)

    def pack(self) -> np.ndarray:
        y = np.concatenate([self.x[1:], self.lam, self.mu, self.eta, self.u], 1)
        return np.concatenate([self.x[0], y.reshape(-1), np.reshape(self.T, 1)])


def unpack(system: System, mesh: Mesh, w: np.ndarray) -> Unknowns:
    nx, *rest = system.sizes
    y = w[nx:-1].reshape(-1, nx + sum(rest))
    parts = np.split(y, np.cumsum([nx, *rest[:-1]]), 1)
    lam, mu, eta, u = parts[1:]
    return Unknowns(np.concatenate([w[None, :nx], parts[0]]), lam, mu, eta, u, w[-1])


def _split_local(system: System, l: Array) -> tuple[Array, ...]:
    nx, *rest = system.sizes
    ends = np.cumsum([nx, nx, *rest])
    return tuple(jnp.split(l, ends))  # xd, x, lam, mu, eta, u, T


def _at_point(system: System, l: Array, s: Array) -> tuple[Array, Array]:
    """(1), (2) and path conditions at one point; s: fraction, length of the interval, weight."""
    xd, x, lam, mu, eta, u, (T,) = _split_local(system, l)
    t, dt = s[0] * T, s[1] * T
    rows = [system.residual(t, dt, xd, x, lam, mu, eta, u), system.path(t, x, u)]
    return dt * s[2] * (system.running(t, x, u) + _LEAP * mu @ mu), jnp.concatenate(rows)


def at_first(system: System, l: Array, s: Array) -> tuple[Array, Array]:
    """The start: l = (x, T)."""
    return jnp.zeros((), l.dtype), system.at_start(jnp.zeros((), l.dtype), l[:-1])


def at_last(system: System, l: Array, s: Array) -> tuple[Array, Array]:
    """The end: l = (x, T)."""
    return system.terminal(l[-1], l[:-1]), system.at_end(l[-1], l[:-1])


def selection(places: Any, size: int) -> Any:
    """Rows of the identity."""
    places = np.asarray(places).reshape(-1)
    return sp.csr_array((np.ones(len(places)), (np.arange(len(places)), places)), shape=(len(places), size))


def _point_matrix(nx: int, ny: int, mesh: Mesh) -> Any:
    """P of the points: l = (D x, y, T)."""
    s, n = mesh.s, len(mesh.ends) - 1
    size = nx + n * s * ny + 1
    D, width = radau.derivative(s), nx + ny + 1
    i, j, k, a = np.meshgrid(np.arange(n), np.arange(s), np.arange(s + 1), np.arange(nx), indexing="ij")
    node = i * s + k  # 0 is the start
    column = np.where(node == 0, a, nx + (node - 1) * ny + a)
    rates = (D[j, k].reshape(-1), (((i * s + j) * width + a).reshape(-1), column.reshape(-1)))
    p, b = np.meshgrid(np.arange(n * s), np.arange(ny), indexing="ij")
    own = (np.ones(p.size), ((p * width + nx + b).reshape(-1), (nx + p * ny + b).reshape(-1)))
    ends = (np.ones(n * s), (np.arange(n * s) * width + width - 1, np.full(n * s, size - 1)))
    data, places = zip(rates, own, ends)
    rows, columns = (np.concatenate(side) for side in zip(*places))
    return sp.csr_array((np.concatenate(data), (rows, columns)), shape=(n * s * width, size))


def transcribe(system: System, mesh: Mesh) -> Program:
    """The program of a system on a mesh."""
    problem: Problem = system.problem
    nx, *rest = system.sizes
    ny, n, s = nx + sum(rest), len(mesh.ends) - 1, mesh.s
    size = nx + n * s * ny + 1
    numbers = np.stack([mesh.fractions[1:], np.repeat(mesh.h, s), np.tile(radau.weights(s), n)], 1)
    none = np.zeros((1, 1))
    families = [
        Family(_at_point, system, _point_matrix(nx, ny, mesh), numbers),
        Family(at_first, system, selection([*range(nx), size - 1], size), none),
        Family(at_last, system, selection([*range(size - 1 - ny, size - 1 - ny + nx), size - 1], size), none),
    ]
    lower, upper = (_limits(problem, ny, nx, n * s, k) for k in (0, 1))
    path_lower, path_upper, path_names = system.path_limits()
    zeros = np.zeros(families[0].rows - len(path_names))
    ends = np.zeros(families[1].rows + families[2].rows)
    row_limits = [np.concatenate([np.tile(np.concatenate([zeros, path]), n * s), ends])
                  for path in (path_lower, path_upper)]  # fmt: skip
    names = [*system.row_names(), *path_names]
    return Program(families, size, lower, upper, row_limits[0], row_limits[1], _namer(system, mesh, names))


def leaps(mesh: Mesh, w: Unknowns) -> float:
    """What |mu|^2 adds to the cost."""
    b = np.repeat(mesh.h, mesh.s) * np.tile(radau.weights(mesh.s), len(mesh.h)) * float(w.T)
    return _LEAP * float(b @ (w.mu**2).sum(1))


def _limits(problem: Problem, ny: int, nx: int, points: int, k: int) -> np.ndarray:
    x, u = problem.limits["x"][k], problem.limits["u"][k]
    free = np.full(ny - nx - len(u), (-np.inf, np.inf)[k])
    inner = np.tile(np.concatenate([x, free, u]), (points, 1))
    inner[-1, :nx] = problem.limits_at(k, problem.end)
    return np.concatenate([problem.limits_at(k, problem.start), inner.reshape(-1), [problem.duration[k]]])


def _namer(system: System, mesh: Mesh, names: list[str]) -> Any:
    at = mesh.fractions[1:]
    more = system.end_names()

    def name(row: int) -> str:
        point, own = divmod(row, len(names))
        if point < len(at):
            return f"{names[own]} at {at[point]:.3g} of the duration (interval {point // mesh.s})"
        return more[row - len(at) * len(names)]

    return name
