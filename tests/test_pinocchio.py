"""Fresh random trees against Pinocchio: M, bias, accelerations, loads and their derivatives to 1e-9 relative."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import mechanism_to_pinocchio, random_tree

import diffmb as mb

pin = pytest.importorskip("pinocchio")

TOLERANCE = 1e-9
TREES = {  # name: seed and the kinds of the joints
    "arm": (1, ["revolute", "prismatic"] * 4),
    "flying": (2, ["free", "revolute", "spherical", "prismatic", "free", "revolute"]),
    "branching": (3, ["spherical", "revolute", "prismatic", "revolute", "spherical"] * 3),
    "large": (4, ["free", *["revolute", "spherical", "revolute", "prismatic"] * 5, "free", "revolute", "revolute"]),
}


def everything(m: mb.Model, q: jax.Array, v: jax.Array, tau: jax.Array, vd: jax.Array) -> dict[str, jax.Array]:
    """Derivatives: of inverse dynamics by forward mode, of forward dynamics by reverse mode."""
    still = jnp.zeros(m.nv)
    load = lambda d, v: mb.inverse_dynamics(m, mb.retract(m, q, d), v, vd)
    rate = lambda d, v, tau: mb.forward_dynamics(m, mb.retract(m, q, d), v, tau)
    tau_q, tau_v = jax.jacfwd(load, (0, 1))(still, v)
    vd_q, vd_v, vd_tau = jax.jacrev(rate, (0, 1, 2))(still, v, tau)
    return {
        "M": mb.mass_matrix(m, q),
        "bias": mb.bias(m, q, v),
        "vd": mb.forward_dynamics(m, q, v, tau),
        "tau": mb.inverse_dynamics(m, q, v, vd),
        "kinetic": mb.kinetic_energy(m, q, v),
        "potential": mb.potential_energy(m, q),
        "tau_q": tau_q, "tau_v": tau_v, "vd_q": vd_q, "vd_v": vd_v, "vd_tau": vd_tau,
    }  # fmt: skip


def everything_of_pinocchio(model: Any, q: Any, v: Any, tau: Any, vd: Any) -> dict[str, Any]:
    data = model.createData()
    M = pin.crba(model, data, q)
    result = {
        "M": np.triu(M) + np.triu(M, 1).T,  # older versions fill the upper triangle only
        "bias": pin.nonLinearEffects(model, data, q, v).copy(),
        "vd": pin.aba(model, data, q, v, tau).copy(),
        "tau": pin.rnea(model, data, q, v, vd).copy(),
        "kinetic": pin.computeKineticEnergy(model, data, q, v),
        "potential": pin.computePotentialEnergy(model, data, q),
    }
    tau_q, tau_v, _ = pin.computeRNEADerivatives(model, data, q, v, vd)
    result |= {"tau_q": tau_q.copy(), "tau_v": tau_v.copy()}
    vd_q, vd_v, vd_tau = pin.computeABADerivatives(model, data, q, v, tau)
    return result | {"vd_q": vd_q.copy(), "vd_v": vd_v.copy(), "vd_tau": vd_tau.copy()}


@pytest.mark.parametrize("name", TREES)
def test_agrees_with_pinocchio(name: str) -> None:
    seed, kinds = TREES[name]
    rng = np.random.default_rng(seed)
    mech = random_tree(rng, kinds)
    model = mb.compile(mech)
    theirs, order = mechanism_to_pinocchio(mech, model)
    assert model.nv == theirs.nv

    # Pinocchio's own rotations are uniform in random quaternions; two states make a batch.
    q = np.array([pin.integrate(theirs, pin.neutral(theirs), rng.standard_normal(theirs.nv)) for _ in range(2)])
    v, tau, vd = rng.standard_normal((3, 2, theirs.nv))
    ours = jax.jit(jax.vmap(everything, in_axes=(None, 0, 0, 0, 0)))(
        model, q[:, order.q], v[:, order.v], tau[:, order.v], vd[:, order.v]
    )
    for k in range(2):
        for key, right in everything_of_pinocchio(theirs, q[k], v[k], tau[k], vd[k]).items():
            right = np.asarray(right)
            if right.ndim:
                right = order.matrix(right) if right.ndim == 2 else right[order.v]
            error = np.abs(np.asarray(ours[key][k]) - right).max() / np.abs(right).max()
            assert error < TOLERANCE, f"{key}: relative error {error:.1e}"
