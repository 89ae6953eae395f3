"""LINEARISE: small motions near a state, in independent coordinates; near rest, or along a motion.

A motion close to the given one is q = retract(q0(t), d), v = v0(t) + w, z = z0(t) + e, and to first order

    dd = w + T(v0) d            from the rate of difference(q0, q); T = 0 but for coordinates on a manifold       (1)
    wd = (dvd/dq) d + (dvd/dv) w + (dvd/dz) e         zd likewise                                                 (2)

with the constraints in (d, w) as in `_independent.py`. In the independent positions x, speeds s and states e,

    (xd, sd, ed) = A (x, s, e) + B (tau, u)                                                                       (3)
    M_r sd + C_r s + K_r x = ...        M_r = S^T M S        K_r = -M_r A_sx        C_r = -M_r A_ss               (4)

Along a motion A belongs to that instant; if the motion is steady it is constant, and its eigenvalues decide stability.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ._checks import as_switches, as_time, check_coordinates, check_speeds, check_states
from ._constrained import check_inner, dynamics
from ._dynamics import mass_matrix
from ._errors import MechanismError
from ._fixed_rank import eigen, eigenvalues
from ._independent import Independent, as_independent, basis, places_of
from ._inputs import as_inputs
from ._kinematics import difference, qdot, retract
from ._mobility import speed_names
from ._model import Model
from ._motion import connection_motion


class Linearisation(eqx.Module):
    """What `mb.linearise` found; `print` it for a table of eigenvalues.

    - `A`: (n, n), of the states named in `states`: independent positions, independent speeds, states of connections.
    - `B`: (n, inputs): loads at the speeds, then inputs of connections, named in `inputs`.
    - `M`, `C`, `K`: M_r sd + C_r s + K_r x = ...; K has a column for every independent position.
    - `rates`: (n,), the rates of the states in the motion itself; those of speeds and states are 0 if it is steady.
    - `position_shapes` (nv, n), `speed_shapes` (nv, n): the changes of all positions and speeds for each state.
    - `independent`: the choice, to be used again.
    """

    A: Array
    B: Array
    M: Array
    C: Array
    K: Array
    rates: Array
    position_shapes: Array
    speed_shapes: Array
    independent: Independent = eqx.field(static=True)
    states: tuple[str, ...] = eqx.field(static=True)
    inputs: tuple[str, ...] = eqx.field(static=True)
    all_speeds: tuple[str, ...] = eqx.field(static=True)

    @property
    def eigenvalues(self) -> Array:
        """(n,) complex, 1/s, in order of size; simple ones are differentiable."""
        return eigenvalues(self.A)

    @property
    def frequencies(self) -> Array:
        """Natural frequencies |w| / 2 pi, Hz, in the order of the eigenvalues."""
        return _size(self.eigenvalues) / (2 * jnp.pi)

    @property
    def damping_ratios(self) -> Array:
        """-Re w / |w|, 1 for a mode that decays without swinging, negative for one that grows; 0 where w = 0."""
        w, size = self.eigenvalues, _size(self.eigenvalues)
        return jnp.where(size > 0, -w.real / jnp.where(size > 0, size, 1.0), 0.0)

    @property
    def modes(self) -> Array:
        """(nv, n) complex: how all positions move in each mode; the largest entry is 1."""
        return _normal(self.position_shapes @ self.eigenvectors)

    @property
    def mode_speeds(self) -> Array:
        """(nv, n) complex: the speeds of each mode; the largest entry is 1."""
        return _normal(self.speed_shapes @ self.eigenvectors)

    @property
    def eigenvectors(self) -> Array:
        """(n, n) complex, in columns: right eigenvectors of A in the order of the eigenvalues."""
        return eigen(self.A)[2]

    def essential(self) -> "Linearisation":
        """Without positions that influence nothing that is left: where a bicycle is, how far a wheel has turned.

        What is left out has eigenvalues 0, and those of the rest are better conditioned without it.
        """
        A = np.asarray(jax.lax.stop_gradient(self.A))
        np_ = len(self.independent.positions)
        quiet = 1e-10 * np.abs(A).max(0, initial=0.0).max(initial=0.0)
        kept = list(range(len(A)))
        while True:
            loose = [k for k in kept if k < np_ and np.abs(A[kept, k]).max(initial=0.0) <= quiet]
            if not loose:
                break
            kept = [k for k in kept if k not in loose]
        keep, places = np.array(kept, int), [k for k in kept if k < np_]
        chosen = Independent(tuple(self.independent.positions[k] for k in places), self.independent.speeds)
        return Linearisation(
            self.A[jnp.ix_(keep, keep)],
            self.B[keep],
            self.M,
            self.C,
            self.K[:, np.array(places, int)],
            self.rates[keep],
            self.position_shapes[:, keep],
            self.speed_shapes[:, keep],
            chosen,
            tuple(self.states[k] for k in kept),
            self.inputs,
            self.all_speeds,
        )

    def __repr__(self) -> str:
        sizes = f"{len(self.independent.positions)} positions, {len(self.independent.speeds)} speeds"
        try:
            w, f, ratio = (np.asarray(x) for x in (self.eigenvalues, self.frequencies, self.damping_ratios))
            shapes = np.asarray(self.modes)
        except Exception:  # being traced
            return f"Linearisation({sizes})"
        others = len(w) - len(self.independent.positions) - len(self.independent.speeds)
        lines = [f"Linearisation: {len(w)} states: {sizes}, {others} of connections"]
        lines += ["    eigenvalue, 1/s            Hz  damping   moves"]
        for k in range(len(w)):
            if w[k].imag < 0:
                continue  # the other of the pair is shown
            order = np.argsort(-np.abs(shapes[:, k]))[:3]
            parts = [f"{abs(shapes[i, k]):.2g} {self.all_speeds[i]}" for i in order if abs(shapes[i, k]) > 1e-3]
            value = f"{w[k].real:+.5g}" + (f" +- {w[k].imag:.5g}i" if w[k].imag else "")
            lines.append(f"  {value:<24} {f[k]:>9.4g} {ratio[k]:>8.3g}   {', '.join(parts) or 'states only'}")
        return "\n".join(lines)


def _size(w: Array) -> Array:
    """|w|, with derivative 0 at 0."""
    square = w.real**2 + w.imag**2
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1.0)), 0.0)


def _normal(shapes: Array) -> Array:
    """Columns divided by their largest entries; those that are nothing stay so."""
    if shapes.shape[0] == 0:
        return shapes
    largest = shapes[jnp.abs(shapes).argmax(0), jnp.arange(shapes.shape[1])]
    seen = jnp.abs(largest) > 1e-12
    return jnp.where(seen, shapes / jnp.where(seen, largest, 1.0), 0.0)


def linearise(
    model: Model,
    state: Any,
    t: Any = None,
    *,
    z: Any = None,
    inputs: Mapping[str, Any] | None = None,
    off: Any = (),
    independent: Independent | Sequence[str] | str | None = None,
) -> Linearisation:
    """Small motions near a state that satisfies the constraints.

    **Arguments:**

    - `state`: from `mb.equilibrium` (with its z, inputs are given again) or `mb.assemble`, or a pair (q, v).
    - `t`: time, s, that of the state by default.
    - `z`: states of connections, those of the equilibrium or those from which they start by default.
    - `inputs`: loads at joints and inputs of connections by name, as in `mb.simulate`.
    - `off`: names of what is switched off.
    - `independent`: joints ("A") or single speeds ("frame[0]") that shall be independent, and come first; the others
        are chosen by pivoting. Under `jax.jit` and `jax.vmap` give a choice made outside, `lin.independent`.

    Everything is differentiable with respect to the state and every number of the model.
    """
    q, v, t, z = _as_state(model, state, t, z)
    tau, u = as_inputs(model, inputs, q[:0])(t)
    on = as_switches(model, off, q)
    chosen = as_independent(model, independent, q, t, on)
    found = _linearise(model, q, v, z, t, tau, u, on, chosen)
    every = speed_names(model)
    inner, outer = (_numbered(model, of) for of in (model.states, model.input))
    label = lambda names: tuple(every[k] for k in places_of(model, names))
    chosen = Independent(label(chosen.positions), label(chosen.speeds))
    states = (*chosen.positions, *(f"{name}'" for name in chosen.speeds), *inner)
    named = {"independent": chosen, "states": states, "inputs": (*every, *outer), "all_speeds": every}
    return Linearisation(*found, **named)


def _numbered(model: Model, of: Callable[[str], slice]) -> list[str]:
    """Names of the states or inputs of all connections."""
    found = []
    for name in model.connection_names:
        size = of(name).stop - of(name).start
        found += [f"{name}[{k}]" if size > 1 else name for k in range(size)]
    return found


def _as_state(model: Model, state: Any, t: Any, z: Any) -> tuple[Array, Array, Array, Array]:
    if isinstance(state, Sequence):
        if len(state) != 2:
            raise MechanismError(f"the state has {len(state)} parts; give a pair (q, v), or what mb.assemble returns")
        q, v = state
    else:
        if not (hasattr(state, "q") and hasattr(state, "v")):
            kind = type(state).__name__
            raise MechanismError(f"the state is a {kind}; give (q, v), or what mb.equilibrium or mb.assemble returns")
        q, v, t = state.q, state.v, state.t if t is None else t
        z = getattr(state, "z", None) if z is None else z
    q = check_coordinates(model, q)
    v = check_speeds(model, "v", v, q)
    return q, v, as_time(0.0 if t is None else t, q), check_states(model, z, q)


@partial(jax.jit, static_argnums=8)
def _linearise(model: Model, q, v, z, t, tau, u, on, chosen: Independent) -> tuple[Array, ...]:
    places, speeds = (np.array(places_of(model, names), int) for names in (chosen.positions, chosen.speeds))
    b = basis(model, q, v, t, on, chosen)

    def rates(d, w, e, more_tau, more_u):
        """(1) and (2) at the independent places."""
        near, fast = retract(model, q, d), v + w
        turning = qdot(model, q, v), qdot(model, near, fast)
        turned = jax.jvp(lambda a, b: difference(model, a, b), (q, near), turning)[1]
        vd = dynamics(model, near, fast, tau + more_tau, t, z=z + e, u=u + more_u, on=on).vd
        inner = check_inner(model, near, fast, tau + more_tau, t, (), z + e, u + more_u, on)
        zd = connection_motion(model, near, fast, t, *inner)[1] if model.nz else e
        return turned[places], vd[speeds], zd

    sizes = (len(places), len(speeds), model.nz, model.nv, model.nu)
    still = tuple(jnp.zeros(n, q.dtype) for n in (model.nv, model.nv, model.nz, model.nv, model.nu))
    x, s, e, more_tau, more_u = jnp.split(jnp.eye(sum(sizes), dtype=q.dtype), np.cumsum(sizes)[:-1])
    directions = (b.N @ x, b.S @ s + b.Y @ x, e, more_tau, more_u)
    (_, vd, zd), push = jax.linearize(rates, *still)
    slopes = jax.vmap(lambda *along: jnp.concatenate(push(*along)), 1, 1)(*directions)
    n, np_, ns = sum(sizes[:3]), *sizes[:2]
    A, B = slopes[:, :n], slopes[:, n:]
    M = b.S.T @ mass_matrix(model, q, t) @ b.S
    forces = -M @ A[np_ : np_ + ns]
    steady = jnp.concatenate([v[places], vd, zd])
    return A, B, M, forces[:, np_ : np_ + ns], forces[:, :np_], steady, directions[0][:, :n], directions[1][:, :n]
