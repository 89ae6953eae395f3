"""Actuators, muscles and tyres: closed forms, published curves, a stiff mechanism that holds many, bad input."""

import json
from itertools import pairwise
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples_active import CYLINDER, MUSCLE, PAIR, SEAL
from helpers import central_difference, close
from scipy.linalg import expm

import diffmb as mb
from diffmb._connections._abstract import exerted

CURVES = Path(__file__).parents[2] / "shared/reference/P22_muscle.json"
ZERO = jnp.zeros(())
none = jnp.zeros(0)


@pytest.mark.parametrize("name, make", [("M1_paper", mb.muscle_curves_2016), ("M1_opensim", mb.muscle_curves)])
def test_published_muscle_curves(name, make):
    """Values and slopes; isometric force-length and force-velocity points are among them."""
    data, curves = json.loads(CURVES.read_text())[name], make()
    for key, x, method in (
        ("fl", "x", curves.active_force), ("fp", "x", curves.passive_force), ("fv", "v", curves.velocity_factor),
        ("ft", "xt", curves.tendon_force),
    ):  # fmt: skip
        value, slope = jax.jit(jax.vmap(lambda x, f=method: jax.jvp(f, (x,), (jnp.ones_like(x),))))(jnp.array(data[x]))
        close(value, data[key], 1e-12)
        close(slope, data["d" + key], 1e-12)
    for force, energy in (
        (curves.passive_force, curves.passive_energy), (curves.tendon_force, curves.tendon_energy),
    ):  # fmt: skip
        close(jax.grad(energy)(jnp.asarray(1.03)), force(jnp.asarray(1.03)), 1e-12)
    close(curves.tendon_force(curves.slack()), 0.0, 1e-14)


def test_fibre_velocity_inverts_the_balance():
    """strength f_v(v) + damping v = force, also without damping, and for a fibre that is not active."""
    curves = mb.muscle_curves()
    strength, damping, force = (
        jnp.array(column) for column in zip(
            (1.0, 0.0, 1.5), (0.01, 0.0, 0.0), (0.3, 0.1, -0.4), (0.001, 1e-3, 1.4), (0.0, 0.1, 0.7), (1.0, 1e-9, 6.0),
            (0.5, 0.05, 0.5), strict=True,
        )
    )  # fmt: skip
    v = jax.jit(jax.vmap(curves.fibre_velocity))(strength, damping, force)
    back = strength * jax.vmap(curves.velocity_factor)(v) + damping * v
    close(back, force, 1e-13)
    close(
        v[0],
        (np.sinh((1.5 - curves.velocity[3]) / curves.velocity[0]) - curves.velocity[2]) / curves.velocity[1],
        1e-12,
    )


def test_activation_step():
    """From 0 to 1: -2 ln(1 - a) - 3/2 a = t / rise; from a0 to 0: 2 ln(a / m) falls by t / fall."""
    dynamics = mb.Activation(smooth=1e4)

    def steps(a, u, t, n=4000):
        def rk4(a, _):
            h = t / n
            k1 = dynamics.rate(a, u)
            k2 = dynamics.rate(a + h / 2 * k1, u)
            k3 = dynamics.rate(a + h / 2 * k2, u)
            return a + h / 6 * (k1 + 2 * k2 + 2 * k3 + dynamics.rate(a + h * k3, u)), None

        return jax.lax.scan(rk4, a, length=n)[0]

    run = jax.jit(steps)
    up, down = float(run(0.0, 1.0, 0.02)), float(run(0.8, 0.0, 0.05))
    close(-2 * np.log(1 - up) - 1.5 * up, 0.02 / 0.015, 1e-9)
    ln = lambda a: 2 * np.log(a / (0.5 + 1.5 * a))
    close(ln(down) - ln(0.8), -0.05 / 0.060, 1e-9)


def test_isometric_force_and_start():
    """A path that holds the fibre at its optimal length; the start stands still, with derivatives."""
    curves, a = MUSCLE.curves, 0.6
    cosine = np.cos(0.3)
    pull = (a + float(curves.passive_force(jnp.asarray(1.0)))) * cosine
    c1, c2, c3, kt = np.asarray(curves.tendon)
    length = 0.1 * cosine + 0.2 * (c2 + np.log((pull + c3) / c1) / kt)
    at = lambda p: eqx.tree_at(lambda m: (m.length, m.activation, m.fibre, m.tendon), MUSCLE, tuple(p))
    numbers = jnp.array([length, a, 0.1, 0.2])
    muscle = at(numbers)
    z = muscle.start()
    close(z, (a, cosine), 1e-12)
    close(muscle.load(ZERO, muscle.length, ZERO, z, none), -800.0 * pull, 1e-12)
    close(muscle.rate(muscle.length, *z), 0.0, 1e-11)
    start = jax.jit(lambda p: at(p).start()[1])
    along = jnp.array([0.02, 0.3, 0.01, -0.02])
    both = jax.jit(lambda p: (jax.jvp(start, (p,), (along,))[1], jax.grad(start)(p) @ along))
    push, pulled = both(numbers)
    close(push, pulled, 1e-12)
    close(push, central_difference(start, numbers, along, 1e-3), 1e-8)
    rigid = mb.RigidTendonMuscle(800.0, 0.1, 0.2, pennation=0.3, activation=a)
    close(rigid.load(ZERO, jnp.asarray(0.2 + 0.1 * cosine), ZERO, rigid.start(), none), -800.0 * pull, 1e-12)


def test_motor_line():
    """Steady torque k (u - k w) / R - c w, from stall to idling."""
    k, R, c, u = 0.3, 2.0, 0.05, jnp.array([12.0])
    motor = mb.DcMotor(k, R, 0.1, friction=c)
    for w in (0.0, 10.0, 12.0 / k):
        i = jnp.array([(12.0 - k * w) / R])
        close(motor.zdot(ZERO, ZERO, jnp.asarray(w), i, u), [0.0], 1e-14)
        close(motor.load(ZERO, ZERO, jnp.asarray(w), i, u), k * (12.0 - k * w) / R - c * w, 1e-14)


def test_cylinder_stiffness_and_speed():
    """Closed: bulk (A^2 / V_a + A^2 / V_b). Open, against a force: valve sqrt((p_s - p_t - F / A) / 2) / A."""
    A = 1e-3
    cylinder = mb.HydraulicCylinder(A, A, 4e-4, 6e-4, 0.5, 3e-7, 1.6e7, underlap=1e-9, laminar=1e-2)
    z, speed = jnp.array([8e6, 8e6]), jnp.asarray(0.1)
    rate = cylinder.zdot(ZERO, jnp.asarray(0.5), speed, z, jnp.zeros(1))
    close(A * (rate[0] - rate[1]) / speed, -1.4e9 * A * A * (1 / 4e-4 + 1 / 6e-4), 1e-6)
    force = 5000.0
    z = 0.5 * (1.6e7 + 1e5) + jnp.array([0.5, -0.5]) * force / A
    speed = 3e-7 * np.sqrt((1.6e7 - 1e5 - force / A) / 2) / A
    rate = cylinder.zdot(ZERO, jnp.asarray(0.5), jnp.asarray(speed), z, jnp.ones(1))
    close(rate / 1.4e9, (0.0, 0.0), 1e-9)
    close(cylinder.load(ZERO, jnp.asarray(0.5), jnp.asarray(speed), z, jnp.ones(1)), force, 1e-12)


def finger():
    """Three links; a path from the ground over a via-point on the first to the second: it crosses two joints."""
    path = [mb.Marker("world", (-0.1, 0.05, 0)), mb.Marker("a", (0.15, 0.04, 0)), mb.Marker("b", (0.12, 0.03, 0))]
    return path, mb.Mechanism(
        [mb.rod("a", 0.3, mass=1.0), mb.rod("b", 0.2, mass=0.5)],
        [mb.Revolute("A", "world", "a"), mb.Revolute("B", mb.Marker("a", (0.3, 0, 0)), "b")],
        connections=[mb.AlongPath("rope", path, mb.ForceInput())],
        gravity=(0, 0, 0),
    )


def test_moment_arms_over_two_joints():
    """The load at the joints is -tension dl/dq; where two points meet there is no NaN."""
    path, mechanism = finger()
    model, q = mb.compile(mechanism), jnp.array([0.4, 0.7])

    def length(q):
        motion = mb.kinematics(model, q)
        places = [path[0].pose.translation, *(motion[m].pose.translation for m in path[1:])]
        return sum(jnp.linalg.norm(b - a) for a, b in pairwise(places))

    @jax.jit
    def run(q):
        vd = mb.forward_dynamics(model, q, jnp.zeros(2), u=jnp.array([-30.0]))
        return mb.mass_matrix(model, q) @ vd, -30.0 * jax.grad(length)(q)

    tau, expected = run(q)
    close(tau, expected, 1e-12)
    assert float(jnp.abs(tau).min()) > 0.5
    rope = mechanism["rope"]
    met = (mb.Pose.identity(), mb.Pose.translate(jnp.array([0.0, 0.3, 0.0])))
    e, slope = jax.value_and_grad(lambda p: rope.strain(ZERO, (mb.Pose.translate(p), met[1]))[0])(jnp.zeros(3))
    close(e, 0.3, 1e-15)
    close(slope, (0, -1.0, 0), 1e-15)  # of the piece that has a direction


def test_two_heads_pull_as_two_muscles():
    """Heads along one path, of which one is weaker by half: one and a half times the wrenches of the first."""
    half = eqx.tree_at(lambda m: m.force, MUSCLE, 0.5 * MUSCLE.force)
    markers = ["a", "b", "world"]
    one, split = (
        mb.AlongPath("x", markers, MUSCLE),
        mb.SplitMuscle("x", markers, [(0, 1, 2), (0, 1, 2)], [MUSCLE, half]),
    )
    x = tuple(mb.Pose.translate(jnp.array(p)) for p in ((0.15, 0.0, 0.05), (0.3, 0.02, 0.0)))
    pull = jax.jit(lambda load, z: exerted(load, ZERO, x, jnp.zeros((2, 6)), z, jnp.ones(1)))
    z = one.start()
    close(pull(split, z[jnp.array([0, 1, 1])]), 1.5 * pull(one, z), 1e-12)
    close(split.start(), z[jnp.array([0, 1, 1])], 1e-14)
    assert float(jnp.abs(pull(one, z)).max()) > 100.0


def test_laws_side_by_side_share_the_inputs():
    """Inputs in the order of the laws, and multipliers behind all of them."""
    law = mb.ParallelLaw([mb.ForceInput(3.0), SEAL, mb.PdController(5.0)])
    e, ed, z, u = jnp.asarray(0.2), jnp.asarray(0.1), jnp.array([0.01]), jnp.array([0.7, 0.5, 3.0, 4.0])
    load = 3.0 * 0.7 + SEAL.load(ZERO, e, ed, z, u[2:]) + 5.0 * (0.5 - 0.2)
    close(law.load(ZERO, e, ed, z, u), load, 1e-14)
    close(law.zdot(ZERO, e, ed, z, u), SEAL.zdot(ZERO, e, ed, z, u[2:]), 1e-14)
    assert (law.nz, law.nu, law.follows) == (1, 2, ("guide",))


def test_a_motor_turns_through_half_a_turn():
    """The rate about the axis is exact where the angle jumps; tilting adds nothing to it."""
    axis = np.array([0.6, 0.0, 0.8])
    motor, gear = mb.DcMotor(0.3, 2.0, 0.1, friction=0.05), 5.0
    load = mb.AboutAxis("m", *PAIR, motor, axis=axis, ratio=gear)
    pose = lambda turn: mb.Pose.rotate_by(mb.rotation_about(jnp.asarray(axis), turn))
    xd = jnp.asarray(np.append(2.0 * axis, np.zeros(3)))
    push = jax.jit(lambda turn: exerted(load, ZERO, pose(turn), xd, jnp.ones(1), jnp.ones(1)))
    for turn in (0.3, np.pi, np.pi - 1e-9, -3.0):
        close(push(jnp.asarray(turn))[:3], gear * (0.3 - 0.05 * gear * 2.0) * axis, 1e-13)
    tilt = mb.rotation_about(jnp.array([0.8, 0.0, -0.6]), jnp.asarray(0.4))
    turned = mb.rotation_about(jnp.asarray(axis), jnp.asarray(2.0)) @ tilt
    close(load.strain(ZERO, mb.Pose.rotate_by(turned)), [gear * 2.0], 1e-14)


TYRE = mb.SlipTyre("t", "world", "wheel", 0.35, 1.5e5, 1.3e4, kx=2e5, ky=1.5e5, cx=500.0, cy=400.0)
DEPTH = 0.02
STANDING = mb.Pose.translate(jnp.array([0.0, 0.0, 0.35 - DEPTH]))


def rolling(speed, slip, side):
    """Twist of an upright wheel with rolling speed `speed`, slips and no vertical motion."""
    return jnp.array([0.0, speed / (0.35 - DEPTH), 0.0, speed * (1.0 + slip), speed * side, 0.0])


@jax.jit
def steady(xd):
    """The wrench where the bristles have come to rest: zetad is linear in zeta."""
    rate = lambda z: TYRE.zdot(ZERO, STANDING, xd, z, none)
    vs = rate(jnp.zeros(2))
    g = vs - rate(jnp.ones(2))
    return TYRE.load(ZERO, STANDING, xd, vs / g, none), g


def test_tyre_steady_slip_curve():
    def formula(coefficients, slip, total):
        B, C, mu, E = np.asarray(coefficients)
        return -mu * 1.5e5 * DEPTH * np.sin(C * np.arctan(total - E * (total - np.arctan(total)))) * B * slip / total

    for slip, side in ((0.05, 0.0), (-0.3, 0.0), (0.0, 0.1), (0.1, -0.08), (0.9, 0.5)):
        wrench, _ = steady(rolling(20.0, slip, side))
        total = np.hypot(12.0 * slip, 10.0 * side)
        expected = (formula(TYRE.longitudinal, slip, total), formula(TYRE.lateral, side, total), 1.5e5 * DEPTH)
        close(wrench[3:], expected, 1e-6)
        close(wrench[1], -expected[0] * (0.35 - DEPTH), 1e-6)  # brakes or drives the spin
        assert np.hypot(*wrench[3:5]) <= 1.5e5 * DEPTH
    g = steady(rolling(20.0, 1e-9, 1e-9))[1]
    relaxation = 1.5e5 * DEPTH * np.array([12.0 * 1.6, 10.0 * 1.3]) / np.array([2e5, 1.5e5])
    close(20.0 / g, relaxation, 1e-6)


def test_tyre_at_standstill_and_in_the_air():
    """Slipping without rolling, friction saturates; at rest all is finite and the bristles hold; nothing pulls."""
    wrench, _ = steady(jnp.array([0.0, 0, 0, 3.0, 0, 0]))
    close(wrench[3] / 3000.0, -np.sin(1.6 * np.pi / 2), 1e-2)
    z = jnp.array([1e-3, -2e-3])
    slope = jax.jit(jax.jacfwd(lambda xd: TYRE.zdot(ZERO, STANDING, xd, z, none)))(jnp.zeros(6))
    assert bool(jnp.isfinite(slope).all())
    close(TYRE.zdot(ZERO, STANDING, jnp.zeros(6), z, none) * 1e3 / z, (0, 0), 60.0)  # held for tens of seconds
    radial = mb.RadialTyre("t", "world", "wheel", 0.35, 1.5e5, 1.3e4)
    force = lambda rho, rate: radial.load(ZERO, jnp.array([rho]), jnp.array([rate]), none, none)[0]
    close(force(0.34, 0.0), 1500.0, 1e-9)
    close(force(0.34, -0.1), 2800.0, 1e-9)
    close([force(0.34, 1.0), force(0.36, -1.0), force(0.36, 0.0)], np.zeros(3), 0.0)
    lifted = mb.Pose.translate(jnp.array([0.0, 0.0, 0.36]))
    close(TYRE.load(ZERO, lifted, rolling(5.0, 0.2, 0.1), z, none), np.zeros(6), 0.0)


# --- many of them in one stiff mechanism

UPRIGHT = np.array([[1.0, 0, 0], [0, 0, -1.0], [0, 1.0, 0]])
WEIGHT = 30.0 * 9.81


def workshop():
    """A geared motor, a servo, a PID, a cylinder, a muscle over a via-point and a wheel that starts to roll."""
    body = lambda name, mass: mb.RigidBody(name, mass, (0, 0, 0), (0.02, 0.02, 0.02))
    arm = [mb.Marker("world", (0, 0, 0.3)), mb.Marker("world", (0.02, 0, 0.1)), mb.Marker("arm", (0.05, 0, 0.02))]
    cylinder = mb.HydraulicCylinder(1e-3, 1e-3, 5e-4, 5e-4, 1.0, 3e-7, 1.6e7, friction=100.0)
    tyre = mb.SlipTyre("tyre", "world", "wheel", 0.35, 1.5e5, 1.3e4, kx=2e5, ky=1.5e5)
    return mb.Mechanism(
        [body("rotor", 1.0), body("s", 2.0), body("p", 2.0), body("c", 50.0), mb.rod("arm", 0.3, mass=1.5),
         mb.RigidBody("wheel", 30.0, (0, 0, 0), (2.0, 3.0, 2.0))],
        [mb.Revolute("R", "world", "rotor"), mb.Prismatic("S", "world", "s", axis="x"),
         mb.Prismatic("P", "world", "p", axis="x"), mb.Prismatic("C", "world", "c", axis="x"),
         mb.Revolute("M", "world", "arm", axis="y"),
         mb.Planar("W", mb.Marker("world", (0, 0, 0), UPRIGHT), mb.Marker("wheel", (0, 0, 0), UPRIGHT))],
        connections=[
            mb.AboutAxis("motor", "world", "rotor", mb.DcMotor(0.05, 1.0, 1e-5), ratio=3.0),
            mb.OnCoordinates("servo", "S", mb.PositionServo(500.0, 0.01, damping=40.0)),
            mb.OnCoordinates("pid", "P", mb.PidController(200.0, 300.0, 40.0, lag=1e-4)),
            mb.AlongLine("ram", mb.Marker("world", (-1, 0, 0)), "c", cylinder),
            mb.AlongPath("muscle", arm, mb.Muscle(600.0, 0.12, 0.15, activation=0.2, length=0.29)),
            tyre,
        ],
        gravity=(0, 0, -9.81),
    )  # fmt: skip


@pytest.fixture(scope="module")
def worked():
    model = mb.compile(workshop())
    q = jnp.zeros(model.nq).at[model.coordinates("W")].set(jnp.array([0.0, 0.35 - WEIGHT / 1.5e5, 0.0]))
    v = jnp.zeros(model.nv).at[model.speeds("W")].set(jnp.array([5.0, 0.0, 0.0]))
    inputs = {"motor": 12.0, "servo": 0.3, "pid": 0.2, "ram": 0.4, "muscle": 0.6}
    traj = mb.simulate(model, (q, v), [0.0, 0.02, 0.5, 1.0], solver=mb.implicit(), inputs=inputs,
                       controller=mb.Tolerance(1e-7))  # fmt: skip
    return model, traj


def test_stiff_steps_do_not_collapse(worked):
    """The fastest rates are 1e5 and 1e4 per second: an explicit method would need some 30000 steps."""
    steps = int(worked[1].stats.steps)
    assert steps < 400, steps


def test_motor_servo_and_controller_step(worked):
    """Linear systems: the matrix exponential. The motor's electrical time constant is L / R = 0.01 ms."""
    (model, traj), L, lag = worked, 1e-5, 1e-4
    rows = {
        ("motor", "R"): (((0.0, 0.15 / 0.02), (-0.15 / L, -1.0 / L)), (0.0, 12.0 / L)),
        ("servo", "S"): (((0, 1, 0), (0, -20, 0.5), (-5e4, 0, -100)), (0, 0, 1.5e4)),
        ("pid", "P"): (
            ((0, 1, 0, 0), (-100 - 20 / lag, 0, 150, -20 / lag), (-1, 0, 0, 0), (-1 / lag, 0, 0, -1 / lag)),
            (0, 0.2 * (100 + 20 / lag), 0.2, 0.2 / lag),
        ),
    }
    for (name, joint), (A, b) in rows.items():
        A, b = np.array(A, float), np.array(b, float)
        moving = [traj.v[:, model.speeds(joint)], traj.z[:, model.states(name)]]
        if name != "motor":
            moving = [traj.q[:, model.coordinates(joint)], *moving]
        found = np.concatenate(moving, 1)
        rest = np.linalg.solve(A, -b)
        for t, y in zip(traj.ts, found, strict=True):
            close(y, rest - expm(A * float(t)) @ rest, 1e-5)


def test_ram_wheel_and_muscle(worked):
    model, traj = worked
    speed = traj.v[-1, model.speeds("C")][0]
    a, b = traj.z[-1, model.states("ram")]
    close(1e-3 * (a - b), 100.0 * speed, 1e-2)  # steady: only friction is left
    root = lambda drop: drop / (drop**2 + 1e10) ** 0.25
    opening = 0.5 * (0.4 + np.sqrt(0.4**2 + 1e-6))
    close(speed, 3e-7 * opening * root(1.6e7 - float(a)) / 1e-3, 1e-3)
    V, _, spin = traj.v[-1, model.speeds("W")]
    rho = 0.35 - WEIGHT / 1.5e5
    close(V, 5.0 / (1 + 3.0 / (30.0 * rho**2)), 1e-3)
    close(-spin * rho, V, 1e-3)
    close(traj.z[-1, model.states("muscle")][0], 0.6, 1e-3)
    assert bool(jnp.isfinite(traj.q).all())


# --- what is refused, and how it is said

LINE = lambda law, **more: mb.AlongLine("x", *PAIR, law, **more)
SPLIT = lambda paths, heads=(MUSCLE, MUSCLE): mb.SplitMuscle("x", ["a", "b", "world"], paths, heads)
SLIP = lambda **more: mb.SlipTyre("x", *PAIR, 0.3, 1e5, 1e3, **({"kx": 1e5, "ky": 1e5} | more))
REFUSED = {
    "law": (lambda: LINE(3.0), r"law of AlongLine 'x' is 3.0; give a law"),
    "ratio": (lambda: LINE(mb.ForceInput(), ratio=np.nan), r"ratio of AlongLine 'x' is nan"),
    "ratios": (
        lambda: mb.OnCoordinates("x", ["A", "B"], mb.ForceInput(), ratio=2.0),
        r"ratio of OnCoordinates 'x' has shape \(\); give 2 numbers",
    ),
    "inductance": (lambda: LINE(mb.DcMotor(1.0, 1.0, 0.0)), r"inductance of DcMotor in .* 'x' is 0 H; .*above zero"),
    "resistance": (lambda: LINE(mb.DcMotor(1.0, -1.0, 1.0)), r"resistance of DcMotor in AlongLine 'x' is -1 Ohm"),
    "lag": (lambda: LINE(mb.PositionServo(1.0, -0.1)), r"lag of PositionServo in AlongLine 'x' is -0.1 s"),
    "gain": (lambda: LINE(mb.PidController(np.inf, 0.0, 0.0, 1.0)), r"p of PidController in AlongLine 'x' is inf"),
    "area": (lambda: LINE(eqx.tree_at(lambda c: c.area_b, CYLINDER, jnp.asarray(-1.0))), r"area_b of .* is -1 m\^2"),
    "supply": (
        lambda: LINE(eqx.tree_at(lambda c: c.supply_pressure, CYLINDER, jnp.asarray(10.0))),
        r"supply_pressure 10 Pa; give more than its tank's 100000 Pa",
    ),
    "force": (lambda: LINE(mb.Muscle(-5.0, 0.1, 0.2)), r"force of Muscle in AlongLine 'x' is -5 N; .*above zero"),
    "activation": (lambda: LINE(mb.Muscle(5.0, 0.1, 0.2, activation=2.0)), r"activation of .* is 2 .*, 1 or less"),
    "slack": (lambda: LINE(mb.Muscle(5.0, 0.1, 0.2, length=0.2)), r"'x' starts with a path of 0.2 m, in which"),
    "curve": (
        lambda: LINE(mb.Muscle(5.0, 0.1, 0.2, curves=mb.MuscleCurves(np.ones((4, 2)), *np.ones((3, 4))))),
        r"active of the curves of Muscle in AlongLine 'x' has shape \(4, 2\)",
    ),
    "one point": (lambda: mb.AlongPath("x", ["a"], mb.ForceInput()), r"'x' has 1 marker; give at least two"),
    "twice": (
        lambda: mb.AlongPath("x", ["world", mb.Marker("a", (1, 0, 0)), mb.Marker("a", (1, 0, 0))], mb.ForceInput()),
        r"points 1 and 2 of AlongPath 'x' coincide, both at \[1.0, 0.0, 0.0\] on 'a'",
    ),
    "heads": (lambda: SPLIT([(0, 1, 2)]), r"SplitMuscle 'x' has 2 heads and 1 paths"),
    "numbers": (lambda: SPLIT([(0, 1), (0, 3)]), r"SplitMuscle 'x' has the path \(0, 3\) over 3 markers"),
    "short": (lambda: SPLIT([(0, 1), (2,)]), r"SplitMuscle 'x' has the path \(2,\)"),
    "unused": (lambda: SPLIT([(0, 1), (0, 1)]), r"SplitMuscle 'x' has markers \[2\] that no path uses"),
    "kind": (lambda: SPLIT([(0, 1), (0, 2)], (MUSCLE, mb.ForceInput())), r"head 1 of SplitMuscle 'x' is ForceInput"),
    "radius": (lambda: mb.RadialTyre("x", *PAIR, 0.0, 1e5), r"radius of RadialTyre 'x' is 0 m; .*above zero"),
    "shape": (lambda: SLIP(lateral=(10.0, 2.5, 1.0, 0.0)), r"lateral of SlipTyre 'x' .*\(10, 2.5, 1, 0\); give B > 0"),
    "stiffness": (lambda: SLIP(kx=-1.0), r"kx of SlipTyre 'x' is -1 N/m"),
    "unknown body": (
        lambda: mb.Mechanism(
            [mb.sphere("a", 1, mass=1)], connections=[mb.AlongPath("x", ["a", "q"], mb.ForceInput())]
        ),
        r"(?s)'x'.*'q'",
    ),
}  # fmt: skip


@pytest.mark.parametrize("make, message", REFUSED.values(), ids=REFUSED.keys())
def test_refused_in_words(make, message):
    with pytest.raises(mb.MechanismError, match=message):
        make()
