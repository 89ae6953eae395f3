"""What is seen of numbers before a program is made changes neither results nor derivatives."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from closed import bricard, four_bar
from test_reference_loops import windows, windows_state

import diffmb as mb
from diffmb import _batch
from diffmb._known import with_known
from diffmb._motion import choose, chosen_again, rates_of, with_candidates
from diffmb._spatial._axis import as_array
from diffmb._spatial._seen import UNKNOWN, note, seen
from diffmb._straight._kernel import straight
from diffmb._tiles import Pace, running

TS = np.linspace(0.0, 0.2, 3)


def moved(model):
    """A motion and what pulls at a joint, as one vector."""
    state = mb.assemble(model, {"A": 0.4}, {"A": 3.0})
    traj = mb.simulate(model, state, TS, controller=mb.FixedStep(0.004), throw=False)
    return jnp.concatenate([traj.q[-1], traj.v[-1], traj["rocker"].pose.translation[-1], traj.reaction("B")[-1]])


def test_entries():
    """Of arrays that are there, of literals among traced numbers, and of what `jax.grad` moves outside of `jax.jit`."""
    np.testing.assert_array_equal(seen(jnp.array([[0.0, 0.0, -1.0], [0.3, 0.0, 1.0]])), [[0, 0, -1], [2, 0, 2]])
    assert seen(jnp.array(0.0)) is None and seen(jnp.array([0.0, 1.0])) is None and seen(jnp.full(3, 0.5)) is None
    found = {}

    def fun(x):
        found["made"] = seen(as_array((x, 0.0, -1.0)))
        found["constant"] = seen(as_array((0.0, 0.0, 1.0)))
        found["computed"] = seen(as_array((x, 0.0, 0.0)) + 1.0)
        found["given"] = seen(x * jnp.array([0.0, 1.0, 0.0]))
        return x

    jax.jit(jax.grad(fun))(1.0)
    np.testing.assert_array_equal(found["made"], [UNKNOWN, 0, -1])
    np.testing.assert_array_equal(found["constant"], [0, 0, 1])
    assert found["computed"] is None and found["given"] is None
    jax.grad(fun)(2.0)
    np.testing.assert_array_equal(found["computed"], None)  # [3, 1, 1]: nothing that is 0, nor a unit vector
    np.testing.assert_array_equal(found["given"], [0, UNKNOWN, 0])


def test_knowledge_goes_with_its_array():
    """Another array in the same place of memory is not taken for it."""
    kept = []

    def fun(x):
        for _ in range(50):
            note(x * 1.0, np.zeros(3, np.int8))
            kept.append(seen(x * 2.0))
        return x

    jax.jit(fun)(np.ones(3))
    assert all(entries is None for entries in kept)


@pytest.mark.parametrize("way", ["outside", "jit", "grad", "jit of grad"])
def test_a_description_keeps_its_zeros(way):
    """However a mechanism is built and traced, its model is seen to be planar, and to have two rows to choose from."""
    found = {}

    def length(l):
        found["model"] = with_candidates(with_known(mb.compile(four_bar(l))))
        return l

    grad = jax.grad(length)
    {"outside": length, "jit": jax.jit(length), "grad": grad, "jit of grad": jax.jit(grad)}[way](0.11)
    known = {name: np.frombuffer(entries, np.int8) for name, entries in found["model"].known}
    assert (known[".groups[0].kind.axis"] != UNKNOWN).all()
    assert (known[".placement.rotation"] != UNKNOWN).all()
    assert (known[".placement.translation"].reshape(-1, 3)[:, 2] == 0).all()
    assert found["model"].candidates is not None and len(found["model"].candidates) == 2
    assert not mb.compile(four_bar()).known  # nothing of it stays with what a user holds


def test_motion_is_that_of_a_program_that_sees_nothing():
    model = mb.compile(four_bar())
    blind = jax.jit(moved)(model)  # an argument of `jax.jit`
    np.testing.assert_allclose(moved(model), blind, rtol=1e-9, atol=1e-9)
    tilted = eqx.tree_at(lambda m: m.com, model, model.com + jnp.array([0.0, 0.0, 0.02]))  # zeros that no longer are
    np.testing.assert_allclose(moved(tilted), jax.jit(moved)(tilted), rtol=1e-9, atol=1e-9)
    assert np.abs(moved(tilted) - blind).max() > 1e-3


def test_derivatives_by_numbers_that_are_zero():
    """By every number of the model, out of the plane too: as a program that sees nothing has them, and differences."""
    model = mb.compile(four_bar())
    weights = jnp.cos(1.0 + jnp.arange(model.nq + model.nv + 9.0))
    value = lambda m: weights @ moved(m)
    bar = jax.grad(value)(model)  # eager: everything is seen
    blind = jax.jit(jax.grad(value))(model)
    for a, b in zip(jax.tree.leaves(bar), jax.tree.leaves(blind), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7 * max(1.0, float(jnp.abs(b).max(initial=0.0))))
    run, com = jax.jit(value), lambda m: m.com
    for where, entry, step in ((com, (1, 1), 1e-5), (com, (1, 2), 1e-5), (lambda m: m.inertia, (0, 2, 2), 1e-8)):
        low, high = (run(eqx.tree_at(where, model, where(model).at[entry].add(s * step))) for s in (-1, 1))
        np.testing.assert_allclose(where(bar)[entry], (high - low) / (2 * step), rtol=1e-5, atol=1e-5)


def test_spatial_loop():
    """Bricard's linkage has no row that vanishes by its structure: all five are candidates."""
    model = with_candidates(with_known(mb.compile(bricard())))
    assert model.candidates == tuple(range(model.nc)) and model.nc == model.nv


def thin(width):
    """A four-bar whose coupler, a rod of that thickness, hangs on a ball; the hinge at its other end keeps it from
    spinning."""
    coupler = mb.RigidBody("coupler", 1.0, (0.15, 0, 0), (width**2, 0.09 / 12, 0.09 / 12))
    joints = [
        mb.Revolute("A", "world", "crank"),
        mb.Spherical("B", mb.Marker("crank", (0.1, 0, 0)), "coupler"),
        mb.Revolute("C", mb.Marker("coupler", (0.3, 0, 0)), mb.Marker("rocker", (0.25, 0, 0)), cut=True),
        mb.Revolute("D", mb.Marker("world", (0.3, 0, 0)), "rocker"),
    ]
    bodies = [mb.rod("crank", 0.1, mass=1.0), coupler, mb.rod("rocker", 0.25, mass=1.0)]
    return mb.Mechanism(bodies, joints, gravity=(0, -9.81, 0))


def test_many_rows_on_regular_masses():
    """Rows that are chosen beforehand are eliminated by rows where the mass matrix is seen to be regular, whatever
    vanishes beside them, else by speeds: the same accelerations."""
    for mechanism, held in ((four_bar(), {"A": 0.4}), (bricard(), {}), (thin(0.1), {"A": 0.4})):
        model = with_candidates(with_known(mb.compile(mechanism)))
        assert model.regular and model.nc >= model.nv
        state = mb.assemble(model, held, {next(iter(held), "R1"): 2.0})
        chosen = choose(model, state.q, state.t, jnp.ones(model.nc))
        none, tau = jnp.zeros(0), jnp.ones(model.nv)
        vd = [rates_of(m, chosen, state.q, state.v, none, tau, none, state.t, None)[0]
              for m in (model, dataclasses.replace(model, regular=False))]  # fmt: skip
        np.testing.assert_allclose(*vd, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(vd[0], mb.forward_dynamics(model, state.q, state.v, tau), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n", [8, 34])  # 34: more than 64 speeds, one eliminated after the other
def test_work_grows_as_the_row_of_loops(n):
    """Each window meets its neighbours alone: accelerations of n windows cost as many operations for each as of 4."""

    def operations(n):
        model = with_candidates(with_known(mb.compile(windows(n))))
        (q, v), t, none = windows_state(model, 0.7, 1.0), jnp.zeros(()), jnp.zeros(0)
        chosen = jnp.asarray(model.candidates, float)
        run = lambda q, v: rates_of(model, chosen, q, v, none, jnp.zeros(model.nv), none, t, None)[0]
        (eqn,) = [e for e in jax.make_jaxpr(run)(q, v).jaxpr.eqns if e.primitive.name == "batch_last"]
        fun = eqn.params["fun"]
        program = straight(_batch.program_of(fun, [x.aval for x in eqn.invars]), 40_000, _batch._known(fun))
        assert program is not None
        return len(program.made) / n

    assert operations(n) < 1.2 * operations(4)


@pytest.mark.parametrize("n", [1, 10])  # one kernel for all members, and arrays for each that needs it
def test_rows_are_chosen_where_they_are_stale(n):
    model = with_candidates(with_known(mb.compile(windows(n))))
    angles, stale = jnp.array([0.7, 0.0, 2.0, -0.1]), jnp.array([True, True, False, True])
    qs = jnp.stack([windows_state(model, angle, 0.0)[0] for angle in angles])
    t, mask = jnp.zeros(()), jnp.ones(model.nc)
    before = jnp.full((4, len(model.candidates)), -5.0)
    with running(Pace.ONCE):
        again = lambda q, before, stale: chosen_again(model, q, t, mask, before, stale)
        found = jax.jit(jax.vmap(again))(qs, before, stale)
        for k in range(4):
            wanted = choose(model, qs[k], t, mask) if stale[k] else before[k]
            np.testing.assert_array_equal(found[k], wanted)
            np.testing.assert_array_equal(jax.jit(again)(qs[k], before[k], stale[k]), wanted)


def test_what_rows_hold_needs_no_inertia():
    """A rod without inertia about itself: the mass matrix is singular, so the system goes by speeds. It does not spin
    in this motion, so one with inertia moves alike."""
    models = [with_candidates(with_known(mb.compile(thin(width)))) for width in (0.0, 0.05)]
    assert [model.regular for model in models] == [False, True]
    argument = jax.jit(lambda model: jnp.array(with_candidates(with_known(model)).regular))
    assert not argument(mb.compile(thin(0.1)))  # nothing is seen of it
    state = mb.assemble(models[1], {"A": 0.4})  # in the metric of the masses, so it needs the other one
    ends = [mb.simulate(m, state, np.array([0.0, 0.3])).q[-1] for m in models]
    np.testing.assert_allclose(*ends, rtol=1e-6, atol=1e-6)
