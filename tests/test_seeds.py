"""The examples of the books diffmb grew from: pendulums against closed forms, the 12-body and the 8-body tree."""

from typing import Any

import jax
import numpy as np
import oracles
import pytest

import diffmb as mb

CONNECTIONS = {  # body k hangs on body array[k - 1]
    "schoenmakers": [0, 1, 2, 3, 4, 4, 6, 1, 8, 9, 9, 11],
    "kamman": [0, 1, 2, 1, 2, 1, 1, 7],
}


@oracles.quick_jit
def everything(m: mb.Model, q: jax.Array, v: jax.Array, tau: jax.Array) -> dict[str, Any]:
    vd = mb.forward_dynamics(m, q, v, tau)
    return {
        "M": mb.mass_matrix(m, q),
        "bias": mb.bias(m, q, v),
        "vd": vd,
        "tau": mb.inverse_dynamics(m, q, v, vd),
        "energies": (mb.kinetic_energy(m, q, v), mb.potential_energy(m, q)),
        "motion": mb.kinematics(m, q, v, vd),
    }


def rod(name: str, m: float, l: float) -> mb.RigidBody:
    """Uniform, length 2 l, from the origin along x."""
    return mb.rod(name, 2 * l, mass=m)


@pytest.mark.parametrize("phi, rate", [(0.0, 0.0), (0.7, -1.3), (np.pi, 0.4), (-2.1, 5.0)])
def test_pendulum(phi: float, rate: float) -> None:
    """Wijckmans, examples 2.1-2.3: descriptor form and state-space form."""
    book = oracles.Pendulum(m=1.7, l=0.45, g=9.81)
    mech = mb.Mechanism([rod("rod", book.m, book.l)], [mb.Revolute("O", "world", "rod")], gravity=(book.g, 0, 0))
    model = mb.compile(mech)
    q, v = np.array([phi]), np.array([rate])
    ours = everything(model, q, v, 0 * v)
    np.testing.assert_allclose(ours["M"], [[book.mass()]], rtol=1e-14)
    np.testing.assert_allclose(ours["vd"], [book.acceleration(phi)], rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(ours["energies"], book.energy(phi, rate), rtol=1e-13, atol=1e-14)

    (xdd, ydd, phidd), force = book.descriptor(phi, rate)
    centre = ours["motion"][mb.Marker("rod", (book.l, 0, 0))]
    np.testing.assert_allclose(centre.acceleration, [0, 0, phidd, xdd, ydd, 0], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(centre.pose.translation, [book.l * np.cos(phi), book.l * np.sin(phi), 0], atol=1e-15)
    # The force of the pivot is what gravity leaves to be explained: m a = m g + f.
    np.testing.assert_allclose(book.m * (centre.acceleration[3:5] - model.gravity[:2]), force, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("q, v", [((0.3, -0.8), (1.1, -2.0)), ((0.0, 0.0), (0.0, 0.0)), ((2.5, np.pi), (-3.0, 4.0))])
def test_double_pendulum(q: tuple[float, float], v: tuple[float, float]) -> None:
    """Wijckmans, examples 3.1-3.2."""
    book = oracles.DoublePendulum(m1=1.3, m2=0.8, l=0.35, g=9.81)
    mech = mb.Mechanism(
        bodies=[rod("B1", book.m1, book.l), rod("B2", book.m2, book.l)],
        joints=[mb.Revolute("O", "world", "B1"), mb.Revolute("P", mb.Marker("B1", (2 * book.l, 0, 0)), "B2")],
        gravity=(book.g, 0, 0),
    )
    model = mb.compile(mech)
    q, v = np.array(q), np.array(v)
    M, bias = book.mass_matrix(q), book.bias(q, v)
    ours = everything(model, q, v, 0 * v)
    np.testing.assert_allclose(ours["M"], M, rtol=1e-13)
    np.testing.assert_allclose(ours["bias"], bias, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(ours["vd"], np.linalg.solve(M, -bias), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(ours["energies"], book.energy(q, v), rtol=1e-13, atol=1e-14)
    for body, (xd, yd, spin) in zip(("B1", "B2"), book.velocities(q, v), strict=True):
        centre = ours["motion"][mb.Marker(body, (book.l, 0, 0))]
        np.testing.assert_allclose(centre.twist, [0, 0, spin, xd, yd, 0], rtol=1e-13, atol=1e-14)


def seed_tree(name: str) -> tuple[mb.Mechanism, list[np.ndarray], list[dict[str, np.ndarray]]]:
    """The tree with random numbers; where each joint sits on its parent, and the axes of its joint."""
    rng = np.random.default_rng(len(name))
    bodies, joints, places, axes = [], [], [], []
    for k, parent in enumerate(CONNECTIONS[name], start=1):
        moments = rng.uniform(0.1, 0.3, 3)
        moments = moments[[1, 2, 0]] + moments
        bodies.append(mb.RigidBody(f"B{k}", rng.uniform(1, 3), rng.standard_normal(3) / 3, moments))
        places.append(rng.standard_normal(3) / 2 if parent else np.zeros(3))
        inner = mb.Marker(f"B{parent}" if parent else "world", places[-1])
        if name == "kamman":
            axes.append({})
            joints.append(mb.Angles123(f"J{k}", inner, f"B{k}"))
        else:
            units = rng.standard_normal((2, 3))
            units /= np.linalg.norm(units, axis=1, keepdims=True)
            axes.append({"axis": units[0], "slide": units[1]})
            joints.append(mb.RotationTranslation(f"J{k}", inner, f"B{k}", **axes[-1]))
    return mb.Mechanism(bodies=bodies, joints=joints), places, axes


def naive_states(name: str, q: np.ndarray, v: np.ndarray, places, axes) -> list[oracles.State]:
    states, size = [oracles.GROUND], len(q) // len(places)
    for k, parent in enumerate(CONNECTIONS[name]):
        own = slice(size * k, size * (k + 1))
        joint = oracles.angles123 if name == "kamman" else oracles.rotation_translation
        states.append(joint(q[own], v[own], states[parent], places[k], **axes[k]))
    return states[1:]


@pytest.mark.parametrize("name", CONNECTIONS)
def test_tree_of_the_book(name: str) -> None:
    mech, places, axes = seed_tree(name)
    model = mb.compile(mech)
    assert list(model.topology.parent) == CONNECTIONS[name]
    assert model.nv == (6 * 8 if name == "kamman" else 2 * 12)
    q, v, tau = np.random.default_rng(5).uniform(-1, 1, (3, model.nv))
    ours = everything(model, q, v, tau)
    np.testing.assert_allclose(ours["tau"], tau, atol=1e-10)
    np.testing.assert_allclose(ours["M"] @ ours["vd"] + ours["bias"], tau, atol=1e-10)

    states, motion = naive_states(name, q, v, places, axes), ours["motion"]
    np.testing.assert_allclose(motion.pose.translation, [s.p for s in states], atol=1e-13)
    np.testing.assert_allclose(motion.pose.rotation, [s.R for s in states], atol=1e-13)
    np.testing.assert_allclose(motion.twist, [np.concatenate([s.w, s.v]) for s in states], atol=1e-12)
    expected = oracles.kinetic_energy(mech.bodies, states)
    np.testing.assert_allclose(ours["energies"][0], expected, rtol=1e-13)
    np.testing.assert_allclose(0.5 * v @ ours["M"] @ v, expected, rtol=1e-12)
