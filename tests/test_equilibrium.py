"""Equilibrium: closed forms, minima of energy, loads that hold, derivatives, and what is said when there is none."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from closed import four_bar
from helpers import central_difference, close

import diffmb as mb

G = 9.81


def hanger(mass, k, gain=2.0):
    """A mass on a vertical slider with a spring, a Maxwell branch (state z: its dashpot) and a motor with a lag."""
    maxwell = mb.JointConnection(
        "branch", ["slider"], lambda t, x, xd, z, u, p: -30.0 * (x - z), states=1,
        state_rate=lambda t, x, xd, z, u, p: (x - z) / 0.2,
    )  # fmt: skip
    motor = mb.JointConnection(
        "motor", ["slider"], lambda t, x, xd, z, u, p: p * z, gain, states=1, inputs=1,
        state_rate=lambda t, x, xd, z, u, p: (u - z) / 0.1,
    )  # fmt: skip
    return mb.Mechanism(
        [mb.RigidBody("mass", mass, inertia=(0.1, 0.1, 0.1))],
        [mb.Prismatic("slider", "world", "mass", axis="z")],
        connections=[mb.SpringDamper("spring", mb.Marker("world", (0, 0, 1.0)), "mass", k, 5.0, 0.4), maxwell, motor],
    )


def test_a_mass_sags():
    """q = 1 - 0.4 - (m g - gain u) / k; the states come to rest with it; and so do the derivatives."""

    def sag(x):
        eq = mb.equilibrium(mb.compile(hanger(*x[:3])), inputs={"motor": x[3]}, throw=False)
        return jnp.concatenate([eq.q, eq.z, eq.residual[None], eq.ok[None]])

    def exact(x):
        mass, k, gain, u = x
        q = 0.6 - (mass * G - gain * u) / k
        return jnp.stack([q, q, u, 0.0 * u, 1.0 + 0.0 * u])

    x = jnp.array([2.0, 300.0, 2.0, 1.5])
    value, slope = jax.jit(lambda x: (sag(x), jax.jacfwd(sag)(x)))(x)
    close(value, exact(x), 1e-12)
    close(slope, jax.jacfwd(exact)(x), 1e-11)


@pytest.fixture(scope="module")
def pendulum():
    """Two uniform rods."""
    return mb.compile(
        mb.Mechanism(
            [mb.rod("upper", 1.0, mass=1.0), mb.rod("lower", 0.6, mass=0.5)],
            [mb.Revolute("A", "world", "upper"), mb.Revolute("B", mb.Marker("upper", (1, 0, 0)), "lower")],
            gravity=(0, -G, 0),
        )
    )


def test_pendulum_hangs_down_from_anywhere(pendulum):
    """From random attitudes, from exactly upright and folded, and from the horizontal, where the stiffness is zero."""
    rng = np.random.default_rng(1)
    special = [(np.pi / 2, 0.0), (np.pi / 2, np.pi), (-np.pi / 2, np.pi), (0.0, 0.0), (-np.pi / 2, 0.0)]
    guesses = np.concatenate([special, rng.uniform(-np.pi, np.pi, (11, 2))])
    found = jax.jit(jax.vmap(lambda q: mb.equilibrium(pendulum, q, throw=False)))(guesses)
    assert found.ok.all() and found.stable.all()
    close(np.sin(found.q[:, 0]), -np.ones(16), 1e-13)
    close(np.cos(found.q[:, 1]), np.ones(16), 1e-13)
    close(np.sin(found.q[:, 1]), np.zeros(16), 1e-12)
    assert int(found.iterations.max()) < 60


def test_the_nearest_one_may_be_unstable(pendulum):
    found = mb.equilibrium(pendulum, {"A": 1.3, "B": 0.3}, stable=False)
    close(found.q, (np.pi / 2, 0.0), 1e-12)
    assert bool(found.ok) and not bool(found.stable)
    with pytest.raises(mb.MechanismError, match="has shape"):
        mb.equilibrium(pendulum, jnp.zeros(3))
    with pytest.raises(mb.MechanismError, match="no joint 'C'"):
        mb.equilibrium(pendulum, hold={"C": 0.1})


# --- loops


def heights(crank, l=(0.1, 0.3, 0.25), base=0.3):
    """Energy of gravity of the four-bar, masses 0.2, 0.5, 0.4, coupler above the crank's side as assembled."""
    b = l[0] * np.array([np.cos(crank), np.sin(crank)])
    gap = np.array([base, 0]) - b
    r = np.hypot(*gap)
    along = (l[1] ** 2 - l[2] ** 2 + r * r) / (2 * r)
    across = np.sqrt(l[1] ** 2 - along**2)
    unit = gap / r
    c = b + along * unit + across * np.array([-unit[1], unit[0]])
    return G * (0.2 * b[1] / 2 + 0.5 * (b[1] + c[1]) / 2 + 0.4 * c[1] / 2)


def test_four_bar_hangs_at_its_lowest():
    """Three redundant rows in space; the minimum of energy over the crank, by differences of a closed form."""
    model = mb.compile(four_bar())
    found = mb.equilibrium(model, {"A": 0.5, "B": 0.2})
    assert bool(found.stable) and float(found.closure) < 1e-14
    crank = float(found.q[0])
    slope = lambda a: float(central_difference(heights, a, 1.0, 1e-4))
    assert abs(slope(crank)) < 1e-10 and heights(crank + 0.1) > heights(crank) < heights(crank - 0.1)
    close(found.multipliers("D"), mb.dynamics(model, found.q, found.v).multipliers("D"), 1e-10)
    for angle in (0.5, 1.2):  # held: the load is the slope of the energy; and it is what a motor would give
        held = mb.equilibrium(model, {"B": 0.2}, hold={"A": angle})
        close(held.q[0], angle, 1e-15)
        close(held.load("A"), slope(angle), 1e-9)
        vd = mb.forward_dynamics(model, held.q, held.v, jnp.zeros(3).at[0].set(held.load("A")))
        close(vd, np.zeros(3), 1e-9)


def governor(speed):
    """A rod on a driven vertical shaft."""
    down = np.array([[0, 0, 1.0], [0, 1, 0], [-1, 0, 0]])  # the rod's x axis down at q = 0
    return mb.Mechanism(
        [mb.RigidBody("shaft", 1.0, inertia=(0.1, 0.1, 0.1)), mb.rod("arm", 0.5, mass=0.7)],
        [
            mb.Revolute("spin", "world", "shaft"),
            mb.Revolute("flap", mb.Marker("shaft", rotation=down), "arm", axis="y"),
        ],
        drives=[mb.PositionDrive("motor", "spin", lambda t, w: w * t, speed)],
    )


def test_governor_opens_with_its_speed():
    """Relative equilibrium: cos = m g L / (2 I w^2), and there it swings with w sin; below the critical speed it hangs.

    I is the inertia across the rod less that along it, A the inertia across about the hinge: then w sin sqrt(I / A).
    """
    for speed in (4.0, 8.0):
        mech = governor(speed)
        model = mb.compile(mech)
        inertia = np.asarray(mech["arm"].inertia)
        A, weight = inertia[1, 1] + 0.7 * 0.25**2, 0.7 * G * 0.25
        own = A - inertia[0, 0]
        found = mb.equilibrium(model, {"flap": 0.3}, t=0.4)
        close(found.q[0], 0.4 * speed, 1e-14)
        close(found.v, (speed, 0.0), 1e-13)
        cosine = min(1.0, weight / (own * speed**2))
        close(np.cos(found.q[1]), cosine, 1e-12)
        w = speed * np.sqrt((1 - cosine**2) * own / A) if cosine < 1 else np.sqrt((weight - own * speed**2) / A)
        lin = mb.linearise(model, found)
        assert lin.states == ("flap", "flap'")
        close(lin.eigenvalues, (-1j * w, 1j * w), 1e-10)
        close(found.load("motor"), 0.0, 1e-10)


# --- when there is none, or too many


def test_skate_balances_along_its_blade_only():
    """A spring to the origin pulls a skate; nonholonomic rows leave positions indifferent, and loads across held."""
    model = mb.compile(
        mb.Mechanism(
            [mb.RigidBody("sleigh", 1.5, inertia=(0.2, 0.2, 0.4))],
            [mb.Planar("ice", "world", "sleigh")],
            connections=[mb.SpringDamper("spring", "world", "sleigh", 50.0)],
            constraints=[mb.Skate("blade", "world", "sleigh")],
        )
    )
    found = mb.equilibrium(model, {"ice": (0.3, 0.1, 0.2)})
    x, y, heading = found.q
    close(x * np.cos(heading) + y * np.sin(heading), 0.0, 1e-12)
    close(abs(found.load("blade")), 50.0 * np.hypot(x, y), 1e-9)
    assert np.hypot(x, y) > 0.02


def test_what_is_said_when_there_is_none():
    free = mb.Mechanism([mb.sphere("ball", 0.1, mass=2.0)], [mb.Prismatic("lift", "world", "ball", axis="z")])
    with pytest.raises(mb.MechanismError, match=r"nothing holds 'lift'.*load of 19\.6 N"):
        mb.equilibrium(mb.compile(free))
    clock = mb.JointConnection(
        "clock", ["lift"], lambda t, x, xd, z, u, p: -9 * x, states=1, state_rate=lambda t, x, xd, z, u, p: 1.0 + 0 * z
    )
    runs = mb.Mechanism(free.bodies, free.joints, connections=[clock])
    with pytest.raises(mb.MechanismError, match="states of 'clock' do not come to rest"):
        mb.equilibrium(mb.compile(runs))
    assert not bool(mb.equilibrium(mb.compile(runs), throw=False).ok)
    with pytest.raises(mb.MechanismError, match=r"inputs name 'lif'.*'lift'"):
        mb.equilibrium(mb.compile(free), inputs={"lif": 1.0})
    balanced = mb.equilibrium(mb.compile(free), {"lift": 0.7}, inputs={"lift": 2.0 * G})
    close(balanced.q, [0.7], 1e-14)
    assert int(balanced.indifferent) == 1
    far = mb.compile(four_bar(base=2.0))
    with pytest.raises(mb.MechanismError, match=r"'D.* stays open by"):
        mb.equilibrium(far)
