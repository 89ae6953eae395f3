"""What a user hands to the functions of a model: shapes are checked here, in words."""

from collections.abc import Iterable, Mapping
from typing import Any

import jax.numpy as jnp
from jax import Array

from ._bodies._marker import Marker, as_marker
from ._errors import MechanismError
from ._model import Model


def _as_floats(name: str, value: Any) -> Array:
    try:
        value = jnp.asarray(value)
    except (TypeError, ValueError) as error:
        raise MechanismError(f"{name} is {type(value).__name__}, not an array of numbers") from error
    return value if jnp.issubdtype(value.dtype, jnp.floating) else value.astype(jnp.result_type(float))


def check_coordinates(model: Model, q: Any) -> Array:
    q = _as_floats("q", q)
    if q.shape != (model.nq,):
        hint = "; for a batch use jax.vmap" if q.ndim > 1 else f"; model.pack({{'{model.inboard[0]}': ...}}) makes one"
        raise MechanismError(f"q has shape {q.shape}, but the model has nq = {model.nq} coordinates{hint}")
    return q


def check_speeds(model: Model, name: str, value: Any, like: Array) -> Array:
    """Speeds, their rates, loads or steps: (nv,); `None` means zero."""
    if value is None:
        return jnp.zeros(model.nv, like.dtype)
    value = _as_floats(name, value)
    if value.shape != (model.nv,):
        hint = "; for a batch use jax.vmap" if value.ndim > 1 else ""
        raise MechanismError(f"{name} has shape {value.shape}, but the model has nv = {model.nv} speeds{hint}")
    return value


def check_states(model: Model, z: Any, like: Array) -> Array:
    """States of the connections, (nz,); `None` means those from which they start."""
    if z is None:
        return model.start_states() if model.nz else jnp.zeros(0, like.dtype)
    return _check_size("z", z, "nz", model.nz, "states of connections; model.start_states() makes one")


def check_inputs(model: Model, u: Any, like: Array) -> Array:
    """Inputs of the connections, (nu,); `None` means zero."""
    if u is None:
        return jnp.zeros(model.nu, like.dtype)
    return _check_size("u", u, "nu", model.nu, "inputs of connections")


def check_switches(model: Model, on: Any, like: Array) -> Array | None:
    """1 for what is on and 0 for what is off, in the order of `model.switches`; `None`: everything is on."""
    if on is None:
        return None
    advice = "switches; model.switch(name) says which"
    return _check_size("on", on, "len(model.switches)", len(model.switches), advice).astype(like.dtype)


def as_switches(model: Model, off: Any, like: Array) -> Array | None:
    """1 for what is on, 0 for what is named in `off`; None if that is nothing."""
    names = (off,) if isinstance(off, str) else tuple(off)
    places = [model.switch(name) for name in names]
    return jnp.ones(len(model.switches), like.dtype).at[jnp.asarray(places)].set(0.0) if places else None


def _check_size(name: str, value: Any, title: str, size: int, what: str) -> Array:
    value = _as_floats(name, value)
    if value.shape != (size,):
        hint = "; for a batch use jax.vmap" if value.ndim > 1 else ""
        raise MechanismError(f"{name} has shape {value.shape}, but the model has {title} = {size} {what}{hint}")
    return value


def as_time(t: Any, like: Array) -> Array:
    t = jnp.asarray(t)
    if t.shape != ():
        raise MechanismError(f"t has shape {t.shape}; time is one number, for a batch use jax.vmap")
    return t if jnp.issubdtype(t.dtype, jnp.floating) and not t.weak_type else t.astype(like.dtype)


# External loads: {body name: six numbers}, or pairs of a body name or Marker and six numbers
Wrenches = Mapping[str, Any] | Iterable[tuple[str | Marker, Any]]


def as_wrenches(wrenches: Wrenches | None) -> tuple[tuple[Marker, Array], ...]:
    """Pairs of the frame at which a wrench acts and its six numbers."""
    given: Any = wrenches.items() if isinstance(wrenches, Mapping) else wrenches or ()
    pairs = []
    for frame, wrench in given:
        marker, wrench = as_marker(frame), _as_floats("a wrench", wrench)
        if wrench.shape != (6,):
            raise MechanismError(f"the wrench on {marker.body!r} has shape {wrench.shape}; give moment, then force")
        pairs.append((marker, wrench))
    return tuple(pairs)
