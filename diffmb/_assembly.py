"""ASSEMBLY: the consistent (q, v) nearest to a guess.

    q = retract(q0, d)      d = argmin d.W d / 2    subject to    phi(t, q) = 0,    d = 0 where coordinates are held (1)
    W d + G^T lam = 0       d = difference(q0, q)   phi = 0                                                          (2)
    v = argmin (v - v0).M (v - v0) / 2              subject to    G v = nu,         held speeds                      (3)

W is the mass matrix at the guess, or the user's weights: what is heavy moves little. (1) is solved by damped
Gauss-Newton steps with a line search, from the guess and, when that fails, from starts scattered around it. The
derivative of q is that of (2) at the solution (implicit function theorem; redundant rows at fixed rank), so the
assembled state follows geometry, held coordinates and time exactly, whatever the iterations were.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ._checks import as_model, as_time, check_coordinates, check_finite, check_named, check_speeds, on_host
from ._closing import MarkerGroup
from ._closure import constraint_jacobian, constraint_rate, constraint_residual, residual_and_jacobian
from ._dynamics import mass_matrix
from ._errors import MechanismError
from ._kinematics import difference, qdot, retract
from ._known import with_known
from ._model import Model
from ._pseudo_inverse import pseudo_inverse
from ._spatial._axis import is_concrete

_SCATTER = (0.0, 0.1, 0.3, 0.6, 1.0, 1.0, 1.5, 1.5)  # how far the starts lie from the guess, rad or m
_STEPS = 200  # of one start
_LONGEST = 0.5  # rad or m, of one step: longer ones leap to other branches


class State(eqx.Module):
    """A consistent state, and how it was found.

    - `q`, `v`, `t`: coordinates, speeds, time.
    - `residual`: largest |phi| left, m or sine of an angle; `rate_residual`: largest |G v - nu|.
    - `iterations`: steps taken, over all starts.
    - `branch`: 1 if the mechanism closed on the side of the guess, -1 if it passed a singular attitude on the way and
        is mirrored, 0 if that cannot be said (freedom is left, or the guess is singular).
    - `ok`: whether it closed.
    """

    q: Array
    v: Array
    t: Array
    residual: Array
    rate_residual: Array
    iterations: Array
    branch: Array
    ok: Array


def assemble(
    model: Any,
    q: Any = None,
    v: Any = None,
    *,
    guess: Any = None,
    t: Any = 0.0,
    weights: Any = None,
    throw: bool = True,
) -> State:
    """Puts (q, v) on the constraint manifold.

    **Arguments:**

    - `model`: from `mb.compile`.
    - `q`: coordinates by joint name, which are held: `{"A": 0.5}`. An array (nq,) is a guess of all instead.
    - `v`: speeds by joint name, which are held, or an array (nv,) as a guess of all; zero by default.
    - `guess`: coordinates by joint name to start from, neutral by default; these move. They choose the branch.
    - `t`: time, s; it matters to drives and rheonomic elements.
    - `weights`: how much each joint resists being moved, by name, 1 by default; without it the mass matrix weighs.
    - `throw`: whether a mechanism that does not close is an error; else look at `state.ok`.
    """
    model = as_model(model)
    _refuse(model, q, v, guess, t, weights)
    start = model.pack(dict(guess or {})) if q is None or isinstance(q, Mapping) else check_coordinates(model, q)
    start = start.astype(model.mass.dtype)
    held = dict(q) if isinstance(q, Mapping) else {}
    start = model.pack(held, start)
    held_v = dict(v) if isinstance(v, Mapping) else {}
    speeds = jnp.zeros(model.nv, start.dtype) if isinstance(v, Mapping) else check_speeds(model, "v", v, start)
    for name, value in held_v.items():
        where = model.speeds(name)
        value = jnp.broadcast_to(jnp.asarray(value, start.dtype), (where.stop - where.start,))
        speeds = speeds.at[where].set(value)
    t = as_time(t, start)
    W = None if weights is None else _weights(model, weights, start)
    state = _assemble(with_known(model), start, speeds, W, t, _free(model, held, start), _free(model, held_v, start))
    if not throw:
        return state
    if is_concrete(state.ok):
        if not bool(state.ok):
            raise MechanismError(_failure(model, state, held, held_v))
        return state
    message = "a mechanism cannot be assembled; call mb.assemble outside of jax.jit to see which loop stays open"
    return eqx.tree_at(lambda s: s.q, state, eqx.error_if(state.q, ~state.ok, message))


def _refuse(model: Model, q: Any, v: Any, guess: Any, t: Any, weights: Any) -> None:
    """What cannot be meant."""
    check_named("guess", guess)
    check_named("weights", weights)
    for title, value in (("q", q), ("v", v)):
        if isinstance(value, Mapping):
            check_named(title, value)
        elif value is not None:
            check_finite(title, on_host(title, value, "give an array, or a dict by joint name"))
    check_finite("t", on_host("t", t, "give a time in seconds"))
    for name, value in (v.items() if isinstance(v, Mapping) else ()):
        size = model.speeds(name).stop - model.speeds(name).start
        if np.shape(value) not in ((), (size,)):
            raise MechanismError(f"joint {name!r} has {size} speeds, but v has shape {np.shape(value)} for it")


def _free(model: Model, held: Mapping[str, Any], like: Array) -> Array:
    """1 for speeds that may move, 0 for those of held joints."""
    free = np.ones(model.nv)
    for name in held:
        free[model.speeds(name)] = 0.0
    return jnp.asarray(free, like.dtype)


def _weights(model: Model, weights: Mapping[str, Any], like: Array) -> Array:
    diagonal = jnp.ones(model.nv, like.dtype)
    for name, value in weights.items():
        if is_concrete(value) and not np.all(np.asarray(value) > 0):
            raise MechanismError(f"the weight of joint {name!r} is {value}; weights are positive")
        diagonal = diagonal.at[model.speeds(name)].set(jnp.asarray(value, like.dtype))
    return jnp.diag(diagonal)


@jax.jit
def _assemble(model: Model, q0: Array, v0: Array, W, t: Array, free: Array, free_v: Array) -> State:
    W = mass_matrix(model, q0, t) if W is None else W
    q, (norm, iterations) = close(True, model, q0, W, t, free)
    G0, G = jax.vmap(lambda q: constraint_jacobian(model, q, t))(jnp.stack([q0, q]))
    v, rate = closest_speeds(model, mass_matrix(model, q, t), G, q, v0, t, free_v)
    ok = (norm <= tolerance(q.dtype)) & (rate <= 1e3 * tolerance(q.dtype) * (1.0 + _largest(v)))
    return State(q, v, t, norm, rate, iterations.astype(int), same_side(model, G0, G, free), ok)


def tolerance(dtype) -> float:
    """What counts as closed, m or sine of an angle: 1e-9 in double precision."""
    return 1e-9 if np.finfo(dtype).eps < 1e-12 else 2e-5


def _largest(x: Array) -> Array:
    return jnp.abs(x).max(initial=0.0)


def same_side(model: Model, G0: Array, G: Array, free: Array) -> Array:
    """The sign of det(J0^T J): -1 when the columns of J turned over on the way from one attitude to another."""
    rows = np.flatnonzero(model.levels == 0)
    J0, J = (lax.stop_gradient(x)[rows] * free for x in (G0, G))
    J0, J = (J / jnp.sqrt(jnp.maximum((J * J).sum(0), np.finfo(J.dtype).tiny)) for J in (J0, J))
    det = jnp.linalg.det(J0.T @ J + jnp.diag(1.0 - free))
    return jnp.where((jnp.abs(det) > 1e-9) & (free.sum() > 0), jnp.sign(det), 0.0).astype(int)


# --- positions ----------------------------------------------------------------------------------------------------


def _metric(W: Array, free: Array) -> Array:
    """W on the free speeds, one on the held ones, which do not move."""
    return W * free[:, None] * free + jnp.diag(1.0 - free)


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def close(scatter: bool, model: Model, q0: Array, W: Array, t: Array, free: Array):
    """q of (1), and (largest residual, iterations)."""
    if not (model.levels == 0).any():
        return q0, (jnp.zeros((), q0.dtype), jnp.zeros((), q0.dtype))
    rows = np.flatnonzero(model.levels == 0)
    phi = lambda q: constraint_residual(model, q, t)
    root = jnp.linalg.cholesky(_metric(W, free))
    noise = np.random.default_rng(0).standard_normal((len(_SCATTER), model.nv)) * np.asarray(_SCATTER)[:, None]
    starts = jnp.asarray(noise if scatter else noise[:1], q0.dtype) * free
    scales = 0.5 ** jnp.arange(6.0, dtype=q0.dtype)
    accept, eps = tolerance(q0.dtype), np.finfo(q0.dtype).eps

    def turn(carry):
        start, count, total, q, last, _, best = carry
        value, G = residual_and_jacobian(model, q, t)
        d = difference(model, q0, q) * free
        norm = _largest(value)
        on = norm <= accept
        step, along = _steps(value, G[rows] * free, root, d, norm)
        # On the manifold: slide towards the guess (Barzilai-Borwein steps). Off it: close, with a line search.
        slide = jnp.where(on, _largest(along), jnp.inf)
        far = slide > 1e2 * eps * (1.0 + _largest(d))
        moved, changed = root.T @ (d - last[0]), root.T @ (along - last[1])
        ratio = (moved @ moved) / jnp.maximum(moved @ changed, 0.2 * (moved @ moved) + np.finfo(q0.dtype).tiny)
        ratio = jnp.where(jnp.isfinite(ratio) & (ratio > 0) & far, ratio, jnp.where(far, 1.0, 0.0))
        steps = scales[:, None] * step - jnp.where(on, ratio, 0.0) * along
        candidates = jax.vmap(lambda step: retract(model, q, step))(steps)
        norms = jax.vmap(lambda q: _largest(phi(q)))(candidates)
        norms = jnp.where(jnp.isfinite(norms), norms, jnp.inf)
        good = jnp.where(on, 0, jnp.argmax((norms < 0.9 * norm) | (norms == norms.min())))
        better = jnp.where(jnp.isfinite(best[2]), slide < best[2], on) | ((~on | ~far) & (norm < best[1]))
        best = jax.tree.map(lambda new, old: jnp.where(better, new, old), (q, norm, slide), best)
        goes_on = jnp.where(on, far | (norms[0] < 0.5 * norm), norms[good] < norm) & (count < _STEPS)
        again = ~goes_on & (best[1] > accept) & (start + 1 < len(starts))
        last = jax.tree.map(lambda new, old: jnp.where(on, new, old), (d, along), last)
        fresh = retract(model, q0, starts[jnp.minimum(start + 1, len(starts) - 1)]) if scatter else q
        q = jnp.where(again, fresh, candidates[good])
        return start + again, jnp.where(again, 0, count + 1), total + 1, q, last, ~goes_on & ~again, best

    never, none = jnp.asarray(jnp.inf, q0.dtype), jnp.asarray(0)
    carry = (none, none, none, q0, (starts[0], starts[0]), jnp.asarray(False), (q0, never, never))
    *_, total, _, _, _, (q, norm, _) = lax.while_loop(lambda c: ~c[5], turn, carry)
    return q, (norm, total.astype(q0.dtype))


def _steps(value: Array, J: Array, root: Array, d: Array, norm: Array) -> tuple[Array, Array]:
    """The shortest step to the linearised manifold, by damped singular values, and the part of d along it."""
    Y = jax.scipy.linalg.solve_triangular(root, J.T, lower=True)
    U, s, Vt = jnp.linalg.svd(Y, full_matrices=False)  # Y = U s Vt: U in the space of steps
    damping = s.max() ** 2 * jnp.minimum(1e-4, norm * norm)
    cut = np.finfo(d.dtype).eps ** 0.375 * s.max()
    gain = jnp.where(s > cut, s / (s * s + damping), 0.0)
    scaled = root.T @ d
    along = scaled - U @ jnp.where(s > cut, U.T @ scaled, 0.0)
    back = lambda x: jax.scipy.linalg.solve_triangular(root.T, x, lower=False)
    step = back(-U @ (gain * (Vt @ value)))
    return step * jnp.minimum(1.0, _LONGEST / jnp.maximum(_largest(step), _LONGEST)), back(along)


@close.defjvp
def _close_rule(scatter, primals, tangents):
    """(2) differentiated along q: first q follows the guess with d fixed, then it is put right with the guess fixed."""
    model, q0, W, t, free = primals
    dmodel, dq0, dW, dt, _ = tangents
    q, stats = close(scatter, *primals)
    zeros = jax.tree.map(jnp.zeros_like, stats)
    rows = np.flatnonzero(model.levels == 0)
    if len(rows) == 0:
        return (q, stats), (dq0, zeros)
    metric = _metric(W, free)
    d, J = difference(model, q0, q) * free, constraint_jacobian(model, q, t)[rows]
    lam = -pseudo_inverse((J * free @ jnp.linalg.solve(metric, (J * free).T))[..., None])[..., 0] @ (J * free @ d)
    load = lambda model, q, t: constraint_jacobian(model, q, t)[rows].T @ lam
    units = jnp.eye(model.nv, dtype=q.dtype)
    turn = lambda fun: jax.vmap(lambda u: jax.jvp(fun, (q,), (qdot(model, q, u),))[1], 0, 1)(units)
    D = turn(lambda q: difference(model, q0, q))
    follow = -jnp.linalg.solve(D, jax.jvp(lambda q0: difference(model, q0, q), (q0,), (dq0,))[1])
    moved = _rate(model, q, follow)
    dR1 = jax.jvp(load, (model, q, t), (dmodel, moved, dt))[1] + (dW * free[:, None] * free) @ d
    dR2 = jax.jvp(constraint_residual, (model, q, t), (dmodel, moved, dt))[1]
    H = _metric((W * free[:, None] * free) @ D + turn(lambda q: load(model, q, t)), free)
    right = _kkt_step(metric, H, J * free, -dR1 * free, -dR2)
    return (q, stats), (_rate(model, q, follow + right * free), zeros)


def _rate(model: Model, q: Array, step: Array) -> Array:
    """N(q) step, as a tangent map: linear in the step, so that it can be transposed."""
    return jax.jvp(lambda step: qdot(model, q, step), (jnp.zeros_like(step),), (step,))[1]


def _kkt_step(W: Array, H: Array, J: Array, r1: Array, r2: Array) -> Array:
    """dd: the shortest that satisfies J dd = r2, plus what r1 and H ask for along the manifold."""
    one = jnp.eye(len(W), dtype=W.dtype)
    Z = jnp.linalg.solve(W, J.T)
    A_plus = pseudo_inverse((J @ Z)[..., None])[..., 0]
    across = Z @ (A_plus @ r2)
    off = Z @ A_plus @ J  # projects off the manifold, 1 - off along it
    along = (one - off).T @ H @ (one - off) + off.T @ W @ off
    return across + (one - off) @ jnp.linalg.solve(along, (one - off).T @ (r1 - H @ across))


# --- speeds -------------------------------------------------------------------------------------------------------


def closest_speeds(model: Model, M, G, q, v0: Array, t, free: Array) -> tuple[Array, Array]:
    """(3), and the largest |G v - nu| left; M and G at (q, t)."""
    rows = np.flatnonzero(model.levels <= 1)
    if len(rows) == 0:
        return v0, jnp.zeros((), v0.dtype)
    G = G[rows]
    open_rate = constraint_rate(model, q, v0, t)
    step = shortest(_metric(M, free), G * free, -open_rate)
    return v0 + step, _largest(open_rate + G @ step)


def shortest(W: Array, G: Array, b: Array) -> Array:
    """The x of G x = b that is shortest in the metric W; rows may be redundant."""
    if G.shape[0] == 0:
        return jnp.zeros(W.shape[0], W.dtype)
    Z = jnp.linalg.solve(W, G.T)
    A_plus = pseudo_inverse((G @ Z)[..., None])[..., 0]
    x = Z @ (A_plus @ b)
    return x + Z @ (A_plus @ (b - G @ x))  # removes what the conditioning of the first has left


# --- words --------------------------------------------------------------------------------------------------------


def _failure(model: Model, state: State, held: Mapping, held_v: Mapping) -> str:
    """Which element stays open, by how much, and what to do."""
    if float(state.residual) > tolerance(state.q.dtype) or not np.isfinite(float(state.residual)):
        rows = np.abs(np.asarray(constraint_residual(model, state.q, state.t)))
        names = [n for n, level in zip(model.row_names, model.levels, strict=True) if level == 0]
        kept = f" with {', '.join(map(repr, held))} held" if held else ""
        advice = "let it move (guess=) or " if held else "give a better guess=, or "
        return (
            f"the mechanism does not close{kept}: {describe_worst(model, names, rows)} after {int(state.iterations)} "
            f"steps from {len(_SCATTER)} starts; {advice}check lengths, markers and axes of that loop"
        )
    rows = np.abs(np.asarray(constraint_rate(model, state.q, state.v, state.t)))
    names = [n for n, level in zip(model.row_names, model.levels, strict=True) if level <= 1]
    kept = f" with the speeds of {', '.join(map(repr, held_v))} held" if held_v else ""
    return (
        f"no speeds satisfy the constraints{kept}: {describe_worst(model, names, rows)}/s; "
        "two drives or held speeds contradict each other here, or the attitude is singular"
    )


def describe_worst(model: Model, names: list[str], rows: np.ndarray) -> str:
    """The row that is most open, in words, with the way round its loop."""
    worst = int(np.argmax(np.where(np.isfinite(rows), rows, np.inf)))
    return f"{names[worst]!r}{_loop(model, names[worst].split(':')[0])} stays open by {rows[worst]:.3g}"


def _loop(model: Model, name: str) -> str:
    for group in model.closing:
        for k, own in enumerate(group.names):
            if own[0] == name and isinstance(group, MarkerGroup):
                a, b = (model.topology.path(end + 1) for end in group.ends[k])
                shared = sum(x == y for x, y in zip(a, b, strict=False))
                way = [*a[shared - 1 :], *reversed(b[shared:])] if shared else [*a, *reversed(b)]
                return f" (loop {' - '.join(way)})"
    return ""
