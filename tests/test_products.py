"""Small systems and products, whose programs depend on how many numbers there are: against numpy, with derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxpr_as_fun

from diffmb._definite import definite
from diffmb._product import product
from diffmb._spatial._vector import combine
from diffmb._straight._kernel import straight


def _definite(rows, batch, seed=0):
    A = np.random.default_rng(seed).standard_normal((batch, rows, rows))
    return A @ A.transpose(0, 2, 1) + rows * np.eye(rows)


def _last(A):
    return jnp.asarray(np.moveaxis(A, 0, -1))


@pytest.mark.parametrize("rows, batch", [(0, 1), (1, 1), (3, 1), (7, 1), (21, 1), (90, 1), (95, 1), (7, 5), (5, 64)])
def test_definite_systems(rows, batch):
    """Solutions for one and for several right-hand sides, and the pivots of an elimination row after row."""
    A = _definite(rows, batch)
    b = np.random.default_rng(5).standard_normal((batch, rows, 2))
    solve = jax.jit(lambda A, b: (definite(A).solve(b), definite(A).solve(b[:, 0]), definite(A).pivots))
    several, one, pivots = solve(_last(A), _last(b))
    expected = np.linalg.solve(A, b)
    np.testing.assert_allclose(np.moveaxis(several, -1, 0), expected, rtol=1e-11, atol=1e-13)
    np.testing.assert_allclose(np.moveaxis(one, -1, 0), expected[..., 0], rtol=1e-11, atol=1e-13)
    own = np.linalg.cholesky(A).diagonal(axis1=1, axis2=2) ** 2
    np.testing.assert_allclose(np.moveaxis(pivots, -1, 0), own, rtol=1e-11)


def test_definite_systems_number_by_number():
    """Written out, the same; and what is zero in a band matrix costs nothing."""
    solve = lambda A, b: (definite(A).solve(b), definite(A).pivots)
    A, b = _last(_definite(12, 1)), _last(np.random.default_rng(6).standard_normal((1, 12)))
    band = np.abs(np.subtract.outer(np.arange(12), np.arange(12)))[..., None] <= 2
    for fun in (solve, lambda A, b: solve(A * band, b)):
        kernel = straight(jax.make_jaxpr(fun)(A, b), 10_000)
        for found, expected in zip(jax.jit(kernel.over(1))(A, b), fun(A, b), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert len(kernel.made) == 12 + 21 + 2 * (1 + 10 * 3) + 12 + 4 * 21  # D^-1, L, what is left; D^-1 y, and twice L


def test_definite_systems_under_transformations():
    A, dA = (_last(_definite(7, 6, seed)) for seed in (1, 2))
    b, db = (_last(np.random.default_rng(seed).standard_normal((6, 7, 2))) for seed in (3, 4))
    solve = lambda A, b: definite(A).solve(b)
    alone = jax.vmap(lambda A, b: solve(A[..., None], b[..., None])[..., 0], 2, 2)
    np.testing.assert_allclose(alone(A, b), solve(A, b), rtol=1e-12, atol=1e-14)
    shared = jax.vmap(lambda b: solve(A[..., :1], b[:, None]), 1, 1)(b)
    np.testing.assert_allclose(shared[:, :, 0], solve(A[..., :1], b), rtol=1e-12, atol=1e-14)
    along = lambda s: solve(A + s * dA, b + s * db)
    slope = lambda s: jax.jvp(along, (s,), (1.0,))[1]
    near = lambda f: (f(1e-5) - f(-1e-5)) / 2e-5
    np.testing.assert_allclose(slope(0.0), near(along), rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(jax.jvp(slope, (0.0,), (1.0,))[1], near(slope), rtol=1e-6, atol=1e-8)
    found, pull = jax.vjp(solve, A, b)
    Abar, bbar = pull(found)
    np.testing.assert_allclose((Abar * dA).sum() + (bbar * db).sum(), (slope(0.0) * found).sum(), rtol=1e-12)
    turned = jaxpr_as_fun(jax.make_jaxpr(lambda A: jax.vjp(solve, A, b)[1](found)[0])(A))  # differentiated again
    further = lambda s: turned(A + s * dA)[0]
    np.testing.assert_allclose(jax.jvp(further, (0.0,), (1.0,))[1], near(further), rtol=1e-6, atol=1e-8)
    few = jax.vjp(lambda b: solve(A, b), b[..., :1])[1](found)[0]
    np.testing.assert_allclose(few, bbar.sum(-1, keepdims=True), rtol=1e-12)


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
