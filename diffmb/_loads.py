"""LOADS of connections: what springs, motors and functions of a user put on the bodies, and the rates of their states.

    w  = load(t, x, xd, z, u)       on the second marker, the opposite on the first; or on joint coordinates       (1)
    zd = zdot(t, x, xd, z, u)                                                                                      (2)
    E  = sum of energy(t, x, z)                                                                                    (3)
    D, P = sums of dissipation and supply                                                                         (4)

x and xd are relative pose and twist as in `_closure.py`, or coordinates and speeds; connections may turn them into
strains (`_connections/_abstract.py`). Connections of one kind are one call. A switch `on` of 0 takes away the load of a
connection and its energy; its states go on. Batch axis last.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ._closing import CoordinateGroup, MarkerGroup
from ._closure import Place, here, moving, scatter, spread
from ._configuration import Configuration
from ._connections._abstract import AbstractLoad, AbstractSpan, answer, exerted, stored
from ._model import Model
from ._sweep import each, take

Group = MarkerGroup | CoordinateGroup
Reading = tuple[Group, Place | None, tuple]  # a group, where it is, and (t, x, xd, z, u) of its connections


def _shares(model: Model, values: Array, sizes: list[int]) -> Iterator[Array]:
    """z or u by groups, (e, size, batch)."""
    start = 0
    for group, size in zip(model.connections, sizes, strict=True):
        count = len(group.names)
        yield values[start : start + count * size].reshape(count, size, values.shape[-1])
        start += count * size


def _states(model: Model, z: Array) -> Iterator[Array]:
    return _shares(model, z, [group.kind.nz for group in model.connections])


def _readings(model: Model, c: Configuration, q, v, V: Array, t, z, u) -> list[Reading]:
    """What the connections of each group see. Behind the inputs u has the followed multipliers (`_follow.py`)."""
    found = []
    inputs = _shares(model, u[: model.nu], [group.kind.nu for group in model.connections])
    for group, own_z, own_u in zip(model.connections, _states(model, z), inputs, strict=True):
        where, x = here(group, c, q)
        xd = moving(group, where, v, V)
        if group.kind.follows:
            rows = [model.rows(name) for name in group.kind.follows]
            rows = np.concatenate([np.arange(own.start, own.stop) for own in rows])
            lam = take(u[model.nu :], np.searchsorted(model.followed, rows))
            own_u, lam = spread(own_u, jnp.broadcast_to(lam, (len(group.names), *lam.shape)))
            own_u = jnp.concatenate([own_u, lam], 1)
        found.append((group, where, spread(t, _poses(group, x), _by_connection(group, xd), own_z, own_u)))
    return found


def _by_connection(group: Group, a: Array) -> Array:
    """What belongs to pairs of markers, by connections: several pairs each if they are spans."""
    return a.reshape(len(group.names), -1, *a.shape[1:]) if isinstance(group.kind, AbstractSpan) else a


def _poses(group: Group, x: Any) -> Any:
    """The relative coordinates as connections see them: a tuple of poses if they are spans."""
    if not isinstance(group.kind, AbstractSpan):
        return x
    parts = jax.tree.map(lambda a: _by_connection(group, a), x)
    return tuple(jax.tree.map(lambda a, k=k: a[:, k], parts) for k in range(parts.translation.shape[1]))


def _switches(model: Model, on: Array | None) -> Iterator[Any]:
    """The switches of each group's connections, (e, batch); 1.0 if nothing is switched."""
    start = sum(len(group.names) for group in model.closing)
    for group in model.connections:
        yield 1.0 if on is None else on[start : start + len(group.names)]
        start += len(group.names)


def _own_loads(
    model: Model, readings: list[Reading], on: Array | None, those: Callable[[Group], bool] = lambda group: True
) -> list[tuple[Group, Place | None, Array]]:
    """(1) of `those` groups, (e, 6 or k, batch), in the axes of the second markers."""
    found = []
    for (group, where, (t, *rest)), factor in zip(readings, _switches(model, on), strict=True):
        if not those(group):
            continue
        w = each(lambda kind, *rest: exerted(kind, t, *rest))(group.kind, *rest)
        w = w if on is None else w * factor.reshape(len(group.names), *(1,) * (w.ndim - 2), -1)
        found.append((group, where, w.reshape(-1, *w.shape[-2:])))
    return found


def _rates(readings: list[Reading], z: Array) -> Array:
    """(2), (nz, batch)."""
    parts = []
    for group, _, (t, *rest) in readings:
        if group.kind.nz:
            zd = each(lambda kind, *rest: answer(kind, type(kind).zdot, t, *rest))(group.kind, *rest)
            parts.append(zd.reshape(-1, zd.shape[-1]))
    batch = max((p.shape[-1] for p in parts), default=z.shape[-1])
    flat = [jnp.broadcast_to(p, (p.shape[0], batch)) for p in parts]
    return jnp.concatenate(flat) if flat else z[:0]


def connection_loads(model: Model, c: Configuration, q, v, V: Array, t, z, u, on: Array | None) -> tuple:
    """(F, tau, zd): wrenches on the bodies about the fixed points, world axes, (n, 6, batch), loads on the speeds
    (nv, batch), and the rates of the states (nz, batch); `(None, None, None)` if there are no connections.

    `on` (switches, batch) has a factor 0 or 1 for everything in `model.switches`; None leaves all switched on.
    """
    if not model.connections:
        return None, None, None
    readings = _readings(model, c, q, v, V, t, z, u)
    return *scatter(model, _own_loads(model, readings, on), c.columns), _rates(readings, z)


def with_connections(
    model: Model, c: Configuration, q, v, V: Array, t, z, u, on, F: Array, tau: Array,
    those: Callable[[Group], bool] = lambda group: True,
) -> tuple:  # fmt: skip
    """The loads F that move the bodies less the wrenches of `those` connections, and tau with their loads on the
    speeds."""
    if not model.connections:
        return F, tau
    parts = _own_loads(model, _readings(model, c, q, v, V, t, z, u), on, those)
    wrenches, direct = scatter(model, parts, c.columns)
    between, joints = (any(isinstance(g, kind) for g, _, _ in parts) for kind in (MarkerGroup, CoordinateGroup))
    return F - wrenches if between else F, tau + direct if joints else tau


def follows(group: Group) -> bool:
    """Whether the loads of its connections depend on multipliers."""
    return bool(group.kind.follows)


def loads_by_group(model: Model, c: Configuration, q, v, V: Array, t, z, u, on) -> list[tuple[Group, Array]]:
    """(1) of every group, (e, 6 or k, batch), in the axes of the second markers."""
    if not model.connections:
        return []
    return [(group, w) for group, _, w in _own_loads(model, _readings(model, c, q, v, V, t, z, u), on)]


def stored_energy(model: Model, c: Configuration, q, t, z, on: Array | None) -> Array:
    """(3), (batch,)."""
    total = jnp.zeros(c.columns.shape[-1], c.columns.dtype)
    for group, own, factor in zip(model.connections, _states(model, z), _switches(model, on), strict=True):
        t_own, x, own = spread(t, _poses(group, here(group, c, q)[1]), own)
        E = each(lambda kind, x, z: stored(kind, t_own, x, z))(group.kind, x, own)
        total = total + (E * factor).sum(0)
    return total


def heat_and_supply(model: Model, c: Configuration, q, v, V: Array, t, z, u, on: Array | None) -> tuple[Array, Array]:
    """(4), (batch,) each."""
    total = [jnp.zeros(c.columns.shape[-1], c.columns.dtype)] * 2
    readings = _readings(model, c, q, v, V, t, z, u)
    for (group, _, (t_own, *rest)), factor in zip(readings, _switches(model, on), strict=True):
        for k, what in enumerate((AbstractLoad.dissipation, AbstractLoad.supply)):
            method = getattr(type(group.kind), what.__name__)
            power = each(lambda kind, *rest: answer(kind, method, t_own, *rest))(group.kind, *rest)
            total[k] = total[k] + (power * factor).sum(0)
    return total[0], total[1]
