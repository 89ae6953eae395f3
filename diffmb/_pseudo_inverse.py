"""Pseudo-inverse of symmetric positive semidefinite matrices, batch axis last, differentiable at fixed rank.

    A = L L^T          Cholesky with diagonal pivoting; it stops where the pivots are round-off
    C = (L^T L)^-1     on the columns found
    A+ = L C C L^T     minimum-norm solutions; A A+ = L C L^T is the projector on the range

    dA+ = -A+ dA A+ + A+ A+ dA (1 - A A+) + (1 - A A+) dA A+ A+         (Golub and Pereyra 1973, fixed rank)

The rank is a decision: a row counts as dependent on those before it when what is left of its diagonal entry is below
eps^(3/4) of what it was (so a singular value below about 1e-6 of its row in double precision), or when the row itself
is nothing beside the largest.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import batching, mlir

from ._spatial._bilinear import WIDE
from ._spatial._vector import matmul, matvec, product_apart
from ._straight._graph import Graph
from ._straight._unroll import RULES
from ._tiles import one_kernel, stored

_WRITTEN_OUT = 48  # terms of a sum


def rank_tolerance(dtype) -> float:
    """Below this part of its own size a diagonal entry counts as zero."""
    return float(np.finfo(dtype).eps) ** 0.75


@jax.custom_jvp
def pseudo_inverse(A: Array) -> Array:
    """A+, (m, m, batch)."""
    L, found, _ = pivoted_cholesky(A)
    gram = product(jnp.swapaxes(L, 0, 1), L)
    gram = gram + jnp.eye(A.shape[0], dtype=A.dtype)[..., None] * jnp.where(found, 0.0, 1.0)[:, None]
    half = product(L, inverse(gram))
    return product(half, jnp.swapaxes(half, 0, 1))


@pseudo_inverse.defjvp
def _rule(primals, tangents):
    (A,), (dA,) = primals, tangents
    B = pseudo_inverse(A)
    rest = jnp.eye(A.shape[0], dtype=A.dtype)[..., None] - product(A, B)
    left = product(product(product(B, B), dA), rest)
    return B, -product(product(B, dA), B) + left + jnp.swapaxes(left, 0, 1)


def product(A: Array, B: Array) -> Array:
    """A B, or A x, written out as a sum where the batch is long and the sum is not; a matrix product otherwise."""
    if A.shape[1] <= _WRITTEN_OUT and max(A.shape[-1], B.shape[-1]) >= WIDE:
        return stored(matmul if B.ndim == 3 else matvec)(A, B)  # fused into its users it would be computed many times
    short = product_apart(A, B)
    if short is not None:
        return short
    if A.shape[-1] == B.shape[-1] == 1:
        return jnp.matmul(A[..., 0], B[..., 0], precision="highest")[..., None]
    return jnp.einsum("ikz,kjz->ijz" if B.ndim == 3 else "ikz,kz->iz", *_same_batch(A, B), precision="highest")


def _same_batch(A: Array, B: Array) -> tuple[Array, Array]:
    batch = max(A.shape[-1], B.shape[-1])
    return jnp.broadcast_to(A, (*A.shape[:-1], batch)), jnp.broadcast_to(B, (*B.shape[:-1], batch))


def pivoted_cholesky(A: Array, most: int | None = None) -> tuple[Array, Array, Array]:
    """L (m, most, batch), column k from the k-th pivot and zero when there was none; which were found (most, batch);
    and the numbers of the pivots (most, batch), as floats. `most` pivots are looked for, all by default."""
    m, (eps, tiny) = A.shape[0], (np.finfo(A.dtype).eps, np.finfo(A.dtype).tiny)
    number = jnp.arange(m, dtype=A.dtype)[:, None]
    start = (A * jnp.eye(m, dtype=A.dtype)[..., None]).sum(1)
    floor = jnp.maximum(rank_tolerance(A.dtype) * start, eps**1.25 * start.max(0))

    def step(carry, _):
        rest, diagonal = carry
        eager = jnp.where(diagonal > floor, diagonal, -1.0)
        pivot = eager.max(0)
        first = jnp.where(eager == pivot, number, float(m)).min(0)  # an argmax does not vectorise along the batch
        found = pivot > tiny
        chosen = jnp.where((number == first) & found, 1.0, 0.0).astype(A.dtype)
        column = (rest * chosen[None]).sum(1) * lax.rsqrt(jnp.where(found, pivot, 1.0))
        keep = 1.0 - chosen  # no row is a pivot twice
        return (rest - column[:, None] * column[None], (diagonal - column * column) * keep), (column, found, first)

    _, (columns, found, order) = lax.scan(step, (A, start), None, length=m if most is None else most)
    return jnp.swapaxes(columns, 0, 1), found, order


@jax.custom_jvp
def inverse(A: Array) -> Array:
    """Inverse of a positive definite matrix, (m, m, batch): no pivoting needed, all samples in step."""
    return sweep_p.bind(A)


def _swept(A: Array) -> Array:
    """By sweeps: one row after the other becomes row / pivot, and the pivot -1 / pivot, all in one go.

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
        A, w, quotient = carry
        A = (A - w[:, None] * quotient[None]).at[k, k].add(-2.0)
        return A, *ready(k + 1, A)

    return -lax.fori_loop(0, m, step, (A, *ready(0, A)))[0] if m else A


sweep_p = Primitive("sweep")
sweep_p.def_impl(jax.jit(lambda A: sweep_p.bind(A)))
sweep_p.def_abstract_eval(lambda A: ShapedArray(A.shape, A.dtype))
mlir.register_lowering(sweep_p, mlir.lower_fun(_swept, multiple_results=False))
mlir.register_lowering(sweep_p, mlir.lower_fun(one_kernel(_swept), multiple_results=False), "cpu")


def _straight(graph: Graph, params: dict, A: np.ndarray) -> np.ndarray:
    """The same sweeps, number by number, on one half of the symmetric matrix."""
    m, out = A.shape[0], A.copy()
    for z in range(A.shape[-1]):
        half = {(i, j): int(A[i, j, z]) for i in range(m) for j in range(i, m)}
        at = lambda i, j: (min(i, j), max(i, j))
        for k in range(m):
            w = [half[at(k, i)] for i in range(m)]
            inverse = graph.div(graph.constant(np.ones((), graph.numbers[w[k]].dtype)), w[k])
            quotient = [graph.mul(x, inverse) for x in w]
            for i, j in half:
                if k not in (i, j):
                    half[i, j] = graph.sub(half[i, j], graph.mul(w[i], quotient[j]))
            half |= {at(k, i): quotient[i] for i in range(m)}
            half[k, k] = graph.negative(inverse)
        out[..., z] = [[graph.negative(half[at(i, j)]) for j in range(m)] for i in range(m)]
    return out


RULES[sweep_p] = _straight


def _batch_sweep(args, dims):
    A = jnp.moveaxis(args[0], dims[0], -1)
    return sweep_p.bind(A.reshape(*A.shape[:2], -1)).reshape(A.shape), A.ndim - 1


batching.primitive_batchers[sweep_p] = _batch_sweep


@inverse.defjvp
def _inverse_rule(primals, tangents):
    B = inverse(*primals)
    return B, -product(product(B, tangents[0]), B)
