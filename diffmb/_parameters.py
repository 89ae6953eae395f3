"""PARAMETERS: numbers of a mechanism, or of any tree of numbers, chosen by a function or by name.

    where = lambda m: (m["crank"].mass, m["coupler"].com[0])          a function picks whole arrays or entries
    where = ["crank.mass", "coupler.com[0]", "C.parent.position"]     names: the part, the field, the entry
    where = "coupler"                                                 every number of a part

A tree of your own, such as {"length": 0.3}, has the names of its keys.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ._errors import MechanismError
from ._mechanism import Mechanism
from ._names import nearest
from ._spatial._axis import as_array, is_concrete
from ._spatial._seen import UNKNOWN, note, seen


@dataclasses.dataclass(frozen=True)
class Place:
    """Stands for a leaf, or for entries of it, while `where` looks for them."""

    leaf: int
    name: str  # of the leaf
    shape: tuple[int, ...]  # of what is picked
    dtype: Any
    flat: tuple[int, ...] | None = None  # which entries of the flattened leaf; None: all
    whole: tuple[int, ...] = ()  # shape of the leaf, if entries are picked

    def __getitem__(self, index: Any) -> "Place":
        whole = self.whole if self.flat is not None else self.shape
        held = np.arange(int(np.prod(whole))) if self.flat is None else np.array(self.flat)
        picked = held.reshape(self.shape)[index]
        return Place(self.leaf, self.name, picked.shape, self.dtype, tuple(picked.ravel().tolist()), whole)

    @property
    def names(self) -> list[str]:
        """A name for each number."""
        if self.flat is None:
            return [f"{self.name}[{','.join(map(str, i))}]" if i else self.name for i in np.ndindex(*self.shape)]
        rows = [np.unravel_index(k, self.whole) for k in self.flat]
        return [f"{self.name}[{','.join(str(int(i)) for i in row)}]" for row in rows]

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    @property
    def pick(self) -> tuple[int, tuple[int, ...] | None]:
        """All that a program needs to know."""
        return self.leaf, self.flat

    def read(self, leaves: Sequence[Any]) -> Array:
        leaf = leaves[self.leaf]
        return leaf if self.flat is None else jnp.ravel(leaf)[np.array(self.flat)].reshape(self.shape)


def put(leaves: Sequence[Any], picks: Sequence[tuple], values: Sequence[Array]) -> list:
    """The leaves with other numbers where `picks` says."""
    leaves = list(leaves)
    for (leaf, flat), value in zip(picks, values, strict=True):
        old = leaves[leaf]
        if flat is not None:
            value = jnp.ravel(jnp.asarray(old)).at[np.array(flat)].set(jnp.ravel(value)).reshape(jnp.shape(old))
            value = note(value, _others(old, flat))
        leaves[leaf] = value
    return leaves


def _others(old: Any, flat: Sequence[int]) -> np.ndarray | None:
    """What is seen of an array in which some entries are replaced."""
    entries = seen(old)
    if entries is None:
        return None
    entries = entries.copy()
    entries.flat[list(flat)] = UNKNOWN
    return entries


def as_numbers(mech: Any) -> Any:
    """The tree with floating leaves as arrays."""
    is_float = lambda a: jnp.issubdtype(getattr(a, "dtype", type(a)), jnp.floating)
    return jax.tree.map(lambda a: as_array(a) if is_float(a) else a, mech)


def concrete(what: str, leaves: Sequence[Any]) -> None:
    if not is_concrete(*leaves):
        raise MechanismError(f"{what} does not run inside of jax.jit, jax.grad or jax.vmap; take jax.jacrev of fn")


def pick(tree: Any, where: Any) -> Any:
    """What `where` picks, a `Place` for each array of numbers."""
    paths, structure = jax.tree_util.tree_flatten_with_path(tree)
    dtype = lambda leaf: getattr(leaf, "dtype", np.dtype(object))
    places = [Place(k, label(tree, path), np.shape(a), dtype(a)) for k, (path, a) in enumerate(paths)]
    marked = jax.tree.unflatten(structure, places)
    if where is None:
        picked = jax.tree.map(lambda p: p if jnp.issubdtype(p.dtype, jnp.floating) else None, marked)
    elif callable(where):
        try:
            picked = where(marked)
        except MechanismError:
            raise
        except Exception as error:
            advice = "it must pick numbers as they are, such as lambda m: (m['crank'].mass, m['crank'].com)"
            raise MechanismError(f"where fails: {type(error).__name__}: {error}; {advice}") from error
    else:
        known = {label(tree, path[:n]): path[:n] for path, _ in paths for n in range(1, len(path) + 1)}
        picked = jax.tree.map(lambda name: _named(marked, known, name), where)
    _check_picked(jax.tree.leaves(picked, is_leaf=lambda x: x is None and where is not None))
    return picked


def _check_picked(found: list) -> None:
    if not found:
        raise MechanismError("where picks no numbers; give for example where=lambda m: m['crank'].mass")
    taken: set[tuple[int, int]] = set()
    for place in found:
        if not isinstance(place, Place):
            raise MechanismError(f"where picks {place!r}, which is static: it has no derivative; pick numbers")
        if not jnp.issubdtype(place.dtype, jnp.floating):
            raise MechanismError(f"{place.name} is of type {place.dtype}, which has no derivative; pick other numbers")
        own = {(place.leaf, k) for k in (range(place.size) if place.flat is None else place.flat)}
        if own & taken:
            raise MechanismError(f"where picks {place.name} twice; pick each number once")
        taken |= own


def label(tree: Any, path: tuple, root: str = "number") -> str:
    """A leaf as a user would call it: the name of its part, and the field."""
    part = [_walk(tree, path[:2]).name] if isinstance(tree, Mechanism) and len(path) > 1 else []
    field = jax.tree_util.keystr(path[2:] if part else path, simple=True, separator=".")
    return ".".join([*part, *([field] if field else [])]) or root


def _walk(tree: Any, path: tuple) -> Any:
    for key in path:
        tree = getattr(tree, key.name) if hasattr(key, "name") else tree[key.idx if hasattr(key, "idx") else key.key]
    return tree


def _named(marked: Any, known: dict[str, tuple], name: Any) -> Any:
    """The number, the part or the entry of that name."""
    if name in known:
        return _walk(marked, known[name])
    entry = re.fullmatch(r"(.+)\[(\d+(?:,\d+)*)\]", str(name))
    if entry and entry[1] in known and isinstance(place := _walk(marked, known[entry[1]]), Place):
        try:
            return place[tuple(map(int, entry[2].split(",")))]
        except IndexError:
            raise MechanismError(f"there is no number {name!r}: {place.name} has shape {place.shape}") from None
    part, _, field = str(name).rpartition(".")
    if part in known and hasattr(_walk(marked, known[part]), field):
        raise MechanismError(f"{name} is static: it has no derivative; pick numbers, such as 'crank.mass'")
    raise MechanismError(f"there is no number {name!r}; {nearest(name, list(known))}")


def by_number(what: str, given: Mapping[str, Any] | None, places: Sequence[Place]) -> dict[str, Any]:
    """What was given by the name of an array or of one number, for each number: `{"crank.com": ...}`, "crank.com[0]".

    A list of the array's length gives each of its numbers one item, unless it is a tuple (a pair of bounds).
    """
    found: dict[str, Any] = {}
    known = {place.name: place for place in places}
    singles = {name for place in places for name in place.names}
    for name, value in (given or {}).items():
        if name in singles:
            found[name] = value
        elif name in known:
            names = known[name].names
            each = value if isinstance(value, list | np.ndarray) and len(value) == len(names) else [value] * len(names)
            found |= {own: found.get(own, v) for own, v in zip(names, each, strict=True)}
        else:
            raise MechanismError(f"{what}: {name!r} is not among the numbers picked; {nearest(name, sorted(singles))}")
    return found
