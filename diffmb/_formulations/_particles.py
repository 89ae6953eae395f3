"""PARTICLES: Cartesian coordinates of particles only, and the momentum of chains about their joints (Attia 2006).

Every body is replaced by ten particles (`_ten_particles.py`), of which r = (r_1, r_2, r_4) move on their own: 1 is in
the origin of its joint, 2 on the axis of a joint that has one. Nine unknowns for each body, and as many equations:

    |r_21|, |r_41|, |r_42| stay                              three distances                             (2.20)
    C (Vd_ij - b) = 0                                        6 - nv conditions of its joint
    S^T ( sum_k G_k,j ; sum_k R_k ) = tau_j                  nv sums over the bodies k of the chain that it carries,
                                                             moments about its joint particle r_1,j      (2.21), (2.27)

with R_k and G_k,j the rates of linear and angular momentum less the external forces and moments. Inner forces of the
chain and the reaction of the joint do not appear: no multiplier belongs to a joint of the tree. The sums are projected
on the motions S of the joint: three moments for a spherical joint, one about the axis for a revolute one, one force
along the axis for a prismatic one (Step 3, 4), all six for a floating body. They are made inward, chain by chain,

    sum_j = (G_j + (r_1,j - r_1,i) x R_j ;  R_j)  added to those of body i that carries j

A loop is cut, and its conditions (like all rows of the model) are added with their loads as unknowns, which act on the
chains like external ones (2.4.2):

    [ K   W ] [ rdd ]   [ k     ]             K (9N, 9N) as above; W: lam in the sums;
    [ H   0 ] [ lam ] = [ gamma ]             W = 0 in the rows of distances and joints

Two things differ from the document. The particle that two bodies share at a joint is kept twice: that its two places
coincide is among the conditions of the joint. And any joint is taken, with C as many independent rows of 1 - S S+,
Vd_ij the relative acceleration that follows from the particles, and b = Sdot v + sdot.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .._joints._rows import across
from .._model import Model
from .._spatial._pose import Pose
from .._spatial._twist import body_twist
from .._spatial._vector import skew
from ._abstract import AbstractFormulation
from ._bodies import (
    Bodies,
    absolute,
    by_joint,
    complements,
    joints,
    misfits,
    over_bodies,
    pad,
    relative,
    relative_rates,
    unpad,
)
from ._elements import connection_loads, rows, with_rows
from ._relative import gravity_wrenches, single_axis
from ._ten_particles import Particles10, carried, distances, momentum, place, replace_body


class Particles(AbstractFormulation):
    """x: places of particles 1, 2 and 4 of every body, (n, 3, 3), world axes; xd: their velocities."""

    model: Model

    @property
    def unknowns(self) -> tuple[int, int]:
        n = len(self.model.topology.bodies)
        return 9 * n, 9 * n + self.model.nc

    @property
    def particles(self) -> Particles10:
        """The particles of every body, stacked: `.points` (n, 4, 3) in the joint frames, `.masses` (n, 10)."""
        model = self.model
        start = jnp.zeros((), model.mass.dtype)
        axes = over_bodies(by_joint(model, lambda kind, q: _axes(kind.subspace(q, start)), (model.neutral(), "q")))
        axes = lax.stop_gradient(axes)
        return jax.vmap(replace_body)(axes, model.mass, model.com, model.inertia)

    def embed(self, q: Array, v: Array, t: Array) -> tuple[Array, Array]:
        bodies, particles = absolute(self.model, q, v, t), self.particles
        rate = jax.vmap(Pose.rate)(bodies.pose, bodies.twist)
        return jax.jvp(lambda X: jax.vmap(place)(particles, X), (bodies.pose,), (rate,))

    def project(self, x: Array, xd: Array, t: Array, near: Array) -> tuple[Array, Array]:
        pose, twist, _ = relative(self.model, jax.vmap(_moving)(self.particles, x, xd))
        own = joints(self.model, pose, twist, t, near)
        return own.q, own.v

    def accelerate(self, x: Array, xd: Array, tau: Array, t: Array, near: Array, feedback: Any) -> tuple[Array, Array]:
        model, particles, n = self.model, self.particles, len(x)
        bodies, U, rest = jax.vmap(_rates)(particles, x, xd)  # Vd = U rdd + rest
        pose, twist, swirl = relative(model, bodies)
        own, E = joints(model, pose, twist, t, near), relative_rates(model, bodies)
        q, v = own.q, own.v
        to_rdd = lambda a: jnp.einsum("rni,nij->rnj", a.reshape(-1, n, 6), U).reshape(-1, 9 * n)
        # Vd_ij - b = V rdd + late
        V, late = to_rdd(E.reshape(-1, 6 * n)).reshape(n, 6, 9 * n), (E @ rest.ravel()) - swirl - own.bias
        # distances
        stretched = jax.vmap(distances)(x) - jax.vmap(lambda p: distances(p.points[jnp.array([0, 1, 3])]))(particles)
        lengthening, slope, stretch = jax.vmap(_stretching)(x, xd)
        # joints
        body, C = complements(model, own)
        error = late + 2.0 * feedback * (twist - own.twist) + feedback**2 * misfits(model, pose, q, t)
        # rows of the model
        held = rows(model, bodies, q, v, t)
        D = jnp.einsum("nkr,nki->rni", pad(model, held.D.T), own.S_plus)
        H = to_rdd(held.H) + jnp.einsum("rni,nij->rj", D, V)
        gamma = held.wanted(feedback) - jnp.einsum("rni,ni->r", held.H, rest) - jnp.einsum("rni,ni->r", D, late)
        # momentum of the chains
        F, direct = connection_loads(model, bodies, q, v, t)
        sums = self._chains(particles, x, xd, bodies.pose, F + gravity_wrenches(model, bodies.pose), held.H)
        projected = unpad(model, jnp.einsum("nki,nkj->nij", own.S, sums))
        K = jnp.concatenate([_block_rows(slope), jnp.einsum("ri,rij->rj", C, V[body]), projected[:, : 9 * n]])
        stretch = stretch + 2.0 * feedback * lengthening + feedback**2 * stretched
        k = [-stretch.ravel(), -(C * error[body]).sum(1), tau + direct - projected[:, 9 * n]]
        W = jnp.concatenate([jnp.zeros((len(K) - model.nv, model.nc), K.dtype), projected[:, 9 * n + 1 :] + held.D.T])
        rdd, lam = with_rows(K, W, H, jnp.concatenate(k), gamma)
        return rdd.reshape(n, 3, 3), lam

    def _chains(self, particles: Particles10, x: Array, xd: Array, pose: Pose, loads: Array, H: Array) -> Array:
        """Sums of (G; R) over the chain that each joint carries, in the axes of its body: (n, 6, 9n + 1 + nc), on rdd,
        the rest less the external loads, on lam."""
        n, nc = len(x), len(H)
        matrix, rest = jax.vmap(momentum)(particles, x, xd)
        turn = lambda R, w: jnp.concatenate([R @ w[:3], R @ w[3:]])
        outer = jax.vmap(turn)(pose.rotation, jnp.concatenate([loads[:, :, None], jnp.moveaxis(H, 0, 2)], 2))
        own = jnp.zeros((n + 1, 6, 9 * n + 1 + nc), x.dtype)
        places = 9 * np.arange(n)[:, None] + np.arange(9)
        own = own.at[np.arange(1, n + 1)[:, None], :, places].set(jnp.swapaxes(matrix, 1, 2))
        own = own.at[1:, :, 9 * n].set(rest - outer[:, :, 0]).at[1:, :, 9 * n + 1 :].set(outer[:, :, 1:])
        joint = jnp.concatenate([jnp.zeros_like(x[:1, 0]), x[:, 0]])  # r_1

        def inward(sums, numbers):
            j, i = numbers
            moved = sums[j].at[:3].add(skew(joint[j] - joint[i]) @ sums[j, 3:])
            return sums.at[i].add(moved), None

        order = np.arange(n, 0, -1)
        sums, _ = lax.scan(inward, own, (order, np.asarray(self.model.topology.parent)[order - 1]))
        return jax.vmap(lambda R, w: turn(R.T, w))(pose.rotation, sums[1:])


def _axes(S: Array) -> Array:
    """Where to put particles 2, 4 and 3: the first along the axis about or along which a joint moves, (3, 3)."""
    about = single_axis(S)
    along = single_axis(jnp.concatenate([S[3:], S[:3]]))
    axis = jnp.where(about @ about > 0.5, about, along)
    found = axis @ axis > 0.5
    safe = jnp.where(found, axis, jnp.array([1.0, 0.0, 0.0], S.dtype))
    first, second = across(safe)
    return jnp.where(found, jnp.stack([safe, first, second]), jnp.eye(3, dtype=S.dtype))


def _moving(body: Particles10, r: Array, rd: Array) -> Bodies:
    """Pose and twist of a body from its particles."""
    X, Xd = jax.jvp(lambda r: carried(body, r), (r,), (rd,))
    return Bodies(X, body_twist(X, Xd))


def _rates(body: Particles10, r: Array, rd: Array) -> tuple[Bodies, Array, Array]:
    """The motion of a body, and the rate of its twist as a matrix (6, 9) on rdd and a rest (6,)."""
    twist = lambda r, rd: _moving(body, r, rd).twist
    rest = jax.jvp(twist, (r, rd), (rd, jnp.zeros_like(rd)))[1]
    return _moving(body, r, rd), jax.jacfwd(lambda rd: twist(r, rd))(rd).reshape(6, 9), rest


def _stretching(r: Array, rd: Array) -> tuple[Array, Array, Array]:
    """(2.20): the rates of the three distances, and their second derivatives as a matrix (3, 9) on rdd and a rest."""
    rate = jax.jvp(distances, (r,), (rd,))[1]
    rest = jax.jvp(lambda r: jax.jvp(distances, (r,), (rd,))[1], (r,), (rd,))[1]
    return rate, jax.jacfwd(distances)(r).reshape(3, 9), rest


def _block_rows(blocks: Array) -> Array:
    """(n, 3, 9) on the diagonal, (3n, 9n)."""
    n = len(blocks)
    placed = jnp.zeros((n, 3, n, 9), blocks.dtype).at[np.arange(n), :, np.arange(n)].set(blocks)
    return placed.reshape(3 * n, 9 * n)
