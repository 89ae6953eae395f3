"""Trajectories: everything by name, between the rows, as a dataset, in files; and files that are refused."""

import errno
import json
import os
import sys
import zipfile
from importlib.util import find_spec

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from closed import four_bar
from helpers import central_difference, close

import diffmb as mb
from diffmb._io import _netcdf, _npz
from diffmb._io._description import sealed

KINDS = [
    pytest.param(".nc", marks=pytest.mark.skipif(not find_spec("h5py"), reason='pip install "diffmb[io]"')),
    ".npz",
]
NUMBERS = ("ts", "q", "v", "z", "reached", "event_times", "event_numbers")


def winding(t, q, v, z, u, p):
    return p[0] * z - p[1] * v


def current(t, q, v, z, u, p):
    return p[2] * (u - z) - v


def bar_model(**more):
    """A four-bar with a drive, a spring and a motor that has a state and an input."""
    return mb.compile(
        four_bar(
            drives=[mb.VelocityDrive("drive", "A", lambda t, w: w * (1.0 + 0.2 * jnp.sin(3.0 * t)), 4.0)],
            connections=[
                mb.SpringDamper("spring", mb.Marker("coupler", (0.15, 0.02, 0)), "world", k=50.0, c=0.2, length=0.2),
                mb.JointConnection(
                    "motor", ["C"], winding, (0.05, 0.01, 20.0), states=1, inputs=1, state_rate=current, start=0.3
                ),
            ],
            **more,
        )
    )


def start(model):
    return mb.assemble(model, {"A": 0.5}, guess={"B": 0.2, "C": 0.8})


@pytest.fixture(scope="module")
def bar():
    model = bar_model()
    inputs = {"B": lambda t: 0.3 * jnp.sin(5.0 * t), "motor": lambda t: jnp.cos(3.0 * t)}
    return mb.simulate(model, start(model), jnp.linspace(0.0, 0.4, 6), inputs=inputs)


@pytest.fixture(scope="module")
def swing(bar):
    """The same with the drive let go; every step is kept."""
    return mb.simulate(bar.model, start(bar.model), jnp.array([0.0, 0.5]), off=["drive"], dense=True)


@pytest.fixture(scope="module")
def ball():
    """A free body on a rope that is let go on the way up, until it has fallen."""
    body = mb.RigidBody("ball", 1.3, (0.02, -0.01, 0.03), np.array([0.02, 0.03, 0.04]))
    rope = mb.SpringDamper("rope", "world", mb.Marker("ball", (0.1, 0.0, 0.0)), k=20.0, c=0.1, length=0.2)
    model = mb.compile(mb.Mechanism([body], connections=[rope], gravity=(0, 0, -9.81)))
    height = lambda instant, level: instant["ball"].pose.translation[2] - level
    let_go = mb.Event("let go", height, lambda instant, _: instant.switch("rope", False), 1, params=0.3)
    fallen = mb.Event("fallen", height, None, -1, params=0.1)
    state = (model.neutral(), jnp.array([3.0, -4.0, 2.0, 0.3, 0.1, 4.0]))
    return mb.simulate(model, state, jnp.linspace(0.0, 1.5, 65), events=[let_go, fallen], max_events=4)


def rows(traj):
    """(t, q, v, tau, z, u, on) row by row."""
    for k, t in enumerate(traj.ts):
        tau, u = traj.inputs(t)
        yield t, traj.q[k], traj.v[k], tau, traj.z[k], u, None if traj.on is None else traj.on[k]


@pytest.mark.parametrize(("which", "body", "joint"), [("bar", "coupler", "B"), ("ball", "ball", "ball")])
def test_everything_by_name_is_the_function_in_a_loop(which, body, joint, request):
    traj = request.getfixturevalue(which)
    model = traj.model
    traj = traj if which == "bar" else every(traj, 16)
    marker = mb.Marker(body, (0.1, 0.2, 0.0))
    motion, at_marker = traj[body], traj[marker]
    found = traj.reaction(joint), traj.reaction(joint, body), traj.kinetic_energy(), traj.potential_energy(), traj.vd
    for k, (t, q, v, tau, z, u, on) in enumerate(rows(traj)):
        more = {"z": z, "u": u, "on": on}
        d = mb.dynamics(model, q, v, tau, t, **more)
        one = mb.kinematics(model, q, v, d.vd, t)
        for name, whole in ((body, motion), (marker, at_marker)):
            own = one[name]
            for a, b in ((whole.pose, own.pose), (whole.twist, own.twist), (whole.acceleration, own.acceleration)):
                jax.tree.map(lambda a, b: close(a[k], b, 1e-12), a, b)
        expected = (
            mb.reactions(model, q, v, tau, t, **more)[joint],
            mb.reactions(model, q, v, tau, t, frame=body, **more)[joint],
            mb.kinetic_energy(model, q, v, t),
            mb.potential_energy(model, q, t, z=z),
            d.vd,
        )
        for a, b in zip(found, expected, strict=True):
            close(a[k], b, 1e-10)
        if which == "bar":
            close(traj.multipliers("D")[k], d.multipliers("D"), 1e-10)
            close(traj.load("drive")[k], d.load("drive"), 1e-10)
    where, speeds = model.coordinates(joint), model.speeds(joint)
    column = (lambda a: a[:, 0]) if where.stop - where.start == 1 else (lambda a: a)
    assert (traj.coordinate(joint) == column(traj.q[:, where])).all()
    assert (traj.speed(joint) == column(traj.v[:, speeds])).all()
    close(traj.energy(), found[2] + found[3], 1e-12)


def test_states_and_names(bar):
    assert (bar.state("motor") == bar.z[:, 0]).all()
    close(bar.speed("A"), 4.0 * (1.0 + 0.2 * np.sin(3.0 * bar.ts)), 1e-9)  # the drive holds
    with pytest.raises(mb.MechanismError, match="no joint 'Q'"):
        bar.coordinate("Q")
    with pytest.raises(mb.MechanismError, match="closes a loop"):
        bar.coordinate("D")
    with pytest.raises(mb.MechanismError, match="no reaction 'Q'"):
        bar.reaction("Q")


def test_access_under_jit(bar):
    def ask(traj):
        own = traj["rocker"]
        return own.pose.translation, own.acceleration, traj.reaction("B"), traj.load("drive"), traj.energy()

    jax.tree.map(lambda a, b: close(a, b, 1e-12), jax.jit(ask)(bar), ask(bar))


# --- between the rows ---------------------------------------------------------------------------------------------


def every(traj, n):
    """Each n-th row."""
    parts = lambda t: [x for x in (t.ts, t.q, t.v, t.z, t.on) if x is not None]
    return eqx.tree_at(parts, traj, [x[::n] for x in parts(traj)])


def test_dense_rows_resample_to_the_accuracy_of_steps(swing):
    """Errors of 1e-7 come from the steps themselves at rtol 1e-8: the run that stops at each time is no better."""
    times = jnp.asarray(np.sort(np.random.default_rng(1).uniform(0.0, 0.5, 50)))
    found = swing.resample(times)
    exact = mb.simulate(swing.model, start(swing.model), jnp.concatenate([jnp.zeros(1), times]), off=["drive"])
    close(found.q, exact.q[1:], 3e-7)
    close(found.v, exact.v[1:], 3e-6)
    close(found.z, exact.z[1:], 3e-6)
    assert (found.on == exact.on[1:]).all()
    assert int(found.reached) == 50
    on = jnp.asarray(swing.model.row_switch != swing.model.switch("drive"))
    openness = jax.vmap(lambda q, t: mb.constraint_residual(swing.model, q, t))(found.q, found.ts)
    assert float(jnp.abs(openness).max()) < 1e-13  # m and rad
    rate = jax.vmap(lambda q, v, t: mb.constraint_rate(swing.model, q, v, t))(found.q, found.v, found.ts)
    assert float(jnp.abs(rate * on).max()) < 1e-12
    again = found.resample(times[3:9])
    close(again.q, found.q[3:9], 1e-13)  # a row is itself


def test_derivative_of_resampling(swing):
    """With respect to the rows, the times and the numbers of the model: as finite differences say."""
    rng = np.random.default_rng(2)
    few = every(swing, 4)
    pick = lambda t: (t.q, t.v, t.z, t.ts, t.model.mass, t.model.placement.translation)
    times = jnp.linspace(float(few.ts[0]) + 0.013, float(few.ts[-1]) - 0.021, 4)
    weight = jnp.asarray(rng.standard_normal((3, 4, 3)))

    @jax.jit
    def loss(x):
        found = eqx.tree_at(pick, few, x[0]).resample(x[1])
        return (weight[0] * jnp.sin(found.q)).sum() + (weight[1] * found.v).sum() + (weight[2][:, :1] * found.z).sum()

    x = (pick(few), times)
    direction = jax.tree.map(lambda a: jnp.asarray(rng.standard_normal(a.shape)), x)
    gradient = jax.jit(jax.grad(loss))(x)
    slope = sum(jax.tree.leaves(jax.tree.map(lambda a, b: (a * b).sum(), gradient, direction)))
    close(slope, central_difference(loss, x, direction, 1e-5), 1e-7)


def test_order_of_resampling(ball):
    """Half the distance, 1/64 of the error of q (quaternions too) and 1/32 of that of v; under jit and vmap."""
    flight = eqx.tree_at(lambda t: (t.ts, t.q, t.v, t.z, t.on), ball, tuple(x[-33:] for x in (ball.ts, ball.q, ball.v, ball.z, ball.on)))
    flight = jax.tree.map(lambda a: a, flight)
    inner = slice(0, 32)
    errors = []
    for n in (8, 4):
        resample = jax.jit(lambda t, ts: t.resample(ts))
        found = resample(every(flight, n), flight.ts[inner])
        errors.append([float(jnp.abs(a - b).max()) for a, b in ((found.q, flight.q[inner]), (found.v, flight.v[inner]))])
        close((found.q[:, :4] ** 2).sum(1), np.ones(32), 1e-14)
    print(errors)
    (q8, v8), (q4, v4) = errors
    assert q8 / q4 > 40 and v8 / v4 > 20 and q8 < 1e-3
