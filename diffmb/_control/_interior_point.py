"""A primal-dual interior-point method with a filter line search for sparse programs (Waechter and Biegler 2006).

    minimise f(x) - mu sum log(distance to bounds)      subject to c(x) = 0;  rows with two limits get a slack     (1)

    [ W + S + dw   A^T ] [ dx ]     [ grad f - mu / (x - xl) + mu / (xu - x) + A^T y ]       S = zl / (x - xl) + ...
    [ A            -dc ] [ dy ] = - [ c                                              ]                             (2)

Steps are cut at the bounds, corrected to second order, and accepted by a filter of (|c|, barrier function). What we
changed: the curvature of (1) is not judged by the inertia of (2), which a sparse LU does not give, but by that of the
step itself (Chiang and Zavala 2016); restoration takes damped least-squares steps on c, inside the bounds, instead
of a second program. All that the next iteration depends on is in `Iterate`: save it, and go on from it bitwise.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import splu

from ._nlp import Program

_REJECTED = 1e-5  # gamma of the filter


class Iterate(eqx.Module):
    """Where an optimisation stands: plain arrays, in a tree that can be saved.

    - `x`: unknowns, then slacks; `y`: multipliers of the rows; `zl`, `zu`: of the bounds.
    - `mu`: barrier; `shift`: the last regularisation; `filter`: pairs that must be improved; `limits` of the filter.
    - `scale`, `row_scale`: factors of cost and rows.
    - `count`: iterations; `errors`: cost, violation, optimality at x.
    """

    x: np.ndarray = eqx.field(converter=np.asarray)
    y: np.ndarray = eqx.field(converter=np.asarray)
    zl: np.ndarray = eqx.field(converter=np.asarray)
    zu: np.ndarray = eqx.field(converter=np.asarray)
    mu: np.ndarray = eqx.field(converter=np.asarray)
    shift: np.ndarray = eqx.field(converter=np.asarray)
    filter: np.ndarray = eqx.field(converter=np.asarray)
    limits: np.ndarray = eqx.field(converter=np.asarray)
    scale: np.ndarray = eqx.field(converter=np.asarray)
    row_scale: np.ndarray = eqx.field(converter=np.asarray)
    count: np.ndarray = eqx.field(converter=np.asarray)
    errors: np.ndarray = eqx.field(converter=np.asarray)


class Scaled:
    """The program as (1) sees it: unknowns that are not fixed, slacks, scaled rows."""

    def __init__(self, program: Program, x: np.ndarray):
        self.program, self.full = program, np.clip(x, program.lower, program.upper)
        self.free = np.flatnonzero(program.upper > program.lower)
        self.slack = np.flatnonzero(program.row_upper > program.row_lower)
        p, s = program, self.slack
        self.lower = _apart(np.concatenate([p.lower[self.free], p.row_lower[s]]), -1)
        self.upper = _apart(np.concatenate([p.upper[self.free], p.row_upper[s]]), 1)
        self.n, self.m = len(self.lower), p.rows
        self.target = np.where(p.row_upper > p.row_lower, 0.0, p.row_lower)
        ones = (np.ones(len(s)), (s, np.arange(len(s))))
        self.minus_slack = -sp.csr_array(ones, shape=(self.m, len(s)))
        self.scale, self.row_scale = np.ones(()), np.ones(self.m)

    def all(self, x: np.ndarray) -> np.ndarray:
        full = self.full.copy()
        full[self.free] = x[: len(self.free)]
        return full

    def values(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        f, c = self.program.values(self.all(x))
        c = c - self.target
        c[self.slack] -= x[len(self.free) :]
        return float(self.scale) * f, self.row_scale * c

    def firsts(self, x: np.ndarray) -> tuple[np.ndarray, Any]:
        g, J = self.program.firsts(self.all(x))
        J = sp.hstack([J[:, self.free], self.minus_slack])
        g = np.concatenate([g[self.free], np.zeros(len(self.slack))])
        return float(self.scale) * g, sp.csr_array(sp.diags_array(self.row_scale) @ J)

    def seconds(self, x: np.ndarray, y: np.ndarray) -> Any:
        H = self.program.seconds(self.all(x), float(self.scale), self.row_scale * y)
        H = H[self.free][:, self.free]
        return sp.block_diag([H, sp.csr_array((len(self.slack),) * 2)], format="csr")

    def rescale(self, x: np.ndarray) -> None:
        """Gradients of more than 100 are scaled down to it."""
        g, J = self.firsts(x)
        largest = abs(J).max(axis=1).toarray().reshape(-1) if J.shape[1] else np.ones(self.m)
        self.scale = np.asarray(min(1.0, 100.0 / max(np.abs(g).max(initial=0.0), 1e-12)))
        self.row_scale = np.minimum(1.0, 100.0 / np.maximum(largest, 1e-12))


def _apart(bound: np.ndarray, side: int) -> np.ndarray:
    """The bound, moved out by less than the tolerance, so that there is an inside even if other rows lead to it."""
    return bound + side * 2e-9 * np.maximum(1.0, np.abs(np.where(np.isfinite(bound), bound, 0.0)))


def _inside(x: np.ndarray, lower: np.ndarray, upper: np.ndarray, room: float) -> np.ndarray:
    width = np.where(np.isfinite(upper - lower), upper - lower, np.inf)
    gap = lambda bound: np.minimum(
        room * np.maximum(1.0, np.abs(np.where(np.isfinite(bound), bound, 0.0))), room * width
    )
    x = np.where(np.isfinite(lower), np.maximum(x, lower + gap(lower)), x)
    return np.where(np.isfinite(upper), np.minimum(x, upper - gap(upper)), x)


def first_iterate(program: Program, x: np.ndarray, mu: float = 0.1, room: float = 1e-2) -> Iterate:
    """An iterate inside the bounds, with multipliers of least squares."""
    p = Scaled(program, x)
    x = np.concatenate([p.full[p.free], program.values(p.full)[1][p.slack]])
    x = _inside(x, p.lower, p.upper, room)
    p.rescale(x)
    sl, su = x - p.lower, p.upper - x
    zl, zu = mu / sl, mu / su
    g, A = p.firsts(x)
    lu = _factor(sp.eye_array(p.n), A, 1e-8)
    y = lu.solve(np.concatenate([-(g - zl + zu), np.zeros(p.m)]))[p.n :]
    y = y if np.isfinite(y).all() and np.abs(y).max(initial=0.0) < 1e3 else np.zeros(p.m)
    theta = np.abs(p.values(x)[1]).sum()
    limits = np.array([1e-4 * max(1.0, theta), 1e4 * max(1.0, theta)])
    zero = np.zeros(())
    return Iterate(x, y, zl, zu, np.asarray(mu), zero, np.zeros((0, 2)), limits, p.scale, p.row_scale,
                   np.asarray(0), np.full(3, np.nan))  # fmt: skip


def _factor(H: Any, A: Any, dc: float) -> Any:
    m = A.shape[0]
    K = sp.block_array([[H, A.T], [A, -dc * sp.eye_array(m)]], format="csc")
    return splu(K, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.01, options={"SymmetricMode": True})


class Point:
    """What is known at an iterate."""

    def __init__(self, p: Scaled, it: Iterate):
        self.p, self.it, self.mu = p, it, float(it.mu)
        self.x, self.sl, self.su = it.x, it.x - p.lower, p.upper - it.x
        self.f, self.c = p.values(it.x)
        self.g, self.A = p.firsts(it.x)
        self.theta = np.abs(self.c).sum()
        self.phi = self.barrier(self.f, it.x)

    def barrier(self, f: float, x: np.ndarray) -> float:
        sl, su = x - self.p.lower, self.p.upper - x
        return f - self.mu * (np.log(sl[np.isfinite(sl)]).sum() + np.log(su[np.isfinite(su)]).sum())

    def slope(self) -> np.ndarray:
        return self.g - self.mu / self.sl + self.mu / self.su

    def errors(self) -> tuple[float, float, float]:
        """(stationarity, violation, complementarity), scaled as in (5) of Waechter and Biegler."""
        it = self.it
        ones = np.abs(it.y).sum() + it.zl.sum() + it.zu.sum()
        scale = max(100.0, ones / max(len(it.y) + 2 * len(it.x), 1)) / 100.0
        dual = self.g + self.A.T @ it.y - it.zl + it.zu
        gaps = [np.where(np.isfinite(s), s, 0.0) * z for s, z in ((self.sl, it.zl), (self.su, it.zu))]
        self.gaps = np.concatenate(gaps)
        self.real = (np.isfinite(np.concatenate([self.sl, self.su]))).astype(float)
        worst = lambda a: np.abs(a).max(initial=0.0)
        return worst(dual) / scale, worst(self.c), worst(self.gaps) / scale

    def barrier_error(self) -> float:
        dual, violation, _ = self.errors()
        return max(dual, violation, np.abs((self.gaps - self.mu) * self.real).max(initial=0.0))

    def newton(self) -> tuple[Any, np.ndarray, np.ndarray, float]:
        """(factors, dx, dy, shift) of (2), regularised until the curvature along the step is positive."""
        it, p = self.it, self.p
        W = p.seconds(self.x, it.y) + sp.diags_array(it.zl / self.sl + it.zu / self.su)
        right = -np.concatenate([self.slope() + self.A.T @ it.y, self.c])
        shift, last, dc = 0.0, float(it.shift), 0.0
        for _ in range(40):
            H = W + shift * sp.eye_array(p.n)
            try:
                solve = _refined(H, self.A, dc)
                step = solve(right)
                dx, dy = step[: p.n], step[p.n :]
                curved = dx @ (H @ dx) + max(-(it.y + dy) @ self.c, 0.0) >= 1e-10 * (dx @ dx)
                if np.isfinite(step).all() and curved:
                    return solve, dx, dy, shift
                bad = not np.isfinite(step).all()
            except RuntimeError:
                bad = True
            dc = 1e-8 * self.mu**0.25 if bad else dc
            if shift == 0.0:
                shift = max(1e-20, last / 3.0) if last > 0 else 1e-4
            else:
                shift *= 8.0 if last > 0 else 100.0
            if shift > 1e20:
                break
        raise RuntimeError("no direction")


def _refined(H: Any, A: Any, dc: float) -> Callable[[np.ndarray], np.ndarray]:
    """Solves (2) for right-hand sides, with refinement."""
    lu = _factor(H, A, dc)
    n = H.shape[0]
    times = lambda s: np.concatenate([H @ s[:n] + A.T @ s[n:], A @ s[:n] - dc * s[n:]])

    def solve(b: np.ndarray) -> np.ndarray:
        s = lu.solve(b)
        for _ in range(3):
            rest = b - times(s)
            if not np.isfinite(rest).all() or np.abs(rest).max(initial=0.0) <= 1e-12 * np.abs(b).max(initial=0.0):
                break
            s = s + lu.solve(rest)
        return s

    return solve


def _longest(s: np.ndarray, ds: np.ndarray, tau: float) -> float:
    """The largest step in (0, 1] with s + step ds >= (1 - tau) s."""
    down = ds < 0
    return min(1.0, float((-tau * s[down] / ds[down]).min(initial=1.0)))


class Filter:
    """Pairs (|c|, barrier) that a step must improve on in one of the two."""

    def __init__(self, pairs: np.ndarray, limits: np.ndarray):
        self.pairs, (self.least, self.most) = pairs, limits

    def takes(self, theta: float, phi: float) -> bool:
        return theta < self.most and not ((theta >= self.pairs[:, 0]) & (phi >= self.pairs[:, 1])).any()

    def add(self, theta: float, phi: float) -> None:
        new = [(1 - _REJECTED) * theta, phi - _REJECTED * theta]
        self.pairs = np.vstack([self.pairs, new])


def _trial(at: Point, x: np.ndarray) -> tuple[float, float, np.ndarray] | None:
    f, c = at.p.values(x)
    if not (np.isfinite(f) and np.isfinite(c).all()):
        return None
    return float(np.abs(c).sum()), at.barrier(f, x), c


def _judge(at: Point, wall: Filter, found: Any, slope: float, step: float) -> str | None:
    """ "f" if the barrier function falls enough, "h" if the filter takes it, None if it is refused."""
    if found is None or not wall.takes(found[0], found[1]):
        return None
    theta, phi, _ = found
    noise = 10 * np.finfo(float).eps * abs(at.phi)
    if slope < 0 and at.theta <= wall.least and step * (-slope) ** 2.3 > at.theta**1.1:
        return "f" if phi - at.phi - noise <= 1e-4 * step * slope else None
    enough = theta <= (1 - _REJECTED) * at.theta or phi - noise <= at.phi - _REJECTED * at.theta
    return "h" if enough else None


def _line_search(at: Point, wall: Filter, solve: Any, dx: np.ndarray, tau: float) -> tuple[np.ndarray, float] | None:
    """(x, step), or None when only a tiny step would do."""
    longest = lambda d: min(_longest(at.sl, d, tau), _longest(at.su, -d, tau))
    slope = float(at.slope() @ dx)
    step = first = longest(dx)
    least = _REJECTED
    if slope < 0:
        least = min(least, _REJECTED * at.theta / -slope)
        least = min(least, at.theta**1.1 / (-slope) ** 2.3) if at.theta <= wall.least else least
    while step > max(0.05 * least, 1e-14):
        x = at.x + step * dx
        found = _trial(at, x)
        verdict = _judge(at, wall, found, slope, step)
        if verdict is None and step == first and found is not None and found[0] >= at.theta:
            x, verdict = _corrected(at, wall, solve, dx, slope, step, found, longest, x)
        if verdict:
            if verdict == "h":
                wall.add(at.theta, at.phi)
            return x, step
        step *= 0.5
    return None


def _corrected(
    at: Point, wall: Filter, solve: Any, dx, slope, step, found, longest, x
) -> tuple[np.ndarray, str | None]:
    """Second-order corrections: the same matrix, the constraint met at the trial point."""
    c, theta = step * at.c + found[2], found[0]
    for _ in range(4):
        right = -np.concatenate([at.slope() + at.A.T @ at.it.y, c])
        dx = solve(right)[: at.p.n]
        if not np.isfinite(dx).all():
            break
        own = longest(dx)
        x_own = at.x + own * dx
        found = _trial(at, x_own)
        verdict = _judge(at, wall, found, slope, step)
        if verdict:
            return x_own, verdict
        if found is None or found[0] > 0.99 * theta:
            break
        c, theta = own * c + found[2], found[0]
    return x, None


def _restored(at: Point, wall: Filter, tau: float) -> np.ndarray | None:
    """A point that the filter takes, by damped least-squares steps on c; None where |c| cannot be made smaller."""
    p, x, damping = at.p, at.x, 1e-8
    c = at.c
    for _ in range(100):
        sl, su = x - p.lower, p.upper - x
        A = p.firsts(x)[1]
        near = np.minimum(1.0, np.minimum(sl, su)) ** -2
        solve = _refined(sp.diags_array(near), A, max(damping, 1e-14))
        dx = solve(-np.concatenate([np.zeros(p.n), c]))[: p.n]
        step = min(_longest(sl, dx, tau), _longest(su, -dx, tau))
        good = None
        for _ in range(12):
            found = _trial(at, x + step * dx)
            if found is not None and found[2] @ found[2] < (1 - 1e-4 * step) * (c @ c):
                good = found
                break
            step *= 0.5
        if good is None:
            if damping > 1e6:
                return None
            damping = max(damping * 100.0, 1e-6)
            continue
        x, c, damping = x + step * dx, good[2], damping / 5.0
        if good[0] <= 0.9 * at.theta and wall.takes(good[0], good[1]):
            return x
    return None


def iterate_once(p: Scaled, it: Iterate, tolerance: float) -> tuple[Iterate, str | None]:
    """The next iterate, or the same and why it ends."""
    p.scale, p.row_scale = it.scale, it.row_scale
    at = Point(p, it)
    it = eqx.tree_at(lambda i: i.errors, it, _report(p, at))
    if max(at.errors()) <= tolerance and it.errors[1] <= tolerance:
        return it, "converged"
    mu, wall = float(it.mu), Filter(it.filter, it.limits)
    while at.barrier_error() <= 10.0 * mu and mu > tolerance / 11.0:
        mu = max(tolerance / 11.0, min(0.2 * mu, mu**1.5))
        wall.pairs = np.zeros((0, 2))
        at.mu = mu
        at.phi = at.barrier(at.f, at.x)
    tau = max(0.99, 1.0 - mu)
    try:
        solve, dx, dy, shift = at.newton()
    except RuntimeError:
        return it, "no direction"
    dzl = mu / at.sl - it.zl - it.zl / at.sl * dx
    dzu = mu / at.su - it.zu + it.zu / at.su * dx
    found = _line_search(at, wall, solve, dx, tau)
    if found is None:
        if np.abs(at.c).max(initial=0.0) <= tolerance:
            return it, "stalled"
        wall.add(at.theta, at.phi)
        x = _restored(at, wall, tau)
        if x is None:
            return it, "infeasible"
        y, zl, zu, shift = np.zeros(p.m), it.zl, it.zu, float(it.shift)
    else:
        x, step = found
        y = it.y + step * dy
        own = min(_longest(it.zl, dzl, tau), _longest(it.zu, dzu, tau))
        zl, zu = it.zl + own * dzl, it.zu + own * dzu
    zl, zu = _kept(zl, x - p.lower, mu), _kept(zu, p.upper - x, mu)
    shift = np.asarray(shift) if shift > 0 else it.shift / 3.0
    return Iterate(x, y, zl, zu, np.asarray(mu), shift, wall.pairs, it.limits, it.scale, it.row_scale,
                   it.count + 1, it.errors), None  # fmt: skip


def _kept(z: np.ndarray, s: np.ndarray, mu: float) -> np.ndarray:
    """z within a factor of 1e10 of mu / s."""
    return np.clip(z, mu / (1e10 * s), 1e10 * mu / s)


def _report(p: Scaled, at: Point) -> np.ndarray:
    """Cost, largest violation, optimality, as the user counts them."""
    f, c = at.f / float(p.scale), at.c / p.row_scale
    return np.array([f, np.abs(c).max(initial=0.0), max(at.errors()[0], at.errors()[2])])


def minimise(program: Program, it: Iterate, *, tolerance: float = 1e-8, max_iterations: int = 500,
             callback: Callable[[Iterate], Any] | None = None) -> tuple[np.ndarray, Iterate, str]:  # fmt: skip
    """(unknowns, the last iterate, why it ended). `callback` sees each iterate; True from it stops the search."""
    p = Scaled(program, np.zeros(program.size))
    reason = None
    while reason is None:
        if int(it.count) >= max_iterations:
            reason = "iterations"
            break
        it, reason = iterate_once(p, it, tolerance)
        if reason is None and callback is not None and callback(it) is True:
            reason = "stopped"
    return p.all(it.x), it, reason
