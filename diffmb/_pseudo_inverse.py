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

from ._definite import definite
from ._product import product


def rank_tolerance(dtype) -> float:
    """Below this part of its own size a diagonal entry counts as zero."""
    return float(np.finfo(dtype).eps) ** 0.75


@jax.custom_jvp
def pseudo_inverse(A: Array) -> Array:
    """A+, (m, m, batch)."""
    L, found, _ = pivoted_cholesky(A)
    gram = product(jnp.swapaxes(L, 0, 1), L)
    gram = gram + jnp.eye(A.shape[0], dtype=A.dtype)[..., None] * jnp.where(found, 0.0, 1.0)[:, None]
    half = definite(gram).solve(jnp.swapaxes(L, 0, 1))
    return product(jnp.swapaxes(half, 0, 1), half)


@pseudo_inverse.defjvp
def _rule(primals, tangents):
    (A,), (dA,) = primals, tangents
    B = pseudo_inverse(A)
    rest = jnp.eye(A.shape[0], dtype=A.dtype)[..., None] - product(A, B)
    left = product(product(product(B, B), dA), rest)
    return B, -product(product(B, dA), B) + left + jnp.swapaxes(left, 0, 1)


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
