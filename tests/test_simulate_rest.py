"""Steps of a mechanism that rests: they are no longer than the changes of its state can bear.

At rest no step has an error, and the derivative of the state is all that a step length can be wrong for. Closed form of
a rod that hangs at rest: d phi(T) / d phi(0) = cos(w T), w^2 = 3 g / 2 l.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import diffmb as mb

G, DOWN = 9.81, -np.pi / 2
W = np.sqrt(1.5 * G)
MODEL = mb.compile(
    mb.Mechanism([mb.rod("bar", 1.0, mass=1.0)], [mb.Revolute("hinge", "world", "bar")], gravity=(0.0, -G, 0.0))
)


def run(angle, times, solver=None, model=MODEL, inputs=None, **options):
    state = mb.assemble(model, {"hinge": angle}, throw=False)
    return mb.simulate(model, state, times, solver=solver, inputs=inputs, throw=False, **options)


@pytest.mark.parametrize("order", [5, 8])
def test_derivatives_at_rest(order):
    times = jnp.array([0.0, 4.0, 10.0])
    last = lambda angle: (run(angle, times, mb.explicit(order)).q[:, 0],) * 2
    forward, q = jax.jit(jax.jacfwd(last, has_aux=True))(DOWN)
    np.testing.assert_allclose(q, DOWN, rtol=0, atol=1e-14)
    np.testing.assert_allclose(forward, np.cos(W * times), rtol=0, atol=2e-7)
    reverse = jax.jit(jax.grad(lambda angle: last(angle)[0][-1]))(DOWN)
    np.testing.assert_allclose(reverse, np.cos(W * 10.0), rtol=0, atol=2e-7)


def test_derivatives_near_rest():
    """The derivative is good before, at and after the amplitude from which steps are judged by the motion itself."""
    times = jnp.array([0.0, 10.0])
    slope = jax.jit(jax.vmap(jax.jacfwd(lambda angle: run(angle, times).q[-1, 0])))
    off = np.array([0.0, 1e-9, 1e-6, 3e-5])  # cos(w T) up to the square of the amplitude
    np.testing.assert_allclose(slope(DOWN + off), np.cos(W * 10.0), rtol=0, atol=1e-7)


def test_parameters_at_rest():
    """A rod pushed sideways by a load that is zero: d phi(T) / d load = (1 - cos w T) / (J w^2)."""
    times = jnp.array([0.0, 7.0])
    push = lambda load: run(DOWN, times, inputs={"hinge": load}).q[-1, 0]
    np.testing.assert_allclose(
        jax.jit(jax.grad(push))(0.0), (1 - np.cos(W * 7.0)) / (W**2 / 3.0), rtol=2e-7, atol=0
    )


def test_upright_grows():
    """At the top changes grow, as cosh."""
    times = jnp.array([0.0, 3.0])
    slope = jax.jit(jax.jacfwd(lambda angle: run(angle, times).q[-1, 0]))(-DOWN)
    np.testing.assert_allclose(slope, np.cosh(W * 3.0), rtol=1e-6)


def test_motion_needs_no_trials():
    """Where something moves nothing is tried: attempts are steps, but for the few that the controller refuses."""
    traj = run(0.0, jnp.array([0.0, 5.0]))
    assert int(traj.stats.rejected) < 0.3 * int(traj.stats.steps)
    short = run(0.0, jnp.linspace(0.0, 1.0, 3001))  # no step moves by much
    assert int(short.stats.steps) == 3000 and int(short.stats.rejected) < 30


def test_settled_motion_is_not_slow():
    """Once changes have died away steps are about as long as stability lets them be, 3.3 / decay for order 5."""
    damper = mb.SpringDamper("damper", "world", "block", k=400.0, c=200.0, length=1.0)
    rail = mb.Prismatic("rail", "world", "block", axis=(1.0, 0.0, 0.0))
    mech = mb.Mechanism([mb.sphere("block", 0.1, mass=1.0)], [rail], connections=[damper])
    model = mb.compile(mech)

    def end(start):
        traj = mb.simulate(model, mb.assemble(model, {"rail": start}, throw=False), jnp.array([0.0, 10.0]), throw=False)
        return traj.q[-1, 0], traj.stats

    (found, stats), slope = jax.jit(jax.value_and_grad(end, has_aux=True))(1.1)
    decay, fast = 100.0 - np.sqrt(100.0**2 - 400.0), 100.0 + np.sqrt(100.0**2 - 400.0)
    left = (fast * np.exp(-decay * 10.0) - decay * np.exp(-fast * 10.0)) / (fast - decay)
    np.testing.assert_allclose([found - 1.0, slope], [0.1 * left, left], rtol=0, atol=1e-9)
    assert int(stats.steps) < 2 * 10.0 * fast / 3.3 and int(stats.rejected) < 1.3 * int(stats.steps)


def test_settling_is_not_slow():
    """A stiff tie settles within a tenth of the time: from there on next to nothing moves, and little is tried."""
    tie = mb.SpringDamper("tie", mb.Marker("lower", (1.0, 0, 0)), mb.Marker("world", (1.2, -1.0, 0)), k=2e4, c=500.0)
    joints = [mb.Revolute("A", "world", "upper"), mb.Revolute("B", mb.Marker("upper", (1.0, 0, 0)), "lower")]
    rods = [mb.rod("upper", 1.0, mass=1.0), mb.rod("lower", 1.0, mass=1.0)]
    model = mb.compile(mb.Mechanism(rods, joints, connections=[tie], gravity=(0, -G, 0)))
    start = mb.assemble(model, {"A": -0.8, "B": 0.3})
    steps = []
    for end in (0.5, 2.0):
        stats = mb.simulate(model, start, [0.0, end]).stats
        steps.append([int(stats.steps), int(stats.rejected)])
    (first, tried), (second, again) = steps
    assert second - first < 3.0 * first and again - tried < second - first


def test_members_of_a_batch_at_rest():
    """Those at rest make trials, the others do not; each is as by itself."""
    times = jnp.array([0.0, 2.0])
    angles = jnp.array([DOWN, 0.0, DOWN + 1e-7, 1.0])
    slope = jax.jit(jax.vmap(jax.value_and_grad(lambda angle: run(angle, times).q[-1, 0])))
    together, apart = slope(angles), [slope(angles[k : k + 1]) for k in range(4)]
    for k in range(4):
        for a, b in zip(together, apart[k], strict=True):
            np.testing.assert_allclose(a[k], b[0], rtol=1e-12, atol=1e-13)


def test_single_precision_at_rest():
    model = jax.tree.map(lambda a: a.astype(jnp.float32) if a.dtype == jnp.float64 else a, MODEL)
    times = jnp.array([0.0, 4.0], jnp.float32)
    slope = jax.jit(jax.jacfwd(lambda angle: run(angle, times, model=model).q[-1, 0]))(jnp.float32(DOWN))
    assert slope.dtype == jnp.float32
    np.testing.assert_allclose(slope, np.cos(W * 4.0), rtol=0, atol=5e-3)
