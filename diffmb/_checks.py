"""What a user hands to the functions of a model: shapes are checked here, in words."""

from collections.abc import Iterable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ._bodies._marker import Marker, as_marker
from ._errors import MechanismError
from ._mechanism import Mechanism
from ._model import Model
from ._spatial._axis import is_concrete


def kind_of(value: Any) -> str:
    """What a wrong argument is, in words."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, str | bool | np.bool_ | int | float | complex | np.number | None):
        return repr(value.item() if isinstance(value, np.generic) else value)
    if callable(value) and hasattr(value, "__name__"):
        return f"the function {value.__name__}"
    if isinstance(value, jax.Array | np.ndarray):
        return f"an array of shape {value.shape}"
    name = type(value).__name__
    return f"an {name}" if name[0] in "AEIOaeio" else f"a {name}"


def is_number(value: Any) -> bool:
    """One real number that is there to be looked at, or that is traced."""
    if isinstance(value, bool | np.bool_ | str) or value is None:
        return False
    if isinstance(value, int | float | np.number):
        return not isinstance(value, np.complexfloating)
    array = isinstance(value, jax.Array | np.ndarray) and value.ndim == 0
    return array and (jnp.issubdtype(value.dtype, jnp.floating) or jnp.issubdtype(value.dtype, jnp.integer))


def check_positive(title: str, value: Any, what: str) -> None:
    """Refuses what is no finite number above zero; one that is traced passes."""
    if not is_number(value) or (is_concrete(value) and not 0 < float(value) < np.inf):
        shown = f"{float(value):g}" if is_number(value) else kind_of(value)
        raise MechanismError(f"{title} is {shown}; give {what}, finite and above zero")


def check_whole(title: str, name: str, value: Any, what: str) -> None:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < 1:
        raise MechanismError(f"{title}({name}={value!r}); give a whole number of {what} above zero")


def check_tolerances(title: str, rtol: Any, atol: Any) -> None:
    """Refuses tolerances that cannot be; `atol` may be an array."""
    check_positive(f"{title}: rtol", rtol, "a relative error for each step, such as 1e-8")
    if is_concrete(rtol) and float(rtol) >= 1:
        raise MechanismError(f"{title}: rtol is {float(rtol):g}, an error as large as the motion; give one below 1")
    many = isinstance(atol, list | tuple | np.ndarray | jax.Array) and np.ndim(atol) == 1
    for one in (np.asarray(atol).tolist() if many and is_concrete(*jax.tree.leaves(atol)) else [atol] * (not many)):
        check_positive(f"{title}: atol", one, "an absolute error for each step (coordinates pass through zero)")


def as_floats(name: str, value: Any) -> Array:
    """An array of floating numbers, whose precision stays."""
    if isinstance(value, str):
        raise MechanismError(f"{name} is {value!r}, not an array of numbers")
    try:
        value = jnp.asarray(value)
    except (TypeError, ValueError) as error:
        raise MechanismError(f"{name} is {kind_of(value)}, not an array of numbers") from error
    if jnp.issubdtype(value.dtype, jnp.complexfloating):
        raise MechanismError(f"{name} is an array of complex numbers; it needs real ones")
    return value if jnp.issubdtype(value.dtype, jnp.floating) else value.astype(jnp.result_type(float))


def as_model(model: Any) -> Model:
    """The model, refused if it is something else."""
    if isinstance(model, Mechanism):
        raise MechanismError("model is a Mechanism; compile it first: model = mb.compile(mechanism)")
    if not isinstance(model, Model):
        raise MechanismError(f"model is {kind_of(model)}; the first argument is what mb.compile(mechanism) returns")
    if model.mass.ndim != 1 or model.gravity.ndim != 1 or model.placement.translation.ndim != 2:
        raise MechanismError(f"model is a batch, its masses have shape {model.mass.shape}; use jax.vmap over models")
    return model


def on_host(name: str, value: Any, advice: str) -> Any:
    """An array of numbers: of numpy if it can be looked at now, of jax if it is traced."""
    parts = jax.tree.leaves(value) if isinstance(value, list | tuple) else [value]
    make = np.asarray if is_concrete(*parts) else jnp.asarray
    if isinstance(value, Mapping):
        raise MechanismError(f"{name} is a {type(value).__name__}, not numbers; {advice}")
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        raise MechanismError(f"{name} has entries that are masked; fill them or leave them out")
    try:
        found = make(value)
    except (TypeError, ValueError) as error:
        raise MechanismError(f"{name} is not an array of numbers; {advice}") from error
    if not (jnp.issubdtype(found.dtype, jnp.floating) or jnp.issubdtype(found.dtype, jnp.integer)):
        what = f"an array of {_entries_of(found)}, not of numbers" if found.ndim else kind_of(value)
        raise MechanismError(f"{name} is {what}; {advice}")
    return found


def _entries_of(array: Any) -> str:
    kinds = {"U": "strings", "S": "strings", "b": "booleans", "c": "complex numbers", "M": "dates", "m": "time spans"}
    return kinds.get(array.dtype.kind, "objects")


def check_named(title: str, values: Any) -> None:
    """Refuses what is not a dict of finite numbers by joint name."""
    if not isinstance(values, Mapping | None):
        raise MechanismError(f"{title} is {kind_of(values)}; give a dict by joint name, such as {{'A': 0.5}}")
    for name, value in (values or {}).items():
        own = f"{title} of joint {name!r}"
        check_finite(own, on_host(own, value, "give a number, or as many as the joint has"))


def check_finite(title: str, array: Any) -> None:
    """Refuses numbers that are not finite; those that are traced pass."""
    if is_concrete(array) and not np.isfinite(np.asarray(array)).all():
        host = np.atleast_1d(np.asarray(array))
        where = "" if host.size == 1 else f" (entry {int(np.argmin(np.isfinite(host)))})"
        raise MechanismError(f"{title} holds {host[np.argmin(np.isfinite(host))]}{where}; it needs finite numbers")


def check_coordinates(model: Model, q: Any) -> Array:
    q = as_floats("q", q)
    if q.shape != (model.nq,):
        hint = "; for a batch use jax.vmap" if q.ndim > 1 else f"; model.pack({{'{model.inboard[0]}': ...}}) makes one"
        raise MechanismError(f"q has shape {q.shape}, but the model has nq = {model.nq} coordinates{hint}")
    return q


def check_speeds(model: Model, name: str, value: Any, like: Array) -> Array:
    """Speeds, their rates, loads or steps: (nv,); `None` means zero."""
    if value is None:
        return jnp.zeros(model.nv, like.dtype)
    value = as_floats(name, value)
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
    advice = "give names of what is switched off"
    if not isinstance(off, str | Iterable) or isinstance(off, Mapping | type):
        raise MechanismError(f"off is {kind_of(off)}; {advice}")
    names = (off,) if isinstance(off, str) else tuple(off)
    for name in names:
        if not isinstance(name, str):
            raise MechanismError(f"off holds {kind_of(name)}; {advice}")
    places = [model.switch(name) for name in names]
    return jnp.ones(len(model.switches), like.dtype).at[jnp.asarray(places)].set(0.0) if places else None


def _check_size(name: str, value: Any, title: str, size: int, what: str) -> Array:
    value = as_floats(name, value)
    if value.shape != (size,):
        hint = "; for a batch use jax.vmap" if value.ndim > 1 else ""
        raise MechanismError(f"{name} has shape {value.shape}, but the model has {title} = {size} {what}{hint}")
    return value


def as_time(t: Any, like: Array) -> Array:
    t = as_floats("t", t) if isinstance(t, str | None) else jnp.asarray(t)
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
        marker, wrench = as_marker(frame), as_floats("a wrench", wrench)
        if wrench.shape != (6,):
            raise MechanismError(f"the wrench on {marker.body!r} has shape {wrench.shape}; give moment, then force")
        pairs.append((marker, wrench))
    return tuple(pairs)
