"""Random trees with answers computed beforehand by another program: every quantity to 1e-10 of its largest entry.

All trees also stand together on one ground, as one forest with one compilation. It has too many speeds for a dense
solve, so that the trees alone and the forest go both ways to forward dynamics.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import Order, mechanism_from_reference, quick_jit, reference_order
from scipy.linalg import block_diag

import diffmb as mb

FILES = sorted((Path(__file__).parents[2] / "shared/reference/trees").glob("*.json"))
ALONE = FILES[1::4]
TOLERANCE = 1e-10
LINKS = ("link_R", "link_p", "link_w", "link_v", "link_wdot", "link_vdot", "com_world")
LOADS = ("bias", "qdd", "tau_id")
DERIVATIVES = ("dtau_dq", "dtau_dv", "dqdd_dq", "dqdd_dv", "Minv")
MODES = {"forward": jax.jacfwd, "reverse": jax.jacrev}

pytestmark = pytest.mark.skipif(not FILES, reason="the reference trees are not here")


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


def load(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


def forest() -> dict[str, Any]:
    """All trees as one: lists are joined, matrices become blocks, energies add up."""
    trees = [load(path) for path in FILES]
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
    answers = [tree["expected"] for tree in trees]
    masses = [sum(joint["mass"] for joint in tree["joints"]) for tree in trees]
    whole["expected"] = {
        **{name: np.concatenate([answer[name] for answer in answers]) for name in (*LINKS, *LOADS)},
        **{name: block_diag(*(answer[name] for answer in answers)) for name in ("M", *DERIVATIVES)},
        **{name: sum(answer[name] for answer in answers) for name in ("kinetic", "potential")},
        "total_com": np.average([answer["total_com"] for answer in answers], axis=0, weights=masses),
    }
    return whole


def check(name: str, got: Any, expected: Any) -> None:
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.shape == expected.shape, name
    error = np.abs(got - expected).max() / np.abs(expected).max()
    assert error < TOLERANCE, f"{name}: relative error {error:.1e}"


@quick_jit
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


def links(motion: mb.Motion, joints: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """Motion in the words of the reference, link by link in its order."""
    order = [motion.names.index(joint["name"]) for joint in joints]
    R, p, V, A = (np.asarray(a)[order] for a in (*jax.tree.leaves(motion.pose), motion.twist, motion.acceleration))
    com = np.einsum("kij,kj->ki", R, [joint["com"] for joint in joints]) + p
    return dict(zip(LINKS, (R, p, V[:, :3], V[:, 3:], A[:, :3], A[:, 3:], com)))


def check_everything(one: Case) -> None:
    expected, result = one.tree["expected"], everything(one.model, *one.state)
    check("M", result["M"], one.order.matrix(expected["M"]))
    for name in LOADS:
        check(name, result[name], np.array(expected[name])[one.order.v])
    for name in ("kinetic", "potential", "total_com"):
        check(name, result[name], expected[name])
    for name, value in links(result["motion"], one.tree["joints"]).items():
        check(name, value, expected[name])


def derivatives(one: Case, mode: str) -> dict[str, jax.Array]:
    """Along the right perturbation q (+) d, and by speeds and loads; all in one Jacobian, to compile less."""

    def jacobians(m: mb.Model, q: jax.Array, v: jax.Array, tau: jax.Array, vd: jax.Array) -> dict[str, jax.Array]:
        def loads_and_rates(x: jax.Array) -> tuple[jax.Array, jax.Array]:
            d, v, tau = jnp.split(x, 3)
            moved = mb.retract(m, q, d)
            return mb.inverse_dynamics(m, moved, v, vd), mb.forward_dynamics(m, moved, v, tau)

        loads, rates = MODES[mode](loads_and_rates)(jnp.concatenate([jnp.zeros(m.nv), v, tau]))
        return dict(zip(DERIVATIVES, jnp.split(loads, 3, 1)[:2] + jnp.split(rates, 3, 1)))

    return quick_jit(jacobians)(one.model, *one.state)


@pytest.mark.parametrize("path", ALONE, ids=lambda path: path.stem)
def test_tree_alone(path: Path) -> None:
    check_everything(case(load(path)))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("path", ALONE[-1:], ids=lambda path: path.stem)
def test_derivatives_of_tree_alone(path: Path, mode: str) -> None:
    one = case(load(path))
    for name, value in derivatives(one, mode).items():
        check(name, value, one.order.matrix(one.tree["expected"][name]))


def test_forest() -> None:
    check_everything(case(forest()))


@pytest.mark.parametrize("mode", MODES)
def test_derivatives_of_forest(mode: str) -> None:
    one = case(forest())
    ends = np.cumsum([load(path)["nv"] for path in FILES])
    for name, value in derivatives(one, mode).items():
        got, right = np.asarray(value), one.order.matrix(one.tree["expected"][name])
        check(name, got, right)
        for path, end in zip(FILES, ends):  # each tree by its own measure
            own = slice(end - load(path)["nv"], end)
            check(f"{name} of {path.stem}", got[own, own], right[own, own])
