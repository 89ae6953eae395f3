"""MOTION: the right-hand side that is integrated, and how states are kept on the constraint manifold. Batch axis last.

    qd = N v          M vd + c + G_e^T lam = tau          G_e vd = gamma_e          zd = zdot(t, q, v, z, u)        (1)

with independent rows G_e, chosen where the state is on the manifold (`_saddle.py`). Stabilised by feedback, if asked,

    G_e vd = gamma_e - 2 a (G v - nu) - a^2 phi                                              (Baumgarte 1972)     (2)

A step leaves the manifold by its error. The nearest state on it, in the metric of M, to first order in that error:

    dq = -M^-1 G_e^T A^-1 phi        dv = -M^-1 G_e^T A^-1 (G v - nu)         A = G_e M^-1 G_e^T                  (3)

and again until nothing is left. The derivative of the nearest state is (3) once more: `settled`.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ._batch import ImplicitRule, apply, apply_implicit, batch_last, entries_of, lift
from ._closure import all_rows, jacobian_rows, positions, rate_rows, rates, row_loads, row_values
from ._configuration import Configuration, accelerations, configuration, twists, world_inertias
from ._dynamics import loads, mass_solve, project, tree_forward_dynamics
from ._follow import follower_loads, response, rows_among, slopes, with_multipliers
from ._kinematics import moved, qdot, unit_quaternions
from ._loads import connection_loads, follows, with_connections
from ._model import Model
from ._saddle import Chosen, by_rows, choose_rows, chosen_by_rows, gram, pick, prepare_chosen, put
from ._spatial._inertia import inertia_times
from ._spatial._vector import dot
from ._sweep import each, take
from ._tiles import as_arrays
from ._walk import walk

_SOFT = 3e-4
_MANY = 32  # rows, from which picking pivots takes more operations than are ever written out


def rates_of(model: Model, chosen: Array, q, v, z, tau, u, t, on: Array | None, feedback=None) -> tuple[Array, Array]:
    """(vd, zd) of (1); with a rate `feedback` a, 1/s, those of (2). tau (nv,) are loads beside the connections'."""
    if not len(model.followed):
        if not model.nz:
            return _accelerations_of(model, chosen, q, v, z, u, tau, t, on, feedback), z
        more, zd = connection_motion(model, q, v, t, z, u, on)
        bare = eqx.tree_at(lambda m: m.connections, model, ())
        return _accelerations_of(bare, chosen, q, v, z, u, tau + more, t, on, feedback), zd
    run = lambda *x: apply_implicit(_forward_following, _rule_following, *x)
    vd, lam = lift(run, model, chosen, q, v, z, u, tau, t, on, feedback)
    if not model.nz:
        return vd, z
    u = lift(lambda *x: _with_lam(model, *x), u, lam, chosen)
    return vd, connection_motion(model, q, v, t, z, u, on)[1]


def _accelerations_of(model: Model, chosen: Array, q, v, z, u, tau, t, on, feedback) -> Array:
    """vd; the model's connections have no states and follow no multipliers."""
    if model.nc == 0:
        tree = lambda m, q, v, tau, t, z, u, on: tree_forward_dynamics(m, q, v, tau, t, (), z, u, on)
        return lift(tree, model, q, v, tau, t, z, u, on)
    run = lambda *x: apply_implicit(_forward, _rule, *x)
    return lift(run, model, chosen, q, v, z, u, tau, t, on, feedback)[0]


def settled(model: Model, chosen: Array, q: Array, v: Array, t: Array) -> tuple[Array, Array]:
    """(q, v) as they are, on the manifold already; their derivatives are those of the nearest state on it."""
    q = unit_quaternions(model, q)
    if (model.levels == 0).any():
        q = q + qdot(model, q, lift(lambda *x: apply_implicit(_nothing, _at_rest, *x), model, chosen, q, t)[0])
    if (model.levels <= 1).any():
        v = v + lift(lambda *x: apply_implicit(_nothing, _at_speed, *x), model, chosen, q, v, t)[0]
    return q, v


# --- batch axis last from here on; what several programs share is an `apply` within them, which is traced once ------


@batch_last
def connection_motion(model: Model, q, v, t, z, u, on) -> tuple[Array, Array]:
    """The loads of all connections at the speeds, (nv,), and the rates of their states, (nz,)."""
    c = configuration(model, q, t)
    V, _ = twists(model, c, q, v, t)
    F, tau, zd = connection_loads(model, c, q, v, V, t, z, u, on)
    return project(model, c, F) + tau, zd


def _found(chosen: Array, like: Array) -> Array:
    return (chosen >= 0).astype(like.dtype)


def _rows_at(model: Model, c: Configuration, q: Array, v: Array, V: Array, bias: Array, t: Array):
    return all_rows(model, c, q, v, None, V, accelerations(model, c, bias, None), t)


def level_rows(model: Model, values: Array, level: int) -> Array:
    """Values of the rows that exist at this level or below, among all rows; zero for the others."""
    places = np.flatnonzero(model.levels <= level)
    if len(places) == model.nc:
        return values
    return jnp.zeros((model.nc, *values.shape[1:]), values.dtype).at[places].set(values)


def _phi(model: Model, c: Configuration, q: Array, t: Array) -> Array:
    return level_rows(model, positions(model, c, q, t), 0)


def _rate(model: Model, c: Configuration, q: Array, v: Array, V: Array, t: Array) -> Array:
    return level_rows(model, rates(model, c, q, v, V, t), 1)


def _pull_back(model: Model, c: Configuration, q, v, V, t, feedback) -> Array:
    """2 a (G v - nu) + a^2 phi of (2)."""
    return 2.0 * feedback * _rate(model, c, q, v, V, t) + feedback * feedback * _phi(model, c, q, t)


def _forward(model: Model, chosen, q, v, z, u, tau, t, on, feedback) -> tuple[Array, Array]:
    c = configuration(model, q, t)
    J = world_inertias(model, c)
    V, bias = twists(model, c, q, v, t)
    F = loads(model, c, J, V, accelerations(model, c, bias, None), ())
    F, tau = with_connections(model, c, q, v, V, t, z, u, on, F, tau)
    rows = _rows_at(model, c, q, v, V, bias, t)
    value = row_values(rows, c)
    if feedback is not None:
        value = value + _pull_back(model, c, q, v, V, t, feedback)
    G, gamma, found = pick(model, jacobian_rows(model, c, rows), chosen), -pick(model, value, chosen), _found(chosen, q)
    if not chosen_by_rows(model):
        factors = prepare_chosen(model.topology, c.columns, J, G, found, True)
        return factors.solve(tau - project(model, c, F), gamma)
    batch = max(tau.shape[-1], G.shape[-1], F.shape[-1])
    spread = lambda a: jnp.broadcast_to(a, (*a.shape[:-1], batch))
    right = jnp.concatenate([spread(tau[:, None]), spread(jnp.swapaxes(G, 0, 1))], 1)
    F = jnp.concatenate([spread(F[:, :, None]), jnp.zeros((*F.shape[:2], G.shape[0], batch), F.dtype)], 2)
    solved = mass_solve(model.topology, c.columns, J, F, right)  # c, and the rows of G, ride along
    factors = prepare_chosen(model.topology, c.columns, J, G, found, False, solved[:, 1:])
    return factors.resolve(solved[:, 0], gamma)


def _jacobian(model: Model, q: Array, t: Array) -> Array:
    """G, all rows."""
    c = configuration(model, q, t)
    still = jnp.zeros((model.nv, 1), q.dtype)
    nothing = jnp.zeros((len(model.topology.bodies), 6, 1), q.dtype)
    if (model.levels < 2).all():
        return jacobian_rows(model, c, rate_rows(model, c, q, still, nothing, t))
    return jacobian_rows(model, c, all_rows(model, c, q, still, None, nothing, nothing, t))


def _all_rows_at(model: Model, q: Array, t: Array) -> Array:
    """The same, by the program that has found the candidates."""
    return apply(_jacobian, dataclasses.replace(model, candidates=None, regular=False), q, t)


def _open(model: Model, q: Array, v: Array, t: Array) -> tuple[Array, Array]:
    """phi and G v - nu, in the places of all rows."""
    c = configuration(model, q, t)
    return _phi(model, c, q, t), _rate(model, c, q, v, twists(model, c, q, v, t)[0], t)


def _factors(model: Model, chosen, q, t, damping: float = 0.0):
    """The factors at (q, t), whatever the motion."""
    c = configuration(model, q, t)
    G = pick(model, _all_rows_at(model, q, t), chosen)
    many = not chosen_by_rows(model)
    J = world_inertias(model, c)
    return prepare_chosen(model.topology, c.columns, J, G, _found(chosen, q), many, damping=damping)


def _residual(model: Model, chosen, q, v, z, u, tau, t, on, feedback, y, ready) -> tuple[Array, Array]:
    """(1) or (2), as functions of (vd, lam)."""
    vd, lam = y
    c = configuration(model, q, t)
    V, bias = twists(model, c, q, v, t)
    A = accelerations(model, c, bias, vd)
    rows = all_rows(model, c, q, v, vd, V, A, t)
    F, direct = row_loads(model, c, rows, put(model, lam, chosen))
    F = F + loads(model, c, world_inertias(model, c), V, A, ())
    u = _with_lam(model, u, lam, chosen) if len(model.followed) else u
    F, tau = with_connections(model, c, q, v, V, t, z, u, on, F, tau)
    value = row_values(rows, c)
    if feedback is not None:
        value = value + _pull_back(model, c, q, v, V, t, feedback)
    return project(model, c, F) + direct - tau, pick(model, value, chosen) + (_found(chosen, q) - 1.0) * lam


def _solve(*args) -> tuple[Array, Array]:
    *_, ready, b = args
    return ready.solve(*b)


def _prepare(model: Model, chosen, q, v, z, u, tau, t, on, feedback, y):
    return _factors(model, chosen, q, t)


_rule = ImplicitRule(_residual, _solve, prepare=_prepare, direct=True)


def _with_lam(model: Model, u: Array, lam: Array, chosen: Array) -> Array:
    return with_multipliers(u, put(model, lam, chosen)[model.followed])


def _forward_following(model: Model, chosen, q, v, z, u, tau, t, on, feedback) -> tuple[Array, Array]:
    c = configuration(model, q, t)
    J = world_inertias(model, c)
    V, bias = twists(model, c, q, v, t)
    F = loads(model, c, J, V, accelerations(model, c, bias, None), ())
    unknown = with_multipliers(u, jnp.zeros((len(model.followed), 1), u.dtype))
    F, tau = with_connections(model, c, q, v, V, t, z, unknown, on, F, tau, lambda group: not follows(group))
    rows = _rows_at(model, c, q, v, V, bias, t)
    value = row_values(rows, c)
    if feedback is not None:
        value = value + _pull_back(model, c, q, v, V, t, feedback)
    G, many = pick(model, jacobian_rows(model, c, rows), chosen), not chosen_by_rows(model)
    K = prepare_chosen(model.topology, c.columns, J, G, _found(chosen, q), many)
    more = follower_loads(model, c, q, v, V, t, z, u, on)
    settle = response(K, rows_among(model.followed, chosen)).settle
    return settle(tau - project(model, c, F), -pick(model, value, chosen), more)


def _prepare_following(model: Model, chosen, q, v, z, u, tau, t, on, feedback, y):
    c = configuration(model, q, t)
    V, _ = twists(model, c, q, v, t)
    W_s = slopes(follower_loads(model, c, q, v, V, t, z, u, on), put(model, y[1], chosen)[model.followed])
    return response(_factors(model, chosen, q, t), rows_among(model.followed, chosen)), W_s


_rule_following = ImplicitRule(
    _residual,
    lambda *args: args[-2][0].solve(args[-2][1], *args[-1]),
    lambda *args: args[-2][0].solve_transposed(args[-2][1], *args[-1]),
    _prepare_following,
)


def _nothing(model: Model, chosen: Array, q: Array, *rest: Array) -> tuple[Array, Array]:
    batch = max(x.shape[-1] for x in (q, chosen, *rest))
    return jnp.zeros((model.nv, batch), q.dtype), jnp.zeros((chosen.shape[0], batch), q.dtype)


def _open_rows(model: Model, chosen, q, v, t) -> tuple[Array, Array]:
    c = configuration(model, q, t)
    value = _phi(model, c, q, t) if v is None else _rate(model, c, q, v, twists(model, c, q, v, t)[0], t)
    return jnp.zeros((model.nv, value.shape[-1]), q.dtype), pick(model, value, chosen)


_at_rest = ImplicitRule(
    lambda model, chosen, q, t, y, ready: _open_rows(model, chosen, q, None, t),
    _solve,
    prepare=lambda model, chosen, q, t, y: _factors(model, chosen, q, t),
)
_at_speed = ImplicitRule(
    lambda model, chosen, q, v, t, y, ready: _open_rows(model, chosen, q, v, t),
    _solve,
    prepare=lambda model, chosen, q, v, t, y: _factors(model, chosen, q, t),
)


def with_candidates(model: Model) -> Model:
    """The model, with the rows that can be independent, if they are no more than the speeds, and with whether its mass
    matrix is regular (`_saddle.py`)."""
    if not model.nc:
        return model
    (G,) = _seen_of(_jacobian, model)
    rows = tuple(range(model.nc)) if G is None else tuple(np.flatnonzero(G.any(1)).tolist())
    if not 0 < len(rows) <= model.nv:
        return model
    return dataclasses.replace(model, candidates=rows, regular=not by_rows(model.nc, model.nv) and _is_regular(model))


def _seen_of(fun: Callable[..., Any], model: Model) -> list[np.ndarray | None]:
    """What is seen of the results of a function (model, q, t)."""
    like = model.mass.dtype
    leaves, structure = jax.tree.flatten((model, np.zeros(model.nq, like), np.zeros((), like)))
    return entries_of(fun, structure, tuple((x.shape, x.dtype) for x in leaves))


def _is_regular(model: Model) -> bool:
    """Whether M is, as far as can be seen: each body resists every motion that its own joint lets it make."""
    if ".inertia" not in dict(model.known):  # of a model that is an argument of `jax.jit`, for example
        return False
    own, inertia = _seen_of(_own_inertias, model)
    if own is None or inertia is None:
        return False
    several = np.array(model.topology.nvs) > 1
    return bool(own.any(-1).all() and np.diagonal(inertia, axis1=1, axis2=2)[several].all())


def _own_inertias(model: Model, q: Array, t: Array) -> tuple[Array, Array]:
    """s_d . J_d s_d of each speed, J_d the inertia of the body that its joint moves; and the inertias of the bodies."""
    c = configuration(model, q, t)
    J = take(world_inertias(model, c), walk(model.topology).speed_body)
    return each(lambda J, s: dot(s, inertia_times(J, s))[None])(J, c.columns), model.inertia


def _gram_at(model: Model, q: Array, t: Array, mask: Array) -> Array:
    c = configuration(model, q, t)
    return gram(model, c.columns, world_inertias(model, c), _all_rows_at(model, q, t) * mask[:, None])


def _independent(model: Model, q: Array, t: Array, mask: Array) -> Array:
    """In two programs: the second, which picks pivots, may be too long to be written out when the first is not."""
    rows = model.nc if model.candidates is None else len(model.candidates)
    if rows <= _MANY:
        return apply(choose_rows, model, apply(_gram_at, model, q, t, mask))
    return apply(_choose_of_many, model, apply(_gram_at, model, as_arrays(q), t, mask))


def _choose_of_many(model: Model, A: Array) -> Array:
    return choose_rows(model, as_arrays(A))


@batch_last
def choose(model: Model, q: Array, t: Array, mask: Array) -> Array:
    """The numbers of independent rows at (q, t) among those that `mask` (nc,) leaves on; -1 in empty places."""
    return _independent(model, q, t, mask)


@batch_last
def chosen_again(model: Model, q: Array, t: Array, mask: Array, before: Array, stale: Array) -> Array:
    """The same where `stale`, else `before`; one sample by itself computes only what it needs."""
    anew = lambda q, t, mask: _independent(model, q, t, mask)
    if max(x.shape[-1] for x in jax.tree.leaves((model, q, t, mask, before, stale))) > 1:
        return jnp.where(stale, anew(q, t, mask), before)
    return lax.cond(stale[0], anew, lambda *_: before, q, t, mask)


@batch_last
def openness(model: Model, q: Array, v: Array, t: Array, mask: Array) -> tuple[Array, Array]:
    """The largest |phi| and |G v - nu| of the rows that `mask` leaves on."""
    phi, rate = apply(_open, model, q, v, t)
    largest = lambda x: jnp.abs(mask * x).max(0, initial=0.0)
    return largest(phi), largest(rate)


def _nearest(model: Model, chosen: Array, q: Array, t: Array) -> Chosen:
    """The factors of (3).

    Near a singular attitude a row may shrink to nothing; there round-off in q would become an error in v (eps / row^2),
    so rows that are below a three-thousandth of the largest are followed softly. They stay closed all the same, as they
    hardly see it.
    """
    return _factors(*lax.stop_gradient((model, chosen, q, t)), _SOFT)


@batch_last
def settle_once(model: Model, chosen: Array, mask: Array, q: Array, v: Array, t: Array):
    """(3), once: q, v, the largest step in them, the largest |phi| left in any row, how independent the rows are, and
    what is left of each when those before it are taken out.

    With the factors of the first q, q is put right twice and v once, at the new q.
    """
    factors = _nearest(model, chosen, q, t)
    step = factors.step(-pick(model, apply(_open, model, q, v, t)[0], chosen))
    q = moved(model, q, step)
    phi, rate = apply(_open, model, q, v, t)
    change = factors.step(-pick(model, rate, chosen))
    q = moved(model, q, factors.step(-pick(model, phi, chosen)))
    largest = lambda x: jnp.abs(x).max(0, initial=0.0)
    size = jnp.maximum(largest(step), largest(change) / (1.0 + largest(v)))
    return q, v + change, size, largest(mask * phi), factors.independence(), factors.A.pivots


@jax.custom_jvp
def _change(x: Array) -> Array:
    """Zero, which changes as x does."""
    return jnp.zeros_like(x)


_change.defjvp(lambda x, dx: (jnp.zeros_like(x[0]), dx[0]))


def _as_they_are(model: Model, chosen: Array, q: Array, v: Array, t: Array) -> tuple[Array, Array]:
    return q, v


def _put_right(model: Model, chosen: Array, q: Array, v: Array, t: Array) -> tuple[Array, Array]:
    factors = _nearest(model, chosen, q, t)
    phi = _phi(model, configuration(model, q, t), q, t)
    q = moved(model, q, factors.step(-pick(model, _change(phi), chosen)))
    c = configuration(model, q, t)
    rate = _rate(model, c, q, v, twists(model, c, q, v, t)[0], t)
    return q, v + factors.step(-pick(model, _change(rate), chosen))


def settled_softly(model: Model, chosen: Array, q: Array, v: Array, t: Array) -> tuple[Array, Array]:
    """(q, v) as they are, on the manifold already; they change as the nearest state does, for changes that have left
    the manifold by little: the factors are taken for constant."""
    return lift(lambda *x: apply(_as_they_are, *x, like=_put_right), model, chosen, q, v, t)
