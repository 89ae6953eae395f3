"""Derivatives of simulations: forward = reverse = differences, for every kind of mechanism and of number.

The rows of the matrix are mechanisms, its columns the numbers that move; each is one function of a vector through
compile, assemble and simulate, and one jitted jvp and vjp. Second order is in `test_reference_motion.py`.
"""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from closed import crank_slider, four_bar, rolling_disc
from helpers import central_difference, close
from scipy.integrate import solve_ivp

import diffmb as mb

TIGHT = diffrax.PIDController(rtol=1e-10, atol=1e-10)


def run(mechanism, q, v, ts, **more):
    model = mb.compile(mechanism)
    state = mb.assemble(model, q, v, t=ts[0], throw=False)
    return mb.simulate(model, state, ts, **({"controller": TIGHT, "throw": False} | more))


def _pendulum(x):
    """Initial angle and speed, mass, length, stiffness, load amplitude, end time."""
    angle, rate, mass, length, k, amplitude, end = x
    spring = mb.JointConnection("spring", ["A"], lambda t, q, v, z, u, k: -k * q, k)
    mech = mb.Mechanism(
        [mb.rod("bar", length, mass=mass)], [mb.Revolute("A", "world", "bar", axis="y")], connections=[spring]
    )
    traj = run(mech, {"A": angle}, {"A": rate}, [0.0, end], inputs={"A": lambda t: amplitude * jnp.sin(4 * t)})
    return jnp.concatenate([traj.q[-1], traj.v[-1]])


def _double_pendulum(x):
    angle, rate, mass, length, k, amplitude, end = x
    spring = mb.SpringDamper("spring", mb.Marker("world", (0, 0, 1.0)), mb.Marker("lower", (0.5, 0, 0)), k, 0.3, 0.6)
    mech = mb.Mechanism(
        [mb.rod("upper", length, mass=1.0), mb.rod("lower", 0.7, mass=mass)],
        [
            mb.Revolute("A", "world", "upper", axis="y"),
            mb.Revolute("B", mb.Marker("upper", length * jnp.array([1.0, 0, 0])), "lower", axis="y"),
        ],
        connections=[spring],
    )
    traj = run(mech, {"A": angle}, {"B": rate}, [0.0, 0.4, end], inputs={"B": lambda t: amplitude * jnp.cos(5 * t)})
    return jnp.concatenate([traj.q[-1], traj.v[-1], traj.q[1]])


def _four_bar(x):
    """Driven by nothing, with a spring and a load on the crank; the cut joint has three redundant rows."""
    angle, rate, mass, length, k, amplitude, end = x
    plain = four_bar(l2=length)
    spring = mb.SpringDamper("spring", mb.Marker("coupler", (0.15, 0.02, 0)), "world", k, 2.0, 0.2)
    heavy = mb.rod("rocker", 0.25, mass=mass)
    mech = mb.Mechanism(
        [*plain.bodies[:2], heavy], plain.joints, connections=[spring], gravity=plain.gravity
    )
    traj = run(mech, {"A": angle}, {"A": rate}, [0.0, end], inputs={"A": lambda t: amplitude * jnp.sin(9 * t)})
    return jnp.concatenate([traj.q[-1], traj.v[-1]])


def _driven_four_bar(x):
    """The crank is driven: amplitude, frequency and start of the drive move; the load of the drive is looked at too."""
    angle, amplitude, frequency, length, end = x
    drive = mb.PositionDrive(
        "motor", "A", lambda t, p: p[0] + p[1] * jnp.sin(p[2] * t), jnp.stack([angle, amplitude, frequency])
    )
    plain = four_bar(l2=length)
    mech = mb.Mechanism(plain.bodies, plain.joints, drives=[drive], gravity=plain.gravity)
    traj = run(mech, {}, None, [0.0, end])
    return jnp.concatenate([traj.q[-1], traj.v[-1], traj.load("motor")[-1:]])


def _stiff_crank_slider(x):
    """A stiff spring and damper, and a load on the crank; implicit steps."""
    angle, rate, mass, length, k, amplitude, end = x
    plain = crank_slider(rod=length)
    tie = mb.JointConnection(
        "tie", ["B"], lambda t, q, v, z, u, p: -p[0] * jnp.sin(q + 0.9) - 0.02 * p[0] * v, jnp.stack([k])
    )
    slider = mb.box("slider", (0.1, 0.06, 0.06), mass=mass)
    mech = mb.Mechanism([*plain.bodies[:2], slider], plain.joints, connections=[tie], gravity=plain.gravity)
    load = {"A": lambda t: amplitude * jnp.cos(9 * t)}
    traj = run(mech, {"A": angle}, {"A": rate}, [0.0, end], solver=mb.implicit(), inputs=load)
    return jnp.concatenate([traj.q[-1], traj.v[-1]])


def _drawn(body, k, amplitude):
    """A spring from a point above, and a force along x of the body that goes to and fro."""
    push = lambda t, rel, twist, z, u, a: a * jnp.sin(3 * t) * jnp.array([0.0, 0, 0, 1, 0, 0])
    return [
        mb.SpringDamper("spring", mb.Marker("world", (0.2, 0.5, 1.0)), body, k, 0.1, 0.4),
        mb.Connection("push", "world", body, push, amplitude),
    ]


def _rolling_disc(x):
    """Nonholonomic; the disc starts upright and rolling, with a lean rate."""
    speed, lean, radius, mass, k, amplitude, end = x
    plain = rolling_disc()
    inertia = jnp.array([0.25, 0.25, 0.5]) * mass * radius**2
    body = mb.RigidBody("disc", mass, (0, 0, 0), inertia)
    mech = mb.Mechanism(
        [body],
        constraints=[mb.RollingDisc("contact", "world", "disc", radius)],
        connections=_drawn("disc", k, amplitude),
        gravity=plain.gravity,
    )
    upright = jnp.array([np.sqrt(0.5), np.sqrt(0.5), 0.0, 0.0])
    q = jnp.concatenate([radius * jnp.array([0.0, 0.0, 1.0]), upright])
    v = jnp.stack([lean, 0 * lean, -speed / radius, speed, 0 * lean, 0 * lean])
    traj = run(mech, q, v, [0.0, end])
    return jnp.concatenate([traj.q[-1], traj.v[-1]])


def _free_body(x):
    """Tumbling about its middle axis; the attitude is a quaternion that starts at the identity."""
    spin, mass, side, k, amplitude, end = x
    sides = jnp.stack([0.1 + 0 * side, side, 0.4 + 0 * side])
    links = _drawn(mb.Marker("brick", (0.05, 0.0, 0.1)), k, amplitude)
    mech = mb.Mechanism([mb.box("brick", sides, mass=mass)], connections=links, gravity=(0, 0, -1.0))
    traj = run(mech, None, jnp.stack([0.1 + 0 * spin, spin, 0.2 + 0 * spin, 0 * spin, 0 * spin, spin]), [0.0, end])
    return jnp.concatenate([traj.q[-1], traj.v[-1]])


CASES = {
    "pendulum": (_pendulum, [0.7, 0.3, 1.2, 0.8, 3.0, 2.0, 1.1]),
    "pendulum at rest": (_pendulum, [0.0, 0.0, 1.2, 0.8, 3.0, 0.0, 1.1]),
    "double pendulum": (_double_pendulum, [0.4, 0.6, 0.5, 0.9, 4.0, 1.0, 0.9]),
    "four-bar": (_four_bar, [0.5, 3.0, 0.4, 0.3, 200.0, 0.2, 0.35]),
    "driven four-bar": (_driven_four_bar, [0.5, 0.8, 7.0, 0.3, 0.4]),
    "stiff crank-slider": (_stiff_crank_slider, [0.4, 2.0, 0.8, 0.5, 1e4, 3.0, 0.12]),
    "rolling disc": (_rolling_disc, [1.5, 0.1, 0.3, 1.3, 2.0, 0.5, 0.6]),
    "free body": (_free_body, [5.0, 1.0, 0.2, 1.5, 0.3, 1.5]),
}


@pytest.fixture(scope="module")
def functions():
    made = {}

    def get(fun):
        if fun not in made:
            push = jax.jit(lambda x, d: jax.jvp(fun, (x,), (d,)))
            made[fun] = (lambda x: push(x, x)[0], push, jax.jit(lambda x, w: jax.vjp(fun, x)[1](w)[0]))
        return made[fun]

    return get


@pytest.mark.parametrize("name", CASES)
def test_forward_reverse_and_differences_agree(functions, name):
    """Each number alone by differences (1e-6 of the largest entry of its column), and forward = reverse to 1e-9."""
    fun, at = CASES[name]
    value, push, pull = functions(fun)
    at = jnp.asarray(at)
    y = value(at)
    assert bool(jnp.isfinite(y).all())
    w = jnp.asarray(np.random.default_rng(1).standard_normal(y.shape))
    back = pull(at, w)
    for k, unit in enumerate(np.eye(len(at))):
        column = push(at, unit)[1]
        step = 1e-3 * max(abs(float(at[k])), 0.1)
        close(column, central_difference(value, at, jnp.asarray(unit), step), 1e-6)
        assert abs(float(w @ column - back[k])) <= 1e-9 * max(1.0, float(jnp.abs(w) @ jnp.abs(column)))


def test_inputs_have_derivatives():
    """Values of a table (steps end at its kinks), and a number that a function of time closes over."""
    model = mb.compile(mb.Mechanism([mb.rod("bar", 1.0, mass=1.0)], [mb.Revolute("A", "world", "bar", axis="y")]))
    state = mb.assemble(model, {"A": 0.3})
    end = lambda load: mb.simulate(model, state, [0.0, 1.0], inputs={"A": load}, controller=TIGHT).q[-1, 0]
    table = jax.jit(lambda values: end(mb.Table(np.linspace(0.0, 1.0, 6), values)))
    at = jnp.array([0.1, 0.4, -0.3, 0.2, 0.0, 0.5])
    slope = jax.jit(jax.grad(table))(at)
    for k, unit in enumerate(np.eye(6)):
        close(slope[k], central_difference(table, at, jnp.asarray(unit), 1e-3), 1e-8)
    wave = jax.jit(lambda amplitude: end(lambda t: amplitude * jnp.sin(3 * t)))
    close(jax.jit(jax.grad(wave))(0.7), central_difference(wave, jnp.asarray(0.7), jnp.asarray(1.0), 1e-3), 1e-8)


@pytest.mark.parametrize("stops", [False, True])
def test_gradient_through_folds(stops):
    """A parallelogram folds flat twice a turn, where its rows lose rank and motions fork; three passages in 3 s, and
    states next to the folds if asked for.

    All rods turn as one pendulum, th'' = -(6 / 5) g cos(th), whatever their common mass.
    """
    rods = [mb.rod(name, 1.0, mass=1.0) for name in ("a", "b", "c")]
    tip = lambda name: mb.Marker(name, (1, 0, 0))
    joints = [
        mb.Revolute("A", "world", "a"),
        mb.Revolute("B", tip("a"), "c"),
        mb.Revolute("C", mb.Marker("world", (1, 0, 0)), "b"),
        mb.Revolute("D", tip("c"), tip("b"), cut=True),
    ]
    model = mb.compile(mb.Mechanism(rods, joints, gravity=(0, -9.81, 0)))
    signs = jnp.asarray(model.pack({"A": 1.0, "B": -1.0, "C": 1.0}))
    start = mb.assemble(model, np.pi / 2 * signs, -signs)
    slope = lambda t, y: [y[1], -1.2 * 9.81 * np.cos(y[0]), y[3], 1.2 * 9.81 * np.sin(y[0]) * y[2]]
    fold = lambda t, y: np.sin(y[0])
    own = {"method": "DOP853", "rtol": 1e-12, "atol": 1e-12}
    times = solve_ivp(slope, (0, 3), [np.pi / 2, -1.0, 0.0, 1.0], events=fold, **own).t_events[0]
    assert len(times) == 3
    ts = np.array([0.0, *np.sort(np.concatenate([times - 0.003, times + 0.001])), 3.0] if stops else [0.0, 3.0])
    exact = solve_ivp(slope, (0, 3), [np.pi / 2, -1.0, 0.0, 1.0], t_eval=ts, **own).y

    @jax.jit
    def ends(rate, mass):
        state = eqx.tree_at(lambda s: s.v, start, rate * signs)
        own = eqx.tree_at(lambda m: m.mass, model, mass)
        own = eqx.tree_at(lambda m: m.inertia, own, model.inertia * mass[0] / model.mass[0])
        more = {"controller": mb.Tolerance(1e-9), "adjoint": mb.StoredSteps(512), "throw": False}
        return mb.simulate(own, state, ts, **more).q @ signs / 3

    mass, rate = model.mass, jnp.asarray(-1.0)
    found, back = jax.jit(lambda rate, mass: jax.vjp(ends, rate, mass))(rate, mass)
    close(found, exact[0], 1e-7)
    by_rate = jax.jit(jax.jacfwd(ends))(rate, mass)
    close(by_rate, exact[2], 1e-6)
    weights = jnp.cos(1.0 + jnp.arange(len(ts)))
    pulled, by_mass = back(weights)
    close(pulled, weights @ by_rate, 1e-9)
    assert abs(float(by_mass @ mass)) < 1e-6


def test_second_derivatives_by_times():
    """Hessian by start, length, the first, a middle and the last time, and an amplitude; reverse goes over nothing."""

    def last(x):
        start, length, t0, t1, t2, amplitude = x
        rod = mb.Mechanism(
            [mb.rod("bar", length, mass=1.0)], [mb.Revolute("hinge", "world", "bar")], gravity=(0.0, -9.81, 0.0)
        )
        model = mb.compile(rod)
        state = mb.assemble(model, {"hinge": start}, t=t0, throw=False)
        push = {"hinge": lambda t: amplitude * jnp.sin(3.0 * t)}
        tight = mb.Tolerance(1e-10)
        traj = mb.simulate(model, state, jnp.stack([t0, t1, t2]), inputs=push, controller=tight, throw=False)
        return 2.0 * traj.q[1, 0] + traj.v[2, 0]

    x, h = jnp.array([0.3, 1.1, 0.2, 0.9, 1.5, 0.7]), 1e-4
    hessian = jax.jit(jax.hessian(last))(x)
    slope = jax.jit(jax.vmap(jax.grad(last)))
    off = np.stack([x + n * h * row for n in (-2, -1, 1, 2) for row in np.eye(6)])
    g = np.asarray(slope(off)).reshape(4, 6, 6)
    np.testing.assert_allclose(hessian, (8 * (g[2] - g[1]) - (g[3] - g[0])) / (12 * h), rtol=0, atol=2e-6)
    np.testing.assert_allclose(hessian, hessian.T, rtol=0, atol=2e-7)
    with pytest.raises(mb.MechanismError, match=r"write jax.hessian\(f\)"):
        jax.grad(lambda x: jax.grad(last)(x)[0])(x)
