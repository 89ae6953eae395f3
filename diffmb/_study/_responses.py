"""RESPONSES: channels reduced to one number.

    max min mean rms range final first integral peak (largest absolute value); with a target, of (channel - target)^2
"""

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import Array

from .._config._schema import Response
from .._errors import StudyError

_REDUCE: dict[str, Callable[[Array, Array], Array]] = {
    "max": lambda t, y: y.max(),
    "min": lambda t, y: y.min(),
    "mean": lambda t, y: jnp.trapezoid(y, t) / (t[-1] - t[0]),
    "rms": lambda t, y: jnp.sqrt(jnp.trapezoid(y * y, t) / (t[-1] - t[0])),
    "range": lambda t, y: y.max() - y.min(),
    "final": lambda t, y: y[-1],
    "first": lambda t, y: y[0],
    "integral": lambda t, y: jnp.trapezoid(y, t),
    "peak": lambda t, y: jnp.abs(y).max(),
}


def response(own: Response, values: Array, ts: np.ndarray) -> Array:
    """The number that a response makes of a channel; `ts` are the times, known before anything runs."""
    late = -np.inf if own.start is None else own.start
    early = np.inf if own.end is None else own.end
    rows = np.flatnonzero((ts >= late - 1e-12) & (ts <= early + 1e-12))
    if len(rows) < (1 if own.reduce in ("max", "min", "final", "first", "range", "peak") else 2):
        raise StudyError(f'the response of "{own.channel}" looks at {own.start} to {own.end} s, where no times are')
    y, t = values[rows[0] : rows[-1] + 1], jnp.asarray(ts[rows[0] : rows[-1] + 1])
    if own.target is None:
        return _REDUCE[own.reduce](t, y)
    target = np.asarray(own.target)
    if target.ndim and len(target) != len(rows):
        raise StudyError(f'the response of "{own.channel}" has {len(target)} targets for {len(rows)} times')
    return _REDUCE[own.reduce](t, (y - target) ** 2)
