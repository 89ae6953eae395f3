"""INDEPENDENT COORDINATES: which positions and speeds may be chosen freely near a state, and what the others then do.

With G_h the rows of position level, G_v those and the rows of velocity level, and (d, w) small changes of (q, v),

    G_h d = 0                                       d = N x        x = d at the independent positions            (1)
    G_v w + (d(G v - nu)/dq) d = 0                  w = S s + Y x  s = w at the independent speeds               (2)

The dependent positions are pivots of G_h, the dependent speeds the same and further pivots of G_v, so nonholonomic rows
leave fewer speeds than positions. Redundant rows are harmless: (1) and (2) are solved by pseudo-inverse.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ._closure import constraint_jacobian, constraint_rate
from ._errors import MechanismError
from ._fixed_rank import pinv, row_tolerance
from ._kinematics import retract
from ._mobility import row_scales, speed_names
from ._model import Model
from ._names import nearest
from ._spatial._axis import is_concrete


@dataclasses.dataclass(frozen=True)
class Independent:
    """Names of the independent positions and speeds, as in `lin.independent`: "A", "frame[0]".

    Found outside of `jax.jit` once, it is given to `mb.linearise(independent=...)` where numbers are traced.
    """

    positions: tuple[str, ...]
    speeds: tuple[str, ...]


class Basis(eqx.Module):
    """N (nv, positions), S (nv, speeds) and Y (nv, positions) of (1) and (2)."""

    N: Array
    S: Array
    Y: Array


def places_of(model: Model, names: Sequence[str]) -> list[int]:
    """The speeds of joints ("frame") or single ones ("frame[0]") by number."""
    known = speed_names(model)
    found = []
    for name in names:
        if name in known:
            found.append(known.index(name))
        elif name in model.inboard:
            found += range(model.speeds(name).start, model.speeds(name).stop)
        else:
            raise MechanismError(f"{name!r} is no coordinate that can be independent; {nearest(name, known)}")
    return found


def held_rows(model: Model, q: Array, t: Array, on: Array | None) -> tuple[Array, Array]:
    """G (nc, nv) and factors (nc,) by which its rows compare; both zero where an element is switched off."""
    G = constraint_jacobian(model, q, t)
    if on is not None and model.nc:
        G = G * on[model.row_switch][:, None]
    return G, jax.lax.stop_gradient(row_scales(model, jax.lax.stop_gradient(G)))


def as_independent(model: Model, wanted: Any, q: Array, t: Array, on: Array | None) -> Independent:
    """The user's choice completed: names come first as far as they are independent of each other."""
    if isinstance(wanted, Independent):
        places_of(model, (*wanted.positions, *wanted.speeds))
        return wanted
    names = (wanted,) if isinstance(wanted, str) else tuple(wanted or ())
    asked = places_of(model, names)
    everything = speed_names(model)
    if not (model.levels <= 1).any():
        order = [*asked, *(k for k in range(model.nv) if k not in asked)]
        return Independent(*2 * (tuple(everything[k] for k in order),))
    model, q, t, on = jax.lax.stop_gradient((model, q, t, on))
    if not is_concrete(*jax.tree.leaves((model, q, t, on))):
        raise MechanismError(
            "under jax.jit and jax.vmap the independent coordinates cannot be chosen by rank; call mb.linearise once "
            "outside and give independent=lin.independent"
        )
    G, scale = held_rows(model, q, t, on)
    G = np.asarray(G * scale[:, None])
    first = _pivots(G[model.levels == 0], [[k for k in range(model.nv) if k not in asked], asked])
    rest = [k for k in range(model.nv) if k not in first]
    every = _pivots(G[model.levels <= 1], [first, [k for k in rest if k not in asked], asked])
    lost = [everything[k] for k in asked if k in first]
    if lost:
        free = model.nv - len(first)
        raise MechanismError(
            f"{lost[0]!r} cannot be independent here: the others asked for, or the constraints alone, say how it "
            f"moves; there are {free} independent positions"
        )
    order = [*asked, *(k for k in rest if k not in asked)]
    return Independent(tuple(everything[k] for k in order), tuple(everything[k] for k in order if k not in every))


def _pivots(G: np.ndarray, stages: list[list[int]]) -> list[int]:
    """Columns of G that are independent of each other, the largest first, later ones before earlier ones where equal;
    a stage is used up before the next one begins."""
    if not len(G):
        return []
    rest, found = np.array(G), []
    s = np.linalg.svd(G, compute_uv=False)
    rank = int((s > row_tolerance(G.dtype) * max(s[0], 1e-300)).sum())
    floor = row_tolerance(G.dtype) * max(s[0], 1e-300)
    for stage in stages:
        left = list(stage)
        while left and len(found) < rank:
            size = np.linalg.norm(rest[:, left], axis=0)
            if size.max() <= floor:
                break
            best = left[int(np.flatnonzero(size > size.max() * (1 - 1e-6))[-1])]
            left.remove(best)
            found.append(best)
            along = rest[:, best] / np.linalg.norm(rest[:, best])
            rest = rest - np.outer(along, along @ rest)
    return found


def basis(model: Model, q: Array, v: Array, t: Array, on: Array | None, chosen: Independent) -> Basis:
    """(1) and (2)."""
    places, speeds = (np.array(places_of(model, names), int) for names in (chosen.positions, chosen.speeds))
    G, scale = held_rows(model, q, t, on)
    scaled = G * scale[:, None]
    levels = model.levels
    zero = jnp.zeros((0, model.nv), q.dtype)
    Gh, Gv = (scaled[np.flatnonzero(levels <= k)] if model.nc else zero for k in (0, 1))
    N = _free(Gh, places)
    S = _free(Gv, speeds)
    used = np.flatnonzero(levels <= 1) if model.nc else np.zeros(0, int)
    if not len(used) or not len(places):
        return Basis(N, S, jnp.zeros_like(N))
    factor = scale[used] if on is None else (scale * on[model.row_switch])[used]
    _, turn = jax.linearize(lambda d: constraint_rate(model, retract(model, q, d), v, t), jnp.zeros_like(v))
    change = jax.vmap(turn, 1, 1)(N) * factor[:, None]
    dependent = np.setdiff1d(np.arange(model.nv), speeds)
    particular = -pinv(Gv[:, dependent], row_tolerance(q.dtype)) @ change
    return Basis(N, S, jnp.zeros_like(N).at[dependent].set(particular))


def _free(G: Array, places: np.ndarray) -> Array:
    """(nv, places): the motion that G allows with one independent coordinate moving at a time."""
    nv = G.shape[1]
    dependent = np.setdiff1d(np.arange(nv), places)
    found = jnp.zeros((nv, len(places)), G.dtype).at[places, np.arange(len(places))].set(1.0)
    if not len(dependent):
        return found
    return found.at[dependent].set(-pinv(G[:, dependent], row_tolerance(G.dtype)) @ G[:, places])
