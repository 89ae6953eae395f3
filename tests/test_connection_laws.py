"""Laws of every connection: its balance of energy, its derivatives in all modes, batches, precision, stiffness.

The examples come from the files `examples_*.py`; a class without one is refused.
"""

import importlib
import pkgutil
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples import samples
from helpers import central_difference, close

import diffmb as mb
from diffmb import _connections
from diffmb._connections._abstract import answer, check_load, exerted, plain, stored

FILES = sorted(path.stem for path in Path(__file__).parent.glob("examples_*.py"))
EXAMPLES = {name: x for file in FILES for name, x in importlib.import_module(file).EXAMPLES.items()}
COUNT, STILL = 7, 1


def test_every_class_has_an_example():
    for module in pkgutil.iter_modules(_connections.__path__):
        importlib.import_module(f"diffmb._connections.{module.name}")
    found, todo = set(), [mb.AbstractLoad]
    while todo:
        kind = todo.pop()
        todo += kind.__subclasses__()
        if not kind.__name__.startswith("Abstract") and kind.__module__.startswith("diffmb."):
            found.add(kind)
    missing = found - {type(example.load) for example in EXAMPLES.values()}
    assert not missing, f"add an example of {sorted(kind.__name__ for kind in missing)}"


def last(tree):
    """The batch axis behind the others."""
    return jax.tree.map(lambda a: jnp.moveaxis(a, 0, -1), tree)


def response(load, t, x, xd, z, u):
    """Everything that the mechanism sees of it."""
    args = (t, x, xd, z, u)
    return exerted(load, *args), answer(load, type(load).zdot, *args), stored(load, t, x, z)


def powers(load, t, x, xd, z, u):
    """(dE/dt, power of its load, dissipation, supply)."""
    args = (t, x, xd, z, u)
    zd = answer(load, type(load).zdot, *args)
    rate = jax.jvp(lambda t, x, z: stored(load, t, x, z), (t, x, z), (jnp.ones_like(t), load.flow(x, xd), zd))[1]
    work = (exerted(load, *args) * xd).sum()
    return rate, work, answer(load, type(load).dissipation, *args), answer(load, type(load).supply, *args)


@pytest.mark.parametrize("name", EXAMPLES)
def test_energy_is_balanced(name):
    """dE/dt = supply - dissipation - F . ed along random motions, and heat is never taken back."""
    example = EXAMPLES[name]
    check_load(example.load, example.followed)
    run = jax.jit(jax.vmap(lambda *args: powers(plain(example.load), *args)))
    change, work, heat, supply = run(*samples(example, 64))
    scale = np.abs(np.stack([change, work, heat, supply])).max()
    assert np.abs(work).max() > 1e-6 * scale
    close((change + work + heat - supply) / scale, np.zeros(64), 1e-11)
    assert (np.asarray(heat) >= -1e-13 * scale).all()


@pytest.mark.parametrize("name", EXAMPLES)
def test_batches_are_loops_and_precision_is_kept(name):
    load, args = plain(EXAMPLES[name].load), samples(EXAMPLES[name], COUNT)
    one = jax.jit(jax.vmap(lambda *args: response(load, *args)))(*args)
    spread = jax.tree.map(lambda leaf: leaf[..., None], load)  # one connection for the whole batch
    together = jax.jit(response)(spread, *last(args))
    for a, b in zip(one, together, strict=True):
        close(jnp.moveaxis(a, 0, -1), b, 1e-12)
    narrow = lambda tree: jax.tree.map(lambda a: a.astype(jnp.float32), tree)
    low = jax.eval_shape(response, narrow(spread), *narrow(last(args)))
    assert all(a.dtype == jnp.float32 for a in low)


@pytest.mark.parametrize("name", EXAMPLES)
def test_derivatives(name):
    """jvp = vjp = differences of loads, rates and energy, by every number and by the motion, also at rest."""
    example = EXAMPLES[name]
    numbers, rest = eqx.partition(plain(example.load), eqx.is_inexact_array)
    count = COUNT if example.still else COUNT - STILL
    args = jax.tree.map(lambda a: a[-count:] if example.still else a[:count], samples(example, COUNT, STILL))
    run = lambda numbers, args: response(eqx.combine(numbers, rest), *args)
    rng = np.random.default_rng(3)
    scale = lambda a: np.where(np.asarray(a) == 0.0, 1e-3, 0.3 * np.abs(np.asarray(a)))
    along_numbers = jax.tree.map(lambda a: jnp.asarray(rng.normal(size=a.shape) * scale(a)), numbers)
    t, x, xd, z, u = args
    flow = jax.vmap(plain(example.load).flow)(x, jnp.asarray(rng.normal(size=xd.shape)) * example.spread)
    normal = lambda a, size: jnp.asarray(rng.normal(size=a.shape)) * size
    along = (normal(t, 1.0), flow, normal(xd, example.rate), normal(z, example.z_spread), normal(u, 0.1))

    def both(numbers, args, along):
        value, push = jax.jvp(run, (numbers, args), (along_numbers, along))
        weight = jax.tree.map(jnp.ones_like, value)
        pull = jax.vjp(run, numbers, args)[1](weight)
        inner = sum(jnp.vdot(a, b) for a, b in zip(jax.tree.leaves(pull), jax.tree.leaves((along_numbers, along))))
        return value, push, sum(p.sum() for p in push), inner

    value, push, forward, reverse = jax.jit(jax.vmap(both, (None, 0, 0)))(numbers, args, along)
    largest = lambda a: np.abs(a).max(initial=0.0)
    size = [max(largest(v), largest(p)) for v, p in zip(value, push, strict=True)]
    close(forward / max(size), reverse / max(size), 1e-11)
    shifted = jax.jit(lambda s: jax.vmap(lambda a, d: run(*_moved((numbers, a), (along_numbers, d), s)))(args, along))
    for a, b, scale in zip(push, central_difference(lambda s: shifted(s), 0.0, 1.0, 1e-4), size, strict=True):
        close(a / (1e-300 + scale), b / (1e-300 + scale), 1e-7)


def _moved(x, along, s):
    return jax.tree.map(lambda a, d: a + s * d, x, along)
