"""Small products with component axes first and any batch axes behind.

A vector is `(k, *batch)`, a matrix `(m, k, *batch)`. Each product is lowered to an explicit sum over its few
components: XLA turns that into loops that run along the trailing (batch) axis, where an `einsum` over tiny axes would
not vectorise. Operands broadcast along the batch, so a constant may carry a trailing axis of length one.

    dot(a, b)    = sum_k a_k b_k            matvec(A, x)_i  = sum_k A_ik x_k
    cross(a, b)                             matmul(A, B)_ij = sum_k A_ik B_kj
"""

from collections.abc import Sequence

import jax.numpy as jnp
from jax import Array, lax

from ._bilinear import WIDE, Contraction, Sparse, bilinear

_FEW = 2048  # terms up to which a sum beats a call of the library, which takes 0.4 to 1.2 us however small it is


def stack(parts: Sequence, axis: int = 0) -> Array:
    """Stacks components that need not have the same batch axes (a plain `0.0` will do)."""
    shape = jnp.broadcast_shapes(*(jnp.shape(p) for p in parts))
    return jnp.stack([p if jnp.shape(p) == shape else jnp.broadcast_to(p, shape) for p in parts], axis)


def join(*parts: Array) -> Array:
    """Concatenates component axes (angular above linear, say) over a common batch."""
    batch = jnp.broadcast_shapes(*(p.shape[1:] for p in parts))
    spread = lambda p: p if p.shape[1:] == batch else jnp.broadcast_to(p, p.shape[:1] + batch)
    return jnp.concatenate([spread(p) for p in parts])


def _contraction(out: str, first: str, second: str, a: Array, b: Array, apart: bool = False) -> Array:
    lengths = dict(zip(first + second, a.shape[: len(first)] + b.shape[: len(second)], strict=True))
    return bilinear(Contraction((out, first, second), tuple(sorted(lengths.items())), apart), a, b)


def dot(a: Array, b: Array) -> Array:
    return _contraction("", "k", "k", a, b)


def unit(a: Array) -> Array:
    """a / |a|: numbers that users may move freely (axes, quaternions) are normalised where they are used."""
    return a / jnp.sqrt(dot(a, a))


# (a x b)_i: +1 for j after i, -1 for j before it
CROSS = Sparse(
    (3, 3, 3),
    tuple((i, j, 3 - i - j, 1.0 if (j - i) % 3 == 1 else -1.0) for i in range(3) for j in range(3) if i != j),
)


def cross(a: Array, b: Array) -> Array:
    return bilinear(CROSS, a, b)


def matvec(A: Array, x: Array) -> Array:
    return _contraction("i", "ik", "k", A, x)


def vecmat(x: Array, A: Array) -> Array:
    """A^T x."""
    return _contraction("i", "k", "ki", x, A)


def matmul(A: Array, B: Array) -> Array:
    return _contraction("ij", "ik", "kj", A, B)


def combine(P: Array, x: Array) -> Array:
    """P x along the first axis of x (n, components..., batch), stored: sums and choices of rows by constants."""
    if x.shape[-1] >= WIDE or P.shape[0] * x.size > _FEW:
        return jnp.tensordot(P, x, 1, precision="highest")
    return _contraction("i", "ik", "k", P, x, apart=True)


def product_apart(A: Array, B: Array) -> Array | None:
    """A B or A x with all factors stored, for a single sample of few terms; None if there are more."""
    if max(A.shape[-1], B.shape[-1]) >= WIDE or A.shape[0] * B.size * A.shape[-1] > _FEW:
        return None
    return _contraction("ij" if B.ndim == 3 else "i", "ik", "kj" if B.ndim == 3 else "k", A, B, apart=True)


def transpose(A: Array) -> Array:
    return jnp.swapaxes(A, 0, 1)


def outer(a: Array, b: Array) -> Array:
    return _contraction("ij", "i", "j", a, b)


def eye(size: int, like: Array) -> Array:
    """Identity matrix that broadcasts against the batch axes of the vector `like`."""
    return jnp.eye(size, dtype=like.dtype).reshape((size, size) + (1,) * (like.ndim - 1))


def skew(a: Array) -> Array:
    """Matrix of `cross(a, .)`."""
    x, y, z = (lax.slice_in_dim(a, k, k + 1) for k in range(3))
    zero = jnp.zeros_like(x)
    return jnp.concatenate([zero, -z, y, z, zero, -x, -y, x, zero]).reshape(3, *a.shape)


def sin_cos(angle: Array) -> tuple[Array, Array]:
    """sin and cos, computed once.

    XLA on CPU counts both as cheap and recomputes them in each of the nine entries of a rotation matrix (3x slower in
    all); it does not fuse through `combine`, so an identity product makes it store them.
    """
    pair = jnp.stack([jnp.sin(angle), jnp.cos(angle)])
    stored = combine(jnp.eye(2, dtype=pair.dtype), pair)
    return stored[0], stored[1]
