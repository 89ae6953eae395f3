"""EQUILIBRIUM: where a mechanism can stay, loops closed, drives followed and connections at rest.

    phi(t, q) = 0        zdot(t, q, v, z, u) = 0        F + G^T lam = 0        F = M vd + c - tau                   (1)
    G v = nu             G vd = gamma                   v, vd: the smallest that drives ask for

so that v = vd = 0 if nothing is driven to move; if something is, (1) is equilibrium relative to it (a governor). With
P, P_h the projectors on the motions that all rows, and those of position level, allow, Newton's step in (q, z) is

    [ P K + s (1 - P_h)   P B ] [ d ]     [ P F + s G_h+ phi ]       K = dF/dq + d(G^T lam)/dq, lam fixed
    [       Z_q           Z_z ] [ e ] = - [       zdot       ]       B = dF/dz                                     (2)

in coordinates scaled by the roots of the inertias, by pseudo-inverse: what is indifferent (a place on a plane, a free
turn) stays where the guess has it. A stable equilibrium is one to which a heavily damped mechanism creeps, whatever its
loads; so K is turned over where it is negative (its symmetric part, with zdot = 0), steps are shortened until the load
along them does not push back, and a balance that is not stable is left along its weakest direction.

The derivative is (2) once more (implicit function theorem, at fixed rank): it follows every number exactly.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ._assembly import State, close, describe_worst, tolerance
from ._balance import Case, System, at_rest, forces, motion_of_drives, put_right, rows, step_of, system
from ._checks import as_switches, as_time, check_coordinates, check_states
from ._closure import constraint_residual
from ._constrained import Dynamics
from ._dynamics import mass_matrix
from ._errors import MechanismError
from ._fixed_rank import pinv, row_tolerance
from ._independent import held_rows
from ._inputs import as_inputs
from ._kinematics import qdot, retract
from ._mobility import speed_names
from ._model import Model
from ._spatial._axis import is_concrete
from ._tiles import over_rows

_STEPS = 200
_LONGEST = 0.4  # rad or m, of one step
_ESCAPES = 6
_KICK = 0.1  # rad or m, away from a balance that is not stable
_SHORTER = 8  # how often a step is halved


class Equilibrium(eqx.Module):
    """An equilibrium, and how it was found.

    - `q`, `v`, `z`, `t`: coordinates, speeds (zero unless drives move), states of connections, time.
    - `residual`: the largest load that is not balanced, N or N m; `closure`: the largest |phi|, `rest`: largest |zdot|.
    - `stable`: whether no motion left free is pushed away by the loads (by stiffness; `mb.linearise` tells the rest).
    - `indifferent`: how many ways to move change no load.
    - `iterations`, `ok`: steps taken, and whether it is one.

    `eq.load("motor")` is what a drive, or what holds a joint, exerts; `eq.multipliers("C")` those of a cut joint.
    """

    q: Array
    v: Array
    z: Array
    t: Array
    residual: Array
    closure: Array
    rest: Array
    stable: Array
    indifferent: Array
    iterations: Array
    ok: Array
    reactions: Dynamics

    def multipliers(self, name: str) -> Array:
        return self.reactions.multipliers(name)

    def load(self, name: str) -> Array:
        return self.reactions.load(name)

    @property
    def state(self) -> State:
        """As `mb.simulate` takes it; give it z=eq.z if connections have states."""
        zero = jnp.zeros_like(self.closure)
        return State(self.q, self.v, self.t, self.closure, zero, self.iterations, jnp.asarray(0), self.ok)


def equilibrium(
    model: Model,
    guess: Mapping[str, Any] | Array | State | Equilibrium | None = None,
    *,
    hold: Mapping[str, Any] | None = None,
    t: Any = 0.0,
    z: Any = None,
    inputs: Mapping[str, Any] | None = None,
    off: Any = (),
    stable: bool = True,
    throw: bool = True,
) -> Equilibrium:
    """Where a mechanism can stay.

    **Arguments:**

    - `guess`: coordinates by joint name or (nq,), or a state, to start from; neutral by default.
    - `hold`: coordinates by joint name that are held; `eq.load(name)` is what that takes.
    - `t`: time, s. What drives prescribe then, speeds included, is followed.
    - `z`: guess of the states of connections, by default those from which they start.
    - `inputs`: loads at joints and inputs of connections by name, as in `mb.simulate`.
    - `off`: names of what is switched off.
    - `stable`: look for a stable one, along the way that a heavily damped mechanism takes; False: for the nearest.
    - `throw`: whether it is an error if there is none; else look at `eq.ok`.

    Differentiable with respect to every number of the model, held coordinates, inputs and time. What is indifferent
    stays where the guess has it, and does not follow anything.
    """
    case, q, z = _case(model, guess, hold, t, z, inputs, off)
    *found, vd, lam = _equilibrium(stable, case, q, z)
    elements = [(name, part.start, part.stop) for name, part in model.elements.items()]
    elements += [(name, model.nc + model.speeds(name).start, model.nc + model.speeds(name).stop) for name in hold or ()]
    eq = Equilibrium(*found, reactions=Dynamics(vd, lam, tuple(elements)))
    if not throw:
        return eq
    if is_concrete(eq.ok):
        if not bool(eq.ok):
            raise MechanismError(_failure(case, eq))
        return eq
    message = "a mechanism finds no equilibrium; call mb.equilibrium outside of jax.jit to see what is not balanced"
    return eqx.tree_at(lambda e: e.q, eq, eqx.error_if(eq.q, ~eq.ok, message))


def _case(model: Model, guess, hold, t, z, inputs, off) -> tuple[Case, Array, Array]:
    """The user's arguments as a case, and the guess."""
    if guess is None or isinstance(guess, Mapping):
        q = model.pack(dict(guess or {}))
    else:
        q = check_coordinates(model, getattr(guess, "q", guess))
        z = getattr(guess, "z", None) if z is None else z
    hold = dict(hold or {})
    q = model.pack(hold, q)
    held, held_q = np.zeros(model.nv), np.zeros(model.nq)
    for name in hold:
        held[model.speeds(name)], held_q[model.coordinates(name)] = 1.0, 1.0
    t = as_time(t, q)
    tau, u = as_inputs(model, inputs, q[:0])(t)
    inertia = lax.stop_gradient(jnp.diag(mass_matrix(model, q, t)))
    D = jnp.sqrt(jnp.maximum(inertia, 1e-6 * inertia.mean()))
    numbers = (q, jnp.asarray(held, q.dtype), jnp.asarray(held_q, q.dtype), D)
    return Case(model, t, tau, u, as_switches(model, off, q), *numbers, at_rest(model)), q, check_states(model, z, q)


class _Seen(eqx.Module):
    """What the last look at (2) showed: the lowest stiffness if it is negative, else 0; indifferent motions; the
    largest load that a step of one would make, and the same for zdot."""

    low: Array
    indifferent: Array
    stiff: Array
    fast: Array


@partial(jax.jit, static_argnums=0)
def _equilibrium(stable: bool, case: Case, q0: Array, z0: Array) -> tuple:
    (q, z), (count, settled, seen) = _find(stable, case, q0, z0)
    model, small = case.model, np.finfo(q0.dtype).eps ** 0.5
    v, vd = motion_of_drives(case, q)
    F, zd, size = forces(case, q, z)
    G = jnp.concatenate([held_rows(model, q, case.t, case.on)[0], jnp.diag(case.held)])
    plus = pinv(G, row_tolerance(q.dtype)).T
    lam = -plus @ F
    lam = lam - plus @ (F + G.T @ lam)
    residual, closure, rest = lax.stop_gradient(_left(case, q, F + G.T @ lam, zd))
    ok = settled & (closure <= tolerance(q.dtype)) & jnp.isfinite(q).all() & jnp.isfinite(z).all()
    ok = ok & (residual <= small * (size.max(initial=0.0) + 0.1 * seen.stiff))
    ok = ok & (rest <= small * seen.fast * (1.0 + jnp.abs(z).max(initial=0.0)))
    stats = (residual, closure, rest, seen.low >= 0.0, seen.indifferent, count, ok)
    return q, v, z, case.t, *stats, vd, lam


def _left(case: Case, q: Array, F: Array, zd: Array) -> tuple[Array, Array, Array]:
    """The largest unbalanced load, |phi| and |zdot|."""
    largest = lambda x: jnp.abs(x).max(initial=0.0)
    closure = constraint_residual(case.model, q, case.t)
    if case.on is not None and case.model.nc:
        closure = closure * case.on[case.model.row_switch[case.model.levels == 0]]
    return largest(F), largest(closure), largest(zd[: case.model.nz])


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _find(stable: bool, case: Case, q0: Array, z0: Array):
    """(q, z), and (iterations, whether steps came to an end, what was seen last)."""
    start, _ = close(True, case.model, q0, mass_matrix(case.model, q0, case.t), case.t, 1.0 - case.held)
    small = np.finfo(q0.dtype).eps ** 0.5

    def turn(carry):
        q, z, count, quiet, escapes, _ = carry
        here = system(case, q, z)
        values, shapes = _stiffnesses(here)
        seen = _seen(case, here, values)
        y, e = _direction(stable, case, here, values, shapes)
        size = jnp.maximum(_largest(y / case.D), _largest(e) / (1.0 + _largest(z)))
        leave = stable & (size <= small) & (seen.low < 0) & (escapes < _ESCAPES)
        kick = shapes[:, 0] * (_KICK / _largest(shapes[:, 0] / case.D))
        q, z = _along(stable, case, here, q, z, jnp.where(leave, kick, y), e, size <= small)
        return q, z, count + 1, jnp.where((size <= small) & ~leave, quiet + 1, 0), escapes + leave, seen

    def goes_on(carry):
        q, z, count, quiet, _, _ = carry
        return (quiet < 3) & (count < _STEPS) & jnp.isfinite(q).all() & jnp.isfinite(z).all()

    none = jnp.asarray(0)
    seen = _Seen(*(jnp.zeros((), q0.dtype), none, jnp.zeros((), q0.dtype), jnp.zeros((), q0.dtype)))
    q, z, count, quiet, _, seen = lax.while_loop(goes_on, turn, (start, z0, none, none, none, seen))
    return (q, z), (count, quiet >= 3, seen)


def _largest(x: Array) -> Array:
    return jnp.abs(x).max(initial=0.0)


def _stiffnesses(here: System) -> tuple[Array, Array]:
    """Eigenvalues and vectors of the symmetric part of K on the free motions, lowest first; others are lifted."""
    lifted = 10.0 * (jnp.abs(here.K).max() + here.s) * (jnp.eye(len(here.P), dtype=here.P.dtype) - here.P)
    K = here.P @ (here.K + here.K.T) @ here.P / 2
    return jnp.linalg.eigh(jnp.where(jnp.isfinite(K), K, 0.0) + lifted)


def _seen(case: Case, here: System, values: Array) -> _Seen:
    nv, eps = case.model.nv, np.finfo(values.dtype).eps
    largest = jnp.abs(here.K).max()
    low = jnp.where(values[0] < -1e5 * eps * largest, values[0], 0.0)
    indifferent = (jnp.abs(values) <= 1e4 * eps * largest).sum()
    stiff = _largest(here.slopes[:nv, :nv] * case.D[:, None] * case.D)
    return _Seen(low, indifferent, stiff, _largest(here.slopes[nv:]))


def _direction(stable: bool, case: Case, here: System, values: Array, shapes: Array) -> tuple[Array, Array]:
    """(y, e): Newton's step of (2), no longer than allowed; towards a stable equilibrium K is turned over where it is
    negative, and raised where it is too soft for the load."""
    nv, A = case.model.nv, here.A
    if stable:
        room = _LONGEST / jnp.maximum(jnp.abs(shapes / case.D[:, None]).max(0), np.finfo(A.dtype).tiny)
        least = jnp.maximum(jnp.abs(values), jnp.abs(shapes.T @ here.loads) / room)
        A = A.at[:nv, :nv].add(here.P @ (shapes * (least - values)) @ shapes.T)
    step = step_of(A, here.r, nv)
    step = step * jnp.minimum(1.0, _LONGEST / jnp.maximum(_largest(step[:nv] / case.D), _LONGEST))
    return step[:nv], step[nv:]


def _along(stable: bool, case: Case, here: System, q, z, y, e, tiny: Array) -> tuple[Array, Array]:
    """The longest part of the step that closes and after which the load along it does not push back; if the nearest
    equilibrium is wanted, that reduces what is left. Tiny steps are taken as they are."""
    size = lambda loads, zd: jnp.sqrt(loads @ loads + (zd @ zd if case.model.nz else 0.0))

    def try_out(part):
        near, gap = put_right(case, retract(case.model, q, part * y / case.D))
        states = z + part * e
        F, zd, _ = forces(case, near, states)
        G = rows(case, near).every
        loads = F / case.D
        loads = loads - pinv(G, row_tolerance(q.dtype)) @ (G @ loads)
        found = jnp.where(stable, loads @ y, size(loads, zd))
        return near, states, jnp.where(gap < 1e-2, found, jnp.nan)

    nears, states, found = over_rows(try_out, 0.5 ** jnp.arange(float(_SHORTER), dtype=q.dtype))
    limit = 0.5 * jnp.abs(here.loads @ y) if stable else size(here.loads, here.zd)
    best = jnp.where((found <= limit).any(), jnp.argmax(found <= limit), _SHORTER - 1)
    best = jnp.where(tiny, 0, best)
    return nears[best], states[best]


@_find.defjvp
def _find_rule(stable, primals, tangents):
    """(2) with the change of (1) at fixed (q, z, lam) on the right."""
    case, q0, z0 = primals
    (q, z), stats = _find(stable, case, q0, z0)
    here = system(case, q, z)
    nv = case.model.nv

    def equations(case):
        F, zd, _ = forces(case, q, z)
        now = rows(case, q, here.factor)
        return F / case.D + now.every.T @ here.lam, now.phi, zd

    dF, dphi, dzd = jax.jvp(equations, (case,), (tangents[0],))[1]
    change = jnp.concatenate([here.P @ dF + here.s * (here.first_plus @ dphi), dzd])
    step = step_of(here.A, change, nv)
    turn = lambda d: qdot(case.model, q, d)
    dq = jax.jvp(turn, (jnp.zeros(nv, q.dtype),), (step[:nv] / case.D,))[1]
    whole = lambda x: not jnp.issubdtype(x.dtype, jnp.inexact)
    zeros = jax.tree.map(lambda x: np.zeros(x.shape, jax.dtypes.float0) if whole(x) else jnp.zeros_like(x), stats)
    return ((q, z), stats), ((dq, step[nv:]), zeros)


# --- words --------------------------------------------------------------------------------------------------------


def _failure(case: Case, eq: Equilibrium) -> str:
    """What is not balanced, and what to do."""
    model, q, z = case.model, eq.q, eq.z
    if not bool(jnp.isfinite(q).all() & jnp.isfinite(z).all()):
        return "no equilibrium is found: a load, drive or zdot is not finite on the way; give a better guess"
    if float(eq.closure) > tolerance(q.dtype):
        gaps = np.abs(np.asarray(constraint_residual(model, q, case.t)))
        names = [n for n, level in zip(model.row_names, model.levels, strict=True) if level == 0]
        return f"no equilibrium is found: {describe_worst(model, names, gaps)}; give a better guess, or hold less"
    here = system(case, q, z)
    names = speed_names(model)
    loads = np.asarray(here.loads * case.D)
    values, shapes = (np.asarray(x) for x in _stiffnesses(here))
    free = np.abs(values) <= 1e-9 * np.abs(np.asarray(here.K)).max(initial=0.0) + 1e-300
    push = shapes[:, free].T @ np.asarray(here.loads)
    if free.any() and np.abs(push).max() > 1e-6 * np.linalg.norm(np.asarray(here.loads)):
        along = shapes[:, free] @ push / np.asarray(case.D)
        worst = int(np.argmax(np.abs(along)))
        return (
            f"there is no equilibrium: nothing holds {names[worst]!r}, which is free to go (it is indifferent), "
            f"against a load of {abs(loads[worst]):.3g} N or N m; add a spring, a constraint or a drive, or hold= it"
        )
    worst = int(np.argmax(np.abs(loads)))
    text = f"no equilibrium is found in {int(eq.iterations)} steps: a load of {abs(loads[worst]):.3g} N or N m at "
    text += f"{names[worst]!r} is not balanced"
    zd = np.abs(np.asarray(here.zd)) if model.nz else np.zeros(0)
    for name in model.connection_names:
        part = zd[model.states(name)]
        if part.size and part.max() > 1e-6 * (1.0 + np.abs(np.asarray(z)).max()):
            return f"{text}, and the states of {name!r} do not come to rest (zdot = {part.max():.3g}); guess better"
    return f"{text}; give a better guess, or stable=False for an equilibrium that is not stable"
