"""Loads that follow multipliers, fluid films, composites with massless nodes, and chains of massless links."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples_special import BEARING, OIL, TRACTION, lubricated_roller, strings
from helpers import central_difference, close

import diffmb as mb

# --- loads that follow multipliers --------------------------------------------------------------------------------


def friction(t, rel, twist, z, u, p):
    """At the second marker along x of the first; the coefficient falls with the normal load u[0]."""
    normal = -u[0]
    slip = (rel.rotation @ twist[3:])[0]
    force = -p["mu"] * normal / (1.0 + p["soft"] * normal**2) ** 0.25 * jnp.tanh(slip / 0.1)
    return jnp.concatenate([jnp.zeros(3), rel.rotation.T @ jnp.array([force, 0.0, 0.0])])


def sledge(p):
    """A body in a plane whose foot, off its centre, glides on the ground: the friction changes the normal load."""
    foot = mb.Marker("sledge", (0.3, -0.4, 0.0))
    ground = mb.Coupling("ground", [("plane", 0), ("plane", 1), ("plane", 2)], _height)
    drag = mb.Connection("drag", "world", foot, friction, p, follows="ground")
    body = mb.RigidBody("sledge", 2.0, inertia=(0.1, 0.1, 0.2))
    joint = mb.Planar("plane", "world", "sledge")
    return mb.Mechanism([body], [joint], constraints=[ground], connections=[drag], gravity=(0, -9.81, 0))


def _height(t, q, params):
    """Of the foot above the ground."""
    return q[1] + 0.3 * jnp.sin(q[2]) - 0.4 * jnp.cos(q[2])


P = {"mu": jnp.asarray(0.5), "soft": jnp.asarray(0.01)}
Q, V = jnp.array([0.2, 0.4 * np.cos(0.3) - 0.3 * np.sin(0.3), 0.3]), jnp.array([1.0, 0.0, 0.0])


def test_a_load_may_follow_a_multiplier():
    """The implicit equation for the normal load holds, and its derivatives are exact in both modes."""

    @jax.jit
    def run(p, tau):
        d = mb.dynamics(mb.compile(sledge(p)), Q, V, tau)
        return d.vd, d.lam

    tau = jnp.array([0.5, 0.0, 0.3])
    vd, lam = run(P, tau)
    normal = -float(lam[0])
    assert normal > 1.0
    force = -0.5 * normal / (1.0 + 0.01 * normal**2) ** 0.25 * np.tanh(10.0)
    arm = np.array([0.3 * np.cos(0.3) + 0.4 * np.sin(0.3), 0.3 * np.sin(0.3) - 0.4 * np.cos(0.3)])
    # Newton and Euler by hand: x, y, and moments about the centre of mass
    close(2.0 * vd[0], tau[0] + force, 1e-12)
    close(2.0 * vd[1], normal - 2.0 * 9.81, 1e-12)
    close(0.2 * vd[2], tau[2] + arm[0] * normal - arm[1] * force, 1e-12)
    free = run(P | {"mu": jnp.asarray(0.0)}, tau)[1]
    assert abs(float(free[0] - lam[0])) > 0.1  # the friction matters for the normal load

    along = ({"mu": jnp.asarray(0.3), "soft": jnp.asarray(-0.005)}, jnp.array([0.2, -0.1, 0.4]))
    weight = (jnp.array([1.0, -0.5, 0.2]), jnp.array([0.3]))
    push, pull = jax.jit(lambda p, tau: (jax.jvp(run, (p, tau), along)[1], jax.vjp(run, p, tau)[1](weight)))(P, tau)
    inner = lambda a, b: sum(jnp.vdot(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))
    close(inner(weight, push), inner(pull, along), 1e-11)
    for a, b in zip(push, central_difference(lambda x: run(*x), (P, tau), along, 1e-4), strict=True):
        close(a, b, 1e-8)


def test_a_followed_load_moves_and_is_named():
    @jax.jit
    def run(mu):
        def end(mu):
            model = mb.compile(sledge(P | {"mu": mu}))
            return mb.simulate(model, mb.assemble(model, Q, V), [0.0, 0.1]).q[-1, 0]

        return jax.value_and_grad(end)(mu)

    (end, slope), (more, _), (less, _) = (run(mu) for mu in (0.5, 0.5 + 1e-4, 0.5 - 1e-4))
    close(slope, (more - less) / 2e-4, 1e-6)
    assert 0.2 < float(end) < 0.3 and float(slope) < 0.0  # it brakes
    lost = mb.Connection("drag", "world", "sledge", friction, P, follows="grond")
    m = sledge(P)
    with pytest.raises(mb.MechanismError, match=r"'drag' follows 'grond', which has no multipliers; .*'ground'"):
        mb.compile(mb.Mechanism(m.bodies, m.joints, constraints=m.constraints, connections=[lost]))


# --- films --------------------------------------------------------------------------------------------------------


def numbers(e, v, w):
    still = mb.Pose(jnp.eye(3), jnp.array([*e, 0.0]))
    return still, jnp.array([0.0, 0.0, w, *v, 0.0])


def test_journal_bearing_is_ocvirks():
    """Steady rotation: the closed form of Ocvirk; any motion: the integral over the film by quadrature."""
    b = BEARING
    scale = 0.03 * 0.008**3 * 0.006 / (6e-6) ** 2
    for ratio in (0.2, 0.7, 0.95):
        x, xd = numbers((ratio * 6e-6, 0.0), (0.0, 0.0), 100.0)
        force = b.film(x, xd)[0]
        radial, across = 100.0 * ratio**2 / (1 - ratio**2) ** 2, 25.0 * np.pi * ratio / (1 - ratio**2) ** 1.5
        close(np.array(force) / scale / across, np.array([-radial, across]) / across, 1e-12)
    x, xd = numbers((2e-6, -3e-6), (-1e-3, 2e-3), 150.0)
    e, V = np.array([2e-6, -3e-6]), np.array([-1e-3, 2e-3]) - 75.0 * np.array([3e-6, 2e-6])
    theta = np.arctan2(V[1], V[0]) + np.pi / 2 * np.polynomial.legendre.leggauss(80)[0]
    weights = np.pi / 2 * np.polynomial.legendre.leggauss(80)[1]
    n = np.stack([np.cos(theta), np.sin(theta)])
    film = 1.0 - e @ n / 6e-6
    expected = -scale / 6e-6 * (n * (weights * (V @ n) / film**3)).sum(1)
    close(np.array(b.film(x, xd)[0]) / np.abs(expected).max(), expected / np.abs(expected).max(), 1e-12)


def test_traction_by_hand():
    """On the base circle, where radii are known: Hertz, film thickness and traction from their formulas."""
    at, spin, orbit, N = np.array([-0.02, 0.02 * 3**0.5]), 130.0, 40.0, 600.0
    velocity = orbit * np.array([-at[1], at[0]])
    film = TRACTION.lubrication(*numbers(at, velocity, spin), jnp.asarray(-N))
    R, E, L = 1 / (1 / 0.03 + 1 / 0.01), OIL["modulus"], OIL["width"]
    slip = orbit * 0.04 - spin * 0.01
    entrainment = 0.5 * (-orbit * 0.03 + (slip - orbit * 0.03))
    b = np.sqrt(8 * N * R / (np.pi * L * E))
    pressure = np.sqrt(N * E / (2 * np.pi * L * R))
    h = 2.65 * R**0.43 * (0.03 * abs(entrainment)) ** 0.7 * 1.5e-8**0.54 * E**-0.03 * (N / L) ** -0.13
    thick = 0.03 * np.exp(1.5e-8 * pressure * np.pi / 4)
    force = 2 * b * L * 4e6 * np.arcsinh(thick * slip / (h * 4e6))
    close(np.array(film) / np.array([N, slip, entrainment, pressure, h, force]), np.ones(6), 1e-6)


def test_traction_without_slip():
    """Where the roller rolls, traction vanishes and its slope is that of the film."""
    at, orbit = np.array([-0.02, 0.02 * 3**0.5]), 40.0
    velocity = orbit * np.array([-at[1], at[0]])
    traction = lambda spin: TRACTION.lubrication(*numbers(at, velocity, spin), jnp.asarray(-600.0)).traction
    force, slope = jax.value_and_grad(traction)(orbit * 4.0)
    close(force, 0.0, 1e-9)
    film = TRACTION.lubrication(*numbers(at, velocity, orbit * 4.0), jnp.asarray(-600.0))
    b = np.sqrt(8 * 600.0 * 0.0075 / (np.pi * OIL["width"] * OIL["modulus"]))
    thick = 0.03 * np.exp(1.5e-8 * float(film.pressure) * np.pi / 4)
    close(slope / (2 * b * OIL["width"] * thick / float(film.film)), -0.01, 1e-5)


def test_a_lubricated_roller_spins_up():
    """A cam turns at a steady rate and drags a roller that a spring presses on it, until it nearly rolls."""
    model = mb.compile(lubricated_roller())
    traj = mb.simulate(model, mb.assemble(model), np.linspace(0, 0.004, 3), controller=mb.Tolerance(1e-6))
    slip = traj.speed("spin")[-1] * 0.01 + 50.0 * 0.03
    assert abs(float(slip)) < 0.02 * 1.5 and int(traj.stats.steps) < 1500
    close(traj.multipliers("contact")[:, 0] / 500.0, -np.ones(3), 0.05)  # 5e3 N/m times 0.1 m


# --- composites ---------------------------------------------------------------------------------------------------


def test_springs_in_series_and_a_knot():
    spring = lambda name, a, b, k: mb.SpringDamper(name, a, b, k=k, length=0.0)
    series = mb.Composite(
        "c", ["a", "b"], {"m": (0.1, 0.2, 0.0)}, [spring("1", "0", "m", 30.0), spring("2", "m", "1", 60.0)]
    )
    x = (mb.Pose(jnp.eye(3), jnp.array([0.3, -0.1, 0.4])),)
    nothing = jnp.zeros((1, 6)), series.start(), jnp.zeros(0)
    load = series.load(jnp.zeros(()), x, *nothing)
    close(load[0], np.concatenate([np.zeros(3), -20.0 * np.array([0.3, -0.1, 0.4])]), 1e-12)
    close(series.nodes_at(jnp.zeros(()), x, *nothing)[0], 2 / 3 * np.array([0.3, -0.1, 0.4]), 1e-12)
    knot = strings()
    ends = (mb.Pose(jnp.eye(3), jnp.array([0.5, 0.1, 0.0])), mb.Pose(jnp.eye(3), jnp.array([0.1, -0.3, 0.4])))
    w = knot.nodes_at(jnp.zeros(()), ends, jnp.zeros((2, 6)), knot.start(), jnp.zeros(0))[0]
    places = np.array([[0, 0, 0], [0.52, 0.1, 0.01], [0.1, -0.3, 0.4]]) - np.asarray(w)
    lengths = np.linalg.norm(places, axis=1)
    pull = (np.array([40.0, 55.0, 70.0]) * (lengths - 0.1) / lengths) @ places
    close(pull + np.array([0.5, -1.0, 0.3]), np.zeros(3), 1e-11)


def test_a_spring_and_a_damper_in_series_relax():
    """Maxwell's element from its parts: held at a fixed length, its force decays with c / k."""
    springs = [mb.SpringDamper(f"s{a}", "0", "m", k=40.0) for a in "xyz"][:1]
    damper = mb.SpringDamper("d", "m", "1", k=0.0, c=8.0)
    guides = [
        mb.SpringDamper(f"g{k}", mb.Marker("0", p), "m", k=0.0, c=1e-3) for k, p in enumerate(((0, 1, 0), (0, 0, 1)))
    ]
    part = mb.Composite("c", ["world", "b"], {"m": (0.2, 0.0, 0.0)}, [*springs, damper, *guides], damped=True)
    x, still = (mb.Pose(jnp.eye(3), jnp.array([0.5, 0.0, 0.0])),), jnp.zeros((1, 6))
    rate = jax.jit(lambda z: part.zdot(jnp.zeros(()), x, still, z, jnp.zeros(0)))
    close(rate(jnp.array([0.2, 0.0, 0.0]))[0], -0.2 * 40.0 / 8.0, 1e-3)


WRONG = {
    "node": (
        lambda: mb.Composite("c", ["a", "b"], {"m": (0, 0, 0)}, [mb.SpringDamper("s", "0", "n", 1.0)]),
        "ends at 'n'",
    ),
    "loose": (
        lambda: mb.Composite("c", ["a", "b"], {"m": (0, 0, 0)}, [mb.SpringDamper("s", "0", "1", 1.0)]),
        "holds the node 'm'",
    ),
    "dampers": (
        lambda: mb.Composite("c", ["a", "b"], {"m": (0.1, 0, 0)}, [mb.SpringDamper("s", "0", "m", 1.0, 2.0)]),
        "set damped=True",
    ),
    "no dampers": (
        lambda: mb.Composite("c", ["a", "b"], {"m": (0.1, 0, 0)}, [mb.SpringDamper("s", "0", "m", 1.0)], damped=True),
        "dampers do not hold all",
    ),
    "chain": (lambda: mb.Chain("c", "a", "b", [mb.Spherical("s", "0", "bar")]), "0 joints go on from 'bar'"),
    "free chain": (lambda: mb.Chain("c", "a", "b", [mb.Free("s", "0", "1")]), "leaves every motion free"),
    "clearance": (
        lambda: mb.JournalBearing("c", "a", "b", 0.01, 0.01, -1e-6, 0.1),
        "clearance of JournalBearing 'c' is -1e-06 m",
    ),
    "span": (lambda: mb.Span("c", ["a"], lambda *args: args[2]), "has 1 marker"),
}


@pytest.mark.parametrize("make, message", WRONG.values(), ids=WRONG.keys())
def test_refused_in_words(make, message):
    with pytest.raises(mb.MechanismError, match=message):
        make()


# --- chains -------------------------------------------------------------------------------------------------------


def hung(link, length):
    """A box on a slide, and a free box that hangs on it by a bar."""
    ends = mb.Marker("slide", (0.0, 0.0, -0.1)), mb.Marker("load", (0.05, 0.1, 0.2))
    bodies = [mb.box("slide", (0.2, 0.2, 0.2), mass=3.0), mb.box("load", (0.1, 0.2, 0.4), mass=1.0)]
    return mb.Mechanism(bodies, [mb.Prismatic("x", "world", "slide", axis="x")], constraints=[link(*ends, length)])


def ball_bar_ball(first, second, length):
    joints = [mb.Spherical("lower", mb.Marker("bar", (length, 0.0, 0.0)), "1"), mb.Spherical("upper", "bar", "0")]
    return mb.Chain("bar", first, second, joints)


def test_ball_bar_ball_is_a_distance():
    """Six coordinates of rank five: one row, the motion and the load of a massless rod."""
    bar, rod = (mb.compile(hung(link, 0.7)) for link in (ball_bar_ball, lambda a, b, l: mb.Distance("bar", a, b, l)))
    assert bar.nc == 1
    rng = np.random.default_rng(1)
    turn = rng.normal(size=4) / 2
    turn, way = turn / np.linalg.norm(turn), np.array([0.48, -0.6, -0.64])
    load = mb.Marker("load", (0, 0, 0), turn).pose.rotation @ np.array([0.05, 0.1, 0.2])
    q = jnp.asarray(np.concatenate([[0.3], np.array([0.3, 0.0, -0.1]) + 0.7 * way - load, turn]))
    assert q.shape == (rod.nq,)

    @jax.jit
    def rows(model, q, v):
        return mb.constraint_residual(model, q)[0], mb.constraint_jacobian(model, q)[0], mb.constraint_bias(model, q, v)

    G_rod = rows(rod, q, jnp.zeros(rod.nv))[1]
    v = rng.normal(size=rod.nv)
    v = jnp.asarray(v - G_rod * (G_rod @ v) / (G_rod @ G_rod))  # consistent with the rod
    (phi, G, gamma), (phi_rod, _, gamma_rod) = rows(bar, q, v), rows(rod, q, v)
    close(jnp.stack([phi, phi_rod]), np.zeros(2), 1e-11)
    scale = G @ G_rod / (G_rod @ G_rod)  # rows differ by a factor, which the multiplier takes up
    close(G, scale * G_rod, 1e-10)
    close(gamma, scale * gamma_rod, 1e-8)


def test_a_coupled_chain():
    """Two universal joints whose angles are equal, as in a joint of constant velocity, leave two motions."""
    joints = [
        mb.Universal("a", "0", "m", axis1="z", axis2="y"),
        mb.Universal("b", mb.Marker("m", (0.1, 0, 0)), "1", axis1="y", axis2="z"),
    ]
    chain = mb.Chain("cv", "in", "out", joints, coupling=lambda w, p: jnp.stack([w[0] - w[3], w[1] - w[2]]))
    assert (chain.nh, chain.rank) == (4, 4)

    def pose(a, b, c, d):
        turn = lambda axis, angle: mb.Pose(mb.rotation_about(jnp.asarray(axis), angle), jnp.zeros(3))
        z, y = (0.0, 0.0, 1.0), (0.0, 1.0, 0.0)
        arm = mb.Pose(jnp.eye(3), jnp.array([0.1, 0.0, 0.0]))
        return turn(z, a) @ turn(y, b) @ arm @ turn(y, c) @ turn(z, d)

    phi = jax.jit(lambda angles: chain.phi(jnp.zeros(()), pose(*angles)))
    close(phi(jnp.array([0.3, -0.4, -0.4, 0.3])), np.zeros(4), 1e-11)
    assert float(jnp.abs(phi(jnp.array([0.3, -0.4, -0.3, 0.3]))).max()) > 1e-3


# --- a spring that swings -----------------------------------------------------------------------------------------


def test_spring_pendulum():
    """It bounces with sqrt(k / m) and swings with sqrt(g / length), whatever the spring."""
    k, m, free, g = 80.0, 2.0, 0.5, 9.81
    length = free + m * g / k
    spring = mb.SpringDamper("spring", "world", "bob", k=k, length=free)
    slides = [mb.Prismatic("x", "world", "carriage", axis="x"), mb.Prismatic("y", "carriage", "bob", axis="y")]
    bodies = [mb.massless("carriage"), mb.sphere("bob", 0.05, mass=m)]
    model = mb.compile(mb.Mechanism(bodies, slides, connections=[spring], gravity=(0, -g, 0)))
    lin = mb.linearise(model, mb.assemble(model, {"y": -length}))
    found = np.sort(np.abs(np.asarray(lin.eigenvalues).imag))[::2]
    close(found, np.sort([np.sqrt(k / m), np.sqrt(g / length)]), 1e-10)
