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


def rank_tolerance(dtype) -> float:
    """Below this part of its own size a diagonal entry counts as zero."""
    return float(np.finfo(dtype).eps) ** 0.75


@jax.custom_jvp
def pseudo_inverse(A: Array) -> Array:
    """A+, (m, m, batch)."""
    L, found = pivoted_cholesky(A)
    gram = (L[:, :, None] * L[:, None, :]).sum(0)
    gram = gram + jnp.eye(A.shape[0], dtype=A.dtype)[..., None] * jnp.where(found, 0.0, 1.0)[:, None]
    half = product(L, _inverse(gram))
    return product(half, jnp.swapaxes(half, 0, 1))


@pseudo_inverse.defjvp
def _rule(primals, tangents):
    (A,), (dA,) = primals, tangents
    B = pseudo_inverse(A)
    rest = jnp.eye(A.shape[0], dtype=A.dtype)[..., None] - product(A, B)
    left = product(product(product(B, B), dA), rest)
    return B, -product(product(B, dA), B) + left + jnp.swapaxes(left, 0, 1)


def product(A: Array, B: Array) -> Array:
    """A B for matrices too long to be written out."""
    return jnp.einsum("ikz,kjz->ijz", A, B, precision="highest")


def pivoted_cholesky(A: Array) -> tuple[Array, Array]:
    """L (m, m, batch), column k from the k-th pivot and zero when there was none, and which were found (m, batch)."""
    m = A.shape[0]
    start = jnp.moveaxis(jnp.diagonal(A), -1, 0)
    tolerance = rank_tolerance(A.dtype)
    floor = jnp.maximum(tolerance * start, np.finfo(A.dtype).eps ** 1.25 * start.max(0))
    tiny = np.finfo(A.dtype).tiny

    def step(rest, _):
        diagonal = jnp.moveaxis(jnp.diagonal(rest), -1, 0)
        eager = jnp.where(diagonal > floor, diagonal, -1.0)
        best = jnp.argmax(eager, 0)
        chosen = (jnp.arange(m)[:, None] == best).astype(A.dtype)
        pivot = (chosen * eager).sum(0)
        found = pivot > tiny
        column = (rest * chosen[None]).sum(1) * lax.rsqrt(jnp.where(found, pivot, 1.0))
        column = jnp.where(found, column, 0.0)
        rest = rest - column[:, None] * column[None]
        keep = 1.0 - chosen * found  # the pivot's own row is used up exactly
        return rest * keep[:, None] * keep[None], (column, found)

    _, (columns, found) = lax.scan(step, A, None, length=m)
    return jnp.swapaxes(columns, 0, 1), found


def _inverse(A: Array) -> Array:
    """Inverse of a positive definite matrix by sweeps: no pivoting needed, all samples in step."""
    m = A.shape[0]

    def step(k, A):
        unit = (jnp.arange(m) == k).astype(A.dtype)[:, None]
        row, pivot = A[k], A[k, k]
        reduced = A - A[:, k][:, None] * row[None] / pivot
        return reduced + (unit[:, None] * row[None] + row[:, None] * unit[None]) / pivot - (
            unit[:, None] * unit[None]
        ) * (2.0 + 1.0 / pivot)

    return -lax.fori_loop(0, m, step, A)
