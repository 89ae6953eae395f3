"""Closed and driven systems of the founding books, against their closed forms, and how bad ones are refused."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from andrews import PlanarBody, Point, planar_close, planar_dynamics
from closed import crank_slider, four_bar
from helpers import close

import diffmb as mb


@jax.jit
def everything(model: mb.Model, q, v, tau, t=0.0) -> dict[str, Any]:
    found = mb.dynamics(model, q, v, tau, t)
    return {
        "dynamics": found,
        "vd": found.vd,
        "M": mb.mass_matrix(model, q, t),
        "c": mb.bias(model, q, v, t),
        "G": mb.constraint_jacobian(model, q, t),
        "gamma": mb.constraint_bias(model, q, v, t),
        "phi": mb.constraint_residual(model, q, t),
        "rate": mb.constraint_rate(model, q, v, t),
    }


def moved(model: mb.Model, q, v, tau=None, t=0.0) -> dict[str, Any]:
    """Everything at a consistent state; it satisfies M vd + c + G^T lam = tau and G vd = gamma."""
    tau = np.zeros(model.nv) if tau is None else tau
    found = everything(model, np.asarray(q), np.asarray(v), np.asarray(tau, float), t)
    found = {key: value if key == "dynamics" else np.asarray(value) for key, value in found.items()}
    close(found["phi"], 0 * found["phi"], 1e-11)
    close(found["rate"], 0 * found["rate"], 1e-10)
    close(found["M"] @ found["vd"] + found["c"] + found["G"].T @ found["dynamics"].lam, tau, 1e-10)
    close(found["G"] @ found["vd"], found["gamma"], 1e-9)
    return found


def packed(model: mb.Model, **values) -> np.ndarray:
    """Coordinates or speeds of joints with one each, by name."""
    x = np.zeros(model.nv)
    for name, value in values.items():
        x[model.speeds(name)] = value
    return x


def refused(match: str):
    return pytest.raises(mb.MechanismError, match=f"(?s){match}")


# --- crank and slider (Wijckmans 1992, 3.3)

CRANK, ROD, OFFSET = 0.2, 0.5, 0.05


def turning(t, p):
    return p[0] + p[1] * t + 0.5 * p[2] * t * t


def slider(phi):
    """Position of the slider, and its first and second derivative with respect to the crank's angle."""
    rise = CRANK * np.sin(phi) - OFFSET
    run = np.sqrt(ROD**2 - rise**2)
    d_rise, dd_rise = CRANK * np.cos(phi), -CRANK * np.sin(phi)
    d_run = -rise * d_rise / run
    dd_run = -(d_rise**2 + rise * dd_rise + d_run**2) / run
    return CRANK * np.cos(phi) + run, dd_rise + d_run, -d_rise + dd_run


def test_crank_moves_the_slider():
    """Position, velocity and acceleration over more than a turn, and the attitude of the rod."""
    drive = mb.PositionDrive("motor", "A", turning, (0.4, 7.0, 3.0))
    model = mb.compile(crank_slider(CRANK, ROD, OFFSET, drives=[drive]))
    ts = np.linspace(0.0, 1.1, 12)
    # The guess chooses the branch: the slider to the right of the crank.
    simulation = mb.simulate_kinematics(model, model.pack({"A": 0.4, "B": -0.5}), ts)
    phi, rate = turning(ts, (0.4, 7.0, 3.0)), 7.0 + 3.0 * ts
    s, ds, dds = slider(phi)
    found = simulation["slider"]
    close(found.pose.translation, np.stack([s, OFFSET + 0 * s, 0 * s], 1), 1e-11)
    close(found.twist[:, 3], ds * rate, 1e-11)
    close(found.acceleration[:, 3], dds * rate**2 + ds * 3.0, 1e-11)
    close(found.acceleration[:, [0, 1, 2, 4, 5]], np.zeros((12, 5)), 1e-10)
    rod = simulation.coordinate("A") + simulation.coordinate("B")
    close(np.sin(rod), (OFFSET - CRANK * np.sin(phi)) / ROD, 1e-11)
    assert simulation.ok.all() and simulation.residual.max() < 1e-12


def short_rod() -> mb.Model:
    """The rod stands across the guide when the crank, turning at 1 rad/s, has come to asin(rod / crank)."""
    return mb.compile(crank_slider(CRANK, 0.15, 0.0, drives=[mb.PositionDrive("motor", "A", turning, (0.0, 1.0, 0.0))]))


def test_crank_cannot_drive_over_a_short_rod():
    """Where the rod no longer reaches the guide, the message says so, and what went before is right."""
    model, ts = short_rod(), np.array([0.0, 0.4, 0.8, 0.849])
    with refused(r"cannot close at t = 0.849 s: 'D: side 2' \(loop .*slider.*rod.*crank.*\) stays open"):
        mb.simulate_kinematics(model, model.neutral(), ts)
    simulation = mb.simulate_kinematics(model, model.neutral(), ts, throw=False)
    assert list(simulation.ok) == [True] * 3 + [False]
    rod = simulation.coordinate("A") + simulation.coordinate("B")
    close(rod[:3], -np.arcsin(CRANK * np.sin(ts[:3]) / 0.15), 1e-11)


def test_crank_stops_where_the_slider_may_go_either_way():
    model = short_rod()
    with refused(r"singular attitude at t = 0.848062 s.*which way .*'[BC]'.*move on"):
        mb.simulate_kinematics(model, model.neutral(), np.array([0.0, 0.4, 0.8, np.arcsin(0.15 / CRANK)]))


# --- four-bar (Sol 1983, figure 5.1), opened at its last hinge

LENGTHS = {"l1": 0.1, "l2": 0.3, "l3": 0.25, "base": 0.3}


def four_bar_in_numpy(l1, l2, l3, base):
    """Bodies and closure with the angles of crank, coupler and rocker (from D to C) against the ground."""
    a1, a2, a3 = np.eye(3)
    bodies = [
        PlanarBody(0.2, 0.2 * l1**2 / 12, Point((0, 0), [(l1 / 2, a1, 0)]), a1),
        PlanarBody(0.5, 0.5 * l2**2 / 12, Point((0, 0), [(l1, a1, 0), (l2 / 2, a2, 0)]), a2),
        PlanarBody(0.4, 0.4 * l3**2 / 12, Point((base, 0), [(l3 / 2, a3, 0)]), a3),
    ]
    return bodies, [Point((0, 0), [(l1, a1, 0), (l2, a2, 0), (-l3, a3, 0)]) - Point((base, 0), [])]


def chain(angles):
    """Relative coordinates of A, B, C."""
    return np.diff(np.concatenate([[0.0], angles]))


@pytest.fixture(scope="module")
def open_at_d() -> mb.Model:
    return mb.compile(four_bar(**LENGTHS, cut="D"))


@pytest.mark.parametrize("angle, rate", [(0.5, 0.0), (2.0, 9.0), (-1.4, -20.0)])
def test_four_bar_of_sol(open_at_d, angle, rate):
    bodies, closure = four_bar_in_numpy(**LENGTHS)
    q, v = planar_close(closure, [angle, 1.0, 2.0], {0: angle}, {0: rate})
    tau = np.array([0.7, 0.0, 0.0])
    found = moved(open_at_d, chain(q), chain(v), tau)
    vd, lam = planar_dynamics(bodies, closure, q, v, tau=tau, gravity=9.81)
    close(np.cumsum(found["vd"]), vd, 1e-12)
    # lam of the oracle pulls C of the coupler; D carries the same force on, less what moves the rocker.
    pins = mb.reactions(open_at_d, chain(q), chain(v), tau)
    close(pins["C"][3:5], lam, 1e-11)
    assert int(mb.mobility(open_at_d, chain(q)).dof) == 1


def test_folded_parallelogram_gains_a_freedom():
    """nd = nv - rank: 1 in general, 2 where all bars lie on one line. Gruebler's count knows neither."""
    model = mb.compile(four_bar(1.0, 2.0, 1.0, 2.0, cut="D"))
    attitude = lambda x: chain(np.array([x, 0.0, x]))
    for angle, dof in ((0.7, 1), (0.0, 2), (np.pi, 2), (-2.0, 1)):
        found = mb.mobility(model, attitude(angle))
        assert int(found.dof) == dof and found.gruebler == -2, angle
        assert f"{dof} degrees of freedom" in repr(found)
        assert len(found.redundant) == 5 - (3 - dof)
    # At rest and in motion along the parallelogram every equation holds, in the folded attitude too. Within 1e-6 rad of
    # it the rows count as those of the fold, and are off by that much; nothing becomes large or NaN on the way.
    for rate in (0.0, 3.0):
        for angle in (0.0, np.pi, 0.7):
            moved(model, attitude(angle), attitude(rate))
        for angle in 10.0 ** -np.arange(1, 16):
            found = everything(model, attitude(angle), attitude(rate), np.zeros(3))
            assert np.isfinite(found["dynamics"].lam).all() and np.abs(found["vd"]).max() < 20.0, (angle, rate)


def test_mobility_sees_the_fold_coming():
    model = mb.compile(four_bar(1.0, 2.0, 1.0, 2.0, cut="D"))
    assert float(mb.mobility(model, chain(np.array([1e-6, 0.0, 1e-6]))).distance) < 1e-3


def test_driven_loop_is_inverse_dynamics():
    """The load of the drive is the generalised force of the whole mechanism at the crank, by virtual work and power."""
    drive = mb.PositionDrive("motor", "A", turning, (0.4, 7.0, 3.0))
    model = mb.compile(four_bar(**LENGTHS, cut="D", drives=[drive]))
    bodies, closure = four_bar_in_numpy(**LENGTHS)
    t = 0.3
    angle, rate = 0.4 + 7.0 * t + 1.5 * t * t, 7.0 + 3.0 * t
    q, v = (x for x in planar_close(closure, [angle, 1.0, 2.0], {0: angle}, {0: rate}))
    found = moved(model, chain(q), chain(v), t=t)
    close(found["vd"][0], 3.0, 1e-13)
    load = float(found["dynamics"].load("motor"))
    allowed = chain(v) / rate  # the one motion that the loop allows
    close(load, allowed @ (found["M"] @ found["vd"] + found["c"]), 1e-11)

    energy = lambda q, v: mb.kinetic_energy(model, q, v) + mb.potential_energy(model, q)
    args, rates = (jnp.asarray(chain(q)), jnp.asarray(chain(v))), (jnp.asarray(chain(v)), jnp.asarray(found["vd"]))
    close(load * rate, jax.jit(lambda a, b: jax.jvp(energy, a, b)[1])(args, rates), 1e-10)
    # The same torque moves the four-bar without a drive in the same way.
    vd, _ = planar_dynamics(bodies, closure, q, v, tau=np.array([load, 0, 0]), gravity=9.81)
    close(np.cumsum(found["vd"]), vd, 1e-11)


def test_parallelogram_cannot_be_driven_through_its_fold():
    """Beyond it lie the parallelogram and the crossed bars; the crank does not say which."""
    drive = mb.PositionDrive("motor", "A", turning, (0.5, -1.0, 0.0))
    model = mb.compile(four_bar(1.0, 2.0, 1.0, 2.0, cut="D", drives=[drive]))
    start = jnp.asarray(chain(np.array([0.5, 0.0, 0.5])))
    simulation = mb.simulate_kinematics(model, start, [0.0, 0.2, 0.4])
    close(simulation.q, [chain(np.array([x, 0, x])) for x in (0.5, 0.3, 0.1)], 1e-12)
    with refused(r"singular attitude at t = 0.5 s.*'[ABC]'"):
        mb.simulate_kinematics(model, start, [0.0, 0.2, 0.5])
    with refused(r"singular attitude between t = 0.4 and 0.6 s.*'[ABC]'"):
        mb.simulate_kinematics(model, start, [0.0, 0.4, 0.6])


# --- five-bar: two freedoms, one of them driven

FIVE = (0.2, 0.35, 0.3, 0.25, 0.4)


def wave(t, p):
    return 0.3 + p * t + 0.3 * jnp.sin(4.0 * t)


def five_bar(drives=()) -> mb.Mechanism:
    """Cranks on A and E, connecting rods to the knee C."""
    l1, l2, l3, l4, base = FIVE
    return mb.Mechanism(
        [mb.rod(f"b{k + 1}", length, mass=0.3) for k, length in enumerate(FIVE[:4])],
        [
            mb.Revolute("A", "world", "b1"),
            mb.Revolute("B", mb.Marker("b1", (l1, 0, 0)), "b2"),
            mb.Revolute("E", mb.Marker("world", (base, 0, 0)), "b4"),
            mb.Revolute("D", mb.Marker("b4", (l4, 0, 0)), "b3"),
            mb.Revolute("C", mb.Marker("b2", (l2, 0, 0)), mb.Marker("b3", (l3, 0, 0)), cut=True),
        ],
        drives=drives,
        gravity=(0, -9.81, 0),
    )


def test_partly_driven_loop():
    """Crank A is prescribed, crank E falls: mixed dynamics. The load on A alone would have made the same motion."""
    l1, l2, l3, l4, base = FIVE
    a1, a2, a3, a4 = np.eye(4)
    left = Point((0, 0), [(l1, a1, 0), (l2, a2, 0)])
    right = Point((base, 0), [(l4, a4, 0), (l3, a3, 0)])
    t, rate = 0.2, 5.0
    angle, speed = 0.3 + rate * t + 0.3 * np.sin(4 * t), rate + 1.2 * np.cos(4 * t)
    q, v = planar_close([left - right], [angle, 0.5, 2.5, 0.9], {0: angle, 3: 0.9}, {0: speed, 3: -2.0})
    model = mb.compile(five_bar([mb.PositionDrive("motor", "A", wave, rate)]))
    place = lambda x: packed(model, A=x[0], B=x[1] - x[0], E=x[3], D=x[2] - x[3])
    found = moved(model, place(q), place(v), packed(model, E=0.4), t)
    close(found["vd"][model.speeds("A")], [-4.8 * np.sin(4 * t)], 1e-12)
    load = float(found["dynamics"].load("motor"))
    rod = lambda k, arms, turn, p0=(0, 0): PlanarBody(0.3, 0.3 * FIVE[k] ** 2 / 12, Point(p0, arms), turn)
    bodies = [
        rod(0, [(l1 / 2, a1, 0)], a1),
        rod(1, [(l1, a1, 0), (l2 / 2, a2, 0)], a2),
        rod(2, [(l4, a4, 0), (l3 / 2, a3, 0)], a3, (base, 0)),
        rod(3, [(l4 / 2, a4, 0)], a4, (base, 0)),
    ]
    vd, _ = planar_dynamics(bodies, [left - right], q, v, tau=np.array([load, 0, 0, 0.4]), gravity=9.81)
    close(found["vd"], place(vd), 1e-11)
    count = lambda **more: int(mb.mobility(model, place(q), t, **more).dof)
    assert (count(), count(drives=True)) == (2, 1)


# --- five bodies, one of them isolated (Sol 1983, figures 4.1 to 5.4)


def test_five_bodies_of_sol():
    """A slide, two pins and a ball form the loop, a second slide hangs on body 1, nothing holds body 5.

    The ball has most coordinates and is opened; it has 3 rows, one of them redundant because the loop is plane.
    """
    m, l2, l3, base = (1.0, 0.5, 0.7, 0.4, 2.0), 0.5, 0.3, 0.6
    mech = mb.Mechanism(
        [
            mb.box("B1", (0.1, 0.1, 0.1), mass=m[0]),
            mb.rod("B2", l2, mass=m[1]),
            mb.rod("B3", l3, mass=m[2]),
            mb.box("B4", (0.05, 0.1, 0.05), mass=m[3]),
            mb.RigidBody("B5", m[4], (0.1, 0.0, 0.2), (0.3, 0.2, 0.25)),
        ],
        [
            mb.Prismatic("H1", "world", "B1", axis="x"),
            mb.Revolute("H2", "B1", "B2"),
            mb.Revolute("H3", mb.Marker("B2", (l2, 0, 0)), mb.Marker("B3", (l3, 0, 0))),
            mb.Prismatic("H4", "B1", "B4", axis="y"),
            mb.Spherical("C1", mb.Marker("world", (base, 0, 0)), "B3"),
        ],
        gravity=(0, -9.81, 0),
    )
    model = mb.compile(mech)
    number = {name: k for k, name in enumerate(model.topology.bodies)}
    assert [model.topology.parent[number[f"B{k}"]] for k in range(1, 6)] == [
        0, number["B1"] + 1, number["B2"] + 1, number["B1"] + 1, 0,
    ]  # fmt: skip
    assert model.topology.cuts == (4,) and model.inboard[number["B5"]] == "B5" and model.nv == 4 + 6

    x, a2, a3 = np.eye(3)
    bodies = [
        PlanarBody(m[0] + m[3], 0.0, Point((0, 0), [], x), 0 * x),  # body 4 moves with body 1 along x
        PlanarBody(m[1], m[1] * l2**2 / 12, Point((0, 0), [(l2 / 2, a2, 0)], x), a2),
        PlanarBody(m[2], m[2] * l3**2 / 12, Point((base, 0), [(l3 / 2, a3, 0)]), a3),
    ]
    closure = [Point((0, 0), [(l2, a2, 0)], x) - Point((base, 0), [(l3, a3, 0)])]
    q, v = planar_close(closure, [0.0, 0.6, 2.0], {2: 2.0}, {2: 4.0})
    vd, _ = planar_dynamics(bodies, closure, q, v, gravity=9.81)

    free = np.random.default_rng(1).standard_normal(6)
    pose = model.pack({"H1": q[0], "H2": q[1], "H3": q[2] - q[1], "H4": 0.1, "B5": (1, 2, 3, 0.5, 0.5, -0.5, 0.5)})
    speeds = packed(model, H1=v[0], H2=v[1], H3=v[2] - v[1], H4=-0.6, B5=free)
    found = moved(model, pose, speeds)
    expected = packed(model, H1=vd[0], H2=vd[1], H3=vd[2] - vd[1], H4=-9.81)
    loop = np.concatenate([np.arange(model.nv)[model.speeds(name)] for name in ("H1", "H2", "H3", "H4")])
    close(found["vd"][loop], expected[loop], 1e-12)
    # The isolated body falls: its centre of mass accelerates with gravity, and its angular momentum stays.
    falling = mb.kinematics(model, pose, speeds, found["vd"])[mb.Marker("B5", (0.1, 0.0, 0.2))]
    close(falling.acceleration[3:], (0, -9.81, 0), 1e-12)
    R, w, wd = falling.pose.rotation, falling.twist[:3], falling.acceleration[:3]
    I = R @ np.diag([0.3, 0.2, 0.25]) @ R.T
    close(I @ wd + np.cross(w, I @ w), np.zeros(3), 1e-12)

    counted = mb.mobility(model, pose)
    assert (int(counted.dof), counted.gruebler, len(counted.redundant)) == (8, 7, 1)
    assert "C1" in counted.redundant[0]


# --- skate and ball-bar-ball (Sol 1983, ch. 3 and 7)


def test_skate_on_a_slope_draws_a_cycloid():
    """Downhill along x, turning at w: v = g sin/w sin(w t), x = g sin/(2 w^2) sin^2(w t), and it never gets away."""
    slope, w, m, g = 0.3, 1.7, 1.2, 9.81
    pull = g * np.sin(slope)
    model = mb.compile(
        mb.Mechanism(
            [mb.RigidBody("skate", m, inertia=(0.1, 0.1, 0.2))],
            [mb.Planar("ice", "world", "skate")],
            constraints=[mb.Skate("blade", "world", "skate")],
            gravity=(pull, 0, -g * np.cos(slope)),
        )
    )
    for t in (0.0, 0.4, 2.0):
        s, c = np.sin(w * t), np.cos(w * t)
        q = np.array([pull / (2 * w * w) * s * s, pull / (2 * w * w) * (w * t - s * c), w * t])
        v = np.array([pull / w * s * c, pull / w * s * s, w])
        found = moved(model, q, v)
        close(found["vd"], (pull * (c * c - s * s), 2 * pull * s * c, 0), 1e-13)
        close(found["dynamics"].load("blade"), 2 * m * pull * s, 1e-13)
    counted = mb.mobility(model, q)
    assert (int(counted.dof), int(counted.velocity_dof)) == (3, 2)  # nonholonomic: reaches everywhere, with two speeds


def test_ball_bar_ball_spins_freely():
    """A bar on two balls between two cranks in space: its spin is a second freedom, which a rod without mass lacks."""
    length, along, up = 0.6, np.array([0.6, 0.0, 0.8]), np.array([0.0, 1.0, 0.0])
    upright = np.stack([up, (-1, 0, 0), (0, 0, 1)], 1)  # both cranks along y at q = 0, the bar from tip to tip
    pivot = 0.2 * up + length * along - 0.25 * up
    cranks = [mb.rod("left", 0.2, mass=0.5), mb.rod("right", 0.25, mass=0.4)]
    tips = mb.Marker("left", (0.2, 0, 0)), mb.Marker("right", (0.25, 0, 0))
    hinges = [
        mb.Revolute("A", mb.Marker("world", rotation=upright), "left", axis="z"),
        mb.Revolute("B", mb.Marker("world", pivot, upright), "right", axis=(0.6, 0.0, 0.8)),
    ]
    bar = mb.RigidBody("bar", 0.7, (0.5 * length, 0, 0), (0.002, 0.03, 0.03))
    frame = upright.T @ np.stack([along, np.cross(up, along), up], 1)
    balls = [
        mb.Spherical("P", mb.Marker("left", (0.2, 0, 0), frame), "bar"),
        mb.Spherical("Q", mb.Marker("bar", (length, 0, 0)), tips[1], cut=True),
    ]
    model = mb.compile(mb.Mechanism([*cranks, bar], [*hinges, *balls]))
    rod = mb.compile(mb.Mechanism(cranks, hinges, constraints=[mb.Distance("rod", *tips, length)]))
    counted, other = mb.mobility(model, model.neutral()), mb.mobility(rod, rod.neutral())
    assert (int(counted.dof), int(other.dof)) == (2, 1)
    spin = np.zeros(5)
    spin[model.speeds("P")] = (1, 0, 0)  # about the bar's x axis
    directions = np.asarray(counted.directions)
    close(directions @ (directions.T @ spin), spin, 1e-12)
    # The cranks are coupled as by a rod without mass.
    two = np.array([model.speeds("A").start, model.speeds("B").start])
    ratio = np.asarray(other.directions)[:, 0]
    shares = directions[two]
    close(shares @ np.linalg.lstsq(shares, ratio, rcond=None)[0], ratio, 1e-12)
    v = directions @ np.array([3.0, -2.0])
    found = moved(model, model.neutral(), v)
    assert np.isfinite(found["vd"]).all()
    # A torque on the bar about itself turns the bar alone.
    torque = mb.jacobian(model, model.neutral(), "bar").T @ np.array([*0.01 * along, 0, 0, 0])
    still, turning = (moved(model, model.neutral(), 0 * v, tau)["vd"] for tau in (0 * torque, torque))
    close(turning - still, 0.01 / 0.002 * spin, 1e-11)


# --- gears, rack and screw


def test_gear_train_with_rack_and_screw():
    """Everything reflected to the motor's shaft: J = sum of inertia times ratio squared; loads tooth by tooth."""
    J = {"A": 0.02, "B": 0.11, "C": 0.3}
    mass = {"rack": 1.4, "nut": 2.2}
    n, r, pitch = (17, 34, -85), 0.05, 0.004
    shafts = [mb.RigidBody(name, 1.0, inertia=(J[name],) * 3) for name in J]
    model = mb.compile(
        mb.Mechanism(
            [*shafts, *(mb.RigidBody(name, mass[name], inertia=(0.1,) * 3) for name in mass)],
            [mb.Revolute(f"turn {name}", "world", name) for name in J]
            + [mb.Prismatic(f"slide {name}", "world", name, axis="x") for name in mass],
            constraints=[
                mb.gear("teeth AB", "turn A", "turn B", n[:2]),
                mb.gear("ring BC", "turn B", "turn C", n[1:]),
                mb.rack("pinion", "turn C", "slide rack", r),
                mb.screw_coupling("thread", "turn B", "slide nut", pitch),
            ],
            gravity=(-9.81, 0, 0),
        )
    )
    ratio = {"turn A": 1.0, "turn B": -n[0] / n[1], "turn C": n[0] / n[2]}
    ratio |= {"slide rack": r * ratio["turn C"], "slide nut": pitch * ratio["turn B"]}
    inertia = {"turn A": J["A"], "turn B": J["B"], "turn C": J["C"], "slide rack": 1.4, "slide nut": 2.2}
    weight = {"slide rack": -1.4 * 9.81, "slide nut": -2.2 * 9.81}
    along = np.array([ratio[name] for name in model.inboard])
    reflected = sum(inertia[name] * ratio[name] ** 2 for name in ratio)
    torque = 0.6
    vd = (torque + sum(weight[name] * ratio[name] for name in weight)) / reflected
    tau = np.where(np.array(model.inboard) == "turn A", torque, 0.0)
    found = moved(model, 2.1 * along, 5.0 * along, tau)
    close(found["vd"], vd * along, 1e-12)
    # The rows are n_1 q_1 + n_2 q_2 and q_slide - r q_turn: their loads, times the coefficient, act on the coordinates.
    d = found["dynamics"]
    close(n[0] * d.load("teeth AB"), J["A"] * vd - torque, 1e-12)
    close(d.load("pinion"), 1.4 * vd * ratio["slide rack"] - weight["slide rack"], 1e-12)
    close(d.load("thread"), 2.2 * vd * ratio["slide nut"] - weight["slide nut"], 1e-12)
    close(n[2] * d.load("ring BC") - r * d.load("pinion"), J["C"] * vd * ratio["turn C"], 1e-12)


# --- cam and roller of the injection pump (Sol 1983, ch. 9)

CAM = (0.02815, 0.010, 0.0140, 0.0050, 0.3868)  # base radius, lift, top radius, transition radius, top angle
ROLLER, SPEED = 0.01203, -104.7


def roller_motion(phi):
    """How far the roller's centre is from the shaft, its slope, and n . c, with the roller at `phi` from the lobe.

    By hand for each piece: n . s e(phi) = base + r on the flank, |s e(phi) - M| = R + r on an arc of radius R about M.
    """
    base, rise, top, small, angle = CAM
    e, across = np.array([np.cos(phi), np.sin(phi)]), np.array([-np.sin(phi), np.cos(phi)])
    nose = np.array([base + rise - top, 0.0])
    small_centre = nose + (top - small) * np.array([np.cos(angle), np.sin(angle)])
    far = np.linalg.norm(small_centre)
    flank = np.arctan2(small_centre[1], small_centre[0]) + np.arccos((base - small) / far)  # direction of its normal
    end = flank - np.arctan2(np.sqrt(far**2 - (base - small) ** 2), base + ROLLER)
    if phi > flank:
        s, normal, where = base + ROLLER, e, "base"
    elif phi > end:
        s, normal, where = (base + ROLLER) / np.cos(flank - phi), np.array([np.cos(flank), np.sin(flank)]), "flank"
    else:
        on_arc = lambda M, R: M @ e + np.sqrt((M @ e) ** 2 - M @ M + (R + ROLLER) ** 2)
        s, M, R, where = on_arc(nose, top), nose, top, "top"
        if np.arctan2((s * e - M)[1], (s * e - M)[0]) > angle:
            s, M, R, where = on_arc(small_centre, small), small_centre, small, "transition"
        normal = (s * e - M) / (R + ROLLER)
    slope = -s * (normal @ across) / (normal @ e)
    # Tangential speeds agree: sdot tau_x - r spin = W n . c, with tau_x = n . across.
    spin = SPEED * (slope * (normal @ across) - normal @ (s * e - ROLLER * normal)) / ROLLER
    return s, slope * SPEED, spin, where, end


def test_roller_on_the_cam_of_the_pump():
    """Lift and spin on every piece at 1000 rpm. Sol: 245 rad/s, at most 360 at the end of the line, 332 at the top."""
    first = 0.9 * np.pi
    turning = mb.PositionDrive("shaft", "A", lambda t, p: 0.9 * jnp.pi + p * t, SPEED)
    model = mb.compile(
        mb.Mechanism(
            [
                mb.RigidBody("cam", 1.0, inertia=(1e-3,) * 3),
                mb.RigidBody("plunger", 0.3, inertia=(1e-4,) * 3),
                mb.RigidBody("roller", 0.1, inertia=(1e-5,) * 3),
            ],
            [
                mb.Revolute("A", "world", "cam"),
                mb.Prismatic("bore", "world", "plunger", axis="x"),
                mb.Revolute("pin", "plunger", "roller"),
            ],
            constraints=[mb.RollingOnProfile("contact", "cam", "roller", mb.cam_profile(*CAM), ROLLER)],
            drives=[turning],
        )
    )
    counted = mb.mobility(model, model.pack({"A": first, "bore": CAM[0] + ROLLER}))
    assert (int(counted.dof), int(counted.velocity_dof)) == (2, 1)  # as in the book: rolling takes one speed away
    ts = np.linspace(0.0, first / -SPEED, 40)
    simulation = mb.simulate_kinematics(model, model.pack({"A": first, "bore": CAM[0] + ROLLER}), ts)
    lift, sd, spin, where, _ = zip(*(roller_motion(first + SPEED * t) for t in ts), strict=True)
    assert set(where) == {"base", "flank", "transition", "top"}
    close(simulation.coordinate("bore"), lift, 1e-12)
    close(simulation.v[:, model.speeds("bore")][:, 0], sd, 1e-10)
    close(simulation.v[:, model.speeds("pin")][:, 0], spin, 1e-10)
    fastest = roller_motion(roller_motion(0.0)[4] + 1e-9)[2]
    close((spin[0], fastest, spin[-1], lift[-1] - lift[0]), (245, 360, 332, 0.010), 2e-3)
    # The roller has turned by what has passed under it: the sum of its spin.
    turned = np.trapezoid([roller_motion(first + SPEED * t)[2] for t in np.linspace(0, ts[-1], 20001)], dx=ts[-1] / 2e4)
    close(simulation.coordinate("pin")[-1], turned, 1e-6)


# --- what is refused, by name


def test_loop_too_short_to_close():
    with refused(r"does not close: 'D: x' \(loop world .*rocker.*coupler.*crank.*\) stays open by 0\.45"):
        mb.assemble(mb.compile(four_bar(0.1, 0.2, 0.15, 0.9, cut="D")))


def test_constraints_that_contradict_each_other():
    """One point of the rocker cannot be at two distances from one point of the ground."""
    ends = mb.Marker("world", (0.1, 0.3, 0)), mb.Marker("crank", (0.1, 0, 0))
    rods = [mb.Distance("short rod", *ends, 0.2), mb.Distance("long rod", *ends, 0.3)]
    mech = mb.Mechanism([mb.rod("crank", 0.1, mass=0.2)], [mb.Revolute("A", "world", "crank")], constraints=rods)
    with refused(r"does not close.*'(short|long) rod"):
        mb.assemble(mb.compile(mech))


def test_held_coordinate_out_of_reach():
    with refused(r"does not close with 'C' held.*'D"):
        mb.assemble(mb.compile(four_bar(**LENGTHS, cut="D")), {"C": 0.0})


def test_speeds_that_contradict_each_other():
    """Crank and coupler at speeds that the loop does not allow."""
    with refused(r"no speeds satisfy the constraints with the speeds of 'A', 'B' held: 'D: .*/s"):
        mb.assemble(mb.compile(four_bar(**LENGTHS, cut="D")), {"A": 0.5}, {"A": 1.0, "B": 5.0})


DRIVES = {
    "unknown joint": (["AA"], r"drive 'm0' drives 'AA', which is no joint or constraint.*'A'"),
    "unknown coordinate": ([("A", 1)], r"drive 'm0' names coordinate 1 of joint 'A', which has 1"),
    "cut joint": (["D"], r"drive 'm0' needs the coordinate of joint 'D'.*cut"),
    "driven twice": (["A", "A"], r"drives 'm0' and 'm1' both prescribe 'A'"),
    "driven twice by number": (["A", ("A", 0)], r"drives 'm0' and 'm1' both prescribe 'A'"),
}


@pytest.mark.parametrize("targets, message", DRIVES.values(), ids=DRIVES.keys())
def test_drives_that_cannot_be(targets, message):
    drives = [mb.PositionDrive(f"m{k}", target, lambda t, p: t) for k, target in enumerate(targets)]
    with refused(message):
        mb.compile(four_bar(**LENGTHS, cut="D", drives=drives))


def test_drives_too_few():
    """Kinematic simulation wants every freedom prescribed."""
    rods = [mb.rod("upper", 0.5, mass=1.0), mb.rod("lower", 0.5, mass=1.0)]
    hinges = [mb.Revolute("A", "world", "upper"), mb.Revolute("B", mb.Marker("upper", (0.5, 0, 0)), "lower")]
    model = mb.compile(mb.Mechanism(rods, hinges, drives=[mb.PositionDrive("motor", "A", wave, 5.0)]))
    with refused(r"1 direction of motion is not prescribed at t = 0 s, most of all in 'B'"):
        mb.simulate_kinematics(model, model.pack({"A": 0.3}), [0.0, 0.1])
