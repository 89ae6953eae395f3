"""DYNAMICS of the tree: mass matrix, bias, inverse and forward dynamics, energy.

The equation card of diffmb (loops enter in `_closure.py` and `_constrained.py`, connections in `_loads.py`):

    qd = N(q) v                 zd = zdot(t, q, v, z, u)
    M(q) vd + c(t, q, v) + G(t, q)^T lam = tau(t, q, v, z, u)            G vd = gamma(t, q, v)
    phi(t, q) = 0    (holonomic)          G v = nu(t, q)   (holonomic, differentiated, AND nonholonomic rows)
    v_s, vd_s prescribed for driven coordinates; their load tau_s is then an unknown

About one common point, with J_i the inertia of body i, s_d the column of speed d and g the gravity,

    F_i = J_i (A_i - g) + V_i x* J_i V_i - external wrench            (1)  load that moves body i; in (4) and (5) less
                                                                           the wrenches of connections
    tau_d = s_d . (inward sum of F) = M vd + c                        (2)  inverse dynamics
    M_de = s_d . (inward sum of J) s_e    for d on the path to e      (3)  composite inertias
    vd = M^-1 (tau - c)                                               (4)  forward dynamics
    d vd = M^-1 (d tau - d ID(q, v, vd) at fixed vd)                  (5)  its derivative, one solve

(4) runs by elimination of one speed after another (Bae-Haug, O(n)) or by factorising (3): `_sweep.dense` says when.
"""

from functools import lru_cache
from typing import Any

import jax.numpy as jnp
import jax.scipy.linalg as jsl
from jax import Array

from ._batch import ImplicitRule, apply_implicit, batch_last
from ._bodies._marker import Marker
from ._checks import Wrenches, as_time, as_wrenches, check_coordinates, check_speeds, check_states
from ._configuration import Configuration, accelerations, configuration, twists, world_inertias
from ._loads import stored_energy, with_connections
from ._model import Model
from ._spatial._inertia import inertia_matrix, inertia_times
from ._spatial._pose import Pose
from ._spatial._twist import cross_force
from ._spatial._vector import cross, dot, join, matvec
from ._sweep import articulated_solve, dense, each, per_body, sum_inward, sum_outward, take
from ._topology import Topology
from ._types import Loads, MassMatrix, Scalar
from ._walk import walk

Pairs = tuple[tuple[Marker, Array], ...]  # a frame, and the wrench that acts there


def inverse_dynamics(model: Model, q, v, vd, t: Any = 0.0, wrenches: Wrenches | None = None) -> Loads:
    """tau = M vd + c: the loads (nv,) at the speeds that make the tree move with `vd`; connections give part of them.

    **Arguments:**

    - `q`, `v`, `vd`: coordinates, speeds, rates of the speeds.
    - `t`: time, s.
    - `wrenches`: external loads, `{body name: six numbers}` or pairs `[(body name or Marker, six numbers)]`: moment,
        then force, in world axes at that frame's origin.
    """
    q, v, vd = check_motion(model, q, v, "vd", vd)
    return _inverse_dynamics(model, q, v, vd, as_time(t, q), as_wrenches(wrenches))


def bias(model: Model, q, v, t: Any = 0.0, wrenches: Wrenches | None = None) -> Loads:
    """c(t, q, v): the loads (nv,) that balance gravity, gyroscopic terms and external wrenches when vd = 0."""
    return inverse_dynamics(model, q, v, jnp.zeros(model.nv), t, wrenches)


def mass_matrix(model: Model, q, t: Any = 0.0) -> MassMatrix:
    """M(q), (nv, nv), symmetric positive definite."""
    q = check_coordinates(model, q)
    return _mass_matrix(model, q, as_time(t, q))


def kinetic_energy(model: Model, q, v, t: Any = 0.0) -> Scalar:
    """Kinetic energy, J."""
    q, v, _ = check_motion(model, q, v, "v", v)
    return _kinetic_energy(model, q, v, as_time(t, q))


def potential_energy(model: Model, q, t: Any = 0.0, *, z=None) -> Scalar:
    """Potential energy of gravity (zero when the centre of mass is at the world's origin) and of connections, J.

    `z` are the states of the connections, by default those from which they start.
    """
    q = check_coordinates(model, q)
    z = check_states(model, z, q)
    return _potential_energy(model, q, as_time(t, q), z if model.connections else None)


def check_motion(model: Model, q, v, name: str, third) -> tuple[Array, Array, Array]:
    q = check_coordinates(model, q)
    return q, check_speeds(model, "v", v, q), check_speeds(model, name, third, q)


# --- batch axis last from here on ---------------------------------------------------------------------------------


def _inverse(model: Model, q: Array, v: Array, vd: Array, t: Array, wrenches: Pairs) -> Array:
    """(1) and (2)."""
    c = configuration(model, q, t)
    V, own = twists(model, c, q, v, t)
    return project(model, c, loads(model, c, world_inertias(model, c), V, accelerations(model, c, own, vd), wrenches))


def loads(model: Model, c: Configuration, J: Array, V: Array, A: Array, wrenches: Pairs) -> Array:
    """(1) from twists and accelerations about the fixed points, A without gravity."""
    A = A - join(jnp.zeros_like(model.gravity), model.gravity)
    F = each(lambda J, A, V: inertia_times(J, A) + cross_force(V, inertia_times(J, V)))(J, A, V)
    for marker, wrench in wrenches:
        body = model.body(marker.body) - 1
        if body >= 0:
            offset = Pose(model.frame.rotation[body], model.frame.translation[body]).apply(marker.position)
            arm = c.arm[body] + matvec(c.pose.rotation[body], offset)
            F = F.at[body].add(-join(wrench[:3] + cross(arm, wrench[3:]), wrench[3:]))
    return F


def project(model: Model, c: Configuration, F: Array) -> Array:
    """(2): s_d . inward sum."""
    total = sum_inward(model.topology, F)
    return each(dot)(c.columns, take(total, walk(model.topology).speed_body))


_inverse_dynamics = batch_last(_inverse)


def composite(topology: Topology, S: Array, J: Array) -> Array:
    """(3) from columns (nv, 6, batch) and inertias (n, 13, batch)."""
    total = take(sum_inward(topology, J), walk(topology).speed_body)
    momentum = each(inertia_times)(total, S)
    pairs = sum(S[:, None, k] * momentum[None, :, k] for k in range(6))  # [d, e] = s_d . J_e s_e
    above = walk(topology).speed_paths.T[..., None]  # [d, e]: d on the path to e
    upper = jnp.where(above, pairs, 0.0)
    diagonal = jnp.eye(topology.nv, dtype=bool)[..., None]
    return upper + jnp.where(diagonal, 0.0, jnp.swapaxes(upper, 0, 1))


@batch_last
def _mass_matrix(model: Model, q: Array, t: Array) -> Array:
    c = configuration(model, q, t)
    return composite(model.topology, c.columns, world_inertias(model, c))


def mass_solve(topology: Topology, S: Array, J: Array, F: Array, b: Array) -> Array:
    """x with M x = b - S^T (inward sum of F), for k right-hand sides: b (nv, k, batch), F (n, 6, k, batch)."""
    batch = max(a.shape[-1] for a in (S, J, F, b))
    spread = lambda a: jnp.broadcast_to(a, (*a.shape[:-1], batch))
    if dense(topology, batch):
        right = spread(b - each(dot)(S[:, :, None], take(sum_inward(topology, F), walk(topology).speed_body)))
        M = spread(composite(topology, S, J))
        factor = jsl.cho_factor(jnp.moveaxis(M, -1, 0), lower=True)
        return jnp.moveaxis(jsl.cho_solve(factor, jnp.moveaxis(right, -1, 0)), 0, -1)
    return articulated_solve(topology, spread(S), each(inertia_matrix)(spread(J)), spread(F), spread(b))


@lru_cache(maxsize=512)
def mass_solver(topology: Topology):
    """M(S, J)^-1 b for b (nv, k, batch), as a function with its own derivative rule: residual M x - b."""

    def product(S, J, b, x, ready):
        V = sum_outward(topology, per_body(topology, S[:, :, None] * x[:, None]))
        F = sum_inward(topology, each(inertia_times)(J[:, :, None], V))
        return each(dot)(S[:, :, None], take(F, walk(topology).speed_body)) - b

    def fun(S, J, b):
        return mass_solve(topology, S, J, jnp.zeros((len(topology.bodies), 6, *b.shape[1:]), b.dtype), b)

    rule = ImplicitRule(product, lambda S, J, b, x, ready, r: apply_implicit(fun, rule, S, J, r))
    return lambda S, J, b: apply_implicit(fun, rule, S, J, b)


def _forward(model: Model, q, v, tau, t, wrenches: Pairs, z, u, on) -> Array:
    """(4)."""
    c = configuration(model, q, t)
    J = world_inertias(model, c)
    V, own = twists(model, c, q, v, t)
    F = loads(model, c, J, V, accelerations(model, c, own, None), wrenches)
    F, tau = with_connections(model, c, q, v, V, t, z, u, on, F, tau)
    return mass_solve(model.topology, c.columns, J, F[:, :, None], tau[:, None])[:, 0]


def _forward_residual(model: Model, q, v, tau, t, wrenches: Pairs, z, u, on, vd, ready) -> Array:
    c = configuration(model, q, t)
    V, own = twists(model, c, q, v, t)
    F = loads(model, c, world_inertias(model, c), V, accelerations(model, c, own, vd), wrenches)
    F, tau = with_connections(model, c, q, v, V, t, z, u, on, F, tau)
    return project(model, c, F) - tau


def _forward_solve(model: Model, q, v, tau, t, wrenches: Pairs, z, u, on, vd, ready, r) -> Array:
    c = configuration(model, q, t)
    return mass_solver(model.topology)(c.columns, world_inertias(model, c), r[:, None])[:, 0]


_forward_rule = ImplicitRule(_forward_residual, _forward_solve)  # (5)


def tree_forward_dynamics(model: Model, q, v, tau, t, wrenches: Pairs, z=None, u=None, on=None) -> Array:
    """(4) for a tree, batch axis last; z and u (and perhaps on) are arrays if it has connections."""
    return apply_implicit(_forward, _forward_rule, model, q, v, tau, t, wrenches, z, u, on)


@batch_last
def _kinetic_energy(model: Model, q: Array, v: Array, t: Array) -> Array:
    c = configuration(model, q, t)
    V, _ = twists(model, c, q, v, t)
    return 0.5 * each(lambda J, V: dot(V, inertia_times(J, V)))(world_inertias(model, c), V).sum(0)


@batch_last
def _potential_energy(model: Model, q: Array, t: Array, z: Array | None) -> Array:
    c = configuration(model, q, t)
    position = each(Pose.apply)(c.pose, model.com)
    energy = -(model.mass * each(lambda x: dot(model.gravity, x))(position)).sum(0)
    return energy + stored_energy(model, c, q, t, z, None) if model.connections else energy
