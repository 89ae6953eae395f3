"""RECURSIVE: relative coordinates, bodies eliminated one after another (Bae and Haug 1987).

After Wijckmans 1992, chapter 3, appendices A (chains and trees) and B (loops), and Schoenmakers 1991, chapter 2. Body j
hangs on body i by the joint ij:

    V_j  = A V_i + B qd                                                                                         (3.17)
    Vd_j = A Vd_i + B qdd + C               C = Ad V_i + Bd qd                                                  (3.23)
    sum over bodies of du_j . (M_j Vd_j - g_j + phi_j^T lam) = 0                                        (3.31), (3.40)

From the leaves inward, with Mt, gt and phit of body j and of all that hangs on it:

    qdd  = -(B^T Mt B)^-1 (B^T (Mt (A Vd_i + C) - gt + phit^T lam) - tau)                                 (A.9), (B.9)
    Mt_i += A^T (Mt - Mt B (B^T Mt B)^-1 B^T Mt) A                                                        (A.5), (B.4)
    gt_i += A^T (gt - Mt C - Mt B (B^T Mt B)^-1 (B^T (gt - Mt C) + tau))                                  (A.6), (B.5)
    phit_i += phit (1 - B (B^T Mt B)^-1 B^T Mt) A                                                       (3.46), (B.6)

The world is body 0, which does not move (Slaats' way, section 3.4), so that no base acceleration is left to solve for.
The columns phit^T ride along beside gt: with Z the answer to them and a the answer to g,

    qdd = a - Z lam          phi Vd + ... = gamma:          phi Z lam = phi a - gamma                           (3.48)

is one small system of the size of the rows. Where these are redundant, lam is the shortest. The rows of couplings and
drives, and the loads tau at the joints, which the documents do not have, enter at the speeds beside B^T gt.

Cost: O(n) for a tree, O(n nc) with rows. Twists are those of joint frames in their own axes: B = S is often constant.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax

from .._kinematics import qdot
from .._model import Model
from .._spatial._twist import cross_motion
from ._abstract import AbstractFormulation
from ._bodies import (
    absolute,
    by_joint,
    inertias,
    over_bodies,
    pad,
    present,
    small_inverse,
    subspace,
    to_child,
    unpad,
    with_world,
)
from ._elements import applied_loads, connection_loads, rows, shortest


class Joint(eqx.Module):
    """What relates a body to its parent: A, B and C of (3.23), and the loads at the speeds, (w, columns)."""

    A: Array
    B: Array
    C: Array
    tau: Array
    empty: Array  # (w,): 1 where B is padded


class Reduced(eqx.Module):
    """A body that was eliminated: qdd = start - slope Vd_i, for every column."""

    start: Array
    slope: Array


class Recursive(AbstractFormulation):
    """x = q, xd = v: the coordinates and speeds of the model themselves."""

    model: Model

    @property
    def unknowns(self) -> tuple[int, int]:
        return self.model.nq, max(self.model.nc, *self.model.topology.nvs)

    def embed(self, q: Array, v: Array, t: Array) -> tuple[Array, Array]:
        return q, v

    def project(self, x: Array, xd: Array, t: Array, near: Array) -> tuple[Array, Array]:
        return x, xd

    def flow(self, x: Array, xd: Array) -> Array:
        return qdot(self.model, x, xd)

    def accelerate(self, x: Array, xd: Array, tau: Array, t: Array, near: Array, feedback) -> tuple[Array, Array]:
        model, q, v = self.model, x, xd
        bodies = absolute(model, q, v, t)
        F, direct = connection_loads(model, bodies, q, v, t)
        held = rows(model, bodies, q, v, t)
        # Column 0 is the motion without lam, the others what each row of the model does.
        g = jnp.concatenate([applied_loads(model, bodies, F)[..., None], jnp.moveaxis(held.H, 0, -1)], -1)
        at_speeds = jnp.concatenate([(tau + direct)[:, None], held.D.T], 1)
        qdd, Vd = _eliminate(model, _joints(model, q, v, bodies.twist, at_speeds, t), inertias(model), g)
        reached = jnp.einsum("rni,nik->rk", held.H, Vd) + held.D @ qdd
        lam = jnp.zeros(model.nc, q.dtype)
        for _ in range(2 if model.nc else 0):  # (3.48); the second time takes out what its condition has left
            lam = lam + shortest(reached[:, 1:], reached[:, 0] - reached[:, 1:] @ lam - held.wanted(feedback))
        return qdd[:, 0] - qdd[:, 1:] @ lam, lam


def _joints(model: Model, q: Array, v: Array, V: Array, at_speeds: Array, t: Array) -> Joint:
    one = lambda kind, q, v: (kind.pose(q, t), subspace(model, kind, q, t), kind.twist(q, v, t), kind.bias(q, v, t))
    pose, B, twist, bias = over_bodies(by_joint(model, one, (q, "q"), (v, "v")))
    A = to_child(model, pose)[1]
    C = jax.vmap(cross_motion)(V, twist) + bias  # A V_i x B qd = V_j x B qd
    return Joint(A, B, C, pad(model, at_speeds), 1.0 - jnp.asarray(present(model), q.dtype))


def _eliminate(model: Model, joints: Joint, M: Array, g: Array) -> tuple[Array, Array]:
    """qdd (nv, columns) and Vd (n, 6, columns) for all columns of g; C belongs to the first."""
    parent, own = jnp.asarray(model.topology.parent), jnp.arange(1, len(M) + 1)

    def inward(carry, body):
        Mt, gt = carry
        i, j, joint = body
        reduced, M_i, g_i = _reduce(joint, Mt[j], gt[j])
        return (Mt.at[i].add(M_i), gt.at[i].add(g_i)), reduced

    def outward(Vd, body):
        i, j, joint, reduced = body
        carried = joint.A @ Vd[i]
        qdd = reduced.start - reduced.slope @ Vd[i]  # (A.9), (B.9)
        return Vd.at[j].set((carried + joint.B @ qdd).at[:, 0].add(joint.C)), qdd  # (3.23)

    _, reduced = lax.scan(inward, (with_world(M), with_world(g)), (parent, own, joints), reverse=True)
    Vd, qdd = lax.scan(outward, with_world(jnp.zeros_like(g)), (parent, own, joints, reduced))
    return unpad(model, qdd), Vd[1:]


def _reduce(joint: Joint, Mt: Array, gt: Array) -> tuple[Reduced, Array, Array]:
    """What is left of a body at its joint, and what it adds to Mt and gt of its parent."""
    A, B = joint.A, joint.B
    gt = gt.at[:, 0].add(-Mt @ joint.C)
    MB = Mt @ B
    sides = jnp.concatenate([B.T @ gt + joint.tau, MB.T @ A], 1)
    solved = small_inverse((B.T @ MB + jnp.diag(joint.empty))[None])[0] @ sides
    reduced = Reduced(solved[:, : gt.shape[1]], solved[:, gt.shape[1] :])
    M_i = A.T @ (Mt @ A - MB @ reduced.slope)  # (A.5), (B.4)
    return reduced, M_i, A.T @ (gt - MB @ reduced.start)  # (A.6), (B.5), (3.46)
