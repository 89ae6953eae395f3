"""Closed, driven and rolling mechanisms with trusted answers: the reference problems of the benchmark collections.

The other side of each comparison is written in numpy from the equations of the problem, or read from its file. Runs
over time are in `test_reference_motion.py`.
"""

import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from andrews import (
    PlanarBody,
    Point,
    andrews,
    andrews_in_numpy,
    andrews_loads,
    in_order,
    out_of_order,
    planar_dynamics,
    reference,
)
from bicycle import bicycle
from closed import rolling_disc
from helpers import central_difference, close

import diffmb as mb

FOLDER = Path(__file__).parents[2] / "shared/reference"

pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="the reference problems are not here")


def load(name: str) -> dict[str, Any]:
    return json.loads((FOLDER / name).read_text())


def tight(tolerance: float) -> diffrax.PIDController:
    return diffrax.PIDController(rtol=tolerance, atol=tolerance)


def nothing(model: mb.Model, t, q, v) -> dict[str, Any]:
    return {}


@eqx.filter_jit
def dynamics(model: mb.Model, q, v, t=None, loads=nothing):
    t = jnp.zeros(()) if t is None else t
    return mb.dynamics(model, q, v, t=t, **loads(model, t, q, v))


@eqx.filter_jit
def reactions(model: mb.Model, q, v, loads=nothing):
    return mb.reactions(model, q, v, **loads(model, 0.0, q, v))


# --- P03: Andrews' squeezing mechanism


class Squeezer:
    """One model for all its tests."""

    def __init__(self):
        self.reference = reference()
        self.p = self.reference["parameters"]
        self.model = mb.compile(andrews(self.p))
        self.loads = lambda model, t, q, v: andrews_loads(model, q, self.p)

    def at(self, angles, rates):
        """Accelerations of the angles, and the forces of K2 at E on K3, K4 and K6: the multipliers of the test set."""
        q, v = in_order(self.model, angles), in_order(self.model, rates)
        pins = reactions(self.model, q, v, self.loads)
        forces = np.stack([pins[name] for name in ("E3", "E4", "E6")])
        close(forces[:, [0, 1, 2, 5]], np.zeros((3, 4)), 1e-12)  # nothing out of the plane, no moment about the pin
        return out_of_order(self.model, dynamics(self.model, q, v, None, self.loads).vd), forces[:, 3:5].ravel()


@pytest.fixture(scope="module")
def squeezer() -> Squeezer:
    return Squeezer()


def test_andrews_starts_as_published(squeezer):
    """15 digits: measured 2e-14 relative in the accelerations, 7e-16 in the multipliers.

    The accelerations carry the rounding of products by the condition of the rows: as compiled for use, with fused
    multiply-add, they are 9e-16 off; the light code of the tests has none.
    """
    start = squeezer.reference["initial"]
    vd, lam = squeezer.at(start["q"], start["v"])
    close(vd, start["a"], 5e-14)
    close(lam, start["lam"], 1e-14)
    found = mb.mobility(squeezer.model, in_order(squeezer.model, start["q"]))
    assert (int(found.dof), found.gruebler, int(found.rank)) == (1, -8, 6)


def test_andrews_in_motion(squeezer):
    """At the end of the reference run, and at attitudes and speeds of our own."""
    end = np.array(squeezer.reference["own_final"])
    vd, lam = squeezer.at(end[:7], end[7:14])
    close(vd, end[14:21], 1e-12)
    close(lam, end[21:], 1e-12)
    rng = np.random.default_rng(3)
    for k in (8, 13, 27):
        guess = dict(zip(("O", "F", "B", "G", "A5", "H", "A7"), squeezer.reference["q"][k], strict=True))
        beta = guess.pop("O") + rng.uniform(-0.1, 0.1)
        state = mb.assemble(squeezer.model, {"O": beta}, {"O": rng.uniform(-800, 800)}, guess=guess)
        q, v = (out_of_order(squeezer.model, x) for x in (state.q, state.v))
        vd, lam = squeezer.at(q, v)
        for ours, theirs in zip((vd, lam), andrews_in_numpy(squeezer.p, q, v), strict=True):
            close(ours, theirs, 1e-11)


# --- P02: N four-bars side by side


def windows(n: int) -> mb.Mechanism:
    """n + 1 cranks on the ground, n couplers between their tips, all 1 m and 1 kg."""
    tip = lambda name: mb.Marker(name, (1, 0, 0))
    rod = partial(mb.rod, length=1.0, mass=1.0)
    cranks = range(n + 1)
    return mb.Mechanism(
        [rod(f"crank {k}") for k in cranks] + [rod(f"coupler {k}") for k in range(n)],
        [mb.Revolute(f"A{k}", mb.Marker("world", (k, 0, 0)), f"crank {k}") for k in cranks]
        + [mb.Revolute(f"B{k}", tip(f"crank {k}"), f"coupler {k}") for k in range(n)]
        + [mb.Revolute(f"C{k}", tip(f"coupler {k}"), tip(f"crank {k + 1}"), cut=True) for k in range(n)],
        gravity=(0, -9.81, 0),
    )


def windows_state(model: mb.Model, theta: float, rate: float):
    sign = np.array([1.0 if name[0] == "A" else -1.0 for name in model.inboard])
    return theta * sign, rate * sign


def windows_acceleration(n: int, theta):
    return -9.81 * ((n + 1) / 2 + n) * np.cos(theta) / ((n + 1) / 3 + n)


@pytest.mark.parametrize("n", [2, 40])
def test_four_bars_accelerate_as_one_pendulum(n):
    """Three rows of each loop are redundant; 81 bodies and 200 rows for n = 40."""
    model = mb.compile(windows(n))
    assert (model.nv, model.nc) == (2 * n + 1, 5 * n)
    start = time.perf_counter()
    for theta, rate in ((np.pi / 2, -1.0), (0.7, 2.0), (-2.5, 6.0), (4.0, -3.0)):
        found = dynamics(model, *windows_state(model, theta, rate))
        expected, _ = windows_state(model, windows_acceleration(n, theta), 0.0)
        close(found.vd, expected, 1e-11)
        assert np.isfinite(found.lam).all()
    assert time.perf_counter() - start < 30  # 2 s measured for n = 40
    if n == 2:
        assert int(mb.mobility(model, windows_state(model, 0.7, 0.0)[0]).dof) == 1


# --- P10: the Chaplygin sleigh


def test_sleigh():
    """Closed form v = V tanh(k t + c), w = V sqrt(m/J) sech(k t + c), force m v w I / J across the blade."""
    data = load("P10_rolling.json")["sleigh"]
    m, I, a = data["m"], data["I"], data["a"]
    J = I + m * a * a
    model = mb.compile(
        mb.Mechanism(
            [mb.RigidBody("sleigh", m, (a, 0, 0), (I / 2, I / 2, I))],
            [mb.Planar("ice", "world", "sleigh")],
            constraints=[mb.Skate("blade", "world", "sleigh")],
        )
    )
    start = mb.assemble(model, jnp.zeros(3), jnp.array([data["v0"], 0.0, data["w0"]]))
    traj = mb.simulate(model, start, np.array(data["t"][:4]), controller=tight(1e-11))
    q, v = traj.q, traj.v
    for k, (x, y, heading, forward, w, force) in enumerate(data["y"][:4]):
        along, across = np.array([np.cos(heading), np.sin(heading)]), np.array([-np.sin(heading), np.cos(heading)])
        close(q[k], (x, y, heading), 1e-9)
        close(v[k], (*forward * along, w), 1e-9)
        exact = jnp.array([x, y, heading]), jnp.array([*forward * along, w])
        found = dynamics(model, *exact)
        # vd of the blade point: along it a w^2, across it v w; the spin decays by m a v w / J.
        vd = (*(a * w * w * along + forward * w * across), -m * a * forward * w / J)
        close(found.vd, vd, 1e-13)
        close(found.load("blade"), force, 1e-13)


# --- P14: the car axis


def road(t, p):
    """The moving end of the right spring; its rate and acceleration follow by hand in `car_axis_in_numpy`."""
    y = p["r"] * jnp.sin(p["w"] * t)
    return jnp.sqrt(p["L"] ** 2 - y * y), y


def car_axis(p: dict[str, float]) -> mb.Mechanism:
    """Masses M/2 on springs 1/eps^2: the equations of the test set divided by eps^2."""

    def perpendicular(t, rel, p):
        x, y = road(t, p)
        return x * rel.translation[0] + y * rel.translation[1]

    ball = lambda name: mb.RigidBody(name, p["M"] / 2, inertia=(0.1, 0.1, 0.1))
    return mb.Mechanism(
        [ball("left"), ball("right")],
        [mb.Planar("pl", "world", "left"), mb.Planar("pr", "world", "right")],
        constraints=[
            mb.Constraint("perpendicular", "world", "left", perpendicular, {k: p[k] for k in ("r", "w", "L")}),
            mb.Distance("bar", "left", "right", p["L"]),
        ],
        gravity=(0, -p["g"], 0),
    )


def car_axis_loads(p: dict[str, float]):
    def loads(model, t, q, v):
        left, right = q[model.coordinates("pl")][:2], q[model.coordinates("pr")][:2]
        pull = lambda arm: (p["L0"] / jnp.sqrt(arm @ arm) - 1) * arm / p["eps"] ** 2
        tau = jnp.zeros(model.nv)
        tau = tau.at[model.speeds("pl").start + jnp.arange(2)].set(pull(left))
        return {"tau": tau.at[model.speeds("pr").start + jnp.arange(2)].set(pull(right - jnp.stack(road(t, p))))}

    return loads


def car_axis_in_numpy(p: dict[str, float], t, x, xd):
    """k xdd = f + lam1 grad(g1) + lam2 grad(g2), g1 = xb xl + yb yl, g2 = |pl - pr|^2 - L^2; (xdd, lam1, lam2)."""
    y, yd = p["r"] * np.sin(p["w"] * t), p["r"] * p["w"] * np.cos(p["w"] * t)
    ydd = -(p["w"] ** 2) * y
    b = np.sqrt(p["L"] ** 2 - y * y)
    bd = -y * yd / b
    bdd = -(yd * yd + y * ydd + bd * bd) / b
    k, (left, right), (vl, vr) = p["M"] * p["eps"] ** 2 / 2, x.reshape(2, 2), xd.reshape(2, 2)
    pull = lambda arm: (p["L0"] / np.linalg.norm(arm) - 1) * arm
    f = np.concatenate([pull(left), pull(right - [b, y])]) - k * p["g"] * np.array([0, 1, 0, 1])
    d, dd = left - right, vl - vr
    G = np.array([[b, y, 0, 0], 2 * np.array([*d, *-d])])
    gamma = -np.array([np.dot([bdd, ydd], left) + 2 * np.dot([bd, yd], vl), 2 * dd @ dd])
    K = np.block([[k * np.eye(4), -G.T], [G, np.zeros((2, 2))]])
    solution = np.linalg.solve(K, np.concatenate([f, gamma]))
    return solution[:4], solution[4:]


@pytest.fixture(scope="module")
def axis():
    p = load("P14_ivp_caraxis.json")["parameters"]
    model = mb.compile(car_axis(p))
    flat = np.array([model.speeds(j).start + k for j in ("pl", "pr") for k in range(2)])
    return p, model, flat, car_axis_loads(p)


def test_car_axis(axis):
    """At the start, along the reference run and at states of our own. lam of the test set is in units of its rows."""
    p, model, flat, loads = axis
    data = load("P14_ivp_caraxis.json")
    rows = [(t, np.array(y[:4]), np.array(y[4:8]), np.array(y[8:])) for t, y in zip(data["t"], data["y"], strict=True)]
    rng = np.random.default_rng(0)
    states = [rows[k] for k in (0, 7, 30)]
    for t in (0.1, 0.77):
        reach, tilt, *rates = rng.uniform((0.3, -0.2, -2, -2), (0.7, 0.2, 2, 2))
        places = lambda t, reach, tilt: jnp.concatenate(
            [
                reach * jnp.array([-road(t, p)[1], road(t, p)[0]]),
                reach * jnp.array([-road(t, p)[1], road(t, p)[0]]) + p["L"] * jnp.array([jnp.cos(tilt), jnp.sin(tilt)]),
            ]
        )
        x, xd = jax.jvp(places, (t, reach, tilt), (1.0, *rates))
        states.append((t, np.asarray(x), np.asarray(xd), None))
    for t, x, xd, published in states:
        q, v = (jnp.zeros(model.nv).at[flat].set(value) for value in (x, xd))
        close(mb.constraint_residual(model, q, t), np.zeros(2), 1e-11)
        close(mb.constraint_rate(model, q, v, t), np.zeros(2), 1e-9)
        found = dynamics(model, q, v, jnp.asarray(t), loads)
        xdd, lam = car_axis_in_numpy(p, t, x, xd)
        close(np.asarray(found.vd)[flat], xdd, 1e-11)
        ours = found.load("perpendicular"), found.load("bar") / (2 * p["L"])
        close(ours, lam / p["eps"] ** 2, 1e-11)
        if published is not None:  # the speeds of the file are good to 10 digits, lam times 1e4 to 9
            close(ours, published / p["eps"] ** 2, 1e-8)


# --- P26: the slider-crank of SUNDIALS


def slider_crank(p) -> mb.Mechanism:
    """The rod's centre of mass is its origin and slides along x; one unit behind it the crank's tip."""
    return mb.Mechanism(
        [
            mb.RigidBody("crank", 1.0, inertia=jnp.array([1.0, 1.0, 1.0]) * p["J1"]),
            mb.RigidBody("rod", p["m2"], inertia=jnp.array([1.0, 1.0, 1.0]) * p["J2"]),
        ],
        [
            mb.Revolute("A", "world", "crank"),
            mb.Revolute("B", mb.Marker("crank", jnp.array([1.0, 0.0, 0.0]) * p["a"]), mb.Marker("rod", (-1, 0, 0))),
        ],
        constraints=[mb.PointOnLine("guide", "world", "rod")],
        gravity=(0, 0, 0),
    )


def slider_crank_loads(p):
    """Spring and damper between the crank's middle and the rod's point half a unit behind its centre, and the force."""

    def loads(model, t, q, v):
        motion = mb.kinematics(model, q, v)
        ends = mb.Marker("crank", jnp.array([0.5, 0.0, 0.0]) * p["a"]), mb.Marker("rod", (-0.5, 0, 0))
        first, second = (motion[end] for end in ends)
        arm = second.pose.translation - first.pose.translation
        length = jnp.sqrt(arm @ arm)
        rate = arm @ (second.twist - first.twist)[3:] / length
        pull = (p["k"] * (length - p["l0"]) + p["c"] * rate) * arm / length
        wrench = lambda force: jnp.concatenate([jnp.zeros(3), force])
        push = jnp.array([1.0, 0.0, 0.0]) * p["F"]
        tip = mb.Marker("rod", (1, 0, 0))
        return {"wrenches": [(ends[0], wrench(pull)), (ends[1], wrench(-pull)), (tip, wrench(push))]}

    return loads


def slider_crank_in_numpy(p, q, v):
    """Coordinates (q, x, p): angles of crank and rod, position of the rod; accelerations and closure forces."""
    crank, along, turn = np.eye(3)
    slider = Point((0, 0), [], along)
    bodies = [PlanarBody(0.0, p["J1"], Point((0, 0), []), crank), PlanarBody(p["m2"], p["J2"], slider, turn)]
    middle, behind = Point((0, 0), [(p["a"] / 2, crank, 0)]), Point((0, 0), [(-0.5, turn, 0)], along)
    arm, J, _ = (behind - middle).at(q, v)
    length = np.linalg.norm(arm)
    pull = (p["k"] * (length - p["l0"]) + p["c"] * arm @ J @ v / length) * arm / length
    ahead = Point((0, 0), [(1.0, turn, 0)], along)
    forces = [(middle, pull), (behind, -pull), (ahead, np.array([p["F"], 0]))]
    closure = Point((0, 0), [(p["a"], crank, 0), (1.0, turn, 0)]) - slider
    return planar_dynamics(bodies, [closure], q, v, forces)


def slider_crank_state(p, angle, rate):
    """(q, x, p) and their rates that close."""
    turn = -np.arcsin(p["a"] * np.sin(angle))
    spin = -p["a"] * np.cos(angle) * rate / np.cos(turn)
    x, xd = np.cos(turn) + p["a"] * np.cos(angle), -np.sin(turn) * spin - p["a"] * np.sin(angle) * rate
    return np.array([angle, x, turn]), np.array([rate, xd, spin])


def test_slider_crank():
    """Accelerations at the start and in motion."""
    data = load("P26_sensitivity.json")["slider_crank"]
    p = data["parameters"]
    model, loads = mb.compile(slider_crank(p)), slider_crank_loads(p)
    ours = lambda x: np.array([x[0], x[2] - x[0]])
    for angle, rate in ((0.3, 1.1), (-1.9, -2.0), (np.pi / 2, 0.0)):
        q, v = slider_crank_state(p, angle, rate)
        found = dynamics(model, ours(q), ours(v), None, loads)
        close(found.vd, ours(slider_crank_in_numpy(p, q, v)[0]), 1e-12)


def test_slider_crank_follows_its_numbers():
    """d vd / d(a, J1, J2, m2): the bodies change, and with a also the attitude that closes."""
    p = load("P26_sensitivity.json")["slider_crank"]["parameters"]
    names = ("a", "J1", "J2", "m2")

    def acceleration(x):
        numbers = p | dict(zip(names, x, strict=True))
        model = mb.compile(slider_crank(numbers))
        state = mb.assemble(model, {"A": 0.8}, {"A": 1.3}, guess={"B": -1.3}, throw=False)
        return mb.forward_dynamics(model, state.q, state.v, **slider_crank_loads(numbers)(model, 0.0, state.q, state.v))

    at = np.array([p[name] for name in names])
    push = jax.jit(lambda x, d: jax.jvp(acceleration, (x,), (d,)))
    for direction in np.eye(4):
        close(push(at, direction)[1], central_difference(lambda x: push(x, at)[0], at, direction, 1e-4), 1e-10)


# --- rolling disc


def disc_state(lean, roll, spin, radius):
    """(q, v) of a disc that rolls along x, turned by `roll` about its axle; `spin` in the world's axes."""
    axle = np.array([0, -np.sin(lean), np.cos(lean)])
    uphill = np.cross(axle, (1, 0, 0))
    c, s = np.cos(roll), np.sin(roll)
    R = np.stack([(1, 0, 0), uphill, axle], 1) @ np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]])
    place = (0.2, -0.1, radius * np.sin(lean))
    q = np.concatenate([place, mb.Marker("disc", rotation=R).rotation])
    return q, np.concatenate([R.T @ spin, R.T @ np.cross(spin, radius * uphill)])


def test_disc_rolls_steadily_in_a_circle():
    """(C + m r^2) w3 W sin + m g r cos = A W^2 sin cos, axle at `lean` from the vertical, precession W, spin w3."""
    radius = 0.3
    mech = rolling_disc(radius)
    model = mb.compile(mech)
    m, (A, _, C), g = float(mech["disc"].mass), np.diag(mech["disc"].inertia), 9.81
    for lean, W, roll in ((1.2, 1.7, 0.4), (0.5, -3.0, 2.0)):
        s, c = np.sin(lean), np.cos(lean)
        w3 = (A * W * W * s * c - m * g * radius * c) / ((C + m * radius**2) * W * s)
        axle, uphill, up = np.array([(0, -s, c), (0, c, s), (0, 0, 1.0)])  # heading along x
        spin = w3 * axle + W * s * uphill
        velocity = np.cross(spin, radius * uphill)
        q, v = disc_state(lean, roll, spin, radius)
        close(mb.constraint_residual(model, q), [0.0], 1e-14)
        close(mb.constraint_rate(model, q, v), np.zeros(3), 1e-14)
        found = dynamics(model, q, v)
        moves = mb.kinematics(model, q, v, found.vd)["disc"]
        close(moves.acceleration, np.concatenate([W * np.cross(up, spin), W * np.cross(up, velocity)]), 1e-12)
        force = m * (W * np.cross(up, velocity) + g * up)
        close(found.load("contact"), force[[2, 0, 1]], 1e-12)  # the normal force, then friction


def test_disc_keeps_its_energy():
    """dE/dt = 0 and rolling stays rolling from random states; nothing but the contact acts."""
    radius = 0.3
    model = mb.compile(rolling_disc(radius))
    rng = np.random.default_rng(4)

    @jax.jit
    def laws(q, v):
        vd = mb.forward_dynamics(model, q, v)
        energy = lambda q, v: mb.kinetic_energy(model, q, v) + mb.potential_energy(model, q)
        power = jax.jvp(energy, (q, v), (mb.qdot(model, q, v), vd))[1]
        slip = jax.jvp(lambda q, v: mb.constraint_rate(model, q, v), (q, v), (mb.qdot(model, q, v), vd))[1]
        return power, slip, energy(q, v), vd

    for _ in range(3):
        lean, roll, spin = rng.uniform(0.4, 2.5), rng.uniform(0, 6), 3 * rng.standard_normal(3)
        power, slip, energy, vd = laws(*disc_state(lean, roll, spin, radius))
        assert abs(float(power)) < 1e-11 * max(1.0, float(energy)) and float(jnp.abs(vd).max()) > 1.0
        close(slip, np.zeros(3), 1e-12)


# --- P08: the Whipple bicycle


def test_bicycle_is_whipples(speed=5.0):
    """The whole nonlinear model linearised along roll and steer: M, C1, K0, K2 and the eigenvalues."""
    data = load("P08_bicycle.json")
    model = mb.compile(bicycle(data["parameters"]))
    q0 = model.neutral()
    steer, rear = model.speeds("steer").start, model.speeds("rear").start
    chosen = np.array([model.speeds("frame").start, steer, rear])  # roll rate, steer rate, rear wheel

    def accelerations(x):
        """Of roll and steer; pitch is of second order, so the contacts hold to first order in x."""
        q = mb.retract(model, q0, jnp.zeros(model.nv).at[chosen[:2]].set(x[:2]))
        rows = jnp.concatenate([mb.constraint_jacobian(model, q), jnp.eye(model.nv)[chosen]])
        wheel = speed / data["parameters"]["rR"]
        v = jnp.linalg.solve(rows, jnp.concatenate([jnp.zeros(6), x[2:], jnp.array([wheel])]))
        return mb.forward_dynamics(model, q, v)[chosen[:2]], v

    push = jax.jit(lambda d: jax.jvp(accelerations, (jnp.zeros(4),), (d,)))
    (found, v), _ = push(np.zeros(4))
    slope = np.stack([push(d)[1][0] for d in np.eye(4)], 1)
    close(found, np.zeros(2), 1e-11)
    close(v[model.speeds("frame")], (0, 0, 0, speed, 0, 0), 1e-13)
    lin = {k: np.array(x) for k, x in data["published_linear"].items()}
    K = data["parameters"]["g"] * lin["K0"] + speed**2 * lin["K2"]
    close(lin["M"] @ slope, -np.concatenate([K, speed * lin["C1"]], 1), 1e-12)
    system = np.block([[np.zeros((2, 2)), np.eye(2)], [slope]])
    ours = np.sort_complex(np.linalg.eigvals(system))
    theirs = np.sort_complex([complex(*pair) for pair in data["eigenvalues"][f"{speed:.0f}"]])
    assert np.abs(ours - theirs).max() < 1e-11
