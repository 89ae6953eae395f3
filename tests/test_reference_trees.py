"""Random trees with answers computed beforehand by another program: every quantity to 1e-10 of its largest entry."""

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import Order, mechanism_from_reference, reference_order

import diffmb as mb

FOLDER = Path(__file__).parents[2] / "shared/reference/trees"
FILES = sorted(FOLDER.glob("*.json"))
TOLERANCE = 1e-10

pytestmark = pytest.mark.skipif(not FILES, reason="the reference trees are not here")
every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


@lru_cache
def load(path: Path) -> tuple[dict[str, Any], mb.Model, Order, list[np.ndarray]]:
    """The file, its model, the order of coordinates, and q, v, tau, vd in diffmb's order."""
    tree = json.loads(path.read_text())
    model = mb.compile(mechanism_from_reference(tree))
    order = reference_order(tree, model)
    state = [np.array(tree["q"])[order.q]] + [np.array(tree[key])[order.v] for key in ("v", "tau", "acc")]
    return tree, model, order, state


def check(name: str, got: Any, expected: Any) -> None:
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.shape == expected.shape, name
    error = np.abs(got - expected).max() / np.abs(expected).max()
    assert error < TOLERANCE, f"{name}: relative error {error:.1e}"


@every_file
def test_kinematics(path: Path) -> None:
    tree, model, order, (q, v, _, _) = load(path)
    expected, names = tree["expected"], [joint["name"] for joint in tree["joints"]]
    vd = np.array(expected["qdd"])[order.v]
    motion, com = jax.jit(lambda m, q, v, vd: (mb.kinematics(m, q, v, vd), mb.center_of_mass(m, q)))(model, q, v, vd)
    links = [motion[name] for name in names]
    check("link_R", [link.pose.rotation for link in links], expected["link_R"])
    check("link_p", [link.pose.translation for link in links], expected["link_p"])
    check("link_w", [link.twist[:3] for link in links], expected["link_w"])
    check("link_v", [link.twist[3:] for link in links], expected["link_v"])
    check("link_wdot", [link.acceleration[:3] for link in links], expected["link_wdot"])
    check("link_vdot", [link.acceleration[3:] for link in links], expected["link_vdot"])
    centres = [motion[mb.Marker(joint["name"], joint["com"])].pose.translation for joint in tree["joints"]]
    check("com_world", centres, expected["com_world"])
    check("total_com", com, expected["total_com"])


@jax.jit
def dynamics(m: mb.Model, q: jax.Array, v: jax.Array, tau: jax.Array, vd: jax.Array) -> dict[str, jax.Array]:
    return {
        "M": mb.mass_matrix(m, q),
        "bias": mb.bias(m, q, v),
        "qdd": mb.forward_dynamics(m, q, v, tau),
        "tau_id": mb.inverse_dynamics(m, q, v, vd),
        "kinetic": mb.kinetic_energy(m, q, v),
        "potential": mb.potential_energy(m, q),
    }


@every_file
def test_dynamics(path: Path) -> None:
    tree, model, order, state = load(path)
    expected = tree["expected"]
    result = dynamics(model, *state)
    check("M", result["M"], order.matrix(expected["M"]))
    for name in ("bias", "qdd", "tau_id"):
        check(name, result[name], np.array(expected[name])[order.v])
    for name in ("kinetic", "potential"):
        check(name, result[name], expected[name])
    # A batch may go another way than a single state.
    many = [np.tile(part, (5, 1)) for part in state[:3]]
    qdd = jax.jit(jax.vmap(mb.forward_dynamics, in_axes=(None, 0, 0, 0)))(model, *many)
    check("qdd of a batch", qdd, np.tile(np.array(expected["qdd"])[order.v], (5, 1)))


def jacobians(jac: Any) -> Any:
    """Derivatives along the right perturbation q (+) d, and with respect to speeds and loads."""

    def all_of_them(m: mb.Model, q: jax.Array, v: jax.Array, tau: jax.Array, vd: jax.Array) -> dict[str, jax.Array]:
        still = jnp.zeros(m.nv)
        load = lambda d, v: mb.inverse_dynamics(m, mb.retract(m, q, d), v, vd)
        rate = lambda d, v, tau: mb.forward_dynamics(m, mb.retract(m, q, d), v, tau)
        names = ("dtau_dq", "dtau_dv", "dqdd_dq", "dqdd_dv", "Minv")
        return dict(zip(names, jac(load, (0, 1))(still, v) + jac(rate, (0, 1, 2))(still, v, tau), strict=True))

    return jax.jit(all_of_them)


MODES = {"forward": jacobians(jax.jacfwd), "reverse": jacobians(jax.jacrev)}


@pytest.mark.parametrize("mode", MODES)
@every_file
def test_derivatives(path: Path, mode: str) -> None:
    tree, model, order, state = load(path)
    for name, value in MODES[mode](model, *state).items():
        check(name, value, order.matrix(tree["expected"][name]))
