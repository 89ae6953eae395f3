"""Every connection between free bodies: action = reaction, moments balance, and a rigid motion changes nothing.

All examples that stand between markers are one mechanism, each on free bodies of its own, at the motions of the laws'
examples. What acts on joint coordinates has the joint for its reaction, and is not here.
"""

import copy

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from examples import samples
from examples_special import DISC
from helpers import close
from test_connection_laws import EXAMPLES

import diffmb as mb
from diffmb._motion import connection_motion

BETWEEN = {name: x for name, x in EXAMPLES.items() if not isinstance(x.load, mb.AbstractJointConnection)}
COUNT = 5
OMEGA, DRIFT = np.array([0.4, -0.9, 0.6]), np.array([1.5, -2.0, 0.7])


def bodies_of(name):
    return [f"{name} {k}" for k in range(len(BETWEEN[name].load.markers))]


def placed(name):
    """The example's connection, on the bodies that are its own."""
    load = copy.copy(BETWEEN[name].load)
    markers = tuple(mb.Marker(body, m.position) for body, m in zip(bodies_of(name), load.markers, strict=True))
    ends = {"markers": markers} if isinstance(load, mb.AbstractSpan) else {"first": markers[0], "second": markers[1]}
    for field, value in {"name": name, **ends}.items():
        object.__setattr__(load, field, value)
    return load


def build():
    every = [body for name in BETWEEN for body in bodies_of(name)]
    return mb.Mechanism(
        [mb.sphere(body, 0.1, mass=1.0) for body in every],
        [mb.Free(f"free {body}", "world", body) for body in every],
        constraints=[mb.CamContact("contact", *bodies_of("traction"), DISC, 0.01)],
        connections=[placed(name) for name in BETWEEN],
        gravity=(0, 0, 0),
    )


def quaternion(R):
    """Of a rotation matrix that is no half turn."""
    w = np.sqrt(1 + np.trace(R)) / 2
    return np.array([w, *((R - R.T)[[2, 0, 1], [1, 2, 0]] / (4 * w))])


def rotation(e):
    """Of quaternions (k, 4): 1 + 2 w [v x] + 2 [v x]^2."""
    skew = np.cross(np.eye(3), e[:, None, 1:])
    return np.eye(3) + 2 * e[:, 0, None, None] * skew + 2 * skew @ skew


def situation(model, k, turn, shift, omega, drift):
    """(q, v, z, u) of sample k, with the first marker of every example at (turn, shift), moving with a rigid motion."""
    q, v, z, u = (np.zeros(n) for n in (model.nq, model.nv, model.nz, model.nu + len(model.followed)))
    for name, example in BETWEEN.items():
        _, x, xd, own_z, own_u = jax.tree.map(lambda a: np.asarray(a[k]), samples(example, COUNT, 0))
        poses = [x] if isinstance(x, mb.Pose) else list(x)
        relative = [(np.eye(3), np.zeros(3)), *((p.rotation, p.translation) for p in poses)]
        twists = [np.zeros(6), *np.atleast_2d(xd)]
        for body, marker, (R, p), twist in zip(bodies_of(name), example.load.markers, relative, twists, strict=True):
            assert (np.asarray(marker.rotation) == [1, 0, 0, 0]).all()
            offset, R, p = np.asarray(marker.position), turn @ R, turn @ p + shift
            spin = R.T @ omega + twist[:3]
            speed = R.T @ (drift + np.cross(omega, p)) + twist[3:] - np.cross(spin, offset)
            q[model.coordinates(f"free {body}")] = [*(p - R @ offset), *quaternion(R)]
            v[model.speeds(f"free {body}")] = [*spin, *speed]
        inputs = example.load.nu
        z[model.states(name)], u[model.input(name)] = own_z, own_u[:inputs]
        u[model.nu :][: example.followed] = np.where(example.followed, own_u[inputs:], u[model.nu :])
    return q, v, z, u


@pytest.fixture(scope="module")
def case():
    """(model, {situation: (q, w, zd, E)}): the wrench on every body in its own axes, rates of states, energy."""
    model = mb.compile(build())
    one = lambda q, v, z, u: (*connection_motion(model, q, v, 0.3, z, u, None), mb.potential_energy(model, q, 0.3, z=z))
    run = jax.jit(jax.vmap(one))
    turned = np.asarray(mb.rotation_about(jnp.array([0.48, 0.6, 0.64]), jnp.array(0.9)))
    at = {
        "here": (np.eye(3), np.zeros(3), np.zeros(3), np.zeros(3)),
        "turned, shifted and moving": (turned, np.array([0.3, -0.5, 0.2]), OMEGA, DRIFT),
    }
    found = {}
    for label, place in at.items():
        args = [jnp.stack(a) for a in zip(*(situation(model, k, *place) for k in range(COUNT)), strict=True)]
        found[label] = (np.asarray(args[0]), *(np.asarray(a) for a in run(*args)))
    return model, found


def wrenches(model, name, q, w):
    """(moment, force) on each body of an example in its own axes, its rotation and its place; sample by sample."""
    for body in bodies_of(name):
        here, own = model.coordinates(f"free {body}"), model.speeds(f"free {body}")
        yield w[:, own][:, :3], w[:, own][:, 3:], rotation(q[:, here][:, 3:]), q[:, here][:, :3]


@pytest.mark.parametrize("name", BETWEEN)
def test_action_is_reaction(case, name):
    """Forces and moments on all its bodies add up to nothing, about any point."""
    model, found = case
    q, w, *_ = found["turned, shifted and moving"]
    force, moment, size = np.zeros((COUNT, 3)), np.zeros((COUNT, 3)), 0.0
    for m, f, R, p in wrenches(model, name, q, w):
        f, m = np.einsum("kij,kj->ki", R, f), np.einsum("kij,kj->ki", R, m)
        force, moment = force + f, moment + m + np.cross(p, f)
        size = max(size, np.abs(f).max(), np.abs(m).max(), np.abs(np.cross(p, f)).max())
    assert size > 1e-9
    close(force / size, np.zeros_like(force), 1e-12)
    close(moment / size, np.zeros_like(moment), 1e-12)


@pytest.mark.parametrize("name", BETWEEN)
def test_a_rigid_motion_changes_nothing(case, name):
    """Not the loads in the axes of the bodies, and not the rates of its states."""
    model, found = case
    (q0, w0, zd0, _), (q1, w1, zd1, _) = found.values()
    for (m0, f0, *_), (m1, f1, *_) in zip(wrenches(model, name, q0, w0), wrenches(model, name, q1, w1), strict=True):
        size = max(np.abs(f0).max(), np.abs(m0).max())
        close(f1 / size, f0 / size, 1e-9)
        close(m1 / size, m0 / size, 1e-9)
    own = model.states(name)
    size = np.abs(zd0[:, own]).max(initial=1e-300)
    close(zd1[:, own] / size, zd0[:, own] / size, 1e-9)


def test_energies_stay(case):
    _, found = case
    energy = [values[3] for values in found.values()]
    close(energy[1], energy[0], 1e-10)
