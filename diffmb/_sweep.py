"""How to walk the tree: the only file that knows in which order bodies are visited, and how that is done fast.

All arrays are (bodies or speeds, components..., batch). About one common point, with one set of axes, going from body
to body changes nothing but the sum, and that is all a sweep has to do:

    outward sum    y_i = y_parent(i) + x_i                         (twists, bias accelerations)
    inward sum     y_i = x_i + sum over children of y_c            (loads, composite inertias); its transpose
    poses          X_i = X_parent(i) @ L_i
    mass solve     M x = b by articulated inertias                 (Bae-Haug elimination, one speed at a time)

With P the parent map, the outward sum solves (1 - P) y = x and the inward sum (1 - P^T) y = x: Sol's location and tree
matrices, S^T T^T = 1. Strategy: a single run wants few kernels, so it multiplies with the dense tree matrix, composes
poses by pointer doubling and factorises M; a batch wants O(n) work on contiguous rows, so it scans.
"""

from collections.abc import Callable
from functools import reduce
from operator import add
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ._spatial._bilinear import WIDE
from ._spatial._pose import Pose
from ._spatial._twist import axial, turn
from ._spatial._vector import combine, cross, join, matvec
from ._tiles import stored
from ._topology import Topology
from ._walk import walk


def each(fun: Callable[..., Any]) -> Callable[..., Any]:
    """`fun` for all bodies (or speeds) at once, its results stored when a program for tiles is made."""
    return stored(jax.vmap(fun))


def wide(batch: int) -> bool:
    """Whether there are enough samples to fill the vector units, so that scanning body by body pays."""
    return batch >= WIDE


def dense(topology: Topology, batch: int) -> bool:
    """The documented choice of the mass solve: dense factorisation for single runs of up to 64 speeds, else O(n)."""
    return not wide(batch) and topology.nv <= 64


# --- sums ---------------------------------------------------------------------------------------------------------


def sum_outward(topology: Topology, x: Array) -> Array:
    """y_i = y_parent(i) + x_i."""
    return _tree_sum(topology, x, outward=True)


def sum_inward(topology: Topology, x: Array) -> Array:
    """y_i = x_i + sum over children of y_c."""
    return _tree_sum(topology, x, outward=False)


def _tree_sum(topology: Topology, x: Array, outward: bool) -> Array:
    n, batch = x.shape[0], x.shape[-1]
    if n <= 32 or (n <= 256 and not wide(batch)):
        paths = jnp.asarray(walk(topology).paths, x.dtype)
        return combine(paths if outward else paths.T, x)
    parent = walk(topology).parent

    def relate(y, direction):  # (1 - P) y, or its transpose
        if direction:
            return y - jnp.where((parent > 0).reshape((-1,) + (1,) * (y.ndim - 1)), y[parent - 1], 0.0)
        return y - jnp.zeros((n + 1, *y.shape[1:]), y.dtype).at[parent].add(y)[1:]

    walks = {True: _walk_outward, False: _walk_inward}
    return lax.custom_linear_solve(
        lambda y: relate(y, outward),
        x,
        lambda _, b: walks[outward](topology, b),
        lambda _, b: walks[not outward](topology, b),
    )


def _walk_outward(topology: Topology, x: Array) -> Array:
    if walk(topology).is_chain:
        return lax.scan(lambda y, x: (y + x, y + x), jnp.zeros_like(x[0]), x)[1]
    return _outward(topology, lambda y, x: y + x, jnp.zeros_like(x[0]), x)


def _walk_inward(topology: Topology, x: Array) -> Array:
    if walk(topology).is_chain:
        return lax.scan(lambda y, x: (y + x, y + x), jnp.zeros_like(x[0]), x, reverse=True)[1]
    index = (jnp.arange(1, x.shape[0] + 1), jnp.asarray(walk(topology).parent))

    def step(total, index):
        here, parent = index
        return total.at[parent].add(total[here]), None

    return lax.scan(step, jnp.concatenate([jnp.zeros_like(x[:1]), x]), index, reverse=True)[0][1:]


def _outward(topology: Topology, rule, root, xs):
    """y_i = rule(y_parent(i), x_i) from the root outward.

    Each turn first stores the result of the turn before and then reads the parent's: in this order XLA updates the
    store in place (in the other order it copies the whole store every turn).
    """
    n = len(topology.bodies)
    store = jax.tree.map(lambda a: jnp.zeros((n + 1, *a.shape), a.dtype), root)

    def step(carry, x):
        store, last = carry
        here, parent, x = x
        store = jax.tree.map(lambda s, a: s.at[here].set(a), store, last)
        return (store, rule(jax.tree.map(lambda s: s[parent], store), x)), None

    (store, last), _ = lax.scan(step, (store, root), (jnp.arange(n), jnp.asarray(walk(topology).parent), xs))
    return jax.tree.map(lambda s, a: s.at[n].set(a)[1:], store, last)


# --- poses --------------------------------------------------------------------------------------------------------


def compose(topology: Topology, local: Pose) -> Pose:
    """X_i = X_parent(i) @ L_i for all bodies.

    Derivative: the world twist of body i is the sum of those of the joints on its path, so the tangent is one outward
    sum and no sweep of products.
    """

    @jax.custom_jvp
    def composed(local: Pose) -> Pose:
        return _compose(topology, local)

    @composed.defjvp
    def rule(primal, tangent):
        (local,), (moved,) = primal, tangent
        world = composed(local)
        centre = lax.stop_gradient(world.translation.mean(0))  # any fixed point will do; a near one loses no digits
        arm = world.translation - centre

        def joint_twist(R_parent, L, dL, arm):
            spin = matvec(R_parent, axial(dL.rotation, L.rotation))
            return join(spin, matvec(R_parent, dL.translation) - cross(spin, arm))

        twist = sum_outward(topology, each(joint_twist)(_parents(topology, world.rotation), local, moved, arm))
        turned = each(lambda V, X: turn(V[:3], X.rotation))(twist, world)
        shifted = each(lambda V, arm: V[3:] + cross(V[:3], arm))(twist, arm)
        return world, Pose(turned, shifted)

    batch = max(local.rotation.shape[-1], local.translation.shape[-1])  # one of them may not move with the batch
    return composed(jax.tree.map(lambda a: jnp.broadcast_to(a, (*a.shape[:-1], batch)), local))


def _parents(topology: Topology, rotation: Array) -> Array:
    """Each body's parent's rotation; the world's is the identity."""
    root = jnp.broadcast_to(jnp.eye(3, dtype=rotation.dtype)[None, :, :, None], (1, *rotation.shape[1:]))
    return take(jnp.concatenate([root, rotation]), walk(topology).parent)


def _compose(topology: Topology, local: Pose) -> Pose:
    batch = local.rotation.shape[-1]
    if not wide(batch):
        return _compose_by_doubling(topology, local)
    root = Pose(
        jnp.broadcast_to(jnp.eye(3, dtype=local.rotation.dtype)[..., None], local.rotation.shape[1:]),
        jnp.zeros_like(local.translation[0]),
    )

    def rule(X, L):  # products as multiply-and-sum: inside a scan this is the faster form
        R = (X.rotation[:, :, None] * L.rotation[None]).sum(1)
        return Pose(R, X.translation + (X.rotation * L.translation[None]).sum(1))

    if walk(topology).is_chain:

        def step(X, L):
            X = rule(X, L)
            return X, X

        return lax.scan(step, root, local)[1]
    return _outward(topology, rule, root, local)


def _compose_by_doubling(topology: Topology, X: Pose) -> Pose:
    """After round k each pose spans 2^k joints: log2(depth) products over all bodies at once."""
    ancestor = walk(topology).parent
    for _ in range(walk(topology).rounds):
        inner = jax.tree.map(lambda a: a[ancestor - 1], X)
        attached = (ancestor > 0)[:, None, None]
        joined = each(Pose.__matmul__)(inner, X)
        X = Pose(
            jnp.where(attached[..., None], joined.rotation, X.rotation),
            jnp.where(attached, joined.translation, X.translation),
        )
        ancestor = np.where(ancestor > 0, ancestor[ancestor - 1], 0)
    return X


# --- mass solve ---------------------------------------------------------------------------------------------------


def articulated_solve(topology: Topology, S: Array, inertia: Array, load: Array, b: Array) -> Array:
    """x with M x = b - S^T (inward sum of load), by eliminating one speed after another from the tips inward.

    Bae and Haug 1987 in the form of theory section 3, about one common point (A = 1) and one column s of B at a time:

        y = Mt s        Mt' = Mt - y y^T / s.y        g' = g + y (b_j - s.g) / s.y
        x_j = (b_j - s.g - y.A_parent) / s.y

    for k right-hand sides at once (the loop's rows ride along: Wijckmans 1992, 3.5). Mt and the g travel as one array
    of 6 x (6 + k). S (nv, 6, batch), inertia (n, 6, 6, batch), load (n, 6, k, batch), b (nv, k, batch).
    """
    carried = per_speed(topology, jnp.concatenate([inertia, load], 2))  # what each speed carries itself
    w = _eliminate_inward(topology, carried, S, b)
    return _accelerate_outward(topology, w, S)


def _eliminate(Mg: Array, s: Array, b: Array) -> tuple[Array, Array]:
    """What is left of (Mt, g) without the speed, and (y, s.g - b) / s.y, with which the speed is found afterwards."""
    y = (Mg * s[:, None]).sum(0)
    w = jnp.concatenate([y[:6], y[6:] - b]) / (y[:6] * s).sum(0)
    return Mg - y[:6, None] * w[None], w


def _eliminate_inward(topology: Topology, carried: Array, S: Array, b: Array) -> Array:
    if walk(topology).speeds_are_chain:

        def step(Mg, x):
            carried, s, b = x
            return _eliminate(Mg + carried, s, b)

        return lax.scan(step, jnp.zeros_like(carried[0]), (carried, S, b), reverse=True)[1]

    def step_to_parent(store, x):
        here, parent, s, b = x
        rest, w = _eliminate(store[here], s, b)
        return store.at[parent].add(rest), w

    store = jnp.concatenate([jnp.zeros_like(carried[:1]), carried])
    here, parent = jnp.arange(1, topology.nv + 1), jnp.asarray(walk(topology).speed_parent)
    return lax.scan(step_to_parent, store, (here, parent, S, b), reverse=True)[1]


def _accelerate_outward(topology: Topology, w: Array, S: Array) -> Array:
    if walk(topology).speeds_are_chain:
        return lax.scan(lambda A, x: _accelerate(A, *x), _still(w, S), (w, S))[1]

    def step_from_parent(carry, x):  # stores first, then reads: see _outward
        store, last = carry
        here, parent, w, s = x
        store = store.at[here].set(last)
        A, x = _accelerate(store[parent], w, s)
        return (store, A), x

    root = _still(w, S)
    store = jnp.zeros((topology.nv + 1, *root.shape), S.dtype)
    here, parent = jnp.arange(topology.nv), jnp.asarray(walk(topology).speed_parent)
    return lax.scan(step_from_parent, (store, root), (here, parent, w, S))[1]


def _still(w: Array, S: Array) -> Array:
    """The world's acceleration for each right-hand side, (6, k, batch)."""
    return jnp.zeros((6, w.shape[1] - 6, w.shape[-1]), S.dtype)


def _accelerate(A: Array, w: Array, s: Array) -> tuple[Array, Array]:
    x = -w[6:] - (w[:6, None] * A).sum(0)
    return A + s[:, None] * x[None], x


def take(x: Array, index: np.ndarray) -> Array:
    """x[index] along the first axis, for a static index whose transpose is no scatter (slow on CPU) if it is short."""
    index = np.asarray(index)
    if index.shape == x.shape[:1] and (index == np.arange(x.shape[0])).all():
        return x
    if x.shape[0] > 64:
        return x[index]
    chosen = jnp.asarray(index.reshape(-1, 1) % x.shape[0] == np.arange(x.shape[0]), x.dtype)
    return combine(chosen, x).reshape(*index.shape, *x.shape[1:])


def per_speed(topology: Topology, bodies: Array) -> Array:
    """Body quantities added up at the speed on which the bodies ride."""
    return _add_up(bodies, walk(topology).riders)


def per_body(topology: Topology, speeds: Array) -> Array:
    """Speed quantities added up over the speeds of each body's joint."""
    return _add_up(speeds, walk(topology).movers)


def _add_up(x: Array, members: tuple[tuple[int, ...], ...]) -> Array:
    """Row r of the result is the sum of the rows members[r] of x, without a scatter."""
    if members == tuple((i,) for i in range(x.shape[0])):
        return x
    most = max(map(len, members), default=0)
    padded = jnp.concatenate([x, jnp.zeros_like(x[:1]) if x.shape[0] else jnp.zeros((1, *x.shape[1:]), x.dtype)])
    index = np.array([m + (x.shape[0],) * (max(most, 1) - len(m)) for m in members], int)
    return reduce(add, [padded[index[:, k]] for k in range(max(most, 1))])
