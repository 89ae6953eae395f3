"""PARTICLES after Attia: the ten masses, the momentum of the particles, chains with loops, and energy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from founding import twelve_bodies
from helpers import close, random_body

import diffmb as mb
from diffmb import formulations as fm
from diffmb._formulations._ten_particles import SHARES, carried, distances, momentum, place, replace_body, third


def bodies():
    rng = np.random.default_rng(0)
    odd = [mb.rod("rod", 0.4, mass=0.3), mb.RigidBody("point", 2.0, (0.1, 0.2, 0.3), (0, 0, 0))]
    for body in [random_body(rng, f"b{k}") for k in range(3)] + odd:
        axes = np.linalg.qr(rng.standard_normal((3, 3)))[0]
        yield body, replace_body(jnp.asarray(axes * np.linalg.det(axes)), body.mass, body.com, body.inertia)


def test_ten_masses_are_the_body():
    """(2.1), for bodies of any shape: mass, centre and inertia to round-off."""
    for body, particles in bodies():
        x, m = SHARES @ np.asarray(particles.points), np.asarray(particles.masses)
        size = np.abs(m).sum() * (1.0 + (x * x).sum(1).max())
        arm = x - np.asarray(body.com)
        inertia = sum(k * (a @ a * np.eye(3) - np.outer(a, a)) for k, a in zip(m, arm, strict=True))
        for found, true in ((m.sum(), body.mass), (m @ x, body.mass * body.com), (inertia, body.inertia)):
            assert np.abs(found - np.asarray(true)).max() < 2e-15 * size


def test_particles_move_as_the_body():
    """Their momentum is Newton's and Euler's, particle 3 keeps its place, and the frame they carry is the body's."""
    rng = np.random.default_rng(1)
    for body, particles in bodies():
        X = mb.Pose(mb.rotation_about(jnp.array([0.6, 0.0, 0.8]), jnp.array(0.7)), jnp.asarray(rng.standard_normal(3)))
        w, wd, v, a = rng.standard_normal((4, 3))
        r = place(particles, X)
        close(carried(particles, r).rotation, X.rotation, 1e-13)
        close(distances(r), distances(particles.points[jnp.array([0, 1, 3])]), 1e-13)
        arm = np.asarray(r - r[0])
        rd, spin = jnp.asarray(v + np.cross(w, arm)), lambda x: np.cross(wd, x) + np.cross(w, np.cross(w, x))
        rdd = jnp.asarray(a + spin(arm)).ravel()
        r3, by_others, rest = third(particles, r, rd)
        close(r3, X.apply(particles.points[2]), 1e-13)
        close(by_others @ rdd + rest, a + spin(np.asarray(r3 - r[0])), 1e-12)  # (2.14)
        matrix, rest = momentum(particles, r, rd)
        R, com = np.asarray(X.rotation), np.asarray(X.rotation @ body.com)
        I, force = R @ np.asarray(body.inertia) @ R.T, float(body.mass) * (a + spin(com))
        moment = I @ wd + np.cross(w, I @ w) + np.cross(com, force)
        close(matrix @ rdd + rest, np.concatenate([moment, force]), 1e-12)


@pytest.fixture(scope="module")
def twelve():
    model, state = twelve_bodies()
    tau = jnp.asarray(np.random.default_rng(3).standard_normal(model.nv))
    return model, state, tau, mb.dynamics(model, state.q, state.v, tau)


@pytest.mark.parametrize("formulation", [fm.Kane, fm.Particles])
def test_twelve_bodies_with_a_loop(twelve, formulation):
    """Schoenmakers' tree with Attia's joints, a cut joint, a gear and springs: accelerations and multipliers."""
    model, state, tau, expected = twelve
    found = jax.jit(lambda model: formulation(model).dynamics(state.q, state.v, tau))(model)
    close(found.vd, expected.vd, 1e-9)
    close(found.lam, expected.lam, 1e-9)


def test_energy_and_distances_stay():
    """Two spherical pendulums in a row, in Cartesian coordinates only."""
    mech = mb.Mechanism(
        [mb.box("upper", (0.1, 0.2, 0.5), mass=1.0), mb.rod("lower", 0.4, mass=0.5)],
        [
            mb.Spherical("A", "world", mb.Marker("upper", (0, 0, 0.25))),
            mb.Revolute("B", mb.Marker("upper", (0, 0, -0.25)), "lower", axis="y"),
        ],
    )
    model = mb.compile(mech)
    q, v = model.pack({"B": 0.4}), jnp.array([1.0, 2.0, -0.5, 3.0])
    particles = fm.Particles(model)
    assert particles.unknowns == (18, 18)
    run = jax.jit(lambda f: f.simulate((q, v), [0.0, 0.5, 1.0], rtol=1e-10, atol=1e-10))(particles)
    energy = lambda q, v: mb.kinetic_energy(model, q, v) + mb.potential_energy(model, q)
    close(jax.vmap(energy)(run.q, run.v), jnp.full(3, energy(q, v)), 1e-8)
    assert np.abs(run.v[-1] - v).max() > 1.0  # it has moved
