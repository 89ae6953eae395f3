"""A sparse nonlinear program made of many copies of small functions, with exact derivatives.

    minimise  sum_k cost_k(l_k)      subject to   lower <= rows_k(l_k) <= upper      x_lower <= x <= x_upper
    l_k = P_k x: the few unknowns, or constant combinations of them, that copy k sees

    gradient = sum P_k^T dcost_k     Jacobian = [.. drows_k P_k ..]     Hessian = sum P_k^T d2(cost + y rows)_k P_k  (1)

The derivatives of all copies are one vmap each; (1) is a product of sparse matrices. Numbers of copies are padded to
few sizes, so that another mesh of the same problem rarely compiles anew.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jax import Array

Local = Callable[[Any, Array, Array], tuple[Array, Array]]


@eqx.filter_jit
def _values(fun: Local, theta: Any, l: Array, s: Array) -> tuple[Array, Array]:
    return jax.vmap(lambda l, s: fun(theta, l, s))(l, s)


@eqx.filter_jit
def _firsts(fun: Local, theta: Any, l: Array, s: Array) -> tuple[Array, Array]:
    def one(l, s):
        return jax.jacfwd(lambda l: fun(theta, l, s))(l)

    return jax.vmap(one)(l, s)


@eqx.filter_jit
def _seconds(fun: Local, theta: Any, l: Array, s: Array, factor: Array, y: Array) -> Array:
    def one(l, s, y):
        def lagrangian(l):
            cost, rows = fun(theta, l, s)
            return factor * cost + y @ rows

        return jax.jacfwd(jax.grad(lagrangian))(l)

    return jax.vmap(one)(l, s, y)


class Family:
    """Copies of one function `fun(theta, l, s) -> (cost, rows)`; s (copies, k) are fixed numbers of each copy."""

    def __init__(self, fun: Local, theta: Any, P: Any, s: np.ndarray):
        self.fun, self.theta, self.copies = fun, theta, len(s)
        self.P = sp.csr_array(P)
        self.width = len(self.P.indptr[1:]) // self.copies
        self.PT = sp.csr_array(self.P.T)
        self.padded = _padded(self.copies)
        self.s = jnp.asarray(np.concatenate([s, np.repeat(s[:1], self.padded - self.copies, 0)]))
        sizes = jax.eval_shape(
            lambda l, s: fun(theta, l, s), jax.ShapeDtypeStruct((self.width,), self.s.dtype), self.s[0]
        )
        self.rows = sizes[1].shape[0]

    def _local(self, x: np.ndarray) -> Array:
        l = (self.P @ x).reshape(self.copies, self.width)
        return jnp.asarray(np.concatenate([l, np.repeat(l[:1], self.padded - self.copies, 0)]))

    def _cut(self, a: Array) -> np.ndarray:
        return np.asarray(a)[: self.copies]

    def values(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        cost, rows = _values(self.fun, self.theta, self._local(x), self.s)
        return float(self._cut(cost).sum()), self._cut(rows).reshape(-1)

    def firsts(self, x: np.ndarray) -> tuple[np.ndarray, Any]:
        dcost, drows = map(self._cut, _firsts(self.fun, self.theta, self._local(x), self.s))
        return self.PT @ dcost.reshape(-1), _blocks(drows) @ self.P

    def seconds(self, x: np.ndarray, factor: float, y: np.ndarray) -> Any:
        full = np.zeros((self.padded, self.rows))
        full[: self.copies] = y.reshape(self.copies, self.rows)
        H = _seconds(self.fun, self.theta, self._local(x), self.s, jnp.asarray(factor), jnp.asarray(full))
        return self.PT @ (_blocks(self._cut(H)) @ self.P)


def _padded(copies: int) -> int:
    size = 1 if copies == 1 else 32
    while size < copies:
        size *= 2
    return size


def _blocks(blocks: np.ndarray) -> Any:
    """A block-diagonal sparse matrix; zeros are left out."""
    k, r, c = blocks.shape
    indices = np.broadcast_to(np.arange(k * c).reshape(k, 1, c), (k, r, c)).flatten()
    found = sp.csr_array(
        (np.array(blocks).reshape(-1), indices, np.arange(0, k * r * c + 1, max(c, 1))), shape=(k * r, k * c)
    )
    found.eliminate_zeros()
    return found


class Program:
    """The whole program. `row_name(k)` says in words what row k is."""

    def __init__(self, families: list[Family], size: int, lower: Any, upper: Any, row_lower: Any, row_upper: Any,
                 row_name: Callable[[int], str]):  # fmt: skip
        self.families, self.size, self.row_name = families, size, row_name
        self.lower, self.upper = np.asarray(lower, float), np.asarray(upper, float)
        self.row_lower, self.row_upper = np.asarray(row_lower, float), np.asarray(row_upper, float)
        self.rows = len(self.row_lower)

    def values(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        found = [f.values(x) for f in self.families]
        return sum(cost for cost, _ in found), np.concatenate([rows for _, rows in found])

    def firsts(self, x: np.ndarray) -> tuple[np.ndarray, Any]:
        """(gradient, Jacobian)."""
        found = [f.firsts(x) for f in self.families]
        return sum((g for g, _ in found), np.zeros(self.size)), sp.csr_array(sp.vstack([J for _, J in found]))

    def seconds(self, x: np.ndarray, factor: float, y: np.ndarray) -> Any:
        """The Hessian of factor cost + y rows."""
        total, at = sp.csr_array((self.size, self.size)), 0
        for f in self.families:
            count = f.copies * f.rows
            total = total + f.seconds(x, factor, y[at : at + count])
            at += count
        return total

    def violation(self, x: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """By how much each row, and each bound, is missed."""
        miss = lambda a, lower, upper: np.maximum(np.maximum(lower - a, a - upper), 0.0)
        return miss(rows, self.row_lower, self.row_upper), miss(x, self.lower, self.upper)
