"""Numbers from the user: arrays that are leaves, and unit axes."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.core import Tracer

from .._errors import MechanismError
from ._seen import literals, note, seen
from ._vector import unit


def as_array(value) -> Array:
    """A floating leaf: whole numbers become floats, tracers pass, a weak type is made definite (it would retrace)."""
    if isinstance(value, jax.Array) and jnp.issubdtype(value.dtype, jnp.inexact):
        return value.astype(value.dtype) if value.weak_type else value
    dtype = jnp.result_type(float)
    if any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(value)):
        array = jnp.asarray(value, dtype=dtype)
        return note(array, literals(value, array.shape))
    host = np.asarray(value)
    if host.dtype.kind not in "fiu":
        raise TypeError(f"{value!r} is not a number")
    return note(jnp.asarray(host.astype(dtype)), seen(host))  # inside of `jax.jit` constants are traced too


def is_concrete(*values) -> bool:
    """Whether the numbers can be looked at now, that is, are not being traced."""
    return not any(isinstance(v, Tracer) for v in values)


def as_axis(value) -> Array:
    """A unit vector from "x", "-y", "z" or three numbers."""
    if isinstance(value, str):
        if value.lstrip("+-") not in ("x", "y", "z"):
            raise MechanismError(f"axis {value!r} is not known; give 'x', 'y', 'z', '-x', '-y', '-z' or three numbers")
        sign = -1.0 if value.startswith("-") else 1.0
        return as_array(sign * np.eye(3)["xyz".index(value[-1])])
    axis = as_array(value)
    if axis.shape != (3,):
        raise MechanismError(f"axis has shape {axis.shape}; it needs three numbers, for example axis=(0, 0, 1)")
    if not is_concrete(axis):
        return unit(axis)
    length = float(np.linalg.norm(axis))
    if not np.isfinite(length) or length == 0.0:
        raise MechanismError(f"axis {np.asarray(axis).tolist()} has no direction; give a vector of non-zero length")
    return as_array(np.asarray(axis) / length)
