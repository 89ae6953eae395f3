"""KANE: all 6N relative coordinates, with the joints as constraints on them (Kamman; Sol 1983, ch. 6).

    y = (1-2-3 angles of all bodies, lengths of all bodies), relative to their lower bodies        `_relative.py`
    w_K = w_K,y yd        v_GK = v_GK,y yd                partial angular velocities and partial velocities   (19), (31)

    A = sum_K m_K v_GK,y^T v_GK,y + w_K,y^T I_K w_K,y                                                         (42)
    f = sum_K v_GK,y^T F_K + w_K,y^T M_K - m_K v_GK,y^T (vd_GK,y yd + w_K x v_GK)                             (36), (43)
              - w_K,y^T (I_K wd_K,y yd + w_K x I_K w_K)

Free bodies have A ydd = f (41). A joint holds the twist of its body relative to M, V = P_K yd_K, in the space of its
motions, V = S v + s. With C: 6 - nv independent rows of 1 - S S+, so that C S = 0, and b = Sdot v + sdot,

    C P_K ydd_K = C (b - Pd_K yd_K)                               rows T ydd = gamma_t of the joints of the tree
    H ydd = gamma_h                                               rows of the model: loops, constraints, drives

    [ A   T^T  H^T ] [ ydd ]   [ f       ]
    [ T   0    0   ] [ mu  ] = [ gamma_t ]
    [ H   0    0   ] [ lam ]   [ gamma_h ]

Loads and rows on joint coordinates use v = S+ (V - s). Kamman has no joints: there every body is free to move on its
lower body, T and H are empty, and (41) is all.

The angles lock where y2 = +-pi/2. Joints that turn about one axis never get there (`choose_frames`), and no start is
near it; a motion that comes within a thousandth of it ends in an error that names the body.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .._model import Model
from ._abstract import AbstractFormulation
from ._bodies import Bodies, Joints, by_joint, complements, joints, misfits, over_bodies, pad, unpad
from ._elements import connection_loads, rows, saddle
from ._relative import (
    Frames,
    choose_frames,
    gravity_wrenches,
    joint_poses,
    momentum_terms,
    own_changes,
    own_columns,
    own_partials,
    partials,
    single_axis,
    to_angles,
    to_rates,
)

LOCK = 1e-3  # cos(y2)


class Relative(eqx.Module):
    """y (6N,), and the constant rotations around its angles."""

    y: Array
    frames: Frames


class Kane(AbstractFormulation):
    """x: six relative coordinates for each body, (6N,); xd: their rates."""

    model: Model

    @property
    def unknowns(self) -> tuple[int, int]:
        n, held = len(self.model.topology.bodies), sum(6 - nv for nv in self.model.topology.nvs)
        return 6 * n, 6 * n + held + self.model.nc

    def embed(self, q: Array, v: Array, t: Array) -> tuple[Relative, Array]:
        one = lambda kind, q, v: (kind.pose(q, t), kind.twist(q, v, t), single_axis(kind.subspace(q, t)))
        pose, twist, axes = over_bodies(by_joint(self.model, one, (q, "q"), (v, "v")))
        frames = choose_frames(pose, axes)
        y = to_angles(frames, pose)
        return Relative(y, frames), to_rates(frames, y, pose, twist)

    def flow(self, x: Relative, xd: Array) -> Relative:
        return Relative(xd, jax.tree.map(jnp.zeros_like, x.frames))

    def project(self, x: Relative, xd: Array, t: Array, near: Array) -> tuple[Array, Array]:
        own = self._joints(x, xd, t, near)
        return own.q, own.v

    def project_rates(self, x: Relative, xd: Array, xdd: Array, t: Array, near: Array) -> Array:
        own, (P, Pd) = self._joints(x, xd, t, near), own_changes(x.frames, x.y, xd)
        return unpad(self.model, _times(own.S_plus, _by_body(P, xdd) + _by_body(Pd, xd) - own.bias))

    def _joints(self, x: Relative, xd: Array, t: Array, near: Array) -> Joints:
        twist = _by_body(own_partials(x.frames, x.y), xd)
        return joints(self.model, joint_poses(x.frames, x.y), twist, t, near)

    def accelerate(
        self, x: Relative, xd: Array, tau: Array, t: Array, near: Array, feedback: Any
    ) -> tuple[Array, Array]:
        x = _unlocked(self.model, x)
        model, n, columns = self.model, len(self.model.topology.bodies), own_columns(len(self.model.topology.bodies))
        p, own = partials(model, x.frames, x.y, xd), self._joints(x, xd, t, near)
        bodies, q, v = Bodies(p.pose, p.partial @ xd), own.q, own.v
        P, Pd = own_changes(x.frames, x.y, xd)
        swirl = _by_body(Pd, xd) - own.bias  # V_d = P ydd + swirl + b
        # rows of the joints
        body, C = complements(model, own)
        misfit, slip = misfits(model, joint_poses(x.frames, x.y), q, t), _by_body(P, xd) - own.twist
        each = jnp.arange(len(body))[:, None]
        T = jnp.zeros((len(body), 6 * n), C.dtype).at[each, columns[body]].set(jnp.einsum("ri,rij->rj", C, P[body]))
        gamma_t = -(C * (swirl + 2.0 * feedback * slip + feedback**2 * misfit)[body]).sum(1)
        # rows of the model: on bodies, and on vd = S+ (P ydd + swirl)
        held = rows(model, bodies, q, v, t)
        D = jnp.einsum("nkr,nki->rni", pad(model, held.D.T), own.S_plus)
        H = jnp.einsum("rni,nij->rj", held.H, p.partial).at[:, columns].add(jnp.einsum("rni,nij->rnj", D, P))
        gamma_h = held.wanted(feedback) - jnp.einsum("rni,ni->r", held.H, p.change @ xd)
        gamma_h = gamma_h - jnp.einsum("rni,ni->r", D, swirl)
        # (42), (43)
        A, f = momentum_terms(model, p, xd)
        F, direct = connection_loads(model, bodies, q, v, t)
        drive = jnp.einsum("nki,nk->ni", own.S_plus, pad(model, tau + direct))
        f = f + jnp.einsum("nij,ni->j", p.partial, F + gravity_wrenches(model, p.pose))  # (36)
        f = f.at[columns].add(jnp.einsum("nij,ni->nj", P, drive))
        ydd, _, lam = saddle(A, T, H, f, gamma_t, gamma_h)
        return ydd, lam


def _times(A: Array, x: Array) -> Array:
    return jnp.einsum("nij,nj->ni", A, x)


def _by_body(P: Array, rates: Array) -> Array:
    """Matrices on each body's own six rates, (n, 6)."""
    return _times(P, rates[own_columns(len(P))])


def _unlocked(model: Model, x: Relative) -> Relative:
    """x, or the error that a body has come to where its angles lock."""
    lock = jnp.abs(jnp.cos(x.y.reshape(2, -1, 3)[0, :, 1]))
    words = [
        f"the 1-2-3 angles of body {name!r} relative to its lower body lock: the second one is at a quarter of a turn. "
        "fm.Kane cannot pass there; mb.simulate and the other formulations can"
        for name in model.topology.bodies
    ]
    return eqx.tree_at(lambda x: x.y, x, eqx.branched_error_if(x.y, lock.min() < LOCK, jnp.argmin(lock), words))
