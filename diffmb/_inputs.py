"""INPUTS: loads at joints and inputs of connections as functions of time.

    tau(t) at the speeds of named joints          u(t) of named connections
"""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ._errors import MechanismError
from ._model import Model
from ._names import nearest
from ._spatial._axis import is_concrete


class Table(eqx.Module):
    """Values over time: `table(t)`.

    **Arguments:**

    - `times`: increasing, s.
    - `values`: (times,) or (times, numbers).
    - `kind`: "linear" between the times, "hold" for steps (the value of the last time passed), or "cubic" (Catmull-Rom,
        smooth in the first derivative). Before the first and after the last time the value stays.
    """

    times: Array
    values: Array
    kind: str = eqx.field(static=True)
    until: Array | None  # the time from which on the last piece is carried on, whatever follows (`_knots.py`)

    def __init__(self, times: Any, values: Any, kind: str = "linear"):
        self.times, self.values, self.kind = jnp.asarray(times, float), jnp.asarray(values, float), kind
        self.until = None
        if kind not in ("linear", "hold", "cubic"):
            raise MechanismError(f"a table of kind {kind!r}; {nearest(kind, ['linear', 'hold', 'cubic'])}")
        if self.times.ndim != 1 or self.values.shape[:1] != self.times.shape or self.times.shape[0] < 2:
            raise MechanismError(
                f"a table has times of shape {self.times.shape} and values of shape {self.values.shape}; give at least "
                "two times, and one row of values for each"
            )
        if is_concrete(self.times) and not (np.diff(np.asarray(self.times)) > 0).all():
            raise MechanismError("the times of a table must increase")
        if is_concrete(self.values) and not np.isfinite(np.asarray(self.values)).all():
            raise MechanismError("a table holds values that are not finite numbers")

    def __call__(self, t: Array) -> Array:
        last = self.times.shape[0] - 1
        at = jax.lax.stop_gradient(t if self.until is None else jnp.minimum(t, self.until))
        n = jnp.searchsorted(self.times, at, side="right") - 1  # of the last time passed
        if self.kind == "hold":
            return self.values[jnp.clip(n, 0, last)]
        k = jnp.clip(n, 0, last - 1)
        h = self.times[k + 1] - self.times[k]
        s = jnp.where(n < 0, 0.0, jnp.where(n >= last, 1.0, (t - self.times[k]) / h))
        a, b = self.values[k], self.values[k + 1]
        if self.kind == "linear":
            return a + s * (b - a)
        slope = lambda i, j: (self.values[j] - self.values[i]) / (self.times[j] - self.times[i]) * h
        da = slope(jnp.maximum(k - 1, 0), k + 1)
        db = slope(k, jnp.minimum(k + 2, last))
        return a + s * (da + s * (3 * (b - a) - 2 * da - db + s * (2 * (a - b) + da + db)))


class Signal(eqx.Module):
    """A user's function of time, with the numbers it closes over taken out, so that they can be differentiated."""

    function: Callable = eqx.field(static=True)
    numbers: list

    def __call__(self, t: Array) -> Any:
        return self.function(t, *self.numbers)


class Inputs(eqx.Module):
    """All inputs of a run: calling it with t gives (tau (nv,), u (nu,))."""

    signals: tuple
    places: tuple[tuple[str, int, int], ...] = eqx.field(static=True)  # "tau" or "u", start, stop
    sizes: tuple[int, int] = eqx.field(static=True)

    def __call__(self, t: Array) -> tuple[Array, Array]:
        found = {"tau": jnp.zeros(self.sizes[0], t.dtype), "u": jnp.zeros(self.sizes[1], t.dtype)}
        for (which, start, stop), signal in zip(self.places, self.signals, strict=True):
            value = jnp.broadcast_to(jnp.asarray(signal(t), t.dtype), (stop - start,))
            found[which] = found[which].at[start:stop].set(value)
        return found["tau"], found["u"]

    @property
    def knots(self) -> Array | None:
        """Times at which a table has a kink or a step: steps of the integration end just before them."""
        times = [table.times for table in self.tables]
        return jax.lax.stop_gradient(jnp.concatenate(times)) if times else None

    @property
    def tables(self) -> list[Table]:
        """Every table, also those within a user's modules."""
        return [x for x in jax.tree.leaves(self.signals, is_leaf=_is_table) if _is_table(x)]

    def until(self, ends: list[Array]) -> "Inputs":
        """With tables that know nothing of what comes after these times, one for each."""
        leaves, structure = jax.tree.flatten(self.signals, is_leaf=_is_table)
        own, none = iter(ends), lambda x: x is None
        cut = lambda x: eqx.tree_at(lambda table: table.until, x, next(own), is_leaf=none) if _is_table(x) else x
        return Inputs(jax.tree.unflatten(structure, [cut(x) for x in leaves]), self.places, self.sizes)


def _is_table(x: Any) -> bool:
    return isinstance(x, Table)


class _Constant(eqx.Module):
    value: Array

    def __call__(self, t: Array) -> Array:
        return self.value


def as_inputs(model: Model, inputs: Mapping[str, Any] | None, ts: Array) -> Inputs:
    """Inputs by name: of a joint (loads at its speeds, N or N m) or of a connection that has inputs.

    A value is a function of t, a `Table`, a number or (numbers,) that stays, or (times, numbers) at the times `ts`,
    linear in between.
    """
    size = lambda where: where.stop - where.start
    known = [*model.inboard, *(name for name in model.connection_names if size(model.input(name)))]
    signals, places = [], []
    for name, value in (inputs or {}).items():
        if name in model.inboard:
            where, which = model.speeds(name), "tau"
        elif name in known:
            where, which = model.input(name), "u"
        else:
            raise MechanismError(
                f"inputs name {name!r}, which is no joint or connection with inputs; {nearest(name, known)}"
            )
        signals.append(_signal(name, value, size(where), ts))
        places.append((which, where.start, where.stop))
    return Inputs(tuple(signals), tuple(places), (model.nv, model.nu))


def _signal(name: str, value: Any, size: int, ts: Array) -> Any:
    """The value as a callable module, its shape checked."""
    if isinstance(value, Table | eqx.Module) and callable(value):
        signal = value
    elif callable(value):
        try:
            function, numbers = jax.closure_convert(value, jnp.zeros((), ts.dtype))
        except Exception as error:
            raise MechanismError(f"the input of {name!r} fails: {type(error).__name__}: {error}") from error
        signal = Signal(function, numbers) if numbers else Signal(value, [])  # a plain function keeps its identity
    else:
        array = jnp.asarray(value, ts.dtype)
        over_time = array.ndim == 2 or (array.ndim == 1 and array.shape[0] == ts.shape[0] and array.shape[0] != size)
        signal = Table(ts, array) if over_time else _Constant(array)
    try:
        shape = jax.eval_shape(lambda t: jnp.asarray(signal(t)), jax.ShapeDtypeStruct((), ts.dtype)).shape
    except MechanismError:
        raise
    except Exception as error:
        raise MechanismError(f"the input of {name!r} fails: {type(error).__name__}: {error}") from error
    if shape not in ((), (size,)):
        raise MechanismError(f"the input of {name!r} gives shape {shape}; it has {size} number{'s' * (size != 1)}")
    return signal
