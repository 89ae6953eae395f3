"""KNOWN: numbers of a model that are 0, 1 or -1, and can be seen to be so before a program is made.

Most numbers of a mechanism are such: of a planar four-bar 137 of 150, the axes (0, 0, 1), the unit rotations, the zeros
in its lengths and inertias. A program that is written out number by number (`_straight`) leaves out what they make
nothing of: 690 operations instead of 2870 for the four-bar's accelerations. They stay numbers: derivatives with respect
to them are as they were, since a derivative moves beside the number, not in it.

Only what can be looked at when the program is made is known: nothing of a model that is an argument of `jax.jit` or is
mapped by `jax.vmap`. Only vectors of three are looked at, and ones only in unit vectors along an axis: a mass, a
stiffness or a distance may pass through 0 or 1 without another program being made for it.
"""

import dataclasses
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from ._model import Model

UNKNOWN = 2  # the mark of a number that is none of 0, 1, -1


def with_known(model: Model) -> Model:
    """The model, with what is known of its numbers beside them."""
    rows = [(jax.tree_util.keystr(path), _pattern(leaf)) for path, leaf in jax.tree_util.tree_leaves_with_path(model)]
    return dataclasses.replace(model, known=tuple((name, own) for name, own in rows if own is not None))


def known_leaves(tree: Any) -> list[bytes | None]:
    """For each leaf of a tree the pattern that a model within it carries along, or None."""
    models, _ = jax.tree.flatten(tree, is_leaf=lambda x: isinstance(x, Model))
    found: list[bytes | None] = []
    for own in models:
        known = dict(own.known) if isinstance(own, Model) else {}
        found += [known.get(jax.tree_util.keystr(path)) for path, _ in jax.tree_util.tree_leaves_with_path(own)]
    return found


def _pattern(leaf: Any) -> bytes | None:
    while isinstance(leaf, Tracer) and hasattr(leaf, "primal"):  # in `jax.grad` and `jax.jvp` outside of `jax.jit`
        leaf = leaf.primal
    if isinstance(leaf, Tracer) or leaf.shape[-1:] != (3,):
        return None
    numbers = np.asarray(leaf)
    one = (np.abs(numbers) == 1.0) & (np.count_nonzero(numbers, -1, keepdims=True) == 1)
    known = one | (numbers == 0.0)
    return np.where(known, numbers, UNKNOWN).astype(np.int8).tobytes() if known.any() else None
