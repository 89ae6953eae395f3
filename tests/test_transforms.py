"""Transformations in every order, one trace for all numbers, flat memory, threads, and lowering for other devices."""

import gc
import resource
from concurrent.futures import ThreadPoolExecutor

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from closed import four_bar
from helpers import close, random_mechanism, random_states
from jax import export

import diffmb as mb
from diffmb import _functions

KINDS = ["free", "revolute", "universal", "revolute"]


@pytest.fixture(scope="module")
def case():
    mech = random_mechanism(11, KINDS)
    model = mb.compile(mech)
    return mech, model, random_states(model, 11, 130, special=False)


def test_batch_is_a_loop(case):
    """vmap over states, over parameters, over both, nested, tiled with a remainder: the numbers of a loop."""
    mech, model, (q, v, tau, _) = case
    one = jax.jit(lambda model, q, v, tau: mb.forward_dynamics(model, q, v, tau))
    loop = jnp.stack([one(model, *x) for x in zip(q[:9], v[:9], tau[:9], strict=True)])
    batch = jax.jit(jax.vmap(one, (None, 0, 0, 0)))(model, q, v, tau)  # 130 samples: two tiles and a remainder
    close(batch[:9], loop, 1e-11)
    scales = jnp.linspace(0.5, 2.0, 3)

    def heavier(scale, q, v, tau):
        body = mech["b2"]
        changed = eqx.tree_at(
            lambda m: (m.bodies[1].mass, m.bodies[1].inertia), mech, (scale * body.mass, scale * body.inertia)
        )
        return one(mb.compile(changed), q, v, tau)

    both = jax.jit(jax.vmap(jax.vmap(heavier, (None, 0, 0, 0)), (0, None, None, None)))(scales, q[:3], v[:3], tau[:3])
    turned = jax.jit(jax.vmap(jax.vmap(heavier, (0, None, None, None)), (None, 0, 0, 0)))(scales, q[:3], v[:3], tau[:3])
    single = jax.jit(heavier)
    close(both, jnp.stack([jnp.stack([single(s, q[k], v[k], tau[k]) for k in range(3)]) for s in scales]), 1e-10)
    close(turned, jnp.swapaxes(both, 0, 1), 1e-12)


def test_one_bad_member_stays_alone(case):
    _, model, (q, v, tau, _) = case
    run = jax.jit(jax.vmap(lambda *x: mb.forward_dynamics(model, *x)))
    spoiled = run(q, v.at[5].set(jnp.nan), tau)
    assert bool(jnp.isnan(spoiled[5]).all())
    keep = np.delete(np.arange(len(q)), 5)
    assert bool((spoiled[keep] == run(q, v, tau)[keep]).all())


def test_nested_derivatives(case):
    """grad of vmap = vmap of grad; Hessian of a batched function = batch of Hessians; jacfwd = jacrev; order three."""
    _, model, (q, v, tau, _) = case
    q, v, tau = q[:3], v[:3], tau[:3]
    f = lambda v, tau: (mb.forward_dynamics(model, q[0], v, tau) ** 2).sum()
    each = jax.jit(jax.vmap(jax.grad(f, (0, 1))))(v, tau)
    whole = jax.jit(jax.grad(lambda v, tau: jax.vmap(f)(v, tau).sum(), (0, 1)))(v, tau)
    for a, b in zip(each, whole, strict=True):
        close(a, b, 1e-11)
    hessians = jax.jit(jax.vmap(jax.hessian(f)))(v, tau)
    block = jax.jit(jax.hessian(lambda v: jax.vmap(f)(v, tau).sum()))(v)
    close(jnp.stack([block[k, :, k] for k in range(3)]), hessians, 1e-10)
    close(block[0, :, 1], jnp.zeros_like(block[0, :, 1]), 1e-12)
    g = lambda v: mb.forward_dynamics(model, q[0], v, tau[0])
    close(jax.jit(jax.jacfwd(g))(v[0]), jax.jit(jax.jacrev(g))(v[0]), 1e-11)
    third = jax.jit(jax.jacfwd(jax.jacrev(jax.jacfwd(g))))(v[0])  # the accelerations are quadratic in v
    close(third, jnp.zeros_like(third), 1e-8)


def test_numbers_never_retrace(case):
    """Ten mechanisms with other numbers, one trace; a thousand leave the memory flat."""
    mech, _, (q, v, tau, _) = case
    traces = []

    @jax.jit
    def run(mech, q, v, tau):
        traces.append(1)
        return mb.forward_dynamics(mb.compile(mech), q, v, tau)

    numbers, rest = eqx.partition(mech, eqx.is_array)
    change = jax.jit(lambda s: jax.tree.map(lambda a: a * (1.0 + s), numbers))
    vary = lambda k: eqx.combine(change(1e-4 * k), rest)
    for k in range(10):
        run(vary(k), q[0], v[0], tau[0]).block_until_ready()
    eager = [mb.forward_dynamics(mb.compile(vary(k)), q[0], v[0], tau[0]) for k in range(2)]
    programs = _functions._traced.cache_info().misses
    eager += [mb.forward_dynamics(mb.compile(vary(k)), q[0], v[0], tau[0]) for k in range(3)]
    assert _functions._traced.cache_info().misses == programs
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for k in range(1000):
        run(vary(k), q[0], v[0], tau[0])
    assert len(traces) == 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20 * 1024  # kB


def test_threads_share_a_model(case):
    _, model, (q, v, tau, _) = case
    run = jax.jit(lambda *x: mb.forward_dynamics(model, *x))
    expected = [run(*x) for x in zip(q[:8], v[:8], tau[:8], strict=True)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(run, q[:8], v[:8], tau[:8]))
    assert all(bool((a == b).all()) for a, b in zip(found, expected, strict=True))


def _public(model, q, v, vd):
    marker = mb.Marker("b3", (0.1, 0.2, 0.3))
    return {
        "forward_dynamics": lambda: mb.forward_dynamics(model, q, v, vd, 0.1, [(marker, jnp.ones(6))]),
        "inverse_dynamics": lambda: mb.inverse_dynamics(model, q, v, vd),
        "bias": lambda: mb.bias(model, q, v),
        "mass_matrix": lambda: mb.mass_matrix(model, q),
        "kinetic_energy": lambda: mb.kinetic_energy(model, q, v),
        "potential_energy": lambda: mb.potential_energy(model, q),
        "kinematics": lambda: mb.kinematics(model, q, v, vd).pose.rotation,
        "jacobian": lambda: mb.jacobian(model, q, marker),
        "bias_acceleration": lambda: mb.bias_acceleration(model, q, v, marker),
        "center_of_mass": lambda: mb.center_of_mass(model, q),
        "momentum": lambda: mb.momentum(model, q, v),
        "qdot": lambda: mb.qdot(model, q, v),
        "retract": lambda: mb.retract(model, q, v),
        "difference": lambda: mb.difference(model, q, q),
    }


def _closed(model, q, v, choice=None):
    """The functions of loops and drives; the result of each as arrays."""
    return {
        "dynamics": lambda: mb.dynamics(model, q, v).lam,
        "constraint_residual": lambda: mb.constraint_residual(model, q),
        "constraint_rate": lambda: mb.constraint_rate(model, q, v),
        "constraint_jacobian": lambda: mb.constraint_jacobian(model, q),
        "constraint_acceleration": lambda: mb.constraint_acceleration(model, q, v, v),
        "constraint_bias": lambda: mb.constraint_bias(model, q, v),
        "reactions": lambda: mb.reactions(model, q, v).wrenches,
        "assemble": lambda: mb.assemble(model, q, v, throw=False).q,
        "mobility": lambda: mb.mobility(model, q).singular_values,
        "simulate_kinematics": lambda: mb.simulate_kinematics(model, q, jnp.arange(3.0), throw=False).q,
        "simulate": lambda: _simulated(model, q, v),
        "connection_power": lambda: mb.connection_power(model, q, v),
        "equilibrium": lambda: mb.equilibrium(model, q, throw=False).q,
        "linearise": lambda: mb.linearise(model, (q, v), independent=choice).A,
    }


def _simulated(model, q, v):
    """Two methods, and the gradient of one of them by the model and the state."""
    state = mb.assemble(model, q, v, throw=False)
    stored = mb.StoredSteps(16)
    run = lambda model, state, solver: mb.simulate(
        model, state, [0.0, 0.1], solver=solver, adjoint=stored, throw=False
    ).q[-1]
    slope = jax.grad(lambda model, q: run(model, eqx.tree_at(lambda s: s.q, state, q), mb.implicit()).sum(), (0, 1))
    return run(model, state, mb.explicit()), slope(model, q)


@pytest.mark.parametrize("batch", [False, True])
def test_every_function_lowers_for_cuda(case, batch):
    """Exported for CPU and CUDA in one go, gradient included, although no GPU is here to run it."""
    _, model, (q, v, tau, _) = case

    def everything(model, q, v, tau):
        values = {name: f() for name, f in _public(model, q, v, tau).items()}
        loss = lambda model, q, v, tau: (mb.forward_dynamics(model, q, v, tau) ** 2).sum()
        return values, jax.grad(loss, (0, 1, 2, 3))(model, q, v, tau)

    run = jax.vmap(everything, (None, 0, 0, 0)) if batch else everything
    args = (model, q, v, tau) if batch else (model, q[0], v[0], tau[0])
    leaves, structure = jax.tree.flatten(args)
    flat = jax.jit(lambda *leaves: jax.tree.leaves(run(*jax.tree.unflatten(structure, leaves))))
    exported = export.export(flat, platforms=("cpu", "cuda"))(*leaves)
    assert exported.platforms == ("cpu", "cuda")
    assert "custom_call" not in exported.mlir_module() or not batch  # the dense route calls the Cholesky solver


def test_loops_lower_for_cuda():
    drive = mb.PositionDrive("motor", "A", lambda t, w: w * t, 2.0)
    model = mb.compile(
        four_bar(drives=[drive], connections=[mb.AlongLine("spring", "world", "coupler", mb.LinearLaw(9.0))])
    )
    choice = mb.linearise(model, mb.assemble(model, {}, guess={"B": 0.2, "C": 0.8})).independent

    def everything(model, q, v):
        loss = lambda model, q, v: (mb.forward_dynamics(model, q, v) ** 2).sum()
        return {name: f() for name, f in _closed(model, q, v, choice).items()}, jax.grad(loss, (0, 1, 2))(model, q, v)

    leaves, structure = jax.tree.flatten((model, jnp.array([0.5, 0.2, 0.8]), jnp.ones(3)))
    flat = jax.jit(lambda *leaves: jax.tree.leaves(everything(*jax.tree.unflatten(structure, leaves))))
    assert export.export(flat, platforms=("cpu", "cuda"))(*leaves).platforms == ("cpu", "cuda")


def test_a_batch_of_loops_is_a_loop():
    """Accelerations, multipliers and gradients of 130 four-bars in one batch (tiled, elimination) and one by one."""
    model = mb.compile(four_bar())
    rng = np.random.default_rng(3)
    state = mb.assemble(model, {"A": 0.5}, {"A": 1.0}, guess={"B": 0.2, "C": 0.8})
    moved = lambda angle: mb.assemble(model, {"A": angle}, {"A": 2.0}, guess=model.unpack(state.q), throw=False)
    states = jax.jit(jax.vmap(moved))(jnp.linspace(0.3, 1.5, 130))
    assert bool(states.ok.all())
    tau = jnp.asarray(rng.standard_normal((130, 3)))

    def run(q, v, tau):
        loss = lambda q, v, tau: (lambda d: ((d.vd**2).sum() + d.lam.sum(), d))(mb.dynamics(model, q, v, tau))
        gradient, d = jax.grad(loss, (0, 1, 2), has_aux=True)(q, v, tau)
        return d.vd, d.lam, gradient

    batch = jax.jit(jax.vmap(run))(states.q, states.v, tau)
    single = jax.jit(run)
    for k in (0, 64, 129):
        one = single(states.q[k], states.v[k], tau[k])
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(jax.tree.map(lambda x: x[k], batch)), strict=True):
            close(b, a, 1e-8)


def test_every_public_function_is_covered_above(case):
    functions = {
        name for name in dir(mb) if name[0].islower() and callable(getattr(mb, name)) and not name.startswith("_")
    }
    made_before = {"box", "cylinder", "massless", "rod", "sphere", "compile", "rotation_about", "rank_deficient"}
    made_before |= {"body_from_log_cholesky", "inertia_to_log_cholesky"}
    made_before |= {"gear", "rack", "screw_coupling", "cam_profile", "explicit", "implicit", "impact"}
    made_before |= {"bar", "muscle_curves", "muscle_curves_2016", "read_channel", "read_csv", "lazily"}
    on_the_host = {"save", "load", "sensitivity", "batch", "fit", "optimise", "monte_carlo", "sweep", "animate", "view"}
    on_the_host |= {"draw", "settings"}
    _, model, (q, v, vd, _) = case
    assert functions - made_before - on_the_host == {*_public(model, q[0], v[0], vd[0]), *_closed(model, q[0], v[0])}
