"""Random trees with answers computed beforehand by another program: every quantity to 1e-10 of its largest entry."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import Order, mechanism_from_reference, reference_order
from scipy.linalg import block_diag

import diffmb as mb

FOLDER = Path(__file__).parents[2] / "shared/reference/trees"
FILES = sorted(FOLDER.glob("*.json"))
TOLERANCE = 1e-10

pytestmark = pytest.mark.skipif(not FILES, reason="the reference trees are not here")
every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)


class Case(NamedTuple):
    """A reference tree, its model, the order of coordinates, and (q, v, tau, vd) in diffmb's order."""

    tree: dict[str, Any]
    model: mb.Model
    order: Order
    state: list[np.ndarray]


def case(tree: dict[str, Any]) -> Case:
    model = mb.compile(mechanism_from_reference(tree))
    order = reference_order(tree, model)
    state = [np.array(tree["q"])[order.q]] + [np.array(tree[key])[order.v] for key in ("v", "tau", "acc")]
    return Case(tree, model, order, state)


def check(name: str, got: Any, expected: Any) -> None:
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.shape == expected.shape, name
    error = np.abs(got - expected).max() / np.abs(expected).max()
    assert error < TOLERANCE, f"{name}: relative error {error:.1e}"


@jax.jit
def everything(m: mb.Model, q: jax.Array, v: jax.Array, tau: jax.Array, vd: jax.Array) -> dict[str, Any]:
    qdd = mb.forward_dynamics(m, q, v, tau)
    return {
        "motion": mb.kinematics(m, q, v, qdd),
        "total_com": mb.center_of_mass(m, q),
        "M": mb.mass_matrix(m, q),
        "bias": mb.bias(m, q, v),
        "qdd": qdd,
        "tau_id": mb.inverse_dynamics(m, q, v, vd),
        "kinetic": mb.kinetic_energy(m, q, v),
        "potential": mb.potential_energy(m, q),
    }


@every_file
def test_kinematics_and_dynamics(path: Path) -> None:
    tree, model, order, state = case(json.loads(path.read_text()))
    expected, result = tree["expected"], everything(model, *state)
    check("M", result["M"], order.matrix(expected["M"]))
    for name in ("bias", "qdd", "tau_id"):
        check(name, result[name], np.array(expected[name])[order.v])
    for name in ("kinetic", "potential", "total_com"):
        check(name, result[name], expected[name])
    motion = jax.device_get(result["motion"])
    links = [motion[joint["name"]] for joint in tree["joints"]]
    check("link_R", [link.pose.rotation for link in links], expected["link_R"])
    check("link_p", [link.pose.translation for link in links], expected["link_p"])
    check("link_w", [link.twist[:3] for link in links], expected["link_w"])
    check("link_v", [link.twist[3:] for link in links], expected["link_v"])
    check("link_wdot", [link.acceleration[:3] for link in links], expected["link_wdot"])
    check("link_vdot", [link.acceleration[3:] for link in links], expected["link_vdot"])
    coms = [link.pose.rotation @ joint["com"] + link.pose.translation for link, joint in zip(links, tree["joints"])]
    check("com_world", coms, expected["com_world"])


DERIVATIVES = ("dtau_dq", "dtau_dv", "dqdd_dq", "dqdd_dv", "Minv")
MODES = {"forward": jax.jacfwd, "reverse": jax.jacrev}


def derivatives(one: Case, mode: str) -> dict[str, jax.Array]:
    """Along the right perturbation q (+) d, and with respect to speeds and loads; all in one Jacobian to compile less."""

    def jacobians(m: mb.Model, q: jax.Array, v: jax.Array, tau: jax.Array, vd: jax.Array) -> dict[str, jax.Array]:
        def loads_and_rates(x: jax.Array) -> tuple[jax.Array, jax.Array]:
            d, v, tau = jnp.split(x, 3)
            moved = mb.retract(m, q, d)
            return mb.inverse_dynamics(m, moved, v, vd), mb.forward_dynamics(m, moved, v, tau)

        loads, rates = MODES[mode](loads_and_rates)(jnp.concatenate([jnp.zeros(m.nv), v, tau]))
        return dict(zip(DERIVATIVES, jnp.split(loads, 3, 1)[:2] + jnp.split(rates, 3, 1)))

    return jax.jit(jacobians)(one.model, *one.state)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("path", FILES[5::4], ids=lambda path: path.stem)
def test_derivatives(path: Path, mode: str) -> None:
    one = case(json.loads(path.read_text()))
    for name, value in derivatives(one, mode).items():
        check(name, value, one.order.matrix(one.tree["expected"][name]))


def forest(trees: list[dict[str, Any]]) -> dict[str, Any]:
    """All trees on one ground: their matrices become the blocks of one."""
    whole: dict[str, Any] = {"gravity": trees[0]["gravity"], "joints": []}
    nq = nv = 0
    for k, tree in enumerate(trees):
        assert tree["gravity"] == whole["gravity"]
        first = len(whole["joints"])
        for joint in tree["joints"]:
            parent = joint["parent"] + first if joint["parent"] >= 0 else -1
            place = {"idx_q": joint["idx_q"] + nq, "idx_v": joint["idx_v"] + nv}
            whole["joints"].append(joint | place | {"name": f"{k} {joint['name']}", "parent": parent})
        nq, nv = nq + tree["nq"], nv + tree["nv"]
    for key in ("q", "v", "tau", "acc"):
        whole[key] = np.concatenate([tree[key] for tree in trees])
    whole["expected"] = {name: block_diag(*(tree["expected"][name] for tree in trees)) for name in DERIVATIVES}
    return whole


@pytest.mark.parametrize("mode", MODES)
def test_derivatives_of_all_trees_at_once(mode: str) -> None:
    """One compilation for all files; so many speeds also take the other way to solve with M."""
    one = case(forest([json.loads(path.read_text()) for path in FILES]))
    start = np.cumsum([0] + [json.loads(path.read_text())["nv"] for path in FILES])
    for name, value in derivatives(one, mode).items():
        got, right = np.asarray(value), one.order.matrix(one.tree["expected"][name])
        for path, a, b in zip(FILES, start[:-1], start[1:]):
            check(f"{name} of {path.stem}", got[a:b, a:b], right[a:b, a:b])
        check(name, got, right)
