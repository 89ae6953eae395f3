"""Fresh random trees against Pinocchio: M, bias, accelerations, loads and their derivatives to 1e-9 relative."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oracles import mechanism_to_pinocchio, quick_jit, random_tree

import diffmb as mb

pin = pytest.importorskip("pinocchio")

TOLERANCE = 1e-9
TREES = {  # name: seed, kinds of the joints, mode of differentiation
    "arm": (1, ["revolute", "prismatic"] * 4, jax.jacfwd),
    "flying": (2, ["free", "revolute", "spherical", "prismatic", "free", "revolute"], jax.jacrev),
    "large": (4, ["free", *["revolute", "spherical", "prismatic", "revolute"] * 5, "free", "prismatic"], jax.jacfwd),
}


def everything(m: mb.Model, q: jax.Array, v: jax.Array, tau: jax.Array, vd: jax.Array, jac: Any) -> dict[str, Any]:
    """Derivatives with respect to q are along retract(q, d); all in one Jacobian, to compile less."""

    def loads_and_rates(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        d, v, tau = jnp.split(x, 3)
        moved = mb.retract(m, q, d)
        return mb.inverse_dynamics(m, moved, v, vd), mb.forward_dynamics(m, moved, v, tau)

    loads, rates = jac(loads_and_rates)(jnp.concatenate([jnp.zeros(m.nv), v, tau]))
    names = ("tau_q", "tau_v", "vd_q", "vd_v", "vd_tau")
    return dict(zip(names, jnp.split(loads, 3, 1)[:2] + jnp.split(rates, 3, 1))) | {
        "M": mb.mass_matrix(m, q),
        "bias": mb.bias(m, q, v),
        "vd": mb.forward_dynamics(m, q, v, tau),
        "tau": mb.inverse_dynamics(m, q, v, vd),
        "kinetic": mb.kinetic_energy(m, q, v),
        "potential": mb.potential_energy(m, q),
    }


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
    seed, kinds, jac = TREES[name]
    rng = np.random.default_rng(seed)
    mech = random_tree(rng, kinds)
    model = mb.compile(mech)
    theirs, order = mechanism_to_pinocchio(mech, model)
    assert model.nv == theirs.nv

    q = np.array([pin.integrate(theirs, pin.neutral(theirs), rng.standard_normal(theirs.nv)) for _ in range(2)])
    v, tau, vd = rng.standard_normal((3, 2, theirs.nv))
    batched = quick_jit(jax.vmap(partial(everything, jac=jac), in_axes=(None, 0, 0, 0, 0)))
    ours = batched(model, q[:, order.q], v[:, order.v], tau[:, order.v], vd[:, order.v])
    for k in range(2):
        for key, right in everything_of_pinocchio(theirs, q[k], v[k], tau[k], vd[k]).items():
            right = np.asarray(right)
            if right.ndim:
                right = order.matrix(right) if right.ndim == 2 else right[order.v]
            error = np.abs(np.asarray(ours[key][k]) - right).max() / np.abs(right).max()
            assert error < TOLERANCE, f"{key}: relative error {error:.1e}"
