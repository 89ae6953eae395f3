"""CLOSURE: the rows of all constraints, their Jacobian and their loads, batch axis last.

Between marker A of body a and marker B of body b, about B's origin and in B's axes, with Ad = Ad(X_WB),

    X = X_WA^-1 X_WB                    relative pose
    V = Ad^-1 (V_b - V_a)               relative twist
    Vd = Ad^-1 (A_b - A_a + V_b x V_a)  its time derivative, componentwise
    phi(t, X)                           rows of position level                                            (1)
    rate = P V + p0                     rows of velocity level:      G v - nu                             (2)
    acceleration = P Vd + ...           all rows:                    G vd - gamma                         (3)
    G_rd = +- w_r . s_d                 w_r = Ad^-T P_r: the wrench of row r, for d on the path to b (+) or a (-)
    load of lam on b: P^T lam, on a the opposite                                                          (4)

`G vd - gamma` contains every velocity term and every explicit time derivative, because (3) is the jvp of (2).
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ._batch import batch_last
from ._checks import as_time, check_coordinates, check_speeds
from ._closing import CoordinateGroup, MarkerGroup
from ._configuration import Configuration, accelerations, configuration, twists
from ._model import Model
from ._spatial._pose import Pose
from ._spatial._twist import cross_motion
from ._spatial._vector import combine, cross, eye, join, matvec, vecmat
from ._sweep import each, per_body, sum_outward, take
from ._walk import walk


class Place(eqx.Module):
    """Where the elements of a group are: X, the world axes of B, and from the fixed points of b and a to B."""

    pose: Pose
    rotation: Array
    arms: tuple[Array, Array]


class Rows(eqx.Module):
    """One group's rows: values of (3) or (2), (e, r, batch), and their slope P, (e, r, 6 or coordinates, batch)."""

    place: Place | None
    value: Array
    slope: Array


def place(group: MarkerGroup, c: Configuration) -> Place:
    a, b = (np.asarray(side) for side in zip(*group.ends, strict=True))
    centre = jnp.broadcast_to(c.centre, c.pose.translation.shape)
    centre = jnp.concatenate([centre, jnp.zeros_like(centre[:1])])
    A = each(Pose.__matmul__)(frames_of(c, a), group.first)
    B = each(Pose.__matmul__)(frames_of(c, b), group.second)
    relative = each(lambda A, B: A.inverse() @ B)(A, B)
    return Place(relative, B.rotation, (B.translation - take(centre, b), B.translation - take(centre, a)))


def frames_of(c: Configuration, bodies: np.ndarray) -> Pose:
    """X_WJ of the numbered bodies (from 0; -1 is the world), stacked."""
    X = c.pose
    world = jnp.broadcast_to(eye(3, X.translation[0]), X.rotation[:1].shape)
    rotation = jnp.concatenate([X.rotation, world])
    translation = jnp.concatenate([X.translation, jnp.zeros_like(X.translation[:1])])
    return Pose(take(rotation, bodies), take(translation, bodies))


def _at(field: Array, arm: Array) -> Array:
    """A twist about its fixed point, seen at the end of the arm."""
    return join(field[:3], field[3:] + cross(field[:3], arm))


def _ends(group: MarkerGroup, where: Place, field: Array) -> tuple[Array, Array]:
    """A field of twists (n, 6, batch) at B's origin: of b and of a."""
    a, b = (np.asarray(side) for side in zip(*group.ends, strict=True))
    padded = jnp.concatenate([field, jnp.zeros_like(field[:1])])
    return each(_at)(take(padded, b), where.arms[0]), each(_at)(take(padded, a), where.arms[1])


def _in_axes(where: Place, field: Array) -> Array:
    return each(lambda V, R: join(vecmat(V[:3], R), vecmat(V[3:], R)))(field, where.rotation)


def _relative(group: MarkerGroup, where: Place, field: Array) -> Array:
    b, a = _ends(group, where, field)
    return _in_axes(where, b - a)


def _relative_acceleration(group: MarkerGroup, where: Place, V: Array, A: Array) -> Array:
    Vb, Va = _ends(group, where, V)
    Ab, Aa = _ends(group, where, A)
    return _in_axes(where, Ab - Aa + each(cross_motion)(Vb, Va))


def here(group: MarkerGroup | CoordinateGroup, c: Configuration, q: Array) -> tuple[Place | None, Any]:
    """The relative coordinates of a group's elements: poses or joint coordinates."""
    if isinstance(group, MarkerGroup):
        where = place(group, c)
        return where, where.pose
    return None, take(q, np.asarray(group.coordinates))


def moving(group: MarkerGroup | CoordinateGroup, where: Place | None, v: Array, field: Array) -> Array:
    """Their rates for speeds v (or any vector like them) and the twists that these give the bodies."""
    if isinstance(group, MarkerGroup):
        assert where is not None
        return _relative(group, where, field)
    return take(v, np.asarray(group.speeds))


# --- rows ---------------------------------------------------------------------------------------------------------


def positions(model: Model, c: Configuration, q: Array, t: Array) -> Array:
    """(1): rows of position level, in the order of the multipliers."""
    found = []
    for group in model.closing:
        if group.kind.nh:
            found.append(each(lambda kind, x: kind.phi(t, x))(group.kind, here(group, c, q)[1]))
    return _together(found, c)


def rates(model: Model, c: Configuration, q: Array, v: Array, V: Array, t: Array) -> Array:
    """(2): rows of position and velocity level."""
    found = []
    for group in model.closing:
        if group.kind.nh + group.kind.nn:
            where, x = here(group, c, q)
            t, x, xd = spread(t, x, moving(group, where, v, V))
            found.append(each(lambda kind, x, xd: kind.rate(t, x, xd))(group.kind, x, xd))
    return _together(found, c)


def spread(*trees):
    """Over one common batch: values and their tangents must have the same shape."""
    batch = max(a.shape[-1] for a in jax.tree.leaves(trees))
    return jax.tree.map(lambda a: jnp.broadcast_to(a, (*a.shape[:-1], batch)), trees)


def _together(parts: Sequence[Array], c: Configuration) -> Array:
    """Group by group, element by element, row by row."""
    batch = max([p.shape[-1] for p in parts] + [c.pose.rotation.shape[-1]])
    flat = [jnp.broadcast_to(p.reshape(-1, p.shape[-1]), (p.shape[0] * p.shape[1], batch)) for p in parts]
    return jnp.concatenate(flat) if flat else jnp.zeros((0, batch), c.pose.rotation.dtype)


def all_rows(model: Model, c: Configuration, q, v, vd, V: Array, A: Array, t) -> list[Rows]:
    """(3) of every group. `vd = None` leaves the term with G out, if A was made so too."""

    def one(kind, x, xd, xdd):
        value, push = jax.linearize(lambda xdd: kind.acceleration(t, x, xd, xdd), xdd)
        units = jnp.broadcast_to(eye(xdd.shape[0], xdd), (xdd.shape[0], *xdd.shape))
        return value, jax.vmap(push, 1, 1)(units)

    found = []
    for group in model.closing:
        where, x = here(group, c, q)
        xd = moving(group, where, v, V)
        if isinstance(group, MarkerGroup):
            assert where is not None
            xdd = _relative_acceleration(group, where, V, A)
        else:
            xdd = jnp.zeros_like(xd) if vd is None else take(vd, np.asarray(group.speeds))
        t, x, xd, xdd = spread(t, x, xd, xdd)
        found.append(Rows(where, *each(one)(group.kind, x, xd, xdd)))
    return found


def rate_rows(model: Model, c: Configuration, q, v, V: Array, t) -> list[Rows]:
    """(2) of every group with its slope P, for models without rows of acceleration level: one derivative less."""

    def one(kind, x, xd):
        value, push = jax.linearize(lambda xd: kind.rate(t, x, xd), xd)
        units = jnp.broadcast_to(eye(xd.shape[0], xd), (xd.shape[0], *xd.shape))
        return value, jax.vmap(push, 1, 1)(units)

    found = []
    for group in model.closing:
        where, x = here(group, c, q)
        t, x, xd = spread(t, x, moving(group, where, v, V))
        found.append(Rows(where, *each(one)(group.kind, x, xd)))
    return found


def row_values(rows: list[Rows], c: Configuration) -> Array:
    """The values of rows in one column, (nc, batch)."""
    return _together([r.value for r in rows], c)


# --- Jacobian and loads -------------------------------------------------------------------------------------------


def _wrenches(where: Place, w: Array) -> tuple[Array, Array]:
    """Wrenches (e, 6, batch) at B in B's axes as they act on b and on a about the fixed points, world axes."""

    def turn(w, R):
        return join(matvec(R, w[:3]), matvec(R, w[3:]))

    def about(w, arm):
        return join(w[:3] + cross(arm, w[3:]), w[3:])

    world = each(turn)(w, where.rotation)
    return each(about)(world, where.arms[0]), each(about)(world, where.arms[1])


def jacobian_rows(model: Model, c: Configuration, rows: list[Rows]) -> Array:
    """G, (nc, nv, batch)."""
    batch = max([r.slope.shape[-1] for r in rows] + [c.columns.shape[-1]])
    on_path = walk(model.topology).paths[:, walk(model.topology).speed_body].astype(float)  # [i, d]
    on_path = np.concatenate([on_path, np.zeros((1, model.nv))])
    parts = []
    for group, r in zip(model.closing, rows, strict=True):
        e, k = r.slope.shape[:2]
        if isinstance(group, MarkerGroup):
            assert r.place is not None
            repeated = jax.tree.map(lambda x: jnp.repeat(x, k, 0), r.place)
            wrenches = _wrenches(repeated, r.slope.reshape(e * k, 6, -1))
            part = 0.0
            for sign, side, w in zip((1.0, -1.0), (1, 0), wrenches, strict=True):
                mask = sign * on_path[[ends[side] for ends in group.ends for _ in range(k)]]
                if mask.any():
                    w = jnp.asarray(mask, w.dtype)[:, :, None, None] * w[:, None]
                    part = part + sum(w[:, :, i] * c.columns[None, :, i] for i in range(6))
            part = jnp.broadcast_to(part, (e * k, model.nv, batch))
        else:
            place_of = np.zeros((e, r.slope.shape[2], model.nv))
            for i, speeds in enumerate(group.speeds):
                place_of[i, np.arange(len(speeds)), np.asarray(speeds)] = 1.0
            part = jnp.einsum("erkz,ekd->erdz", r.slope, jnp.asarray(place_of, r.slope.dtype))
            part = jnp.broadcast_to(part.reshape(e * k, model.nv, -1), (e * k, model.nv, batch))
        parts.append(part)
    return jnp.concatenate(parts)


def row_loads(model: Model, c: Configuration, rows: list[Rows], lam: Array) -> tuple[Array, Array]:
    """(4): what lam puts on the bodies, (n, 6, batch), and directly on the speeds, (nv, batch)."""
    pairs = zip(model.closing, rows, by_elements(model, lam), strict=True)
    return scatter(model, [(group, r.place, each(vecmat)(part, r.slope)) for group, r, part in pairs], c.columns)


def scatter(model: Model, parts: Sequence[tuple], like: Array) -> tuple[Array, Array]:
    """What loads put on the bodies about their fixed points, (n, 6, batch), and directly on the speeds, (nv, batch).

    `parts` are (group, place, loads): wrenches (e, 6, batch) at B in B's axes on b, with the opposite on a, or loads
    (e, k, batch) on joint coordinates.
    """
    n, batch = len(model.topology.bodies), max([like.shape[-1]] + [w.shape[-1] for _, _, w in parts])
    F, tau = jnp.zeros((n, 6, batch), like.dtype), jnp.zeros((model.nv, batch), like.dtype)
    for group, where, w in parts:
        if isinstance(group, CoordinateGroup):
            tau = tau.at[np.asarray(group.speeds)].add(w)
            continue
        for sign, side, wrench in zip((1.0, -1.0), (1, 0), _wrenches(where, w), strict=True):
            touched = np.zeros((n + 1, len(group.ends)))
            touched[[ends[side] for ends in group.ends], np.arange(len(group.ends))] = sign
            if touched[:-1].any():
                F = F + combine(jnp.asarray(touched[:-1], w.dtype), wrench)
    return F, tau


def by_elements(model: Model, lam: Array) -> list[Array]:
    """lam by groups, (e, r, batch)."""
    found, start = [], 0
    for group in model.closing:
        size = len(group.names) * group.rows
        found.append(lam[start : start + size].reshape(len(group.names), group.rows, lam.shape[-1]))
        start += size
    return found


def row_products(model: Model, c: Configuration, rows: list[Rows], x: Array) -> Array:
    """G x, (nc, batch), without G."""
    field = sum_outward(model.topology, per_body(model.topology, c.columns * x[:, None]))
    pairs = zip(model.closing, rows, strict=True)
    return _together([each(matvec)(r.slope, moving(group, r.place, x, field)) for group, r in pairs], c)


# --- public -------------------------------------------------------------------------------------------------------


def constraint_residual(model: Model, q, t: Any = 0.0) -> Array:
    """phi(t, q): the rows of position level, zero on the manifold; m, or sines of angles."""
    q = check_coordinates(model, q)
    return _residual(model, q, as_time(t, q))


def constraint_rate(model: Model, q, v, t: Any = 0.0) -> Array:
    """G v - nu: the rows of position level differentiated once, and those of velocity level."""
    q = check_coordinates(model, q)
    return _rate(model, q, check_speeds(model, "v", v, q), as_time(t, q))


def constraint_jacobian(model: Model, q, t: Any = 0.0) -> Array:
    """G(t, q), (nc, nv), of all rows."""
    q = check_coordinates(model, q)
    return _jacobian(model, q, as_time(t, q))


def constraint_bias(model: Model, q, v, t: Any = 0.0) -> Array:
    """gamma(t, q, v), (nc,): what G vd must be, with every velocity and time term."""
    q = check_coordinates(model, q)
    return _bias(model, q, check_speeds(model, "v", v, q), as_time(t, q))


def constraint_acceleration(model: Model, q, v, vd, t: Any = 0.0) -> Array:
    """G vd - gamma, (nc,): zero for the vd of `dynamics`, unless rows contradict each other."""
    q = check_coordinates(model, q)
    v, vd = check_speeds(model, "v", v, q), check_speeds(model, "vd", vd, q)
    return _acceleration(model, q, v, vd, as_time(t, q))


@batch_last
def _residual(model: Model, q: Array, t: Array) -> Array:
    return positions(model, configuration(model, q, t), q, t)


@batch_last
def _rate(model: Model, q: Array, v: Array, t: Array) -> Array:
    c = configuration(model, q, t)
    return rates(model, c, q, v, twists(model, c, q, v, t)[0], t)


@batch_last
def _jacobian(model: Model, q: Array, t: Array) -> Array:
    return _jacobian_at(model, configuration(model, q, t), q, t)


def _jacobian_at(model: Model, c: Configuration, q: Array, t: Array) -> Array:
    still = jnp.zeros((model.nv, 1), q.dtype)
    nothing = jnp.zeros((len(model.topology.bodies), 6, 1), q.dtype)
    rows = all_rows(model, c, q, still, None, nothing, nothing, t)
    return jacobian_rows(model, c, rows) if rows else jnp.zeros((0, model.nv, q.shape[-1]), q.dtype)


@batch_last
def residual_and_jacobian(model: Model, q: Array, t: Array) -> tuple[Array, Array]:
    """phi and the whole of G from one look at the configuration, for the iterations of assembly."""
    c = configuration(model, q, t)
    return positions(model, c, q, t), _jacobian_at(model, c, q, t)


@batch_last
def _acceleration(model: Model, q: Array, v: Array, vd: Array, t: Array) -> Array:
    c = configuration(model, q, t)
    V, own = twists(model, c, q, v, t)
    return row_values(all_rows(model, c, q, v, vd, V, accelerations(model, c, own, vd), t), c)


@batch_last
def _bias(model: Model, q: Array, v: Array, t: Array) -> Array:
    c = configuration(model, q, t)
    V, own = twists(model, c, q, v, t)
    return -row_values(all_rows(model, c, q, v, None, V, accelerations(model, c, own, None), t), c)
