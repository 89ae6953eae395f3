"""Functions that a user writes for one sample, and how they reach a batch.

    F(q, t, params)[..., i] = f(q[..., i], t[i], params[..., i])

Batch axes are the last ones; any argument may have length one there.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from .._errors import MechanismError
from .._spatial._axis import as_array
from .._spatial._pose import Pose


def as_params(params: Any) -> Any:
    """The same tree with every number as a floating array, so that it can be differentiated and stacked."""

    def leaf(value):
        try:
            return as_array(value)
        except (TypeError, ValueError) as error:
            raise MechanismError(
                f"the params hold {value!r}, which is not a number or an array; keep only numbers there"
            ) from error

    return jax.tree.map(leaf, params)


def lift(function: Callable, rank: int, *args: Any) -> Any:
    """`function(*args)`, written for one sample, over the last `rank` axes of every array in the arguments."""
    if rank == 0:
        return function(*args)
    batch = ()
    for x in jax.tree.leaves(args):
        batch = jnp.broadcast_shapes(batch, x.shape[max(x.ndim - rank, 0) :])
    for _ in range(rank):
        function = jax.vmap(function, in_axes=-1, out_axes=-1)
    return function(*jax.tree.map(lambda x: jnp.broadcast_to(x, x.shape[: max(x.ndim - rank, 0)] + batch), args))


def as_component(value: Any, like: Array) -> Array:
    """What a user's function returned, in the precision of the coordinates (its own constants may have another)."""
    return jnp.asarray(value).astype(like.dtype)


def as_pose(title: str, result: Any, like: Array) -> Pose:
    """The pose that a user's function returned, or (rotation, translation)."""
    parts = (result.rotation, result.translation) if isinstance(result, Pose) else result
    if not isinstance(parts, tuple) or len(parts) != 2:
        raise MechanismError(
            f"the function of {title} returns {type(result).__name__}; it must return a Pose or the tuple "
            "(rotation (3, 3), translation (3,))"
        )
    rotation, translation = (as_component(part, like) for part in parts)
    if rotation.shape != (3, 3) or translation.shape != (3,):
        raise MechanismError(
            f"the function of {title} returns a rotation of shape {rotation.shape} and a translation of shape "
            f"{translation.shape}; expected (3, 3) and (3,), for one sample"
        )
    return Pose(rotation, translation)


def check_function(title: str, function: Callable, sample: Callable, size: int, params: Any) -> None:
    """Runs `sample(q, t, params)`, which calls the user's `function`, on shapes alone: mistakes show at once."""
    try:
        hash(function)
    except TypeError as error:
        raise MechanismError(
            f"{title} was given a function that cannot be hashed ({type(function).__name__}); write a plain function "
            "and hand its numbers over in params"
        ) from error
    number = jnp.result_type(float)
    try:
        jax.eval_shape(sample, jax.ShapeDtypeStruct((size,), number), jax.ShapeDtypeStruct((), number), params)
    except MechanismError:
        raise
    except Exception as error:
        raise MechanismError(
            f"the function of {title} fails for {size} coordinate{'s' * (size != 1)}: {type(error).__name__}: {error}"
        ) from error
