"""Products of matrices and of a matrix with a vector, batch axis last (length 1 where a number is shared)."""

import jax.numpy as jnp
from jax import Array

from ._spatial._bilinear import WIDE
from ._spatial._vector import matmul, matvec, product_apart
from ._tiles import stored

_WRITTEN_OUT = 48  # terms of a sum


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
