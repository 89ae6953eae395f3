"""What a constraint is given, checked when it is built: numbers, and functions that a user writes for one sample."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._errors import MechanismError
from .._spatial._axis import is_concrete


def check_length(title: str, what: str, value: Array, least: float | None = None) -> None:
    """Refuses what is not one finite length above zero; `least` is allowed too."""
    if value.shape != ():
        raise MechanismError(f"the {what} of {title} has shape {value.shape}; give one number, in metres")
    if not is_concrete(value):
        return
    number = float(np.asarray(value))
    if not np.isfinite(number) or not (number > 0.0 or number == least):
        above = "zero or more" if least == 0.0 else "above zero"
        raise MechanismError(f"the {what} of {title} is {number:g} m; give a finite length {above}")


def check_sample(title: str, function: Callable, sample: Callable, example: tuple, shape: tuple[int, ...]) -> None:
    """Runs `sample(*example)`, which calls the user's `function`, on shapes alone: mistakes show at once."""
    try:
        hash(function)
        found = jax.eval_shape(lambda *args: jnp.asarray(sample(*args)), *example).shape
    except MechanismError:
        raise
    except Exception as error:
        raise MechanismError(f"the function of {title} fails: {type(error).__name__}: {error}") from error
    if found != shape:
        raise MechanismError(f"the function of {title} returns shape {found}; expected {shape or 'one number'}")


def example(*shapes: tuple[int, ...]) -> tuple[jax.ShapeDtypeStruct, ...]:
    """Floating arguments of these shapes, without values."""
    return tuple(jax.ShapeDtypeStruct(shape, jnp.result_type(float)) for shape in shapes)


def count_rows(title: str, function: Callable, arguments: tuple) -> int:
    """How many numbers a user's function gives, found by running it on shapes alone; one row for a bare number."""
    try:
        hash(function)
        shape = jax.eval_shape(lambda *args: jnp.atleast_1d(jnp.asarray(function(*args))), *arguments).shape
    except Exception as error:
        raise MechanismError(f"the function of {title} fails: {type(error).__name__}: {error}") from error
    if len(shape) != 1:
        raise MechanismError(f"the function of {title} returns shape {shape}; give a number or (rows,)")
    return shape[0]
