"""LAWS: functions of time by name, for drives and inputs in a file.

    constant       value
    linear         offset + slope t
    polynomial     coefficients[0] + coefficients[1] t + ...
    sine           offset + amplitude sin(speed t + phase)
    step           initial to final between start and end, by 6 s^5 - 15 s^4 + 10 s^3: smooth to the second derivative
    table          values at times, "linear", "hold" or "cubic" in between

Each is `f(t, params)` for a scalar t; its params are leaves, so that derivatives go through.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from .._inputs import Table
from .._spatial._axis import as_array


def constant(t: Array, p: Any) -> Array:
    return p["value"] + 0.0 * t


def linear(t: Array, p: Any) -> Array:
    return p["offset"] + p["slope"] * t


def polynomial(t: Array, p: Any) -> Array:
    return jnp.polyval(p["coefficients"][::-1], t)


def sine(t: Array, p: Any) -> Array:
    return p["offset"] + p["amplitude"] * jnp.sin(p["speed"] * t + p["phase"])


def step(t: Array, p: Any) -> Array:
    s = jnp.clip((t - p["start"]) / (p["end"] - p["start"]), 0.0, 1.0)
    return p["initial"] + (p["final"] - p["initial"]) * s**3 * (10.0 + s * (6.0 * s - 15.0))


def table(t: Array, p: Any) -> Array:
    return p["table"](t)


# What each takes: a default, or None where a number must be given.
LAWS: dict[str, tuple[Callable, dict[str, float | str | None]]] = {
    "constant": (constant, {"value": None}),
    "linear": (linear, {"offset": 0.0, "slope": None}),
    "polynomial": (polynomial, {"coefficients": None}),
    "sine": (sine, {"amplitude": None, "speed": None, "phase": 0.0, "offset": 0.0}),
    "step": (step, {"initial": 0.0, "final": None, "start": 0.0, "end": None}),
    "table": (table, {"times": None, "values": None, "interpolation": "cubic"}),
}


class Law(eqx.Module):
    """A law with its numbers: a function of time alone."""

    function: Callable = eqx.field(static=True)
    params: Any

    def __call__(self, t: Array) -> Array:
        return self.function(t, self.params)


def law(kind: str, numbers: dict[str, Any]) -> Law | Table:
    """The law of that name; a table is a `Table`, so that steps end at its kinks."""
    if kind == "table":
        return Table(numbers["times"], numbers["values"], numbers["interpolation"])
    return Law(LAWS[kind][0], {name: as_array(value) for name, value in numbers.items()})
