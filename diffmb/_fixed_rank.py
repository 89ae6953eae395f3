"""Dense algebra of the rows at fixed rank: pseudo-inverse of any matrix, and eigenvalues, with rules of their own.

    A+                 shortest least-squares solutions, by singular values; rank decided by the given tolerance
    dA+ = -A+ dA A+ + A+ A+^T dA^T (1 - A A+) + (1 - A+ A) dA^T A+^T A+           (Golub and Pereyra 1973)      (1)

    A r = w r          l^H A = w l^H          dw = l^H dA r / l^H r                                             (2)

(2) needs no other eigenvalue, so that a simple one has its derivative although others coincide (the zeros of rigid and
nonholonomic motions do). Where l^H r is nothing the eigenvalue is multiple and has no derivative: it is nan there.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ._linear import linear


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def pinv(A: Array, tolerance: float) -> Array:
    """A+ (n, m); singular values below `tolerance` times the largest count as zero."""
    if 0 in A.shape:
        return jnp.zeros(A.shape[::-1], A.dtype)
    U, s, Vt = jnp.linalg.svd(A, full_matrices=False)
    keep = s > jnp.maximum(tolerance * s[0], np.finfo(A.dtype).tiny)
    return (Vt.T * jnp.where(keep, 1.0 / jnp.where(keep, s, 1.0), 0.0)) @ U.T


@pinv.defjvp
def _pinv_rule(tolerance, primals, tangents):
    (A,), (dA,) = primals, tangents
    B = pinv(A, tolerance)
    left, right = jnp.eye(A.shape[0], dtype=A.dtype) - A @ B, jnp.eye(A.shape[1], dtype=A.dtype) - B @ A
    return B, -B @ dA @ B + B @ B.T @ dA.T @ left + right @ dA.T @ B.T @ B  # (1)


def row_tolerance(dtype) -> float:
    """Singular values of scaled rows below this part of the largest count as zero, as in `mb.mobility`."""
    return float(np.finfo(dtype).eps) ** 0.375


def eigen(A: Array) -> tuple[Array, Array, Array]:
    """Eigenvalues in order of their size, left and right eigenvectors in columns; complex."""
    w, left, right = jax.lax.linalg.eig(A, compute_left_eigenvectors=True, compute_right_eigenvectors=True)
    order = jnp.lexsort((w.imag, w.real, jnp.abs(w)))
    return w[order], left[:, order], right[:, order]


@jax.custom_jvp
def eigenvalues(A: Array) -> Array:
    """The eigenvalues of a real matrix in order of their size, (n,) complex; a pair in order of its imaginary parts."""
    return eigen(A)[0]


@eigenvalues.defjvp
def _eigenvalues_rule(primals, tangents):
    (A,), (dA,) = primals, tangents
    w, left, right = eigen(A)
    overlap = (left.conj() * right).sum(0)
    simple = jnp.abs(overlap) > 1e3 * np.finfo(A.dtype).eps
    factor = jnp.where(simple, 1.0 / jnp.where(simple, overlap, 1.0), jnp.nan)
    slope = jnp.einsum("ji,jk,ki->i", left.conj(), dA.astype(w.dtype), right)
    times = lambda factor, x: jnp.where(x == 0, 0.0, factor * x)  # what nobody asks for does not spread its nan
    return w, linear(times, times, factor, slope, w)  # (2)
