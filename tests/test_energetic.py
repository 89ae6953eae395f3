"""Energetic connections: closed forms, stiff motion, what is refused. Their laws are in `test_connection_laws.py`."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples_active import EXAMPLES as ACTIVE
from examples_energetic import EXAMPLES, FOLLOWING, HARD, LAWS, PARALLEL
from helpers import close
from scipy.interpolate import PchipInterpolator

import diffmb as mb
from diffmb._connections._abstract import exerted
from diffmb._connections._law import check_law

ZERO, NONE = jnp.zeros(()), jnp.zeros(0)
ENDS = ("world", "a")


def test_every_law_has_an_example():
    mounted = [getattr(example.load, "law", None) for example in (EXAMPLES | ACTIVE).values()]
    used = {type(law) for law in (*mounted, *PARALLEL.laws)}
    known, todo = set(), [mb.AbstractLaw]
    while todo:
        kind = todo.pop()
        todo += kind.__subclasses__()
        if not kind.__name__.startswith("Abstract") and kind.__module__.startswith("diffmb."):
            known.add(kind)
    assert known <= used, f"add an example of {sorted(kind.__name__ for kind in known - used)}"


def pressing(load, xd=None):
    """The wrench on the second marker, as a function of its pose."""
    xd = jnp.zeros(6) if xd is None else jnp.asarray(xd)
    return lambda x: exerted(load, ZERO, x, xd, NONE, NONE)


def stiffness(load, pose):
    """-d wrench / d (turn, shift) of the second marker."""
    place = lambda step: jax.tree.map(lambda a, b: a + b, pose, pose.rate(step))
    return -jax.jit(jax.jacfwd(lambda step: pressing(load)(place(step))))(jnp.zeros(6))


# --- beams and bodies


def test_beam_under_end_loads():
    """Tip shift F L^3 / (3 EI), tip turn F L^2 / (2 EI), M L / EI, T L / GJ, F L / EA."""
    EA, GJ, EIy, EIz, L = 2e6, 300.0, 500.0, 700.0, 0.8
    at = mb.Pose.translate((L, 0.0, 0.0))
    flexibility = np.linalg.inv(stiffness(mb.Beam("b", *ENDS, EA, GJ, EIy, EIz, L), at))
    expected = np.diag([L / GJ, L / EIy, L / EIz, L / EA, L**3 / (3 * EIz), L**3 / (3 * EIy)])
    expected[2, 4] = expected[4, 2] = L**2 / (2 * EIz)
    expected[1, 5] = expected[5, 1] = -(L**2) / (2 * EIy)
    close(flexibility / expected.max(), expected / expected.max(), 1e-12)
    planar = stiffness(mb.PlanarBeam("b", *ENDS, EA, EIz, L), at)
    keep = np.array([2, 3, 4])
    close(np.linalg.inv(planar[np.ix_(keep, keep)]), expected[np.ix_(keep, keep)], 1e-12)
    # Pulled by P, the end that cannot turn gets 12 EI / L^3 + 6 P / (5 L), to first order in the strain P / EA.
    P, stiff = 40.0, mb.PlanarBeam("b", *ENDS, 4e7, EIz, L)
    sideways = stiffness(stiff, mb.Pose.translate((L * (1 + P / 4e7), 0.0, 0.0)))[4, 4]
    rise = sideways - 12 * EIz / L**3
    close(rise / (6 * P / (5 * L)), 1.0, 1e-3)


def test_plane_element_in_uniform_strain():
    """Pulled along x and free to shrink along y: stress E eps along x, none along y, at any attitude in space."""
    points, h, E, nu, eps = np.array([(0.1, 0.0), (0.5, 0.1), (0.0, 0.4)]), 0.02, 3e4, 0.3, 1e-7
    sheet = mb.PlaneElement("s", ["world", "a", "b"], points, h, E, nu)
    turn = mb.rotation_about(jnp.array([0.6, 0.0, 0.8]), jnp.asarray(1.1))

    @jax.jit
    def wrenches(strain):
        sides = jnp.asarray(points[1:] - points[0]) * (1.0 + strain)
        poses = [mb.Pose.translate(turn @ jnp.append(side, 0.0)) for side in sides]
        return exerted(sheet, ZERO, tuple(poses), jnp.zeros((2, 6)), NONE, NONE)

    w = wrenches(jnp.array([eps, -nu * eps]))
    # Each edge is pulled by the stress times its length; half of that goes to each of its ends.
    normal = lambda a, b: np.array([(b - a)[1], -(b - a)[0]])
    pull = lambda k: 0.5 * h * E * eps * (normal(points[k - 1], points[k]) + normal(points[k], points[(k + 1) % 3]))[0]
    force = np.stack([-turn @ jnp.array([pull(k), 0.0, 0.0]) for k in (1, 2)])
    close(w[:, 3:] / np.abs(force).max(), force / np.abs(force).max(), 1e-6)
    assert float(jnp.abs(wrenches(jnp.zeros(2))).max()) < 1e-12 * E


def test_bar_and_bushing():
    spring = mb.bar("b", *ENDS, EA=100.0, length=0.5, beta=0.01)
    close(np.array([spring.k, spring.c, spring.length]), (200.0, 2.0, 0.5), 1e-15)
    bushing = mb.Bushing("b", *ENDS, k=[1.0, 2.0, 3.0, 40.0, 50.0, 60.0])
    close(stiffness(bushing, mb.Pose.identity()), np.diag([1.0, 2.0, 3.0, 40.0, 50.0, 60.0]), 1e-14)
    about_z = mb.Pose.rotate_by(mb.rotation_about(jnp.array([0.0, 0.0, 1.0]), jnp.asarray(2.5)))
    close(pressing(bushing)(about_z), (0, 0, -7.5, 0, 0, 0), 1e-14)  # a large turn about an axis of the bushing


def test_line_without_length():
    """Where the origins meet the line has no direction: no load, and derivatives are numbers."""
    line = mb.AlongLine("s", *ENDS, mb.LinearLaw(k=5.0, c=1.0, rest=0.1))
    close(pressing(line, np.ones(6))(mb.Pose.identity()), np.zeros(6), 0.0)
    close(stiffness(line, mb.Pose.identity()), np.zeros((6, 6)), 0.0)


# --- laws of one strain


def test_table_is_a_monotone_cubic():
    law = LAWS["table"]
    inner, e = PchipInterpolator(law.at, law.loads), np.linspace(-0.09, 0.34, 30)  # its end pieces differ
    spring = lambda e: (-law.load(ZERO, e, ZERO, NONE, NONE), law.energy(ZERO, e, NONE))
    load, energy = jax.jit(jax.vmap(spring))(jnp.asarray(e))
    close(load, inner(e), 1e-14)
    close(energy - energy[0], [inner.integrate(e[0], b) for b in e], 1e-14)
    beyond = [-law.load(ZERO, jnp.asarray(e), ZERO, NONE, NONE) for e in (0.6, 0.7, 0.8)]
    close(beyond[0], 4.5, 1e-14)
    close(beyond[2] - beyond[1], beyond[1] - beyond[0], 1e-13)


def marched(rate, y, time, steps):
    """y after `time`, by the classical method of Runge and Kutta."""
    h = time / steps

    def step(_, y):
        k1 = rate(y)
        k2 = rate(y + 0.5 * h * k1)
        k3 = rate(y + 0.5 * h * k2)
        return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + rate(y + h * k3))

    return jax.jit(lambda y: jax.lax.fori_loop(0, steps, step, y))(jnp.asarray(y))


def test_relaxation():
    """At constant strain: Prony's series, and Fung's relaxation function times the elastic load."""
    e, time = jnp.asarray(0.3), 0.7
    states = lambda law: marched(lambda z: law.zdot(ZERO, e, ZERO, z, NONE), np.zeros(2), time, 300)
    after = lambda law: -law.load(ZERO, e, ZERO, states(law), NONE)
    prony, fung = LAWS["prony"], LAWS["fung"]
    left = np.exp(-time / np.asarray(prony.times))
    close(after(prony), 0.25 * (3.0 + np.asarray(prony.branches) @ left), 1e-10)
    left = np.exp(-time / np.asarray(fung.times))
    close(after(fung), 2.0 * np.expm1(3.0 * 0.4) * (1.0 - np.asarray(fung.parts) @ (1.0 - left)), 1e-10)
    solid = mb.PronyLaw(k=3.0, branches=8.0, times=0.3)  # standard linear solid: stiff at first, soft in the end
    close(-solid.load(ZERO, e, ZERO, jnp.zeros(1), NONE), 11.0 * 0.3, 1e-14)
    close(-solid.load(ZERO, e, ZERO, e[None], NONE), 3.0 * 0.3, 1e-14)


def test_friction_breaks_away_and_slides():
    v, law = jnp.asarray(0.3), LAWS["lugre"]
    g = 20.0 * (0.3 + 0.2 * np.exp(-((0.3 / 0.4) ** 2)))
    size = np.hypot(0.3, 0.05)
    z = jnp.array([g * 0.3 / (50.0 * size)])  # steady sliding
    close(law.zdot(ZERO, v, v, z, NONE), [0.0], 1e-14)
    close(-law.load(ZERO, v, v, z, NONE), g * 0.3 / size + 0.3 * 0.3, 1e-14)
    close(-LAWS["friction"].load(ZERO, v, v, NONE, NONE), g * 0.3 / size + 0.2 * 0.3, 1e-14)
    # With bristles damped far above the classical limit no heat comes back, even at high speed.
    hard = mb.LuGreLaw(mb.Grip(0.3, 20.0, slip=1e-6), k=50.0, c_bristle=1e4)
    z, v = jnp.meshgrid(jnp.linspace(-0.12, 0.12, 25), jnp.linspace(-50.0, 50.0, 25))
    heat = jax.vmap(lambda z, v: hard.dissipation(ZERO, v, v, z[None], NONE))(z.ravel(), v.ravel())
    assert float(heat.min()) >= 0.0


def test_one_sided_laws_never_turn_round():
    e, ed = (a.ravel() for a in jnp.meshgrid(jnp.linspace(-1.0, 1.0, 21), jnp.linspace(-90.0, 90.0, 21)))
    run = lambda law: jax.jit(jax.vmap(lambda e, ed: -law.load(ZERO, e, ed, NONE, NONE)))(e, ed)
    rope, bumper, stops = run(mb.RopeLaw(k=30.0, c=0.4, rest=0.5)), run(LAWS["bumper"]), run(LAWS["stops"])
    assert (rope >= 0).all() and (rope[e <= 0.5] == 0).all() and (rope[e > 0.51] > 0).all()
    assert (bumper <= 0).all() and (bumper[e >= 0.3] == 0).all()
    assert (stops[e > 0.11] > 0).all() and (stops[e < -0.11] < 0).all() and (stops[jnp.abs(e) < 0.1] == 0).all()
    smooth = jax.grad(jax.grad(lambda e: -LAWS["stops"].load(ZERO, e, ZERO, NONE, NONE)))
    close(smooth(jnp.asarray(0.1 + 1e-9)), 0.0, 1e-6)  # n = 3: no jump in the second derivative


# --- contact and drag


def at_height(height):
    return mb.Pose.translate(jnp.array([0.0, 0.0, height]))


def test_contact_rests_and_bounces():
    ball = mb.SphereOnPlane("c", *ENDS, 0.1, mb.ContactLaw(k=2e4, c=0.01))
    weight = 0.2 * 9.81
    close(pressing(ball)(at_height(0.1 - (weight / 2e4) ** (2 / 3)))[5], weight, 1e-12)
    pair = mb.SphereOnSphere("c", *ENDS, 0.3, 0.1, ball.law)
    close(pressing(pair)(at_height(0.4 - (weight / 2e4) ** (2 / 3)))[5], weight, 1e-10)
    upright = mb.rotation_about(jnp.array([1.0, 0.0, 0.0]), jnp.asarray(np.pi / 2))
    disc = mb.DiscOnPlane("c", *ENDS, 0.1, ball.law)
    close(upright @ pressing(disc)(mb.Pose(upright, at_height(0.09).translation))[3:], (0, 0, 2e4 * 0.01**1.5), 1e-12)

    def rate(y):
        force = pressing(ball, jnp.zeros(6).at[5].set(y[1]))(at_height(y[0]))[5]
        return jnp.stack([y[1], force / 0.2])

    height, speed = marched(rate, (0.1, -1.0), 0.05, 4000)
    assert float(height) > 0.1
    close(speed, 1.0 - 2.0 / 3.0 * 0.01, 1e-4)  # restitution of Hunt and Crossley, to first order


def test_contact_at_touch_and_without_slip():
    ball = mb.SphereOnPlane("c", *ENDS, 0.4, HARD)
    xd = jnp.array([0.0, 0.0, 0.0, 0.3, 0.0, -0.2])
    for order in (jax.jacfwd, jax.jacrev):
        slope = jax.jit(order(lambda x, xd: exerted(ball, ZERO, x, xd, NONE, NONE), argnums=(0, 1)))
        assert all(not np.asarray(a).any() for a in jax.tree.leaves(slope(at_height(0.4), xd)))
        normal = 200.0 * 0.1**1.5
        at_rest = slope(at_height(0.3), jnp.zeros(6))[1]
        close(at_rest[3, 3], -0.5 * normal / 0.2, 1e-12)  # -mu N / slip
        close(at_rest[5, 5], -0.4 * normal, 1e-12)  # -c N
    rolling = pressing(ball, (0.0, 1.0 / 0.3, 0.0, 1.0, 0.0, 0.0))(at_height(0.3))  # w = v / r: no slip
    close(rolling[3:], (0, 0, normal), 1e-12)
    away = pressing(ball, (0.0, 0.0, 0.0, 0.0, 0.0, 900.0))(at_height(0.3))[5]
    assert 0.0 < float(away) < 0.01 * normal


def test_drag_and_fields():
    drag = mb.Drag("d", *ENDS, quadratic=0.5, linear=0.1, wind=(2.0, 0.0, 0.0))
    here = mb.Pose.identity()
    close(pressing(drag, (0, 0, 0, 5.0, 0, 0))(here), (0, 0, 0, -(0.1 + 0.5 * 3.0) * 3.0, 0, 0), 1e-14)
    close(pressing(drag, (0, 0, 0, 2.0, 0, 0))(here), np.zeros(6), 0.0)
    slope = jax.jacrev(lambda xd: exerted(drag, ZERO, here, xd, NONE, NONE))(jnp.array([0, 0, 0, 2.0, 0, 0]))
    close(slope[3:, 3:], -0.1 * np.eye(3), 1e-14)
    close(pressing(mb.PointField("p", *ENDS, strength=3.0))(at_height(2.0)), (0, 0, 0, 0, 0, -0.75), 1e-14)


# --- in a mechanism

GRIP = mb.Grip(mu=0.3, normal=2.0, slip=1e-6)
FLAT = (0.5**0.5, 0.5**0.5, 0.0, 0.0)  # z of the world is y here
BRISTLES = mb.LuGreLaw(GRIP, k=1e7, c_bristle=2e3)
SIDES = mb.Marker("world", (0.1, 0.0, 0.0)), mb.Marker("world", (0.0, 0.1, 0.0))
CONNECTIONS = [
    mb.OnCoordinates("stuck bristles", "to stuck", BRISTLES),
    mb.UniformField("push", "world", "stuck", (0.5, 0.0, 0.0)),
    mb.OnCoordinates("sliding bristles", "to slider", BRISTLES),
    mb.UniformField("pull", "world", "slider", (1.0, 0.0, 0.0)),
    mb.SphereOnPlane("floor", "world", "ball", 0.02, mb.ContactLaw(k=1e7, c=50.0)),
    mb.OnCoordinates("prony", "to rubber", mb.PronyLaw(k=100.0, branches=[1e6, 1e4, 200.0], times=[1e-5, 1e-3, 0.2])),
    mb.AboutAxis("torsion bar", "world", "disc", mb.LinearLaw(k=80.0 * 0.05 / 0.4), axis="z"),
    mb.OnCoordinates("stop", "to lever", mb.StopLaw(low=-2.0, high=0.1, k=1e5, c=50.0)),
    mb.PlanarBeam("beam", mb.Marker("world", rotation=FLAT), "reed", 2e7, 400.0, 0.5, beta=2e-3),
    mb.Bushing("bushing", "world", "rubber", k=[1e3] * 3 + [1e6] * 3, c=[3.0] * 3 + [3e3] * 3),
    mb.PlaneElement("sheet", ["rubber", *SIDES], [(0, 0), (0.1, 0), (0, 0.1)], 1e-3, 2e11, 0.3, beta=1e-3),
    mb.Drag("air", "world", "rubber", 0.2, wind=(3.0, 0.0, 0.0)),
]


def bench():
    """Seven bodies of 0.2 kg, each held by a stiff connection."""
    axes = {"stuck": "x", "slider": "x", "ball": "z", "rubber": "z"}
    joints = [mb.Prismatic(f"to {name}", "world", name, axis=axis) for name, axis in axes.items()]
    joints += [mb.Revolute("to disc", "world", "disc", axis="z")]
    joints += [mb.Revolute("to lever", "world", "lever", axis="y")]
    joints += [mb.Planar("to reed", mb.Marker("world", (0.5, 0.0, 0.0), FLAT), "reed")]
    com = {"lever": (0.1, 0.0, 0.0)}
    names = [*axes, "disc", "lever", "reed"]
    bodies = [mb.RigidBody(name, 0.2, com.get(name, (0.0, 0.0, 0.0)), (1e-3, 1e-3, 2e-3)) for name in names]
    return mb.Mechanism(bodies, joints, connections=CONNECTIONS)


def test_stiff_motion_without_step_collapse():
    """Time constants from 1e-5 s on, 0.4 s: at most 400 steps, and each body is where a closed form says."""
    model = mb.compile(bench())
    state = mb.assemble(model, {"to ball": 0.021, "to disc": 0.4, "to lever": 0.05})
    traj = mb.simulate(model, state, [0.0, 0.4], solver=mb.implicit(), controller=mb.Tolerance(1e-5))
    end = lambda name: np.asarray(traj.coordinate(f"to {name}"))[-1]
    weight = 0.2 * 9.81
    close(end("disc"), 0.4 * np.cos(np.sqrt(10.0 / 2e-3) * 0.4), 1e-3)
    close(end("slider"), 0.5 * (1.0 - 0.6) / 0.2 * 0.4**2, 1e-4)
    assert 0.0 < end("stuck") < 1e-5  # F / k = 5e-8, and a creep of some slip
    close(end("ball") - 0.02, -((weight / 1e7) ** (2 / 3)), 1e-6)
    close(end("lever") - 0.1, (weight * 0.1 * np.cos(end("lever")) / 1e5) ** (2 / 3), 1e-6)
    close(end("reed")[1] / (weight * 0.5**3 / (3 * 400.0)), -1.0, 1e-3)
    assert int(traj.stats.steps) + int(traj.stats.rejected) < 400


def test_friction_follows_a_multiplier():
    """A block that slides on a floor: mu times its weight, from the floor's multiplier."""
    grip = mb.Grip(mu=0.3, normal=0.0, slip=1e-6, contact="floor")
    model = mb.compile(
        mb.Mechanism(
            [mb.RigidBody("a", 2.0, inertia=(1e-2, 1e-2, 1e-2))],
            [mb.Planar("p", mb.Marker("world", rotation=FLAT), "a")],
            constraints=[mb.PointOnPlane("floor", "world", "a", normal="z")],
            connections=[mb.AlongAxis("f", "world", "a", mb.FrictionLaw(grip, c=0.5), axis="x")],
        )
    )
    vd = jax.jit(lambda v: mb.forward_dynamics(model, jnp.zeros(3), v))(jnp.array([0.4, 0.0, 0.0]))
    close(vd[:2], (-0.3 * 9.81 - 0.5 * 0.4 / 2.0, 0.0), 1e-9)


# --- what is refused

MOUNT = lambda law: mb.OnCoordinates("s", "A", law)
WRONG = {
    "stiffness": (lambda: MOUNT(mb.LinearLaw(k=-1.0)), r"k of LinearLaw in OnCoordinates 's' is -1 N/m.*zero or more"),
    "shape": (lambda: MOUNT(mb.LinearLaw(k=[1.0, 2.0])), r"k of LinearLaw in .* has shape \(2,\); give one number"),
    "no law": (lambda: check_law("AlongLine 's'", 3.0), r"law of AlongLine 's' is 3.0; give a law, .*LinearLaw"),
    "inside": (lambda: MOUNT(mb.ParallelLaw([mb.LinearLaw(-1.0)])), r"LinearLaw in ParallelLaw in .* 's' is -1"),
    "both": (lambda: mb.OnCoordinates("s", ["A", "B"], LAWS["prony"]), r"ratio of .* 's' has shape \(\); give 2"),
    "none": (lambda: mb.OnCoordinates("s", [], LAWS["prony"]), r"'s' is given no coordinate; name a joint"),
    "follow": (lambda: MOUNT(mb.ParallelLaw([FOLLOWING] * 2)), r"ParallelLaw in .* 's' has several laws that follow"),
    "potential": (lambda: MOUNT(mb.PotentialLaw(lambda d, p: d * jnp.ones(2))), r"'s' returns shape \(2,\)"),
    "order": (lambda: MOUNT(mb.TableLaw([0.0, 0.2, 0.1], [0, 1, 2])), r"at of TableLaw in .* \[0.0, 0.2, 0.1\]; sort"),
    "lengths": (lambda: MOUNT(mb.TableLaw([0.0, 0.2], [0.0, 1, 2])), r"loads of TableLaw .* \(3,\); give 2 numbers"),
    "exponent": (lambda: MOUNT(mb.RopeLaw(1.0, n=0.5)), r"n of RopeLaw in .* is 0.5 .*1 or more"),
    "range": (lambda: MOUNT(mb.StopLaw(0.2, 0.1, k=1.0)), r"range of StopLaw .* 0.2 to 0.1; give low below high"),
    "times": (lambda: MOUNT(mb.PronyLaw(1.0, [1.0, 2.0], [0.1, 0.0])), r"times of PronyLaw in .* is 0 s; .*above zero"),
    "branches": (lambda: MOUNT(mb.PronyLaw(1.0, [1.0, 2.0], 0.1)), r"times of PronyLaw .* \(1,\); give 2 numbers"),
    "parts": (lambda: MOUNT(mb.FungLaw(1.0, 1.0, [0.7, 0.6], [1, 2])), r"parts of FungLaw .* add up to 1.3"),
    "static": (lambda: MOUNT(mb.FrictionLaw(mb.Grip(0.3, 1.0, 0.2))), r"mu_static of FrictionLaw .* is 0.2; give"),
    "slip": (lambda: MOUNT(mb.FrictionLaw(mb.Grip(0.3, 1.0, slip=0.0))), r"slip of FrictionLaw .* 0 m/s.*above zero"),
    "no grip": (lambda: MOUNT(mb.LuGreLaw(mb.Grip(0.3, 0.0), k=1.0)), r"normal of LuGreLaw .* is 0 N; .*above zero"),
    "odd": (lambda: mb.Bushing("b", *ENDS, np.eye(6) + np.eye(6, k=1)), r"Bushing 'b' is not symmetric: .* \(0, 1\)"),
    "indefinite": (lambda: mb.Bushing("b", *ENDS, [1, 1, 1, 1, 1, -2.0]), r"k of Bushing 'b' has the eigenvalue -2"),
    "beam": (lambda: mb.Beam("b", *ENDS, 1.0, 1.0, -3.0, 1.0, 1.0), r"EIy of Beam 'b' is -3 N m\^2"),
    "no length": (lambda: mb.PlanarBeam("b", *ENDS, 1.0, 1.0, 0.0), r"length of PlanarBeam 'b' is 0 m; .*above zero"),
    "two": (lambda: mb.PlaneElement("p", ENDS, np.zeros((3, 2)), 1.0, 1.0), r"'p' has 2 markers; give three"),
    "line": (lambda: mb.PlaneElement("p", [*ENDS, "b"], np.eye(3, 2) * 0, 1.0, 1.0), r"points .* 'p' lie on one line"),
    "poisson": (lambda: mb.PlaneElement("p", [*ENDS, "b"], np.eye(3, 2), 1.0, 1.0, 0.7), r"poisson .* 'p' is 0.7"),
    "wind": (lambda: mb.Drag("d", *ENDS, 1.0, wind=(1.0, 2.0)), r"wind of Drag 'd' has shape \(2,\); give 3 numbers"),
    "radius": (lambda: mb.SphereOnPlane("c", *ENDS, -0.1, HARD), r"radius of SphereOnPlane 'c' is -0.1 m"),
    "rub": (lambda: mb.SphereOnPlane("c", *ENDS, 0.1, mb.ContactLaw(1.0, mu=-1.0)), r"mu of the law of .* 'c' is -1"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_input_is_refused(name):
    build, words = WRONG[name]
    with pytest.raises(mb.MechanismError, match=words):
        build()
