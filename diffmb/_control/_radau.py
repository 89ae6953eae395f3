"""Collocation at Radau's points, which include the end of an interval: polynomials through 0, c_1 .. c_s = 1.

    x(c) = sum_j L_j(c) x_j           D_ij = L_j'(c_i)            integral over (0, 1) of f = sum_i b_i f(c_i)

The method (Radau IIA) has order 2 s - 1 at the ends of intervals, and stays so for mechanisms with loops (Hairer and
Wanner 1996, VII.4).
"""

from functools import cache

import numpy as np
from numpy.polynomial import legendre


@cache
def points(s: int) -> np.ndarray:
    """c (s,): the roots of P_s - P_(s-1), moved to (0, 1]."""
    series = np.zeros(s + 1)
    series[s], series[s - 1] = 1.0, -1.0
    roots = np.sort(legendre.legroots(series).real)
    c = 0.5 * (roots + 1.0)
    c[-1] = 1.0
    return c


def interpolation(nodes: np.ndarray, at: np.ndarray) -> np.ndarray:
    """(len(at), len(nodes)): values of Lagrange's polynomials."""
    found = np.ones((len(at), len(nodes)))
    for j, own in enumerate(nodes):
        for k, other in enumerate(nodes):
            if k != j:
                found[:, j] *= (at - other) / (own - other)
    return found


@cache
def weights(s: int) -> np.ndarray:
    """b (s,)."""
    c = points(s)
    V = np.vander(c, increasing=True).T
    return np.linalg.solve(V, 1.0 / np.arange(1, s + 1))


@cache
def derivative(s: int) -> np.ndarray:
    """D (s, s + 1) on the nodes 0, c_1 .. c_s."""
    nodes = np.concatenate([[0.0], points(s)])
    V = np.vander(nodes, increasing=True)
    slopes = np.stack([k * points(s) ** max(k - 1, 0) for k in range(s + 1)], 1)
    return np.linalg.solve(V.T, slopes.T).T


@cache
def integration(s: int) -> np.ndarray:
    """(s, s): integrals from 0 to each point of the polynomial through values at all of them."""
    c = points(s)
    V = np.vander(c, increasing=True)
    primitives = np.stack([c ** (k + 1) / (k + 1) for k in range(s)], 1)
    return np.linalg.solve(V.T, primitives.T).T
