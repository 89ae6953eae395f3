"""Batches of simulations: the numbers of a loop, whatever the pieces and devices; a bad member stays alone."""

import gc
import json
import os
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from closed import four_bar
from helpers import close

import diffmb as mb
from diffmb import _batches
from diffmb._tiles import TILE, over_rows

TS = jnp.linspace(0.0, 0.5, 4)


def pendulum(length=1.0):
    return mb.Mechanism(
        [mb.rod("bar", length, mass=1.0)], [mb.Revolute("hinge", "world", "bar")], gravity=(0.0, -9.81, 0.0)
    )


MODEL = mb.compile(pendulum())


def swing(angle):
    """q, v and how it went; all traced."""
    traj = mb.simulate(MODEL, mb.assemble(MODEL, {"hinge": angle}, throw=False), TS, throw=False)
    return {"q": traj.q, "v": traj.v, "steps": traj.stats.steps, "result": traj.result}


def same(a, b, rows=slice(None)):
    leaves = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return all(np.array_equal(np.asarray(x)[rows], np.asarray(y)[rows], equal_nan=True) for x, y in leaves)


ANGLES = np.random.default_rng(0).uniform(-3.0, 1.0, 300)


@pytest.fixture(scope="module")
def whole():
    return mb.batch(swing)(ANGLES)


@pytest.mark.parametrize("rows", [3, 140])
def test_rows_one_by_one_or_side_by_side(rows):
    """The two programs of what is read off a motion: the same numbers and derivatives, also in a batch of motions."""
    q = jnp.asarray(ANGLES[:rows])[:, None]
    at = lambda m, q: mb.forward_dynamics(m, q, jnp.cos(q))[0]
    ways = [lambda m, q: over_rows(lambda q: at(m, q), q), lambda m, q: jax.vmap(lambda q: at(m, q))(q)]
    pull = lambda f: jax.jit(lambda m, q: (f(m, q), jax.grad(lambda m, q: (f(m, q) ** 2).sum(), (0, 1))(m, q)))
    found, expected = (pull(f)(MODEL, q) for f in ways)
    size = 1e-4 * max(float(jnp.abs(a).max(initial=0.0)) for a in jax.tree.leaves(expected))
    size = max(size, 1.0)  # what is zero because it cancels has the round-off of what cancels
    jax.tree.map(lambda a, b: close(a / size, b / size, 1e-12), found, expected)
    program = [jax.jit(f).lower(MODEL, q).as_text() for f in ways]
    assert ("stablehlo.while" in program[0]) and ("stablehlo.while" in program[1]) == (rows >= 2 * TILE)
    many = jax.jit(jax.vmap(ways[0], (None, 0)))(MODEL, jnp.stack([q, 2 * q]))
    close(many[1], ways[1](MODEL, 2 * q), 1e-12)


def test_states_are_a_loop(whole):
    one = eqx.filter_jit(swing)
    assert whole["q"].shape == (300, 4, 1) and bool((whole["result"] == mb.RESULTS.successful).all())
    for k in (0, 127, 128, 299):
        found = one(jnp.asarray(ANGLES[k]))
        close(whole["q"][k], found["q"], 1e-10)
        close(whole["v"][k], found["v"], 1e-10)
        assert int(whole["steps"][k]) == int(found["steps"])


def test_pieces_do_not_change_the_numbers(whole):
    """128 and more in a piece: the same bits. Fewer are not cut into tiles: round-off."""
    assert same(whole, mb.batch(swing, chunk=128)(ANGLES))
    assert same(whole, jax.jit(jax.vmap(swing))(ANGLES))
    assert same(whole, mb.batch(swing)(ANGLES[:100]), slice(100))
    few = mb.batch(swing, chunk=7)(ANGLES[:20])
    close(few["q"], whole["q"][:20], 1e-11)


def test_memory_makes_pieces_smaller(whole, recwarn):
    run = mb.batch(swing)
    program, _ = run._program(_kind(run, ANGLES), 256)
    need = program.memory_analysis().temp_size_in_bytes + program.memory_analysis().output_size_in_bytes
    tight = mb.batch(swing, memory=int(0.7 * need))
    assert same(whole, tight(ANGLES)) and list(tight._fits.values()) == [128]
    with pytest.raises(mb.MechanismError, match=r"memory = 10 bytes, but .* members at a time need"):
        mb.batch(swing, memory=10)(ANGLES[:3])
    assert not recwarn.list


def _kind(run, array):
    _, structure = jax.tree.flatten((array,))
    return structure, (None,), ((array.shape[1:], jnp.asarray(array).dtype),)


def test_out_of_memory_halves_and_goes_on(monkeypatch):
    limit, compile_, sizes = [100], _batches._Batch._compile, []

    def scarce(self, kind, chunk):
        program = compile_(self, kind, chunk)

        def run(piece):
            sizes.append(chunk)
            if chunk > limit[0]:
                raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes")
            return program(piece)

        return run

    monkeypatch.setattr(_batches._Batch, "_compile", scarce)
    run = mb.batch(lambda x: 2 * x)
    with pytest.warns(UserWarning, match=r"out of memory with .* members at a time; going on with") as told:
        found = run(np.arange(300.0))
    assert "256" in str(told[0].message) and "pass chunk=64" in str(told[1].message)
    assert np.array_equal(found, 2 * np.arange(300.0)) and sizes == [256, 128] + [64] * 5
    limit[0] = 1
    with pytest.warns(UserWarning), pytest.raises(mb.MechanismError, match=r"out of memory with 32 .* pass chunk=4"):
        mb.batch(lambda x: 2 * x)(np.arange(300.0))


def test_mechanisms_and_inputs():
    """Over the description, through compile and assemble; over loads given at the times."""

    def end(mech, torque):
        model = mb.compile(mech)
        state = mb.assemble(model, {"hinge": 0.3}, throw=False)
        return mb.simulate(model, state, TS, inputs={"hinge": torque}, throw=False).q[-1, 0]

    lengths, torques = jnp.linspace(0.5, 1.5, 5), jnp.asarray(np.random.default_rng(1).standard_normal((5, 4)))
    found = mb.batch(end)(jax.vmap(pendulum)(lengths), torques)
    for k in (0, 4):
        model = mb.compile(pendulum(lengths[k]))
        traj = mb.simulate(model, mb.assemble(model, {"hinge": 0.3}), TS, inputs={"hinge": torques[k]})
        close(found[k], traj.q[-1, 0], 1e-10)


def test_a_bad_member_stays_alone():
    """40 four-bars, one not a number and one that runs away: the others keep their bits and their number of steps."""
    model = mb.compile(four_bar())
    first = mb.assemble(model, {"A": 0.5}, {"A": 2.0}, guess={"B": 0.2})
    start = lambda speed: mb.assemble(model, {"A": 0.5}, {"A": speed}, guess=model.unpack(first.q), throw=False)
    states = mb.batch(start)(jnp.linspace(0.5, 4.0, 40))

    def run(state):
        traj = mb.simulate(model, state, jnp.linspace(0.0, 0.1, 3), throw=False, max_steps=60)
        return traj.q, traj.v, traj.result, traj.stats.steps + traj.stats.rejected

    many = mb.batch(run)
    good = many(states)
    assert bool((good[2] == mb.RESULTS.successful).all())
    nan = eqx.tree_at(lambda s: s.v, states, states.v.at[7].set(jnp.nan))
    spoiled = many(nan)
    others = np.delete(np.arange(40), 7)
    assert same(good, spoiled, others)
    assert bool((spoiled[2] == mb.RESULTS.nonfinite)[7])
    assert int(spoiled[3][7]) == 0 and int(spoiled[3].max()) == int(good[3][others].max())
    wild = many(eqx.tree_at(lambda s: s.v, nan, nan.v.at[30].set(states.v[30] * 1e3)))
    others = np.delete(np.arange(40), [7, 30])
    assert same(good, wild, others)
    assert bool((wild[2] == mb.RESULTS.max_steps)[30]) and int(wild[3].max()) == 60
    close(good[0][3], mb.simulate(model, jax.tree.map(lambda a: a[3], states), jnp.linspace(0.0, 0.1, 3)).q, 1e-10)


def test_gradients_of_batches():
    """vmap of grad = grad of vmap = columns, and `mb.batch` is `jax.vmap` inside of a transformation."""
    end = lambda angle: swing(angle)["q"][-1, 0]
    angles = jnp.asarray(ANGLES[:5])
    each = mb.batch(jax.grad(end))(angles)
    whole = jax.jit(jax.grad(lambda a: jax.vmap(end)(a).sum()))(angles)
    close(each, whole, 1e-10)
    inside = jax.jit(jax.jacfwd(mb.batch(end)))(angles)
    close(jnp.diag(inside), each, 1e-9)
    close(inside - jnp.diag(jnp.diag(inside)), jnp.zeros((5, 5)), 1e-12)


def test_numbers_never_retrace():
    traces = []

    @jax.jit
    def run(angle, ts):
        traces.append(1)
        return mb.simulate(MODEL, mb.assemble(MODEL, {"hinge": angle}, throw=False), ts, throw=False).q

    counted = lambda x: (traces.append(1), swing(x)["q"])[1]
    many = mb.batch(counted)
    calls = lambda k, more: (run(0.1 * k + more, TS * (1 + 0.01 * k)), many(ANGLES[: 20 + k] + more))
    for k in range(31):  # cutting a batch to its length is a small program of its own for each length
        jax.block_until_ready(calls(k, 0.0))
    gc.collect()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for k in range(31):
        jax.block_until_ready(calls(k, 0.01))
    assert len(traces) == 2
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 20 * 1024  # kB


def test_threads_share_a_model_and_a_batch(whole):
    run = lambda angle: mb.simulate(MODEL, mb.assemble(MODEL, {"hinge": angle}), TS).q
    angles = [float(a) for a in ANGLES[:8]]
    expected = [run(a) for a in angles]
    many = mb.batch(swing)
    with ThreadPoolExecutor(8) as pool:
        assert all(same(a, b) for a, b in zip(pool.map(run, angles), expected, strict=True))
        assert all(same(found, whole, slice(9)) for found in pool.map(lambda k: many(ANGLES[: 9 + k]), range(8)))
    assert len(many._programs) == 1


def test_what_is_no_batch_is_refused():
    refused = lambda text: pytest.raises(mb.MechanismError, match=text)
    add = mb.batch(lambda a, b: a["x"] + b)
    assert np.array_equal(add({"x": np.arange(3.0)}, 2.0), np.arange(3.0) + 2.0)  # what is no array passes
    with refused(r"argument 0.x has 3, argument 1 has 4"):
        add({"x": np.ones(3)}, np.ones(4))
    with refused(r"argument 1 of a batch is one number"):
        add({"x": np.ones(3)}, jnp.asarray(1.0))
    with refused(r"at least one; here argument 0.x has 0"):
        add({"x": np.ones(0)}, np.ones(0))
    with refused("there is no array"):
        add({"x": 1.0}, 2.0)
    for wrong in ({"chunk": 0}, {"memory": 0}, {"devices": []}):
        with refused(next(iter(wrong))):
            mb.batch(swing, **wrong)
    with refused("a member of the batch fails: too long"):
        mb.batch(lambda x: eqx.error_if(x, x > 2, "too long"))(np.arange(4.0))


def test_devices_share_a_batch():
    """Four devices, a number of members that they do not divide: the bits of one device."""
    code = """
import json, conftest, jax, numpy as np, diffmb as mb
from test_batches import ANGLES, same, swing
found = mb.batch(swing, devices=jax.devices())(ANGLES[:150])
alone = mb.batch(swing, devices=jax.devices()[1:2])(ANGLES[:150])
print(json.dumps([len(jax.devices()), same(found, alone), found["q"].shape[0]]))
"""
    flags = "--xla_force_host_platform_device_count=4"
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parent,
        env=os.environ | {"XLA_FLAGS": flags},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == [4, True, 150]
