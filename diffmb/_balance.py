"""BALANCE: the equations of equilibrium and their derivative, for `_equilibrium.py`, whose symbols these are.

Steps are y = D d, D the roots of the inertias; rows of constraint are divided by the length of their element's longest,
and a held coordinate is one more row. lam are the multipliers of these rows.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import Var

from ._closing import MarkerGroup
from ._closure import constraint_bias, constraint_rate, constraint_residual
from ._constrained import check_inner
from ._constraints._rolling import RollingDisc, RollingSphere, Skate
from ._dynamics import inverse_dynamics
from ._fixed_rank import pinv, row_tolerance
from ._independent import held_rows
from ._kinematics import difference, retract
from ._mobility import row_scales
from ._model import Model
from ._motion import connection_motion
from ._spatial._pose import Pose


class Case(eqx.Module):
    """Everything but the unknown (q, z): `held` (nv,) is 1 for held speeds, whose coordinates are those of `anchor`."""

    model: Model
    t: Array
    tau: Array
    u: Array
    on: Array | None
    anchor: Array
    held: Array
    held_q: Array
    D: Array
    still: bool = eqx.field(static=True)  # no row asks for speed


class Rows(NamedTuple):
    """All rows and those of position level, (., nv), as they multiply y; phi of the latter; factors of the model's."""

    every: Array
    first: Array
    phi: Array
    factor: Array


class System(NamedTuple):
    """(2): matrix and right-hand side, how they are scaled, and what a search wants to know besides."""

    A: Array
    r: Array
    loads: Array  # P F in y
    P: Array
    s: Array
    K: Array  # with zdot = 0
    slopes: Array  # of (F, zdot) in (y, z)
    lam: Array
    zd: Array
    factor: Array
    first_plus: Array  # G_h+


def at_rest(model: Model) -> bool:
    """Whether no row can ask for speed: none depends on time, through the joints or itself, or prescribes a rate."""
    if model.nc == 0:
        return True
    one = lambda kind: jax.tree.map(lambda a: jnp.zeros(a.shape[1:], a.dtype), kind)
    frame = jnp.eye(3, dtype=model.mass.dtype)
    for group in model.closing:
        kind = group.kind
        if kind.na or (kind.nn and not isinstance(kind, RollingDisc | RollingSphere | Skate)):
            return False
        x = Pose(frame, frame[0]) if isinstance(group, MarkerGroup) else jnp.zeros(len(group.speeds[0]), frame.dtype)
        if kind.nh and _depends_on_time(lambda t, kind, x: one(kind).phi(t, x), kind, x):
            return False
    return not any(
        _depends_on_time(lambda t, kind: one(kind).pose(jnp.zeros(kind.nq, frame.dtype), t), group.kind)
        for group in model.groups
    )


def _depends_on_time(fun: Callable[..., Any], *args: Any) -> bool:
    """Whether any result of fun(t, *args) is computed from t."""
    program = jax.make_jaxpr(fun)(jnp.zeros(()), *args).jaxpr
    touched = {program.invars[0]}
    for step in program.eqns:
        if any(isinstance(v, Var) and v in touched for v in step.invars):
            touched.update(step.outvars)
    return any(isinstance(v, Var) and v in touched for v in program.outvars)


def motion_of_drives(case: Case, q: Array) -> tuple[Array, Array]:
    """(v, vd): the smallest speeds and rates of speeds that the rows ask for."""
    model = case.model
    still = jnp.zeros(model.nv, q.dtype)
    if case.still:
        return still, still
    G, factor = held_rows(model, q, case.t, case.on)
    factor = factor if case.on is None else factor * case.on[model.row_switch]
    fixed = jnp.diag(case.held)
    used = np.flatnonzero(model.levels <= 1)
    small = row_tolerance(q.dtype)
    v = still
    if len(used):
        open_rate = jnp.concatenate([constraint_rate(model, q, still, case.t) * factor[used], still])
        v = -pinv(jnp.concatenate([(G * factor[:, None])[used], fixed]), small) @ open_rate
    gamma = jnp.concatenate([constraint_bias(model, q, v, case.t) * factor, still])
    return v, pinv(jnp.concatenate([G * factor[:, None], fixed]), small) @ gamma


def forces(case: Case, q: Array, z: Array) -> tuple[Array, Array, Array]:
    """F of (1), zdot, and how large the loads are that F is the sum of."""
    v, vd = motion_of_drives(case, q)
    own = inverse_dynamics(case.model, q, v, vd, case.t)
    F, size = own - case.tau, jnp.abs(own) + jnp.abs(case.tau)
    if not case.model.connections:
        return F, z, size
    inner = check_inner(case.model, q, v, case.tau, case.t, (), z, case.u, case.on)  # at rest, lam is that of dynamics
    tau, zd = connection_motion(case.model, q, v, case.t, *inner)
    return F - tau, zd, size + jnp.abs(tau)


def rows(case: Case, q: Array, factor: Array | None = None) -> Rows:
    model = case.model
    G, _ = held_rows(model, q, case.t, case.on)
    G = G / case.D
    if factor is None:
        factor = jax.lax.stop_gradient(row_scales(model, jax.lax.stop_gradient(G)))
    first = np.flatnonzero(model.levels == 0)
    G, fixed = G * factor[:, None], jnp.diag(case.held)
    anchor = jnp.where(case.held_q > 0, case.anchor, jax.lax.stop_gradient(q))
    phi = constraint_residual(model, q, case.t) * factor[first] if len(first) else jnp.zeros(0, q.dtype)
    if case.on is not None and len(first):
        phi = phi * case.on[model.row_switch[first]]
    phi = jnp.concatenate([phi, case.held * case.D * difference(model, anchor, q)])
    return Rows(jnp.concatenate([G, fixed]), jnp.concatenate([G[first], fixed]), phi, factor)


def system(case: Case, q: Array, z: Array) -> System:
    """(2) at (q, z)."""
    model, nv = case.model, case.model.nv
    small, one = row_tolerance(q.dtype), jnp.eye(nv, dtype=q.dtype)
    here = rows(case, q)
    plus, first_plus = pinv(here.every, small), pinv(here.first, small)
    P, across = one - plus @ here.every, one - first_plus @ here.first
    still, units = (jnp.zeros(nv, q.dtype), jnp.zeros(model.nz, q.dtype)), jnp.eye(nv + model.nz, dtype=q.dtype)
    step = lambda y: retract(model, q, y / case.D)
    (F, zd, _), push = jax.linearize(lambda y, e: forces(case, step(y), z + e), *still)
    lam = -plus.T @ (F / case.D)
    _, turn = jax.linearize(lambda y: rows(case, step(y), here.factor).every.T @ lam, still[0])

    def along(y, e):
        dF, dzd, _ = push(y, e)
        return jnp.concatenate([dF / case.D + turn(y), dzd])

    slopes = jax.vmap(along, 1, 1)(units[:nv], units[nv:])
    K, B, Zq, Zz = slopes[:nv, :nv], slopes[:nv, nv:], slopes[nv:, :nv], slopes[nv:, nv:]
    largest = jnp.abs(K).max()
    s = jnp.where(largest > 0, largest, 1.0)
    A = jnp.concatenate([jnp.concatenate([P @ K + s * (one - across), P @ B], 1), slopes[nv:]])
    r = jnp.concatenate([P @ (F / case.D) + s * (first_plus @ here.phi), zd])
    relaxed = K - B @ pinv(Zz, 1e3 * np.finfo(q.dtype).eps) @ Zq
    return System(A, r, P @ (F / case.D), P, s, relaxed, slopes, lam, zd, here.factor, first_plus)


def step_of(A: Array, r: Array, nv: int) -> Array:
    """-A+ r, the rows and columns of states brought to the size of the others first."""
    top = jnp.abs(A[:, :nv]).max()
    size = lambda x, axis: jnp.where(jnp.abs(x).max(axis) > 0, jnp.abs(x).max(axis), 1.0)
    left = jnp.concatenate([jnp.ones(nv, A.dtype), top / size(A[nv:], 1)])
    A = A * left[:, None]
    right = jnp.concatenate([jnp.ones(nv, A.dtype), top / size(A[:, nv:], 0)])
    left, right = jax.lax.stop_gradient((left, right))
    return -right * (pinv(A * right, 1e3 * np.finfo(A.dtype).eps) @ (left * r))


def put_right(case: Case, q: Array, times: int = 3) -> tuple[Array, Array]:
    """q with the rows of position level closed, and the largest of them before the last step."""

    def once(_, carry):
        q, _ = carry
        here = rows(case, q)
        step = -pinv(here.first, row_tolerance(q.dtype)) @ here.phi / case.D
        longest = jnp.abs(step).max(initial=0.0)
        step = step * jnp.minimum(1.0, 0.5 / jnp.maximum(longest, 0.5))
        return retract(case.model, q, step), jnp.abs(here.phi).max(initial=0.0)

    if case.model.nc == 0:
        return q, jnp.zeros((), q.dtype)
    return jax.lax.fori_loop(0, times, once, (q, jnp.zeros((), q.dtype)))
