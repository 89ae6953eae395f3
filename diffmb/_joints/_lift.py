"""Functions that a user writes for one sample, and how they reach a batch.

    F(q, t, params)[..., i] = f(q[..., i], t[i], params[..., i])

The batch axis is the last one; t and the leaves of params may have length one there.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from .._errors import MechanismError
from .._spatial._axis import as_array


def as_params(params: Any) -> Any:
    """The same tree with every number as a floating array, so that it can be differentiated and stacked."""

    def leaf(value):
        try:
            return as_array(value)
        except (TypeError, ValueError) as error:
            raise MechanismError(
                f"the params of a joint hold {value!r}, which is not a number or an array; keep only numbers there"
            ) from error

    return jax.tree.map(leaf, params)


def lift(function: Callable, q: Array, t: Array, params: Any) -> Any:
    """`function(q, t, params)`, written for q of shape (nq,), over the trailing axes of `q`."""
    rank = q.ndim - 1
    if rank == 0:
        return function(q, t, params)
    batch = q.shape[1:]
    for shape in [jnp.shape(t)] + [x.shape[x.ndim - rank :] for x in jax.tree.leaves(params)]:
        batch = jnp.broadcast_shapes(batch, shape)
    spread = lambda x: jnp.broadcast_to(x, x.shape[: x.ndim - rank] + batch)
    for _ in range(rank):
        function = jax.vmap(function, in_axes=-1, out_axes=-1)
    return function(spread(q), jnp.broadcast_to(t, batch), jax.tree.map(spread, params))


def as_component(value: Any, like: Array) -> Array:
    """What a user's function returned, in the precision of the coordinates (its own constants may have another)."""
    return jnp.asarray(value).astype(like.dtype)


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
