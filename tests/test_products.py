"""Small inverses and products, whose programs depend on how many numbers there are: against numpy, with derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffmb._pseudo_inverse import inverse, product
from diffmb._spatial._vector import combine


def _definite(rows, batch, seed=0):
    A = np.random.default_rng(seed).standard_normal((batch, rows, rows))
    return A @ A.transpose(0, 2, 1) + rows * np.eye(rows)


@pytest.mark.parametrize("rows, batch", [(0, 1), (1, 1), (3, 1), (7, 1), (21, 1), (90, 1), (95, 1), (7, 5), (5, 64)])
def test_inverse(rows, batch):
    A = _definite(rows, batch)
    found = jax.jit(inverse)(jnp.asarray(A.transpose(1, 2, 0)))
    np.testing.assert_allclose(np.moveaxis(np.asarray(found), -1, 0), np.linalg.inv(A), rtol=1e-11, atol=1e-13)


def test_inverse_under_transformations():
    A, dA = (jnp.asarray(_definite(7, 6, seed).transpose(1, 2, 0)) for seed in (1, 2))
    one_by_one = jax.vmap(lambda a: inverse(a[..., None])[..., 0], 2, 2)(A)
    np.testing.assert_allclose(one_by_one, inverse(A), rtol=1e-13, atol=1e-15)
    slope = jax.jvp(inverse, (A,), (dA,))[1]
    near = (inverse(A + 1e-5 * dA) - inverse(A - 1e-5 * dA)) / 2e-5
    np.testing.assert_allclose(slope, near, rtol=1e-6, atol=1e-8)
    back = jax.vjp(inverse, A)[1](near)[0]
    np.testing.assert_allclose((back * dA).sum(), (slope * near).sum(), rtol=1e-12)


@pytest.mark.parametrize("batch", [1, 5, 64])
@pytest.mark.parametrize("rows, inner, columns", [(3, 3, 3), (7, 15, 7), (7, 15, None), (21, 50, 21), (2, 60, None)])
def test_products(rows, inner, columns, batch):
    random = np.random.default_rng(3)
    A = jnp.asarray(random.standard_normal((rows, inner, batch)))
    B = jnp.asarray(random.standard_normal((inner, *(() if columns is None else (columns,)), batch)))
    expected = np.einsum("ikz,k...z->i...z", A, B)
    np.testing.assert_allclose(jax.jit(product)(A, B), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(jax.jit(product)(A[..., :1], B), np.einsum("ik,k...z->i...z", A[..., 0], B), atol=1e-12)
    weights = jnp.asarray(random.standard_normal(expected.shape))
    Abar, Bbar = jax.jit(jax.grad(lambda A, B: (product(A, B) * weights).sum(), (0, 1)))(A, B)
    ahead = np.einsum("i...z,k...z->ikz", weights, B) if columns is None else np.einsum("ijz,kjz->ikz", weights, B)
    np.testing.assert_allclose(Abar, ahead, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(Bbar, np.einsum("i...z,ikz->k...z", weights, A), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("bodies, shape", [(3, (1,)), (7, (6, 1)), (7, (6, 6, 1)), (21, (13, 1)), (7, (6, 64))])
def test_sums_of_rows(bodies, shape):
    P, x = np.tri(bodies), np.random.default_rng(4).standard_normal((bodies, *shape))
    found, pull = jax.vjp(lambda x: combine(jnp.asarray(P), x), jnp.asarray(x))
    np.testing.assert_allclose(found, np.tensordot(P, x, 1), rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(pull(jnp.asarray(x))[0], np.tensordot(P.T, x, 1), rtol=1e-13, atol=1e-13)
    many = jax.vmap(lambda x: combine(jnp.asarray(P), x))(jnp.stack([x, 2 * x]))
    np.testing.assert_allclose(many[1], 2 * np.tensordot(P, x, 1), rtol=1e-13, atol=1e-13)
