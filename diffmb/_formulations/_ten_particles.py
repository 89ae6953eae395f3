"""TEN PARTICLES in place of a rigid body (Attia 2006): four primary ones, and six midway between them.

Seen in the frame of the body, with particle 1 in its origin, the ten masses solve ten linear equations,

    m = sum m_i         m r_G = sum m_i r_i         I = sum m_i (|r_i|^2 1 - r_i r_i^T)                       (2.1)

(some masses may be negative: only their sums have a meaning). The midway particles move with the primary ones, and
particle 3 with the others, through three invariants of the tetrahedron,

    r_3 = r_1 + tau r_21 + mu r_41 + lam r_21 x r_41              r_ij = r_i - r_j                            (2.10)
    rdd_3 = (1 - mu - tau + lam [r_42]) rdd_1 + (tau - lam [r_41]) rdd_2 + (mu + lam [r_21]) rdd_4
            + 2 lam rd_21 x rd_41                                                                             (2.14)

so that nine Cartesian coordinates r = (r_1, r_2, r_4) with three distances that stay

    |r_21|, |r_41|, |r_42|                                                                                    (2.4)

describe a body: no angle, no rotation matrix. What is fixed to the body has invariants of its own, B0^-1 p with
B = (r_21, r_41, r_21 x r_41) and B0 the same in the body: x = r_1 + B B0^-1 p (2.10 again). Momentum of the particles,

    R = sum_b mb_b rdd_b        G_1 = sum_b A_b rdd_b             b = 1..4                                    (2.5)
    mb_b = sum_a m_ab           A_b = sum_a m_ab [r_a - r_1]      m_ab = sum_i l_ia m_i l_ib                  (2.6)

with l_ia = 1, or 1/2 for each of the two ends of a midway particle.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._spatial._pose import Pose
from .._spatial._vector import cross, skew

PRIMARY = ((0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3))  # the ends of particles 5 to 10
SHARES = np.concatenate([np.eye(4), [[0.5 * (k in ends) for k in range(4)] for ends in PRIMARY]])  # l_ia, (10, 4)


class Particles10(eqx.Module):
    """One body: `points` (4, 3), the primary particles in its frame, and `masses` (10,)."""

    points: Array
    masses: Array

    @property
    def base(self) -> Array:
        """B0."""
        return _base(self.points[jnp.array([0, 1, 3])])

    @property
    def invariants(self) -> Array:
        """(tau, mu, lam) of particle 3."""
        return jnp.linalg.solve(self.base, self.points[2])


def ten_masses(points: Array, mass: Array, com: Array, inertia: Array) -> Array:
    """(2.1): the masses (10,) of a body with this inertia (3, 3) about its centre of mass, axes of the frame."""
    x, y, z = jnp.asarray(SHARES, points.dtype).dot(points).T
    about = inertia + mass * ((com @ com) * jnp.eye(3, dtype=com.dtype) - jnp.outer(com, com))
    rows = [jnp.ones_like(x), x, y, z, z * z + y * y, z * z + x * x, x * x + y * y, x * y, x * z, z * y]
    off = -0.5 * (about + about.T)
    products = jnp.stack([off[0, 1], off[0, 2], off[1, 2]])
    right = jnp.concatenate([mass[None], mass * com, jnp.diag(about), products])
    return jnp.linalg.solve(jnp.stack(rows), right)


def replace_body(axes: Array, mass: Array, com: Array, inertia: Array) -> Particles10:
    """The particles of a body: 1 in the origin, 2, 4 and 3 along the rows of `axes`, as far as its mass reaches."""
    reach = jnp.trace(inertia) + 2.0 * mass * (com @ com)
    square = jnp.where((mass > 0) & (reach > 0), reach / jnp.where(mass > 0, 2.0 * mass, 1.0), 1.0)
    length = jax.lax.stop_gradient(jnp.sqrt(square))  # the motion does not depend on where the particles are
    points = length * jnp.stack([jnp.zeros_like(com), axes[0], axes[2], axes[1]])
    return Particles10(points, ten_masses(points, mass, com, inertia))


def _base(r: Array) -> Array:
    """B of particles 1, 2 and 4, (3, 3): its columns turn with the body."""
    first, second = r[1] - r[0], r[2] - r[0]
    return jnp.stack([first, second, cross(first, second)], 1)


def place(body: Particles10, X: Pose) -> Array:
    """r (3, 3): particles 1, 2 and 4 of a body with this pose."""
    return jax.vmap(X.apply)(body.points[jnp.array([0, 1, 3])])


def carried(body: Particles10, r: Array) -> Pose:
    """The frame fixed to the particles: axes by their invariants, B B0^-1."""
    return Pose(_base(r) @ jnp.linalg.inv(body.base), r[0])


def distances(r: Array) -> Array:
    """(2.4): half the squares, (3,)."""
    return 0.5 * jnp.stack([((r[b] - r[a]) ** 2).sum() for a, b in ((0, 1), (0, 2), (1, 2))])


def third(body: Particles10, r: Array, rd: Array) -> tuple[Array, Array, Array]:
    """Particle 3: its place, and (2.14) as a matrix (3, 9) on the accelerations and a rest (3,)."""
    tau, mu, lam = body.invariants
    one = jnp.eye(3, dtype=r.dtype)
    r21, r41, r42 = r[1] - r[0], r[2] - r[0], r[2] - r[1]
    parts = [(1 - mu - tau) * one + lam * skew(r42), tau * one - lam * skew(r41), mu * one + lam * skew(r21)]
    rest = 2.0 * lam * cross(rd[1] - rd[0], rd[2] - rd[0])
    return r[0] + tau * r21 + mu * r41 + lam * cross(r21, r41), jnp.concatenate(parts, 1), rest


def momentum(body: Particles10, r: Array, rd: Array) -> tuple[Array, Array]:
    """(2.15), (2.16): (G_1; R) as a matrix (6, 9) on the accelerations of particles 1, 2 and 4, and a rest (6,)."""
    r3, by_others, rest = third(body, r, rd)
    shares = jnp.asarray(SHARES, r.dtype)
    m = shares.T @ (body.masses[:, None] * shares)  # m_ab
    levers = jnp.stack([r[0], r[1], r3, r[2]]) - r[0]
    A = jax.vmap(skew)(m @ levers)  # m is symmetric
    force = m.sum(0)[:, None, None] * jnp.eye(3, dtype=r.dtype)
    each = jnp.concatenate([A, force], 1)  # (4, 6, 3)
    direct = jnp.concatenate([each[0], each[1], each[3]], 1)
    return direct + each[2] @ by_others, each[2] @ rest
