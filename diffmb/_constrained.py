"""CONSTRAINED DYNAMICS: accelerations, multipliers and drive loads of any mechanism, loops and drives included.

    M vd + c + G^T lam = tau          G vd = gamma                                                       (1)

Where rows are redundant lam is the shortest of the multipliers that serve, and vd does not depend on the choice. With N
the projector on redundant combinations of rows, (1) and "lam is in the range of G" are one regular system,

    r1 = M vd + c + G^T lam - tau = 0
    r2 = G vd - gamma + N (G w - lam) = 0          w: any motion with G w = lam                          (2)

whose matrix is that of `_saddle.py`, where it is solved. Its derivative at fixed rank is that of (2) with N and w held,
because N dG u = 0 for every motion u that the rows allow. One tangent of inverse dynamics and of the rows, one solve:
no derivative of a solver. tau contains the loads of connections, which are functions of (t, q, v, z, u). The rows of
what is switched off are zero in (2): they hold nothing, and their lam is zero.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from ._batch import ImplicitRule, apply_implicit, batch_last, lift
from ._checks import Wrenches, as_time, as_wrenches, check_inputs, check_states, check_switches
from ._closure import Rows as ElementRows, all_rows, jacobian_rows, row_loads, row_products, row_values
from ._configuration import Configuration, accelerations, configuration, twists, world_inertias
from ._dynamics import Pairs, check_motion, loads, mass_solve, project, tree_forward_dynamics
from ._errors import MechanismError
from ._follow import follower_loads, response, rows_among, slopes, with_multipliers
from ._loads import follows, heat_and_supply, with_connections
from ._model import Model
from ._names import nearest
from ._saddle import Rows, Speeds, by_rows, prepare, prepare_rows, prepare_speeds
from ._types import Accelerations, Scalar


class Dynamics(eqx.Module):
    """What moves a mechanism: `vd`, and the multipliers `lam` of its rows.

    `dynamics.multipliers("C")` are those of a cut joint, constraint or coupling; `dynamics.load("motor")` is what a
    drive exerts on the coordinate (or constraint value) it prescribes, N or N m.
    """

    vd: Array
    lam: Array
    elements: tuple[tuple[str, int, int], ...] = eqx.field(static=True)

    def multipliers(self, name: str) -> Array:
        for known, start, stop in self.elements:
            if known == name:
                return self.lam[start:stop]
        names = [known for known, _, _ in self.elements]
        raise MechanismError(f"{name!r} has no constraint rows; {nearest(name, names)}")

    def load(self, name: str) -> Array:
        """-lam: the generalised load of the rows, a number if there is one row."""
        load = -self.multipliers(name)
        return load[0] if load.shape[0] == 1 else load


def dynamics(
    model: Model, q, v, tau=None, t: Any = 0.0, wrenches: Wrenches | None = None, *, z=None, u=None, on=None
) -> Dynamics:
    """Accelerations, multipliers and drive loads at a consistent (q, v).

    **Arguments:**

    - `q`, `v`: coordinates and speeds; `mb.assemble` makes them consistent with loops and drives.
    - `tau`: loads (nv,) at the speeds, zero by default.
    - `t`: time, s.
    - `wrenches`: external loads, see `inverse_dynamics`.
    - `z`: states of the connections (nz,), by default `model.start_states()`.
    - `u`: inputs of the connections (nu,), zero by default.
    - `on`: 1 or 0 for everything in `model.switches`: what is off exerts nothing and holds nothing. By default all
        are on.
    """
    q, v, tau = check_motion(model, q, v, "tau", tau)
    t, wrenches = as_time(t, q), as_wrenches(wrenches)
    inner = _check_inner(model, q, z, u, on)
    solve = _settled if len(model.followed) else constrained_dynamics
    vd, lam = lift(solve, model, q, v, tau, t, wrenches, *inner)
    return Dynamics(vd, lam, tuple((name, rows.start, rows.stop) for name, rows in model.elements.items()))


def forward_dynamics(
    model: Model, q, v, tau=None, t: Any = 0.0, wrenches: Wrenches | None = None, *, z=None, u=None, on=None
) -> Accelerations:
    """vd (nv,): the rates of the speeds, with loops, constraints and drives held. Arguments as in `dynamics`."""
    return dynamics(model, q, v, tau, t, wrenches, z=z, u=u, on=on).vd


def connection_power(
    model: Model, q, v, tau=None, t: Any = 0.0, wrenches: Wrenches | None = None, *, z=None, u=None, on=None
) -> tuple[Scalar, Scalar]:
    """(dissipation, supply) of all connections, W: what they turn into heat, and what their inputs, time and active
    parts bring in. Together with the power of tau, drives and wrenches they change the energy. Arguments as in
    `dynamics`."""
    q, v, tau = check_motion(model, q, v, "tau", tau)
    if not model.connections:
        return jnp.zeros((), q.dtype), jnp.zeros((), q.dtype)
    t = as_time(t, q)
    return _powers(model, q, v, t, *check_inner(model, q, v, tau, t, as_wrenches(wrenches), z, u, on))


def check_inner(
    model: Model, q: Array, v: Array, tau: Array, t: Array, wrenches: Pairs, z, u, on
) -> tuple[Array | None, Array | None, Array | None]:
    """(z, u, on) as `dynamics` describes them, u with the followed multipliers behind it; z and u are None, and so no
    part of a program, without connections."""
    z, u, on = _check_inner(model, q, z, u, on)
    if u is None or not len(model.followed):
        return z, u, on
    lam = lift(_settled, model, q, v, tau, t, wrenches, z, u, on)[1]
    return z, jnp.concatenate([u, lam[model.followed]]), on


def _check_inner(model: Model, q: Array, z, u, on) -> tuple[Array | None, Array | None, Array | None]:
    """The same without the multipliers."""
    z, u, on = check_states(model, z, q), check_inputs(model, u, q), check_switches(model, on, q)
    return (z, u, on) if model.connections else (None, None, on)


# --- batch axis last from here on ---------------------------------------------------------------------------------


@batch_last
def _powers(model: Model, q, v, t, z, u, on) -> tuple[Array, Array]:
    c = configuration(model, q, t)
    return heat_and_supply(model, c, q, v, twists(model, c, q, v, t)[0], t, z, u, on)


def constrained_dynamics(model: Model, q, v, tau, t, wrenches: Pairs, z, u, on) -> tuple[Array, Array]:
    """(vd, lam). What a model does not have is left out of its program: z, u, and `on` if it is None."""
    if not model.connections:
        z = u = None
        on = on if model.nc else None
    if model.nc == 0:
        vd = tree_forward_dynamics(model, q, v, tau, t, wrenches, z, u, on)
        return vd, vd[:0]
    return apply_implicit(_forward, _rule, model, q, v, tau, t, wrenches, z, u, on)


def held_rows(model: Model, c: Configuration, q, v, vd, V: Array, A: Array, t, on: Array | None) -> list[ElementRows]:
    """`all_rows`, zero where an element is switched off."""
    rows = all_rows(model, c, q, v, vd, V, A, t)
    if on is None:
        return rows
    found, start = [], 0
    for group, r in zip(model.closing, rows, strict=True):
        factor = on[start : start + len(group.names), None]
        found.append(ElementRows(r.place, r.value * factor, r.slope * factor[:, None]))
        start += len(group.names)
    return found


def _forward(model: Model, q, v, tau, t, wrenches: Pairs, z, u, on) -> tuple[Array, Array]:
    c = configuration(model, q, t)
    J = world_inertias(model, c)
    V, own = twists(model, c, q, v, t)
    A = accelerations(model, c, own, None)
    F, tau = with_connections(model, c, q, v, V, t, z, u, on, loads(model, c, J, V, A, wrenches), tau)
    rows = held_rows(model, c, q, v, None, V, A, t, on)
    G, gamma = jacobian_rows(model, c, rows), -row_values(rows, c)
    if not by_rows(model.nc, model.nv):
        return prepare_speeds(model.topology, c.columns, J, G).solve(tau - project(model, c, F), gamma)
    batch = max(tau.shape[-1], G.shape[-1], F.shape[-1])
    spread = lambda a: jnp.broadcast_to(a, (*a.shape[:-1], batch))
    right = jnp.concatenate([spread(tau[:, None]), spread(jnp.swapaxes(G, 0, 1))], 1)
    F = jnp.concatenate([spread(F[:, :, None]), jnp.zeros((*F.shape[:2], model.nc, batch), F.dtype)], 2)
    solved = mass_solve(model.topology, c.columns, J, F, right)  # c, and the rows of G, ride along
    return prepare_rows(model.topology, c.columns, J, G, solved[:, 1:]).resolve(solved[:, 0], gamma)


def factors(model: Model, c: Configuration, J: Array, rows: list) -> Rows | Speeds:
    """What solves (2)."""
    return prepare(model.topology, c.columns, J, jacobian_rows(model, c, rows))


def _prepare(model: Model, q, v, tau, t, wrenches: Pairs, z, u, on, y):
    c = configuration(model, q, t)
    V, own = twists(model, c, q, v, t)
    rows = held_rows(model, c, q, v, None, V, accelerations(model, c, own, None), t, on)
    f = factors(model, c, world_inertias(model, c), rows)
    return f, f.preimage(y[1])


def _residual(model: Model, q, v, tau, t, wrenches: Pairs, z, u, on, y, ready) -> tuple[Array, Array]:
    """(2)."""
    (vd, lam), (f, w) = y, ready
    c = configuration(model, q, t)
    V, own = twists(model, c, q, v, t)
    A = accelerations(model, c, own, vd)
    rows = held_rows(model, c, q, v, vd, V, A, t, on)
    F, direct = row_loads(model, c, rows, lam)
    own = loads(model, c, world_inertias(model, c), V, A, wrenches)
    own, tau = with_connections(model, c, q, v, V, t, z, u, on, own, tau)
    r1 = project(model, c, own + F) + direct - tau
    off = row_products(model, c, rows, w) - lam
    return r1, row_values(rows, c) + f.redundant(off)


def _solve(model: Model, q, v, tau, t, wrenches: Pairs, z, u, on, y, ready, b) -> tuple[Array, Array]:
    return ready[0].solve(*b)


_rule = ImplicitRule(_residual, _solve, prepare=_prepare)


# --- loads that follow multipliers, which are then unknown: u comes without them ----------------------------------


def _settled(model: Model, q, v, tau, t, wrenches: Pairs, z, u, on) -> tuple[Array, Array]:
    return apply_implicit(_settle, _rule_following, model, q, v, tau, t, wrenches, z, u, on)


def _settle(model: Model, q, v, tau, t, wrenches: Pairs, z, u, on) -> tuple[Array, Array]:
    c = configuration(model, q, t)
    J = world_inertias(model, c)
    V, own = twists(model, c, q, v, t)
    A = accelerations(model, c, own, None)
    unknown = with_multipliers(u, jnp.zeros((len(model.followed), 1), u.dtype))
    F, others = loads(model, c, J, V, A, wrenches), lambda group: not follows(group)
    F, tau = with_connections(model, c, q, v, V, t, z, unknown, on, F, tau, others)
    rows = held_rows(model, c, q, v, None, V, A, t, on)
    settle = response(factors(model, c, J, rows), _followed_rows(model, q)).settle
    return settle(tau - project(model, c, F), -row_values(rows, c), follower_loads(model, c, q, v, V, t, z, u, on))


def _followed_rows(model: Model, q: Array) -> Array:
    return rows_among(model.followed, jnp.arange(model.nc, dtype=q.dtype)[:, None])


def _prepare_following(model: Model, q, v, tau, t, wrenches: Pairs, z, u, on, y):
    c = configuration(model, q, t)
    V, _ = twists(model, c, q, v, t)
    ready = _prepare(model, q, v, tau, t, wrenches, z, u, on, y)
    W_s = slopes(follower_loads(model, c, q, v, V, t, z, u, on), y[1][model.followed])
    return ready, response(ready[0], _followed_rows(model, q)), W_s


def _residual_following(model: Model, q, v, tau, t, wrenches: Pairs, z, u, on, y, ready) -> tuple[Array, Array]:
    u = with_multipliers(u, y[1][model.followed])
    return _residual(model, q, v, tau, t, wrenches, z, u, on, y, ready[0])


_rule_following = ImplicitRule(
    _residual_following,
    lambda *args: args[-2][1].solve(args[-2][2], *args[-1]),
    lambda *args: args[-2][1].solve_transposed(args[-2][2], *args[-1]),
    _prepare_following,
)
