"""Small motions: closed forms, one-degree energy expressions of loops, rolling and spinning bodies, derivatives."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from bicycle import bicycle
from closed import four_bar
from helpers import central_difference, close
from test_reference_loops import FOLDER, load

import diffmb as mb

G = 9.81


def near(found, expected, rtol):
    """Every expected eigenvalue is there."""
    for w in np.atleast_1d(expected):
        assert np.abs(np.asarray(found) - w).min() <= rtol * max(abs(w), 1e-3), (w, np.asarray(found))


# --- trees


def swing(k=0.0, c=0.0, m2=0.5, l2=0.6):
    """Two uniform rods, a torsion spring and damper in the second hinge."""
    spring = mb.JointConnection("hinge spring", ["B"], lambda t, x, xd, z, u, p: -p[0] * x - p[1] * xd, (k, c))
    return mb.Mechanism(
        [mb.rod("upper", 1.0, mass=1.0), mb.rod("lower", l2, mass=m2)],
        [mb.Revolute("A", "world", "upper"), mb.Revolute("B", mb.Marker("upper", (1, 0, 0)), "lower")],
        connections=[spring],
        gravity=(0, -G, 0),
    )


def swing_matrices(k, c, m2, l2):
    """M, C, K about hanging in the absolute angles (a, a + b), turned into (a, b)."""
    M = jnp.array([[1 / 3 + m2, m2 * l2 / 2], [m2 * l2 / 2, m2 * l2**2 / 3]])
    K = jnp.diag(jnp.array([(0.5 + m2) * G, m2 * G * l2 / 2]))
    T = jnp.array([[1.0, 0.0], [1.0, 1.0]])
    own = jnp.array([[0.0, 0.0], [0.0, 1.0]])
    return T.T @ M @ T, c * own, T.T @ K @ T + k * own


def test_double_pendulum():
    """M, C, K, A, B, frequencies and damping against the closed form; modes satisfy the equations of motion."""
    numbers = (3.0, 0.1, 0.5, 0.6)
    model = mb.compile(swing(*numbers))
    lin = mb.linearise(model, (jnp.array([-np.pi / 2, 0.0]), jnp.zeros(2)))
    M, C, K = (np.asarray(x) for x in swing_matrices(*numbers))
    close(lin.M, M, 1e-14)
    close(lin.C, C, 1e-13)
    close(lin.K, K, 1e-13)
    A = np.block([[np.zeros((2, 2)), np.eye(2)], [-np.linalg.solve(M, K), -np.linalg.solve(M, C)]])
    close(lin.A, A, 1e-13)
    close(lin.B, np.concatenate([np.zeros((2, 2)), np.linalg.inv(M)]), 1e-13)
    near(lin.eigenvalues, np.linalg.eigvals(A), 1e-12)
    for w, shape in zip(lin.eigenvalues, np.asarray(lin.modes).T, strict=True):
        close((w * w * M + w * C + K) @ shape, np.zeros(2), 1e-11)
    close(lin.frequencies * 2 * np.pi, np.abs(lin.eigenvalues), 1e-14)
    close(lin.damping_ratios * np.abs(lin.eigenvalues), -lin.eigenvalues.real, 1e-13)
    assert lin.states == ("A", "B", "A'", "B'") and lin.inputs == ("A", "B")
    assert "Hz" in repr(lin) and "B" in repr(lin)
    first = mb.linearise(model, (jnp.array([-np.pi / 2, 0.0]), jnp.zeros(2)), independent="B")
    assert first.independent.positions == ("B", "A")
    near(first.eigenvalues, lin.eigenvalues, 1e-12)


def test_eigenvalues_follow_stiffness_mass_and_length():
    """Of the double pendulum, forward, reverse, the closed form's own derivative, and in a batch."""

    def ours(x):
        model = mb.compile(swing(*x))
        return mb.linearise(model, (jnp.array([-np.pi / 2, 0.0]), jnp.zeros(2))).eigenvalues[-1]

    def exact(x):
        M, C, K = swing_matrices(*x)
        zero, one = jnp.zeros((2, 2)), jnp.eye(2)
        A = jnp.block([[zero, one], [-jnp.linalg.solve(M, K), -jnp.linalg.solve(M, C)]])
        w = jnp.linalg.eigvals(A)
        return w[jnp.argmax(jnp.abs(w) + 1e-6 * w.imag)]

    x = jnp.array([3.0, 0.1, 0.5, 0.6])
    parts = lambda f: lambda x: jnp.stack([f(x).real, f(x).imag])
    expected = jax.jacfwd(parts(exact))(x)
    close(jax.jit(jax.jacrev(parts(ours)))(x), expected, 1e-10)
    close(jax.jit(jax.jacfwd(parts(ours)))(x), expected, 1e-10)


def test_double_eigenvalues_have_no_derivative_and_spoil_no_other():
    """A free mass beside an oscillator: two zeros in one block, and a pair."""
    A = lambda k: jnp.zeros((4, 4)).at[0, 1].set(1.0).at[2, 3].set(1.0).at[3, 2].set(-k)
    named: dict[str, Any] = {"independent": mb.Independent((), ()), "states": (), "inputs": (), "all_speeds": ()}
    values = lambda A: mb.Linearisation(*[A] * 8, **named).eigenvalues
    for jac in (jax.jacfwd, jax.jacrev):
        close(jac(lambda k: values(A(k))[3].imag)(4.0), 0.25, 1e-14)  # d sqrt(k)
    moved = jnp.zeros((4, 4)).at[1, 0].set(1.0)  # a spring on the free mass: the zeros split like a square root
    slope = jax.jvp(lambda s: values(A(4.0) + s * moved), (0.0,), (1.0,))[1]
    assert np.isnan(slope[:2]).all() and np.isfinite(slope[2:]).all()


def test_sleeping_top():
    """Quaternions along a motion: A w'' - i C s w' - m g h w = 0 for the tilt; seen from the turning body, w - i s."""
    m, h, A, C, spin = 2.0, 0.3, 0.5, 0.2, 40.0  # A about the tip
    body = mb.RigidBody("top", m, (0, 0, h), (A - m * h * h, A - m * h * h, C))
    model = mb.compile(mb.Mechanism([body], [mb.Spherical("tip", "world", "top")]))
    lin = mb.linearise(model, (model.neutral(), jnp.array([0, 0, spin])))
    own = np.roots([A, -1j * C * spin, -m * G * h]) - 1j * spin
    near(lin.eigenvalues, [*own, *own.conj()], 1e-10)
    close(lin.eigenvalues.real, np.zeros(6), 1e-7)  # it sleeps
    slow = mb.linearise(model, (model.neutral(), jnp.array([0, 0, 10.0])))
    assert float(slow.eigenvalues.real.max()) > 1.0


# --- loops


def one_degree(model, q, independent):
    """Inertia and stiffness of a mechanism with one degree of freedom, from its energies alone, along its motion."""
    along = lambda a: mb.assemble(model, {independent: a}, {independent: 1.0}, guess=guess(model, q)).q
    guess = lambda model, q: {k: v for k, v in model.unpack(q).items() if k != independent}
    a, h = float(q[model.coordinates(independent)][0]), 2e-3
    E = [float(mb.potential_energy(model, along(a + k * h))) for k in (-2, -1, 0, 1, 2)]
    stiffness = (-E[0] + 16 * E[1] - 30 * E[2] + 16 * E[3] - E[4]) / (12 * h * h)
    start = mb.assemble(model, {independent: a}, {independent: 1.0}, guess=guess(model, q))
    return 2 * float(mb.kinetic_energy(model, start.q, start.v)), stiffness


def test_four_bar_swings():
    """Against energies, against a run of small amplitude, and with any joint as the independent one."""
    model = mb.compile(four_bar())
    eq = mb.equilibrium(model, {"A": 0.5, "B": 0.2})
    lin = mb.linearise(model, eq, independent=["A"])
    inertia, stiffness = one_degree(model, eq.q, "A")
    close(lin.M[0, 0] / inertia, 1.0, 1e-12)
    close(lin.K[0, 0] / stiffness, 1.0, 1e-6)
    close(lin.C, np.zeros((1, 1)), 1e-12)
    w = float(np.sqrt(lin.K[0, 0] / lin.M[0, 0]))
    near(lin.eigenvalues, [1j * w, -1j * w], 1e-12)
    close(mb.constraint_jacobian(model, eq.q) @ lin.modes, np.zeros((5, 2)), 1e-13)
    again = mb.linearise(model, eq)
    near(again.eigenvalues, [1j * w, -1j * w], 1e-11)
    size, ts = 1e-5, np.linspace(0, 2 * np.pi / w, 5)
    start = mb.assemble(model, {"A": float(eq.q[0]) + size}, guess=model.unpack(eq.q))
    traj = mb.simulate(model, start, ts, controller=mb.Tolerance(1e-12))
    close((traj.q[:, 0] - eq.q[0]) / size, np.cos(w * ts), 1e-4)
    with pytest.raises(mb.MechanismError, match="'B' cannot be independent"):
        mb.linearise(model, eq, independent=["A", "B"])
    with pytest.raises(mb.MechanismError, match="'Q' is no coordinate"):
        mb.linearise(model, eq, independent=["Q"])
    with pytest.raises(mb.MechanismError, match=r"independent=lin\.independent"):
        jax.jit(lambda q: mb.linearise(model, (q, eq.v)).A)(eq.q)


def test_four_bar_frequency_follows_its_numbers():
    """Through compile, equilibrium and linearise, by stiffness, mass and length: forward = reverse = differences."""
    chosen = mb.Independent(("A",), ("A",))

    def angle_and_frequency(x):
        tie = mb.SpringDamper("tie", mb.Marker("coupler", (0.15, 0.02, 0)), "world", x[0], 0.0, 0.2)
        mech = four_bar(l2=x[2])
        bodies = [mech["crank"], mb.rod("coupler", x[2], mass=x[1]), mech["rocker"]]
        model = mb.compile(mb.Mechanism(bodies, mech.joints, connections=[tie], gravity=(0, -G, 0)))
        eq = mb.equilibrium(model, {"A": -1.5, "B": 2.5}, throw=False)
        return jnp.stack([eq.q[0], mb.linearise(model, eq, independent=chosen).eigenvalues[1].imag])

    @jax.jit
    def all_at_once(x, direction):
        """One search, its tangent forward and the same transposed."""
        value, push = jax.linearize(angle_and_frequency, x)
        pull = jax.linear_transpose(push, x)
        return value, push(direction), jnp.concatenate([jnp.stack(pull(row)) for row in jnp.eye(2)])

    x, direction = jnp.array([20.0, 0.5, 0.3]), jnp.array([3.0, 0.2, 0.05])
    _, forward, back = all_at_once(x, direction)
    close(back @ direction, forward, 1e-10)
    for k, h in enumerate((1e-2, 1e-4, 1e-4)):
        slope = central_difference(lambda x: all_at_once(x, direction)[0], x, jnp.eye(3)[k], h)
        assert np.abs(back[:, k] - slope).max() <= 1e-7 * np.abs(slope).max()


# --- rolling


def test_rolling_disc_stands_up_above_its_critical_speed():
    """(A + m r^2) w^2 = m g r - C (C + m r^2) s^2 / A, s the spin: a thin disc is stable above s^2 = g / (3 r)."""
    radius, m = 0.3, 1.3
    yaw_lean_roll = np.array([[0, 1.0, 0], [0, 0, 1.0], [1.0, 0, 0]])  # up, ahead, along the axle
    I = np.array([0.25, 0.25, 0.5]) * m * radius**2
    model = mb.compile(
        mb.Mechanism(
            [mb.RigidBody("disc", m, inertia=I)],
            [mb.Angles123("disc joint", mb.Marker("world", (0, 0, radius), yaw_lean_roll), "disc")],
            constraints=[mb.RollingDisc("contact", "world", "disc", radius)],
        )
    )
    critical = np.sqrt(G / (3 * radius))
    for spin, stable in ((0.9 * critical, False), (1.5 * critical, True)):
        state = mb.assemble(model, model.neutral(), jnp.array([0, 0, spin, 0, radius * spin, 0.0]))
        lin = mb.linearise(model, state)
        assert (len(lin.independent.positions), len(lin.independent.speeds)) == (5, 3)
        square = (m * G * radius - I[2] * (I[2] + m * radius**2) * spin**2 / I[0]) / (I[0] + m * radius**2)
        w = np.sqrt(complex(square))
        found = lin.essential()
        near(found.eigenvalues, [w, -w], 1e-9)
        assert (float(found.eigenvalues.real.max()) < 1e-6) == stable


@pytest.mark.skipif(not FOLDER.exists(), reason="the reference problems are not here")
def test_whipple_bicycle():
    """P08: the published matrices and eigenvalues from the whole nonlinear model, at every speed of the table."""
    data = load("P08_bicycle.json")
    p, published = data["parameters"], {k: np.array(x) for k, x in data["published_linear"].items()}
    model = mb.compile(bicycle(p))
    found = {}
    for speed in range(11):
        wheels = {"rear": speed / p["rR"], "front": speed / p["rF"], "steer": 0.0}
        state = mb.assemble(model, model.neutral(), wheels)
        lin = mb.linearise(model, state, independent=["frame[0]", "steer", "rear"])
        assert (len(lin.independent.positions), len(lin.independent.speeds)) == (7, 3)
        close(lin.rates[7:], np.zeros(3), 1e-9)  # it is steady
        found[speed] = lin.essential()
        assert found[speed].states == ("frame[0]", "steer", "frame[0]'", "steer'", "rear'")
        theirs = np.array([complex(*pair) for pair in data["eigenvalues"][str(speed)]])
        near(found[speed].eigenvalues, theirs, 1e-9)
    at = lambda name, speed: np.asarray(getattr(found[speed], name))[:2, :2]
    for ours, name in (
        (at("M", 0), "M"),
        (at("C", 5) / 5, "C1"),
        (at("K", 0) / p["g"], "K0"),
        ((at("K", 10) - at("K", 0)) / 100, "K2"),
    ):
        assert np.abs(ours - published[name]).max() <= 1e-9 * np.abs(published[name]).max()
    fastest = lambda speed: float(found[speed].eigenvalues.real.max())
    assert fastest(4) > 1e-2 and abs(fastest(5)) < 1e-12 and fastest(7) > 1e-2  # stable between 4.3 and 6.0 m/s
