"""AUGMENTED: absolute coordinates of all bodies, every joint a constraint (Wijckmans 1992, section 2.3).

    M Vd = g                        Newton and Euler for each free body                                         (2.2)
    phi(x, t) = 0                   all joints, cut or not, and the other elements                              (2.14)
    phi_x V = nu                                                                                                (2.22)
    phi_x Vd = gamma                                                                                            (2.23)

    [ M      T^T  H^T ] [ Vd  ]   [ g       ]      T: rows of the joints of the tree, mu their multipliers
    [ T      0    0   ] [ mu  ] = [ gamma_t ]      H: rows of the model (cut joints, constraints, drives), lam  (2.24)
    [ H      0    0   ] [ lam ]   [ gamma_h ]

A joint of nv speeds holds its relative twist in the space of its motions, V_ij = S v + s. With b = Sdot v + sdot and
C: 6 - nv independent rows of 1 - S S+, so that C S = 0,

    C (V_ij - s) = 0                C (Vd_ij - b) = 0                any joint, also one that moves by time alone

Wijckmans asks for independent rows. Those of a tree are; those of the model need not be. Therefore the upper left part
is factorised, and what is left for lam takes the shortest solution, as `mb.dynamics` does:

    A = H K^-1 H^T                  A lam = H K^-1 (g, gamma_t) - gamma_h

Two things differ from the document: velocities are those of the joint frame in the body's own axes, so that M is
constant; and loads and rows at joint coordinates reach the bodies through v = S+ (V_ij - s).
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._model import Model
from .._spatial._pose import Pose, quat_rate, quat_to_rotation, rotation_to_quat
from ._abstract import AbstractFormulation
from ._bodies import (
    Bodies,
    absolute,
    complements,
    inertias,
    joints,
    misfits,
    pad,
    relative,
    relative_rates,
    unpad,
)
from ._elements import applied_loads, connection_loads, rows, saddle


class Augmented(AbstractFormulation):
    """x: unit quaternion and position of every body, (n, 7); xd: its twist, (n, 6)."""

    model: Model

    @property
    def unknowns(self) -> tuple[int, int]:
        n, held = len(self.model.topology.bodies), sum(6 - nv for nv in self.model.topology.nvs)
        return 7 * n, 6 * n + held + self.model.nc

    def embed(self, q: Array, v: Array, t: Array) -> tuple[Array, Array]:
        bodies = absolute(self.model, q, v, t)
        turn = jax.vmap(rotation_to_quat)(bodies.pose.rotation)
        return jnp.concatenate([turn, bodies.pose.translation], 1), bodies.twist

    def project(self, x: Array, xd: Array, t: Array, near: Array) -> tuple[Array, Array]:
        pose, twist, _ = relative(self.model, _bodies(x, xd))
        own = joints(self.model, pose, twist, t, near)
        return own.q, own.v

    def project_rates(self, x: Array, xd: Array, xdd: Array, t: Array, near: Array) -> Array:
        pose, twist, swirl = relative(self.model, _bodies(x, xd))
        own = joints(self.model, pose, twist, t, near)
        Vd = jnp.einsum("nij,j->ni", relative_rates(self.model, _bodies(x, xd)), xdd.reshape(-1)) - swirl
        return unpad(self.model, jnp.einsum("nij,nj->ni", own.S_plus, Vd - own.bias))

    def flow(self, x: Array, xd: Array) -> Array:
        R = jax.vmap(quat_to_rotation)(x[:, :4])
        return jnp.concatenate([jax.vmap(quat_rate)(x[:, :4], xd[:, :3]), jnp.einsum("nij,nj->ni", R, xd[:, 3:])], 1)

    def accelerate(self, x: Array, xd: Array, tau: Array, t: Array, near: Array, feedback) -> tuple[Array, Array]:
        xdd, lam, _ = self._solve(x, xd, tau, t, near, feedback)
        return xdd, lam

    def joint_wrenches(self, q: Array, v: Array, tau: Array, t: Array) -> Array:
        """What each joint of the tree puts on its body, (n, 6), in the axes of the joint frame at its origin."""
        return self._solve(*self.embed(q, v, t), tau, t, q, 0.0)[2]

    def _solve(self, x: Array, xd: Array, tau: Array, t: Array, near: Array, feedback) -> tuple[Array, Array, Array]:
        """(2.24); behind Vd and lam the wrenches of the tree joints."""
        model, bodies, n = self.model, _bodies(x, xd), len(xd)
        pose, twist, swirl = relative(model, bodies)
        own = joints(model, pose, twist, t, near)
        q, v = own.q, own.v
        E, bias = relative_rates(model, bodies), own.bias + swirl  # Vd_ij - b = E Vd - bias
        # (2.23) of the tree
        body, C = complements(model, own)
        T = jnp.einsum("rk,rkj->rj", C, E[body])
        errors = 2.0 * feedback * (twist - own.twist) + feedback**2 * misfits(model, pose, q, t)
        gamma_t = (C * (bias - errors)[body]).sum(1)
        # (2.23) of the model: D vd = D S+ (Vd_ij - b)
        held = rows(model, bodies, q, v, t)
        D = jnp.einsum("nkr,nki->rni", pad(model, held.D.T), own.S_plus)
        H = held.H.reshape(model.nc, 6 * n) + jnp.einsum("rni,nij->rj", D, E)
        gamma_h = held.wanted(feedback) + jnp.einsum("rni,ni->r", D, bias)
        # (2.2)
        F, direct = connection_loads(model, bodies, q, v, t)
        drive = jnp.einsum("nki,nk->ni", own.S_plus, pad(model, tau + direct))
        g = applied_loads(model, bodies, F).reshape(-1) + jnp.einsum("nij,ni->j", E, drive)

        Vd, mu, lam = saddle(_block_diagonal(inertias(model)), T, H, g, gamma_t, gamma_h)
        reaction = jnp.zeros((n, 6), Vd.dtype).at[body].add(C * mu[:, None]) + jnp.einsum("rni,r->ni", D, lam)
        return Vd.reshape(n, 6), lam, drive - reaction


def _bodies(x: Array, xd: Array) -> Bodies:
    return Bodies(Pose(jax.vmap(quat_to_rotation)(x[:, :4]), x[:, 4:]), xd)


def _block_diagonal(blocks: Array) -> Array:
    n, each = len(blocks), np.arange(len(blocks))
    return jnp.zeros((n, 6, n, 6), blocks.dtype).at[each, :, each].set(blocks).reshape(6 * n, 6 * n)
