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

from ._captured import captured
from ._checks import kind_of
from ._errors import MechanismError
from ._model import Model
from ._names import nearest
from ._spatial._axis import is_concrete

_KINDS = ["linear", "hold", "cubic"]


class Table(eqx.Module):
    """Values over time: `table(t)`. Steps end at its times, its knots, and derivatives by them are exact.

    **Arguments:**

    - `times`: increasing, s.
    - `values`: (times,) or (times, numbers).
    - `kind`: "linear" between the times, "hold" for steps (the value of the last time passed), or "cubic" (Catmull-Rom,
        smooth in the first derivative). Before the first and after the last time the value stays.

    At a knot the value is the one after it. Tables within functions and modules of yours are seen too, as in
    `lambda t: 2 * table(t)`; where they are asked at another time, `table(t - 1)`, steps do not end at their knots.
    """

    times: Array
    values: Array
    kind: str = eqx.field(static=True)
    now: Array | None  # at this time ...
    end: Array | None  # ... it is not known what comes then or later (`_knots.py`)

    def __init__(self, times: Any, values: Any, kind: str = "linear"):
        self.times, self.values = _numbers("the times of a table", times), _numbers("the values of a table", values)
        self.kind, self.now, self.end = kind, None, None
        if kind not in _KINDS:
            raise MechanismError(f"a table of kind {kind!r}; {nearest(str(kind), _KINDS)}")
        shapes = self.times.shape, self.values.shape
        if self.times.ndim != 1 or shapes[0][0] < 2 or shapes[1][:1] != shapes[0] or self.values.ndim > 2:
            raise MechanismError(
                f"a table has times of shape {shapes[0]} and values of shape {shapes[1]}; give at least two times, and "
                "one value or one row of values for each"
            )
        if is_concrete(self.times):
            numbers = np.asarray(self.times)
            back = np.flatnonzero(np.diff(numbers) <= 0)
            if len(back):
                k = int(back[0])
                pair = f"times[{k + 1}] = {numbers[k + 1]:.12g} follows {numbers[k]:.12g}"
                raise MechanismError(f"the times of a table must increase, but {pair}")

    def __call__(self, t: Array) -> Array:
        last = self.times.shape[0] - 1
        at = t if self.end is None or t is not self.now else jnp.minimum(t, _below(self.end))
        at = jax.lax.stop_gradient(at)
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
    ends: list[Array] | None = None  # of each table: what comes then or later is not known

    def __call__(self, t: Array) -> tuple[Array, Array]:
        signals = self.signals if self.ends is None else _cut(self.signals, t, self.ends)
        found = {"tau": jnp.zeros(self.sizes[0], t.dtype), "u": jnp.zeros(self.sizes[1], t.dtype)}
        for (which, start, stop), signal in zip(self.places, signals, strict=True):
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


def _cut(signals: tuple, t: Array, ends: list[Array]) -> tuple:
    """With tables that do not know what comes at these times or later, when they are asked at t itself."""
    leaves, structure = jax.tree.flatten(signals, is_leaf=_is_table)
    end, none, parts = iter(ends), lambda x: x is None, lambda table: (table.now, table.end)
    own = lambda x: eqx.tree_at(parts, x, (t, next(end)), is_leaf=none) if _is_table(x) else x
    return jax.tree.unflatten(structure, [own(x) for x in leaves])


def _below(t: Array) -> Array:
    return jnp.nextafter(t, jnp.asarray(-jnp.inf, t.dtype))


def _is_table(x: Any) -> bool:
    return isinstance(x, Table)


class _Constant(eqx.Module):
    value: Array

    def __call__(self, t: Array) -> Array:
        return self.value


def as_inputs(model: Model, inputs: Mapping[str, Any] | None, ts: Array) -> Inputs:
    """Inputs by name: of a joint (loads at its speeds, N or N m) or of a connection that has inputs.

    A value is a function of t, a `Table`, a number or (numbers,) that stays, or (times,) or (times, numbers) at the
    times `ts`, linear in between. A list that is as long as the input has numbers stays, even if `ts` is as long.
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
        signal = _function(name, value, ts)
    else:
        signal = _constant_or_over_time(name, _numbers(f"the input of {name!r}", value).astype(ts.dtype), size, ts)
    try:
        found = jax.eval_shape(lambda t: jnp.asarray(signal(t)), jax.ShapeDtypeStruct((), ts.dtype))
    except MechanismError:
        raise
    except Exception as error:
        raise MechanismError(f"the input of {name!r} fails: {type(error).__name__}: {error}") from error
    many = f"{size} number{'s' * (size != 1)}"
    if found.shape not in ((), (size,)):
        raise MechanismError(f"the input of {name!r} gives shape {found.shape}; it has {many}")
    if jnp.issubdtype(found.dtype, jnp.complexfloating):
        raise MechanismError(f"the input of {name!r} gives complex numbers; it has {many}, which are real")
    return signal


def _function(name: str, value: Callable, ts: Array) -> Signal:
    """The function with its numbers taken out; as it is, where it asks them for what arrays do not answer."""
    parts = captured(value, ts.dtype)
    if parts is not None:
        signal = Signal(parts[0], [parts[1]])
        try:
            jax.eval_shape(lambda signal, t: jnp.asarray(signal(t)), signal, jax.ShapeDtypeStruct((), ts.dtype))
            return signal
        except Exception:  # such as `if a > 0`; if it fails for another reason, it does so again
            pass
    try:
        function, numbers = jax.closure_convert(value, jnp.zeros((), ts.dtype))
    except Exception as error:
        raise MechanismError(f"the input of {name!r} fails: {type(error).__name__}: {error}") from error
    return Signal(function, numbers) if numbers else Signal(value, [])  # a plain function keeps its identity


def _constant_or_over_time(name: str, array: Array, size: int, ts: Array) -> Any:
    shape, times = array.shape, ts.shape[0]
    if shape in ((), (size,)):
        return _Constant(array)
    if times and shape in ((times,), (times, size)):
        return Table(ts, array)
    over_time = f", or at the {times} times ts an array of shape ({times}, {size})" if times else ""
    advice = "; yours is transposed" if times and shape == (size, times) else ""
    raise MechanismError(
        f"the input of {name!r} has shape {shape}; give {size} number{'s' * (size != 1)} that stay{over_time}, or "
        f"mb.Table(times, values) with times of its own{advice}"
    )


def _numbers(what: str, value: Any) -> Array:
    """Real numbers that are finite, as far as that is seen."""
    try:
        traced = any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(value))
        array = jnp.asarray(value) if traced else np.asarray(value)
    except (TypeError, ValueError) as error:
        why = "are they lists of different lengths?" if isinstance(value, list | tuple) else f"{error}"
        raise MechanismError(f"{what}: no array of numbers; {why}") from error
    if not (jnp.issubdtype(array.dtype, jnp.floating) or jnp.issubdtype(array.dtype, jnp.integer)):
        raise MechanismError(f"{what}: {kind_of(value)} of {array.dtype}; give real numbers")
    if is_concrete(array) and not np.isfinite(np.asarray(array)).all():
        place = [int(k) for k in np.argwhere(~np.isfinite(np.asarray(array)))[0]]
        raise MechanismError(f"{what}: not a finite number at {place}")
    return jnp.asarray(array, float)
