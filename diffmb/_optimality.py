"""OPTIMALITY: the first-order conditions at a point, with multipliers of our own.

    min f(x)    subject to    lo <= c(x) <= hi,    lower <= x <= upper
    r = g + A^T lam + mu            lam_i >= 0 where c_i = hi_i, <= 0 where c_i = lo_i, of any sign where lo_i = hi_i,
                                    zero where c_i is inside; mu the same for bounds                              (1)
    lam, mu = argmin |r|^2          bounded least squares over the active rows                                     (2)

g and A are the gradients of f and c. A point that satisfies the limits and has r = 0 is a Karush-Kuhn-Tucker point; the
optimiser's own word is not taken for it. Multipliers are slopes: df*/dhi = -lam, df*/dlo = -lam.
"""

from typing import NamedTuple

import numpy as np

_ACTIVE = 1e-6  # of size-one numbers: this close to a limit is at it


class Point(NamedTuple):
    """Value, gradient, rows and their Jacobian at x; all of size one."""

    x: np.ndarray
    f: float
    g: np.ndarray
    c: np.ndarray
    A: np.ndarray


class Region(NamedTuple):
    """Bounds of x and limits of the rows."""

    lower: np.ndarray
    upper: np.ndarray
    lo: np.ndarray
    hi: np.ndarray


class Conditions(NamedTuple):
    """The largest entry of r, the largest violation of a limit, and multipliers of rows and bounds."""

    residual: float
    violation: float
    rows: np.ndarray
    bounds: np.ndarray


def conditions(point: Point, region: Region) -> Conditions:
    """(1) and (2)."""
    x, _, g, c, A = point
    least, most = _signs(c, region.lo, region.hi)
    low, high = _signs(x, region.lower, region.upper)
    least, most = np.concatenate([least, low]), np.concatenate([most, high])
    B = np.concatenate([A.reshape(len(c), len(x)), np.eye(len(x))]).T
    used, lam = least < most, np.zeros(len(least))
    if used.any():
        lam[used] = _bounded(B[:, used], -g, least[used], most[used])
    residual = float(np.abs(g + B @ lam).max(initial=0.0))
    return Conditions(residual, violation(point, region), lam[: len(c)], lam[len(c) :])


def violation(point: Point, region: Region) -> float:
    over = np.concatenate([region.lo - point.c, point.c - region.hi, region.lower - point.x, point.x - region.upper])
    return float(over.max(initial=0.0))


def _signs(value: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The multipliers that are allowed."""
    least = np.where(value - lower <= _ACTIVE, -np.inf, 0.0)
    most = np.where(upper - value <= _ACTIVE, np.inf, 0.0)
    return least, most


def _bounded(B: np.ndarray, b: np.ndarray, least: np.ndarray, most: np.ndarray) -> np.ndarray:
    """Least squares with signs; free directions alone where no sign matters."""
    plain = np.linalg.lstsq(B, b, rcond=None)[0]
    if ((plain >= least) & (plain <= most)).all():
        return plain
    from scipy.optimize import lsq_linear  # takes a second to import

    return lsq_linear(B, b, (least, most), method="bvls").x
