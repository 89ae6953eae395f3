"""What acts on the bodies and holds them, for formulations: gravity, connections, and the rows of the model.

Between marker A of body a and marker B of body b, seen from B, with U_b = Ad(X_BJb) V_b and U_a = Ad(X_BJa) V_a,

    X = X_WA^-1 X_WB        V = U_b - U_a        Vd = Ad(X_BJb) Vd_b - Ad(X_BJa) Vd_a + U_b x U_a                 (1)
    acceleration(t, X, V, Vd) = P Vd + ... = 0        all rows, with every velocity and time term                 (2)
    rows on bodies    H_b = P Ad(X_BJb)   H_a = -P Ad(X_BJa)      sum_i H_i Vd_i + D vd = gamma                   (3)
    wrenches          F_b = Ad(X_BJb)^T w   F_a = -Ad(X_BJa)^T w  of a connection w on B

and rows on joint coordinates go to D with x = q, xd = v. Twists and wrenches of bodies are in J's axes at J's origin.
Nothing here knows masses.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._closing import CoordinateGroup, MarkerGroup
from .._connections._abstract import AbstractSpan, exerted
from .._model import Model
from .._pseudo_inverse import pseudo_inverse
from .._spatial._pose import Pose
from .._spatial._twist import cross_force, cross_motion
from ._bodies import Bodies, adjoint, inertias


class Between(eqx.Module):
    """(1) for pairs of markers: X, V, U_b x U_a, and Ad(X_BJb), Ad(X_BJa)."""

    pose: Pose
    twist: Array
    bias: Array
    to_second: Array
    to_first: Array


class Rows(eqx.Module):
    """The rows of the model on the bodies: (3), and their errors at position and velocity level, zero where a row
    has no such level."""

    H: Array  # (nc, n, 6)
    D: Array  # (nc, nv)
    gamma: Array
    phi: Array
    rate: Array

    def wanted(self, feedback: Any) -> Array:
        """gamma with feedback of the errors."""
        return self.gamma - 2.0 * feedback * self.rate - feedback**2 * self.phi


def between(group: MarkerGroup, bodies: Bodies) -> Between:
    """(1) for every pair of a group, stacked."""
    a, b = (np.asarray(side) + 1 for side in zip(*group.ends, strict=True))  # 0: the world
    world = jnp.eye(3, dtype=bodies.twist.dtype)[None]
    R = jnp.concatenate([world, bodies.pose.rotation])
    p, V = (jnp.concatenate([jnp.zeros_like(f[:1]), f]) for f in (bodies.pose.translation, bodies.twist))

    def one(first, second, Xa, Va, Xb, Vb):
        B = Xb @ second
        to_second, to_first = adjoint(B.inverse() @ Xb), adjoint(B.inverse() @ Xa)
        Ub, Ua = to_second @ Vb, to_first @ Va
        return Between((Xa @ first).inverse() @ B, Ub - Ua, cross_motion(Ub, Ua), to_second, to_first)

    return jax.vmap(one)(group.first, group.second, Pose(R[a], p[a]), V[a], Pose(R[b], p[b]), V[b])


def rows(model: Model, bodies: Bodies, q: Array, v: Array, t: Array) -> Rows:
    """(2) and (3) of every element, in the order of the multipliers."""
    n, nc = len(model.topology.bodies), model.nc
    H, D = jnp.zeros((nc, n + 1, 6), q.dtype), jnp.zeros((nc, model.nv), q.dtype)
    found, start = [], 0
    for group in model.closing:
        count, size = len(group.names), group.rows
        place = start + np.arange(count * size).reshape(count, size)
        start += count * size
        if isinstance(group, MarkerGroup):
            where = between(group, bodies)
            *levels, P = jax.vmap(_levels, (0, None, 0, 0, 0))(group.kind, t, where.pose, where.twist, where.bias)
            a, b = (np.asarray(side)[:, None] for side in zip(*group.ends, strict=True))
            H = H.at[place, b].add(P @ where.to_second).at[place, a].add(-P @ where.to_first)  # -1, the world: last
        else:
            x, xd = q[np.asarray(group.coordinates)], v[np.asarray(group.speeds)]
            *levels, P = jax.vmap(_levels, (0, None, 0, 0, 0))(group.kind, t, x, xd, jnp.zeros_like(xd))
            D = D.at[place[:, :, None], np.asarray(group.speeds)[:, None]].add(P)
        found.append([level.reshape(-1) for level in levels])
    nothing = jnp.zeros(0, q.dtype)
    value, rate, phi = (jnp.concatenate([nothing, *parts]) for parts in zip(*found)) if found else (nothing,) * 3
    return Rows(H[:, :n], D, -value, phi, rate)


def _levels(kind: Any, t: Array, x: Any, xd: Array, xdd: Array) -> tuple[Array, Array, Array, Array]:
    """Acceleration, rate and position of one element's rows, and the slope P of (2)."""
    value, push = jax.linearize(lambda xdd: kind.acceleration(t, x, xd, xdd), xdd)
    fill = lambda a: jnp.concatenate([a, jnp.zeros(value.shape[0] - a.shape[0], value.dtype)])
    slope = jax.vmap(push, 0, 1)(jnp.eye(xdd.shape[0], dtype=xdd.dtype))
    return value, fill(kind.rate(t, x, xd)), fill(kind.phi(t, x)), slope


def connection_loads(model: Model, bodies: Bodies, q: Array, v: Array, t: Array) -> tuple[Array, Array]:
    """What connections put on the bodies, (n, 6), and directly on the speeds, (nv,); inputs are zero."""
    n = len(model.topology.bodies)
    F, tau = jnp.zeros((n + 1, 6), q.dtype), jnp.zeros(model.nv, q.dtype)
    for group in model.connections:
        count = len(group.names)
        z, u = jnp.zeros((count, 0), q.dtype), jnp.zeros((count, group.kind.nu), q.dtype)
        load = jax.vmap(exerted, (0, None, 0, 0, 0, 0))
        if isinstance(group, CoordinateGroup):
            x, xd = q[np.asarray(group.coordinates)], v[np.asarray(group.speeds)]
            tau = tau.at[np.asarray(group.speeds)].add(load(group.kind, t, x, xd, z, u))
            continue
        where = between(group, bodies)
        x, xd = where.pose, where.twist
        if isinstance(group.kind, AbstractSpan):  # several pairs each
            by_span = lambda a: a.reshape(count, -1, *a.shape[1:])
            x, xd = jax.tree.map(by_span, x), by_span(xd)
            x = tuple(jax.tree.map(lambda a, k=k: a[:, k], x) for k in range(xd.shape[1]))
        w = load(group.kind, t, x, xd, z, u).reshape(-1, 6)
        a, b = (np.asarray(side) for side in zip(*group.ends, strict=True))
        F = F.at[b].add(jnp.einsum("eji,ej->ei", where.to_second, w))
        F = F.at[a].add(-jnp.einsum("eji,ej->ei", where.to_first, w))
    return F[:n], tau


def applied_loads(model: Model, bodies: Bodies, F: Array) -> Array:
    """g of M Vd = g, (n, 6): the wrenches F, gravity, and the gyroscopic -V x* M V; (2.5) of Wijckmans."""

    def one(M, X, V, F):
        fall = jnp.concatenate([jnp.zeros(3, V.dtype), X.rotation.T @ model.gravity])
        return F + M @ fall - cross_force(V, M @ V)

    return jax.vmap(one)(inertias(model), bodies.pose, bodies.twist, F)


def shortest(A: Array, b: Array) -> Array:
    """The shortest x that fits A x = b best, for a symmetric positive semidefinite A (rows may be redundant)."""
    return pseudo_inverse(A[..., None])[..., 0] @ b


def with_rows(K: Array, W: Array, H: Array, k: Array, gamma: Array) -> tuple[Array, Array]:
    """y and the shortest lam of K y + W lam = k, H y = gamma, where H K^-1 W is symmetric: what the loads lam do to
    the rows that they hold. K is regular; rows of H may be redundant."""
    found = jnp.linalg.solve(K, jnp.concatenate([k[:, None], W], 1))
    y, Z = found[:, 0], found[:, 1:]
    lam, A = jnp.zeros(len(H), K.dtype), H @ Z
    for _ in range(2 if len(H) else 0):  # the second time takes out what the condition of A has left
        more = shortest(0.5 * (A + A.T), H @ y - gamma)
        y, lam = y - Z @ more, lam + more
    return y, lam


def saddle(M: Array, T: Array, H: Array, g: Array, gamma_t: Array, gamma_h: Array) -> tuple[Array, Array, Array]:
    """x, mu and the shortest lam of M x + T^T mu + H^T lam = g, T x = gamma_t, H x = gamma_h."""
    K = jnp.block([[M, T.T], [T, jnp.zeros((len(T), len(T)), M.dtype)]])
    W = jnp.concatenate([H.T, jnp.zeros((len(T), len(H)), M.dtype)])
    y, lam = with_rows(K, W, W.T, jnp.concatenate([g, gamma_t]), gamma_h)
    return y[: len(M)], y[len(M) :], lam
