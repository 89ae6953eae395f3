"""ARGUMENTS: what a user hands to `simulate`, checked in words and made ready for the loop.

Only numbers that can be looked at now are looked at, on the host, so a check adds nothing to a program; what is traced
passes by its shape.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ._assembly import State, assemble
from ._checks import as_switches, check_finite, check_states, kind_of, on_host
from ._errors import MechanismError
from ._event import Event
from ._inputs import Inputs, as_inputs
from ._meter import Meter
from ._model import Model
from ._solver import Baumgarte, StoredSteps, as_controller
from ._spatial._axis import is_concrete

_BATCH = "for a batch use jax.vmap, for example jax.vmap(lambda s: mb.simulate(model, s, ts, throw=False))(states)"
_TIMES = "give increasing times in seconds, such as np.linspace(0, 1, 101)"


# --- the model, the times and the start ---------------------------------------------------------------------------


def as_times(model: Model, ts: Any) -> tuple[Array, np.ndarray | None]:
    """The times, and the same to look at unless they are traced."""
    ts = on_host("ts", ts, _TIMES)
    if ts.ndim != 1 or ts.shape[0] < 2:
        few = f"has shape {ts.shape}; give the times as one list, at least the first and the last"
        batch = "; for a batch of times use jax.vmap" if ts.ndim > 1 else ""
        raise MechanismError(f"ts {few}{batch}")
    dtype = model.mass.dtype
    if not is_concrete(ts):
        return ts.astype(dtype), None
    host = np.asarray(ts)
    if not np.isfinite(host).all():
        k = int(np.argmin(np.isfinite(host)))
        raise MechanismError(f"ts holds a time that is not a finite number: ts[{k}] = {host[k]}")
    for numerals, why in ((host, ""), (host.astype(dtype), f" in {np.dtype(dtype).name}, the precision of the model")):
        bad = np.flatnonzero(np.diff(numerals) <= 0)
        if len(bad):
            k = int(bad[0])
            pair = f"ts[{k + 1}] = {numerals[k + 1]:.9g} follows {numerals[k]:.9g}"
            raise MechanismError(f"the times ts must increase, but {pair}{why}")
    return jnp.asarray(host, dtype), host


def as_start(model: Model, state: Any, ts: Array, host: np.ndarray | None) -> State:
    """The state at the first time; a pair (q, v) is assembled."""
    if not isinstance(state, State):
        return _assembled(model, state, ts)
    parts = (state.q, state.v, state.t, state.ok)
    if not all(isinstance(part, jax.Array | np.ndarray | np.generic) for part in parts):
        raise MechanismError("the state holds something that is not an array; make it with mb.assemble")
    if state.q.ndim > 1 or state.v.ndim > 1 or state.t.ndim:
        raise MechanismError(f"the state is a batch, its q has shape {state.q.shape}; {_BATCH}")
    if state.q.shape != (model.nq,) or state.v.shape != (model.nv,):
        have, wants = f"{state.q.size} coordinates and {state.v.size} speeds", f"{model.nq} and {model.nv}"
        raise MechanismError(
            f"the state has {have}, but the model has {wants}: it is of another model; assemble it with this one"
        )
    if not state.q.dtype == state.v.dtype == model.mass.dtype:
        raise MechanismError(
            f"the state is {state.q.dtype}, but the model is {model.mass.dtype}; make both after "
            'jax.config.update("jax_enable_x64", True), or both without it'
        )
    if is_concrete(state.ok) and not np.all(np.asarray(state.ok)):
        raise MechanismError("the state was not assembled (state.ok is False); mb.assemble(..., throw=True) says why")
    for name, part in (("q", state.q), ("v", state.v)):
        check_finite(f"{name} of the state", part)
    if host is not None and is_concrete(state.t):
        at, start = float(np.asarray(state.t)), float(host[0])
        if not abs(at - start) <= max(1e-9, 4.0 * float(np.finfo(ts.dtype).eps)) * max(1.0, abs(start)):
            fix = f"assemble it with t={start:.9g}"
            raise MechanismError(f"the state is at t = {at:.9g} s, but ts starts at {start:.9g}; {fix}")
    if isinstance(state.q, jax.Array) and isinstance(state.v, jax.Array):
        return state
    return eqx.tree_at(lambda s: (s.q, s.v), state, (jnp.asarray(state.q), jnp.asarray(state.v)))


def _assembled(model: Model, state: Any, ts: Array) -> State:
    advice = "give what mb.assemble(model, ...) returns, or a pair (q, v) of arrays"
    if not isinstance(state, tuple | list) or len(state) != 2:
        what = f"has {len(state)} parts" if isinstance(state, tuple | list) else f"is {kind_of(state)}"
        raise MechanismError(f"state {what}; {advice}")
    if any(isinstance(part, Mapping) for part in state):
        raise MechanismError("state is a pair of dicts; assemble them first: mb.assemble(model, q, v)")
    pair = []
    for name, title, size, part in zip("qv", ("nq", "nv"), (model.nq, model.nv), state, strict=True):
        part = on_host(f"{name} of the state", part, advice)
        if part.shape != (size,):
            batch = f"; {_BATCH}" if part.ndim > 1 else ""
            raise MechanismError(
                f"{name} of the state has shape {part.shape}, but the model has {title} = {size}{batch}"
            )
        check_finite(f"{name} of the state", part)
        pair.append(jnp.asarray(part, model.mass.dtype))
    return assemble(model, *pair, t=ts[0])


def as_states(model: Model, z: Any, like: Array) -> Array:
    """The states of the connections at the start."""
    found = check_states(model, z, like)
    if z is not None:
        check_finite("z", found)
    return found.astype(like.dtype)


# --- how to go ----------------------------------------------------------------------------------------------------


def as_control(controller: Any, y: Array) -> tuple[Any, tuple[Array, ...]]:
    """See `as_controller`; the numbers have to fit the state."""
    controller, control = as_controller(controller, y.dtype)
    for name, number in zip(("rtol", "atol"), control, strict=False):
        if controller is not None and number.shape not in ((), *([y.shape] if name == "atol" else [])):
            alone = "give one number" if name == "rtol" else f"give one number, or {y.shape[0]}, those of (q, v, z)"
            raise MechanismError(f"{name} of the controller has shape {number.shape}; {alone}")
    return controller, control


def as_projection(project: Any, dtype: Any) -> tuple[bool, Array | None]:
    """Whether steps end on the manifold, and the rate of the feedback if that is wanted instead."""
    if isinstance(project, Baumgarte):
        return False, jnp.asarray(project.rate, dtype)
    if not isinstance(project, bool | np.bool_):
        raise MechanismError(
            f"project is {kind_of(project)}; give True, False or mb.Baumgarte(rate) for feedback instead"
        )
    return bool(project), None


def as_flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise MechanismError(f"{name} is {kind_of(value)}; give True or False")
    return bool(value)


def as_limit(name: str, value: Any) -> Any:
    """A whole number above zero; one that is traced passes."""
    if not is_concrete(value):
        return value
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    array = isinstance(value, jax.Array | np.ndarray) and value.ndim == 0 and jnp.issubdtype(value.dtype, jnp.integer)
    if not (whole or array) or int(value) < 1:
        raise MechanismError(f"{name} is {kind_of(value)}; give a whole number above zero, such as 100_000")
    most = int(jnp.iinfo(jax.dtypes.canonicalize_dtype(int)).max)
    if int(value) > most:
        raise MechanismError(f"{name} is {int(value)}; the largest limit here is {most}")
    return int(value)


def as_slots(adjoint: Any) -> int:
    """How many steps are kept for a derivative."""
    if adjoint is None:
        return StoredSteps().steps
    if isinstance(adjoint, StoredSteps):
        return adjoint.steps
    if isinstance(adjoint, diffrax.AbstractAdjoint):
        raise MechanismError(
            f"adjoint is {kind_of(adjoint)} of diffrax; derivatives here go over the steps of the run, forwards and "
            "backwards, without it: leave it out, or give mb.StoredSteps(4096), how many steps are kept"
        )
    fix = f"mb.StoredSteps({adjoint})" if type(adjoint) is int else "mb.StoredSteps(4096), or leave it out"
    raise MechanismError(f"adjoint is {kind_of(adjoint)}; give {fix}")


def as_meter(progress: Any) -> Any:
    """What shows the progress, or None."""
    if progress is None or (isinstance(progress, bool | np.bool_) and not progress):
        return None
    if isinstance(progress, bool | np.bool_):
        return Meter()
    if not isinstance(progress, diffrax.AbstractProgressMeter):
        raise MechanismError(
            f"progress is {kind_of(progress)}; give True, or a progress meter of diffrax such as "
            "diffrax.TqdmProgressMeter()"
        )
    return None if isinstance(progress, diffrax.NoProgressMeter) else progress


# --- what happens on the way --------------------------------------------------------------------------------------


def as_events(events: Any) -> tuple[Event, ...]:
    given = (events,) if isinstance(events, Event) else () if events is None else events
    advice = "give a list of mb.Event(...) and mb.impact(...)"
    if isinstance(given, str | Mapping | type) or not isinstance(given, Iterable):
        raise MechanismError(f"events is {kind_of(events)}; {advice}")
    found, names = tuple(given), set()
    for event in found:
        if not isinstance(event, Event):
            raise MechanismError(f"events holds {kind_of(event)}; {advice}")
        if event.name in names:
            raise MechanismError(f"two events are named {event.name!r}; traj.event_names could not tell them apart")
        names.add(event.name)
    return found


def as_named_inputs(model: Model, inputs: Any, ts: Array) -> Inputs:
    if inputs is not None and not isinstance(inputs, Mapping):
        first = model.inboard[0] if model.inboard else "motor"
        raise MechanismError(
            f"inputs is {kind_of(inputs)}; give a dict by name of joint or connection, such as {{{first!r}: 1.5}}"
        )
    return as_inputs(model, inputs, ts)


def switched(model: Model, off: Any, events: tuple[Event, ...], like: Array) -> Array | None:
    """1 for what is on; None if nothing is ever switched."""
    on = as_switches(model, () if off is None else off, like)
    switching = any(event.action is not None for event in events)
    return jnp.ones(len(model.switches), like.dtype) if on is None and switching else on
