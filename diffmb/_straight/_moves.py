"""Operations that only move numbers: they change places in an array of ints, and cost nothing.

Each rule takes the graph, the parameters of an equation and its arguments, and gives its results, all as arrays of
places. Where they are picked by index, the index must be known.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from jax import lax

from ._graph import Graph

Places = np.ndarray
Rule = Callable[..., Any]


class Unknown(Exception):
    """An operation that has no rule, or an index that is not known beforehand."""


def values(graph: Graph, index: Places) -> np.ndarray:
    """What the numbers of an index are."""
    found = [graph.value(int(i)) for i in index.ravel()]
    if any(v is None for v in found):
        raise Unknown("an index that is not known beforehand")
    return np.array(found).astype(int).reshape(index.shape)


def _broadcast(graph: Graph, p: dict, x: Places, *_: Places) -> Places:
    shape, dims = tuple(p["shape"]), p["broadcast_dimensions"]
    aligned = np.ones(len(shape), int)
    aligned[list(dims)] = x.shape
    return np.broadcast_to(x.reshape(aligned), shape)


def _slice(graph: Graph, p: dict, x: Places) -> Places:
    strides = p["strides"] or (1,) * x.ndim
    return x[tuple(slice(*s) for s in zip(p["start_indices"], p["limit_indices"], strides, strict=True))]


def _pad(graph: Graph, p: dict, x: Places, filler: Places) -> Places:
    low, high, inner = zip(*p["padding_config"], strict=True) if x.ndim else ((), (), ())
    if min((*low, *high), default=0) < 0:
        raise Unknown("padding below zero")
    shape = [a + b + n + max(n - 1, 0) * i for a, b, i, n in zip(low, high, inner, x.shape, strict=True)]
    out = np.full(shape, int(filler))
    ends = [a + max((n - 1) * (i + 1) + 1, 0) for a, i, n in zip(low, inner, x.shape, strict=True)]
    out[tuple(slice(a, b, i + 1) for a, b, i in zip(low, ends, inner, strict=True))] = x
    return out


def _split(graph: Graph, p: dict, x: Places) -> list[Places]:
    return np.split(x, np.cumsum(p["sizes"])[:-1], p["axis"])


def _iota(graph: Graph, p: dict, *_: Places) -> Places:
    shape, axis = p["shape"], p["dimension"]
    along = np.arange(shape[axis], dtype=p["dtype"]).reshape([-1 if k == axis else 1 for k in range(len(shape))])
    return graph.constants(np.broadcast_to(along, shape))


def _starts(graph: Graph, x: Places, sizes: tuple[int, ...], starts: tuple[Places, ...]) -> tuple[slice, ...]:
    first = [int(values(graph, s)) for s in starts]
    first = [min(max(k, 0), n - m) for k, n, m in zip(first, x.shape, sizes, strict=True)]
    return tuple(slice(k, k + m) for k, m in zip(first, sizes, strict=True))


def _dynamic_slice(graph: Graph, p: dict, x: Places, *starts: Places) -> Places:
    return x[_starts(graph, x, p["slice_sizes"], starts)]


def _dynamic_update(graph: Graph, p: dict, x: Places, part: Places, *starts: Places) -> Places:
    out = x.copy()
    out[_starts(graph, x, part.shape, starts)] = part
    return out


def _windows(shape: tuple[int, ...], index: np.ndarray, numbers: Any, sizes: tuple[int, ...], mode: Any):
    """(place among the indices, start of its window in an array of that shape, or None if it is outside)."""
    beside = _of(numbers, "start_indices_batching_dims", "scatter_indices_batching_dims")
    batching = dict(zip(numbers.operand_batching_dims, beside, strict=True))
    named = _of(numbers, "start_index_map", "scatter_dims_to_operand_dims")
    clip = mode == lax.GatherScatterMode.CLIP
    for place in np.ndindex(*index.shape[:-1]):
        start = np.zeros(len(shape), int)
        start[list(named)] = index[place]
        for axis, own in batching.items():
            start[axis] = place[own]
        last = np.array(shape) - np.array(sizes)
        if clip:
            start = np.clip(start, 0, last)
        yield place, start if ((start >= 0) & (start <= last)).all() else None


def _of(numbers: Any, *names: str) -> tuple[int, ...]:
    return next(getattr(numbers, name) for name in names if hasattr(numbers, name))


def _gather(graph: Graph, p: dict, x: Places, index: Places) -> Places:
    numbers, sizes = p["dimension_numbers"], tuple(p["slice_sizes"])
    gone = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    index = values(graph, index)
    inner = [n for k, n in enumerate(sizes) if k not in gone]
    out = np.zeros((*index.shape[:-1], *inner), int)
    for place, start in _windows(x.shape, index, numbers, sizes, p["mode"]):
        if start is None:
            raise Unknown("an index outside of its array")
        window = x[tuple(slice(a, a + n) for a, n in zip(start, sizes, strict=True))]
        out[place] = window.reshape(inner)
    batch = len(index.shape) - 1
    front = [k for k in range(out.ndim) if k not in numbers.offset_dims]
    order = np.zeros(out.ndim, int)
    order[front], order[list(numbers.offset_dims)] = np.arange(batch), np.arange(batch, out.ndim)
    return out.transpose(order)


def scatter(join: Callable[[Graph, Places, Places], Places]) -> Rule:
    """Entries of an array are joined with updates; those outside of it are dropped."""

    def rule(graph: Graph, p: dict, x: Places, index: Places, updates: Places) -> Places:
        numbers, index = p["dimension_numbers"], values(graph, index)
        gone = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
        window = list(numbers.update_window_dims)
        order = [k for k in range(updates.ndim) if k not in window] + window
        updates, kept = updates.transpose(order), [k for k in range(x.ndim) if k not in gone]
        sizes = np.ones(x.ndim, int)
        sizes[kept] = updates.shape[updates.ndim - len(window) :]
        out = x.copy()
        for place, start in _windows(x.shape, index, numbers, tuple(sizes.tolist()), p["mode"]):
            if start is None:
                continue
            where = tuple(slice(a, a + n) for a, n in zip(start, sizes, strict=True))
            out[where] = join(graph, out[where].ravel(), updates[place].ravel()).reshape(sizes)
        return out

    return rule


MOVES: dict[Any, Rule] = {
    lax.broadcast_in_dim_p: _broadcast,
    lax.reshape_p: lambda graph, p, x, *_: x.reshape(p["new_sizes"]),
    lax.squeeze_p: lambda graph, p, x: x.squeeze(tuple(p["dimensions"])),
    lax.transpose_p: lambda graph, p, x: x.transpose(p["permutation"]),
    lax.rev_p: lambda graph, p, x: np.flip(x, p["dimensions"]),
    lax.concatenate_p: lambda graph, p, *x: np.concatenate(x, p["dimension"]),
    lax.slice_p: _slice,
    lax.pad_p: _pad,
    lax.split_p: _split,
    lax.iota_p: _iota,
    lax.copy_p: lambda graph, p, x: x,
    lax.optimization_barrier_p: lambda graph, p, *x: list(x),
    lax.dynamic_slice_p: _dynamic_slice,
    lax.dynamic_update_slice_p: _dynamic_update,
    lax.gather_p: _gather,
    lax.scatter_p: scatter(lambda graph, old, new: new),
    lax.scatter_add_p: scatter(lambda graph, old, new: graph.each(lax.add_p, (old, new), None)),
}
