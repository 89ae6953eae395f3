"""Systems with a positive definite matrix A, batch axis last: factorised once, solved for many right-hand sides.

arrays                                          number by number (`_straight`)
    F = A^-1 by sweeps        A^-1 b = F b          A = L D L^T       F = L - 1 + D^-1
                                                    L y = b,  L^T x = D^-1 y

Sweeps and a product are few, wide operations; L keeps most of the zeros of A, which the inverse does not: with ten
four-bars in a row, each of which meets its neighbours alone, all of it takes 500 operations instead of 9000. What F is
nobody else knows; it does not leave the program that has made it. Both ways eliminate row after row and meet the same
pivots: what is left of a diagonal entry when the rows before it have been taken out.

    d(A^-1 b) = A^-1 (db - dA A^-1 b)
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from ._product import product
from ._straight._graph import Graph
from ._straight._unroll import RULES
from ._tiles import one_kernel, stored


class Definite(eqx.Module):
    """A, and its factors."""

    A: Array
    F: Array
    pivots: Array  # (m, batch)

    def solve(self, b: Array) -> Array:
        """A^-1 b, for one right-hand side (m, batch) or several (m, columns, batch)."""
        if b.ndim == 3:
            return stored(solve_p.bind)(self.A, self.F, b)
        return self.solve(b[:, None])[:, 0]


def definite(A: Array) -> Definite:
    return Definite(A, *factor_p.bind(lax.stop_gradient(A)))


# --- F and the pivots ---------------------------------------------------------------------------------------------


def _swept(A: Array) -> tuple[Array, Array]:
    """The inverse and the pivots (m, batch), by sweeps: one row after the other becomes row / pivot, and the pivot
    -1 / pivot, all in one go.

    The next row and its quotients are carried along: what is carried is stored, while XLA would divide anew for every
    entry of the matrix (21 rows: 2.5 instead of 21 us for each sample of a batch).
    """
    m = A.shape[0]
    number = jnp.arange(m)[:, None]

    def ready(k, A):
        k = jnp.minimum(k, m - 1)
        w = jnp.where(number == k, A[k] - 1.0, A[k])
        return w, w * (1.0 / A[k, k])

    def step(k, carry):
        A, w, quotient, pivots = carry
        pivots = jnp.where(number == k, A[k, k], pivots)
        A = (A - w[:, None] * quotient[None]).at[k, k].add(-2.0)
        return A, *ready(k + 1, A), pivots

    if not m:
        return A, jnp.zeros(A.shape[1:], A.dtype)
    A, _, _, pivots = lax.fori_loop(0, m, step, (A, *ready(0, A), A[0]))
    return -A, pivots


factor_p = Primitive("factor")
factor_p.multiple_results = True
factor_p.def_impl(jax.jit(lambda A: factor_p.bind(A)))
factor_p.def_abstract_eval(lambda A: [ShapedArray(A.shape, A.dtype), ShapedArray(A.shape[1:], A.dtype)])
mlir.register_lowering(factor_p, mlir.lower_fun(_swept, multiple_results=True))
mlir.register_lowering(factor_p, mlir.lower_fun(one_kernel(_swept), multiple_results=True), "cpu")


def _factors(graph: Graph, params: dict, A: np.ndarray) -> list[np.ndarray]:
    """Number by number, from one half of the matrix."""
    m, F, pivots = A.shape[0], A.copy(), np.zeros(A.shape[1:], int)
    if not m:
        return [F, pivots]
    zero, one = (graph.constant(np.asarray(x, graph.dtype[A.flat[0]])) for x in (0, 1))
    for z in range(A.shape[-1]):
        left, L = A[..., z].tolist(), [[zero] * m for _ in range(m)]
        for k in range(m):
            L[k][k] = graph.div(one, left[k][k])
            below = [i for i in range(k + 1, m) if not graph.is_zero(left[i][k])]
            for i in below:
                L[i][k] = graph.mul(left[i][k], L[k][k])
            for i in below:
                for j in (j for j in below if j <= i):
                    left[i][j] = graph.sub(left[i][j], graph.mul(L[i][k], left[j][k]))
        F[..., z], pivots[:, z] = L, [left[k][k] for k in range(m)]
    return [F, pivots]


RULES[factor_p] = _factors


def _batch_factors(args, dims):
    A = jnp.moveaxis(args[0], dims[0], -2)
    F, pivots = factor_p.bind(A.reshape(*A.shape[:2], -1))
    return [F.reshape(A.shape), pivots.reshape(A.shape[1:])], [2, 1]


batching.primitive_batchers[factor_p] = _batch_factors

# --- A^-1 b from F; A stands beside it for its changes --------------------------------------------------------------

solve_p = Primitive("solve")
solve_p.def_impl(jax.jit(lambda A, F, b: solve_p.bind(A, F, b)))
solve_p.def_abstract_eval(lambda A, F, b: ShapedArray((*b.shape[:-1], max(F.shape[-1], b.shape[-1])), b.dtype))
mlir.register_lowering(solve_p, mlir.lower_fun(lambda A, F, b: product(F, b), multiple_results=False))


def _substituted(graph: Graph, params: dict, A: np.ndarray, F: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Number by number."""
    m, batch = F.shape[0], max(F.shape[-1], b.shape[-1])
    x = np.broadcast_to(b, (*b.shape[:-1], batch)).copy()
    for z in range(batch):
        L = F[..., min(z, F.shape[-1] - 1)].tolist()
        before = [[k for k in range(i) if not graph.is_zero(L[i][k])] for i in range(m)]
        after = [[k for k in range(i + 1, m) if not graph.is_zero(L[k][i])] for i in range(m)]
        for c in range(b.shape[1]):
            y = x[:, c, z].tolist()
            for i in range(m):
                for k in before[i]:
                    y[i] = graph.sub(y[i], graph.mul(L[i][k], y[k]))
            for i in reversed(range(m)):
                y[i] = graph.mul(y[i], L[i][i])
                for k in after[i]:
                    y[i] = graph.sub(y[i], graph.mul(L[k][i], y[k]))
            x[:, c, z] = y
    return x


RULES[solve_p] = _substituted


def _batch_solve(args, dims):
    """The mapped axis becomes part of the batch."""
    size = next(a.shape[d] for a, d in zip(args, dims, strict=True) if d is not None)
    moved = [a[..., None, :] if d is None else jnp.moveaxis(a, d, -2) for a, d in zip(args, dims, strict=True)]
    batch = max(a.shape[-1] for a in moved)
    spread = lambda a: jnp.broadcast_to(a, (*a.shape[:2], size, batch)).reshape(*a.shape[:2], size * batch)
    x = solve_p.bind(*map(spread, moved))
    return x.reshape(*x.shape[:2], size, batch), 2


batching.primitive_batchers[solve_p] = _batch_solve


def _jvp(primals, tangents):
    (A, F, b), (dA, _, db) = primals, tangents
    x = solve_p.bind(A, F, b)
    if isinstance(dA, ad.Zero):
        return x, db if isinstance(db, ad.Zero) else solve_p.bind(A, F, db)
    right = -product(dA, x)
    return x, solve_p.bind(A, F, right if isinstance(db, ad.Zero) else right + db)


def _transpose(xbar, A, F, b):
    """A is symmetric. b may have a shorter batch than F."""
    if isinstance(xbar, ad.Zero):
        return None, None, ad.Zero(b.aval)
    bbar = solve_p.bind(A, F, xbar)
    return None, None, bbar.sum(-1, keepdims=True) if b.aval.shape[-1] < bbar.shape[-1] else bbar


ad.primitive_jvps[solve_p] = _jvp
ad.primitive_transposes[solve_p] = _transpose
