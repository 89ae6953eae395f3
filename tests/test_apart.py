"""Parts of a loop as calls of their own: same numbers, derivatives and batches; nothing is lost in what is joined."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffmb._apart import Joined, apart


def turn(state, x):
    """A little of everything."""
    y, count, done = state
    return jnp.sin(y) * x + count, count + 1, done | (y > 0.5).any()


STATE = jnp.array([0.1, 0.7]), jnp.asarray(3), jnp.asarray(False)


def test_same_results():
    for own, direct in zip(jax.tree.leaves(apart(turn, STATE, 2.0)), jax.tree.leaves(turn(STATE, 2.0)), strict=True):
        np.testing.assert_array_equal(own, direct)
        assert own.dtype == direct.dtype
    compiled = jax.jit(lambda state, x: apart(turn, state, x)).lower(STATE, 2.0).compile()
    assert 'inlineable="false"' in compiled.as_text()


def test_derivatives_and_batches():
    value = lambda x, y: apart(turn, (y, *STATE[1:]), x)[0].sum()
    plain = lambda x, y: turn((y, *STATE[1:]), x)[0].sum()
    y = STATE[0]
    np.testing.assert_allclose(
        jax.jvp(value, (2.0, y), (1.0, y))[1], jax.jvp(plain, (2.0, y), (1.0, y))[1], rtol=1e-14
    )
    twice = lambda f: (jax.jacfwd(jax.jacfwd(f))(2.0, y), jax.jacfwd(jax.jacfwd(f, 1), 1)(2.0, y))
    for a, b in zip(twice(value), twice(plain), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-14)
    xs = jnp.linspace(0.0, 1.0, 5)
    np.testing.assert_array_equal(jax.vmap(value, (0, None))(xs, y), [plain(x, y) for x in xs])


def test_in_a_loop_of_a_batch():
    def run(x):
        again = lambda state: apart(turn, state, x)
        return jax.lax.while_loop(lambda state: state[1] < 6, again, STATE)[0]

    xs = jnp.linspace(0.5, 2.0, 4)
    together = jax.jit(jax.vmap(run))(xs)
    np.testing.assert_allclose(together, [run(x) for x in xs], rtol=1e-15)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_joined(dtype):
    tree = {"y": jnp.arange(6.0, dtype=dtype).reshape(2, 3), "n": jnp.asarray([7, -1]), "on": jnp.asarray(True)}
    tree |= {"none": None, "empty": jnp.zeros((0, 2), dtype), "t": jnp.asarray(0.5, dtype)}
    joined = Joined(tree)
    vectors = joined.join(tree)
    assert sorted(v.size for v in vectors) == [1, 2, 7]
    table = jnp.tile(joined.row(tree, dtype), (3, 1))
    for back in (joined.part(vectors), jax.tree.map(lambda a: a[1], joined.rows(table))):
        assert jax.tree.structure(back) == jax.tree.structure(tree)
        for a, b in zip(jax.tree.leaves(back), jax.tree.leaves(tree), strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)
    many = jax.tree.map(lambda a: jnp.stack([a, a]), tree)
    np.testing.assert_array_equal(joined.table(many, dtype), table[:2])
