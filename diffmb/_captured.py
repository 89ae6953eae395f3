"""CAPTURED: a user's function of time, and the values that it found around it when it was written.

    lambda t: a * jnp.sin(w * t)        is        (code, what is no number)  of  (a, w)

The numbers among these values, those within lists, tables and modules too, become arguments. So they have derivatives,
functions that differ in them alone share one compiled program, and a value that has changed since is seen. What is
captured: variables of enclosing functions, defaults of arguments, and variables of the module, in so far as they are
numbers or hold some; other functions that are called on the way keep what they have.
"""

import builtins
import dataclasses
from collections.abc import Callable, Iterator
from types import CellType, CodeType, FunctionType
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ._model import Model

_MOST = 256  # values: more are left where they are, as are models, whose zeros and ones a program is better for knowing
_HOLDS = (bool, int, float, np.generic, np.ndarray, jax.Array, list, tuple, dict, eqx.Module)


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The function without its numbers: equal for functions that differ in nothing else."""

    code: CodeType
    names: tuple[str, ...]  # variables of the module
    rest: tuple  # values that are no numbers
    structure: Any
    module: int
    variables: dict = dataclasses.field(compare=False, repr=False)

    def __call__(self, t: Array, numbers: Any) -> Any:
        values = eqx.combine(numbers, jax.tree.unflatten(self.structure, self.rest))
        cells, defaults, named, own = values
        around = {**self.variables, **dict(zip(self.names, own, strict=True))} if self.names else self.variables
        made = FunctionType(self.code, around, self.code.co_name, defaults, tuple(CellType(c) for c in cells))
        made.__kwdefaults__ = named
        return made(t)


def captured(function: Callable, dtype: Any) -> tuple[Recipe, Any] | None:
    """The recipe and its numbers, or None if it cannot be told apart so."""
    if not isinstance(function, FunctionType):
        return None
    around = function.__globals__
    names = sorted({name for name in _names(function.__code__) if isinstance(around.get(name), _HOLDS)})
    try:
        cells = tuple(cell.cell_contents for cell in function.__closure__ or ())
        values = (cells, function.__defaults__, function.__kwdefaults__, tuple(around[name] for name in names))
        parts = jax.tree.leaves(values, is_leaf=lambda x: isinstance(x, Model))
        if len(parts) > _MOST or any(isinstance(x, Model) for x in parts):
            return None
        numbers, rest = eqx.partition(values, _is_number)
        leaves, structure = jax.tree.flatten(rest)
        recipe = Recipe(function.__code__, tuple(names), tuple(leaves), structure, id(around), around)
        hash(recipe)
    except (TypeError, ValueError):  # a variable without a value yet, or a value without a hash
        return None
    return recipe, jax.tree.map(lambda x: jnp.asarray(x, dtype) if isinstance(x, float) else jnp.asarray(x), numbers)


def _is_number(x: Any) -> bool:
    """Whole numbers are no such: they count and index."""
    return isinstance(x, float | np.ndarray | jax.Array) and getattr(x, "dtype", np.dtype(float)).kind in "fiub"


def _names(code: CodeType) -> Iterator[str]:
    """Variables of the module that the code may look up, also in functions within it."""
    yield from (name for name in code.co_names if not hasattr(builtins, name))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
