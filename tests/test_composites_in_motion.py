"""Composite connections in a simulation: massless nodes under stiff implicit steps, and a chain that holds a slider."""

import jax
import jax.numpy as jnp
import numpy as np
from helpers import close
from scipy.linalg import expm

import diffmb as mb

TS = np.linspace(0.0, 0.2, 21)
MASS, K1, K2, C1, C2 = 2.0, 3e4, 5e4, 0.4, 0.1  # the node's rate (K1 + K2) / (C1 + C2) is 1.6e5 per second


def on_a_slide(name, place, connection):
    """A body on a vertical slide, above which the connection holds it."""
    slide = mb.Prismatic(f"{name} slide", mb.Marker("world", (place, 0.0, 0.0)), name, axis="z")
    return mb.sphere(name, 0.05, mass=MASS), slide, connection


def elastic():
    """Two springs, one below the other; the node between them is in equilibrium."""
    spring = lambda name, first, second, k: mb.SpringDamper(name, first, second, k=k, length=0.2)
    parts = [spring("upper", "0", "m", K1), spring("lower", "m", "1", K2)]
    return mb.Composite("series", [mb.Marker("world", (1, 0, 0.4)), "a"], {"m": (0.0, 0.0, -0.2)}, parts)


def creeping():
    """Two blocks of rubber, one below the other; the node between them creeps."""
    block = lambda name, first, second, k, c: mb.Bushing(name, first, second, k=k * ALONG, c=c * ALONG)
    parts = [block("upper", "0", "m", K1, C1), block("lower", "m", "1", K2, C2)]
    ends = [mb.Marker("world", (1, 0, 0)), "b"]
    return mb.Composite("rubber", ends, {"m": (0.0, 0.0, 0.0)}, parts, damped=True)


ALONG = np.diag([1.0, 1.0, 1.0, 1.0, 1.0, 1.0])


def moved(name, connection, start, **more):
    body, slide, connection = on_a_slide(name, 1.0, connection)
    model = mb.compile(mb.Mechanism([body], [slide], connections=[connection]))
    return mb.simulate(model, mb.assemble(model, {f"{name} slide": start}), TS, controller=mb.Tolerance(1e-8), **more)


def test_a_node_in_equilibrium_in_motion():
    """Two springs are one; the body swings about its place at rest."""
    traj = moved("a", elastic(), -1e-3)
    stiffness = K1 * K2 / (K1 + K2)
    sag, rate = -MASS * 9.81 / stiffness, np.sqrt(stiffness / MASS)
    close(1e3 * traj.coordinate("a slide"), 1e3 * (sag + (-1e-3 - sag) * np.cos(rate * TS)), 1e-4)


def test_a_creeping_node_in_motion():
    """A damped motion of three states, one of them fast: less than 400 implicit steps for 32000 time constants."""
    traj = moved("b", creeping(), 0.0, solver=mb.implicit())
    # (x, xd, w): m xd' = -f - m g, f = K2 (x - w) + C2 (xd - wd) = K1 w + C1 wd
    creep = np.array([K2, C2, -(K1 + K2)]) / (C1 + C2)  # wd
    force = np.array([0.0, 0.0, K1]) + C1 * creep
    A = np.zeros((4, 4))
    A[0, 1], A[1, :3], A[1, 3], A[2, :3] = 1.0, -force / MASS, -9.81, creep
    exact = np.stack([expm(A * t)[:3, 3] for t in TS])
    close(1e3 * traj.coordinate("b slide"), 1e3 * exact[:, 0], 1e-4)
    close(1e3 * traj.state("rubber")[:, 2], 1e3 * exact[:, 2], 1e-4)
    assert int(traj.stats.steps) + int(traj.stats.rejected) < 400


def test_a_chain_in_motion():
    """A crank turns a slider through a bar between two balls: the motion of a massless rod."""
    ball_bar_ball = lambda *ends: mb.Chain(
        "rod", *ends, [mb.Spherical("a", "0", "bar"), mb.Spherical("b", mb.Marker("bar", (0.5, 0, 0)), "1")]
    )
    distance = lambda *ends: mb.Distance("rod", *ends, 0.5)

    def linkage(rod):
        bodies = [mb.rod("crank", 0.2, mass=1.0), mb.box("slider", (0.1, 0.1, 0.1), mass=0.5)]
        joints = [mb.Revolute("A", "world", "crank"), mb.Prismatic("D", "world", "slider", axis=(1.0, 0.0, 0.2))]
        return mb.compile(mb.Mechanism(bodies, joints, constraints=[rod(mb.Marker("crank", (0.2, 0, 0)), "slider")]))

    bar, rod = linkage(ball_bar_ball), linkage(distance)
    start = mb.assemble(rod, {"A": 0.6}, {"A": 8.0}, guess={"D": 0.6})

    def turned(model, h=5e-3, steps=20):
        """By the classical method of Runge and Kutta."""
        rate = lambda y: jnp.concatenate([y[2:], mb.dynamics(model, y[:2], y[2:]).vd])

        def step(_, y):
            k1 = rate(y)
            k2 = rate(y + h / 2 * k1)
            k3 = rate(y + h / 2 * k2)
            return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + rate(y + h * k3))

        return jax.jit(lambda y: jax.lax.fori_loop(0, steps, step, y))(jnp.concatenate([start.q, start.v]))

    close(turned(bar), turned(rod), 1e-8)
    assert float(jnp.abs(turned(rod) - jnp.concatenate([start.q, start.v]))[0]) > 0.5
