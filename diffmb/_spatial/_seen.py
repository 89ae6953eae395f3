"""What is seen of numbers before they are computed: which entries of an array are 0, 1 or -1.

Of an array that is there every entry is seen. Of one that is being traced nothing is, but its maker may know some: of
(length, 0, 0) the second and the third. Such knowledge is noted for that very array, and gone with it: whatever else is
made of it is unknown again, unless what makes it passes the knowledge on. So it is never wrong, only missing.
"""

import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.extend.core import ClosedJaxpr

from .._straight._graph import Graph, TooLong
from .._straight._moves import Unknown
from .._straight._unroll import unroll

UNKNOWN = 2  # the mark of an entry that is not seen to be 0, 1 or -1

_MOST = 20_000  # operations through which knowledge is passed on
_noted: dict[int, tuple[weakref.ref, np.ndarray]] = {}


def note(array: Any, entries: np.ndarray | None) -> Any:
    """The array; if it is being traced, with its entries noted: 0, 1, -1 or UNKNOWN."""
    if entries is not None and isinstance(array, Tracer) and (entries != UNKNOWN).any():
        key = id(array)
        with suppress(TypeError):  # some tracer of a transformation that does not let itself be watched
            gone = weakref.ref(array, lambda _: _noted.pop(key, None))
            _noted[key] = gone, np.asarray(entries, np.int8).reshape(array.shape)
    return array


def seen(array: Any) -> np.ndarray | None:
    """The entries of an array: 0, 1, -1 or UNKNOWN; None if nothing is seen.

    Only vectors of three and quaternions are looked at, and ones only if they are alone in theirs: a mass, a stiffness
    or a distance may pass through 0 or 1 without another program being made for it.
    """
    noted = _noted.get(id(array))
    if noted is not None and noted[0]() is array:
        return noted[1]
    if isinstance(array, Tracer):  # in `jax.grad` and `jax.jvp` its value may be there all the same
        return seen(array.primal) if hasattr(array, "primal") else None
    if np.ndim(array) == 0 or np.shape(array)[-1] not in (3, 4):
        return None
    numbers = np.asarray(array)
    one = (np.abs(numbers) == 1.0) & (np.count_nonzero(numbers, -1, keepdims=True) == 1)
    known = one | (numbers == 0.0)
    return np.where(known, numbers, UNKNOWN).astype(np.int8) if known.any() else None


def literals(value: Any, shape: tuple[int, ...]) -> np.ndarray | None:
    """The entries of an array of that shape that is made of numbers, some of which are being traced."""
    parts = jax.tree.leaves(value)
    if len(parts) != np.prod(shape) or any(np.ndim(part) for part in parts):
        return None
    plain = [not isinstance(part, Tracer) and float(part) in (0.0, 1.0, -1.0) for part in parts]
    return np.array([float(x) if known else UNKNOWN for x, known in zip(parts, plain, strict=True)], np.int8)


def stacked(parts: Any) -> np.ndarray | None:
    """The entries of arrays that are stacked."""
    own = [seen(part) for part in parts]
    if all(entries is None for entries in own):
        return None
    pairs = zip(parts, own, strict=True)
    return np.stack([np.full(np.shape(part), UNKNOWN) if entries is None else entries for part, entries in pairs])


def passed_on(fun: Callable[..., Any], static: Any, *args: Any) -> Any:
    """fun(static, *args), with what is seen of its results noted."""
    out = fun(static, *args)
    leaves, structure = jax.tree.flatten(args)
    if any(isinstance(leaf, Tracer) for leaf in jax.tree.leaves(out)):
        own = tuple(None if (entries := seen(leaf)) is None else entries.tobytes() for leaf in leaves)
        shapes = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
        for leaf, entries in zip(jax.tree.leaves(out), _results(fun, static, structure, shapes, own), strict=True):
            note(leaf, entries)
    return out


@lru_cache(maxsize=256)
def _results(fun: Callable, static: Any, structure: Any, shapes: tuple, known: tuple) -> list[np.ndarray | None]:
    run = lambda *leaves: jax.tree.leaves(fun(static, *jax.tree.unflatten(structure, leaves)))
    program = jax.make_jaxpr(run)(*(jax.ShapeDtypeStruct(*shape) for shape in shapes))
    return results_of(program, known)


def results_of(program: ClosedJaxpr, known: Sequence[bytes | None]) -> list[np.ndarray | None]:
    """The entries of the results of a program, from those of its first arguments; None if there is too much to do."""
    graph = Graph(_MOST)
    try:
        outs = unroll(graph, program, graph.arguments(program.in_avals, known))
    except (Unknown, TooLong):
        return [None] * len(program.out_avals)
    sign = lambda n: UNKNOWN if (found := graph.sign(n)) is None else found
    entries = [[sign(n) for n in out.ravel().tolist()] for out in outs]
    return [np.array(own, np.int8).reshape(out.shape) for own, out in zip(entries, outs, strict=True)]
