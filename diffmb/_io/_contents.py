"""CONTENTS of a file: a `Trajectory` or a `KinematicSimulation`, or a batch of them, as arrays and facts, and back.

    arrays    dimensions, numbers and unit by name; the axes of a batch in front
    facts     what is said once for each motion: how it ended, how it went

The model is given again when a file is read; for a batch each member has it, or its own if the model is a batch too.
"""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._errors import MechanismError
from .._inputs import Inputs, Table
from .._kinematic_simulation import KinematicSimulation
from .._model import Model
from .._results import RESULTS
from .._trajectory import SCHEMA, STATISTICS, Statistics, Trajectory, labels, optional, variables, versions

Arrays = dict[str, tuple[tuple[str, ...], np.ndarray, str]]
TRAJECTORY, KINEMATICS = "diffmb trajectory", "diffmb kinematic simulation"

# What every file of a kind has, and the sizes of its rows.
NEEDED = {
    TRAJECTORY: {"time": (), "q": ("nq",), "v": ("nv",), "z": ("nz",), "tau": ("nv",), "u": ("nu",)},
    KINEMATICS: {"time": (), "q": ("nq",), "v": ("nv",), "vd": ("nv",), "residual": (), "margin": ()},
}


def format_of(found: Any) -> str:
    kinds: dict[type, str] = {Trajectory: TRAJECTORY, KinematicSimulation: KINEMATICS}
    if type(found) not in kinds:
        raise MechanismError(
            f"mb.save writes what mb.simulate and mb.simulate_kinematics return, not a {type(found).__name__}"
        )
    return kinds[type(found)]


def arrays_of(found: Any) -> Arrays:
    """Everything over time."""
    if isinstance(found, Trajectory):
        own = variables(found)
    else:
        whole = lambda a: np.asarray(a).astype(np.int8)  # netCDF knows no truth values
        own = {
            "time": (("time",), np.asarray(found.ts), "s"),
            "q": (("time", "coordinate"), np.asarray(found.q), "rad or m; 1 for quaternions"),
            "v": (("time", "speed"), np.asarray(found.v), "rad/s or m/s"),
            "vd": (("time", "speed"), np.asarray(found.vd), "rad/s^2 or m/s^2"),
            "residual": (("time",), np.asarray(found.residual), "rad or m"),
            "margin": (("time",), np.asarray(found.margin), "1"),
            "side": (("time",), whole(found.side), "1"),
            "ok": (("time",), whole(found.ok), "1"),
        }
    batch = tuple(f"batch_{k}" for k in range(found.ts.ndim - 1))
    return {name: (batch + dims, values, unit) for name, (dims, values, unit) in own.items()}


def dataset_of(found: Any, arrays: Arrays) -> Any:
    """An `xarray.Dataset` of the arrays."""
    xarray = optional("xarray", "a file that ends in .nc")
    if isinstance(found, Trajectory) and found.ts.ndim == 1:
        return found.to_xarray()
    own = {name: (dims, values, {"units": unit}) for name, (dims, values, unit) in arrays.items()}
    own |= {"t": own.pop("time")} if found.ts.ndim > 1 else {}
    used = {dim for dims, *_ in own.values() for dim in dims}
    names = {dim: np.array(of, str) for dim, of in labels(found.model).items() if dim in used}
    return xarray.Dataset(own, names, {"schema_version": SCHEMA, **versions()})


# --- what is said once --------------------------------------------------------------------------------------------


def facts_of(found: Any) -> dict[str, Any]:
    """How a run ended and went; of each member of a batch."""
    if not isinstance(found, Trajectory):
        return {}
    member = np.asarray(found.result._value)
    names, messages = list(RESULTS._name_to_item), RESULTS._index_to_message
    return {
        "solver": found.stats.solver,
        "result": _each(member, lambda k: names[k]),
        "message": _each(member, lambda k: messages[k]),
        "reached": _each(found.reached, int),
        "statistics": {name: _each(getattr(found.stats, name), _number) for name in STATISTICS},
        "events": list(found.event_names),
    }


def _each(values: Any, fun: Callable[[Any], Any]) -> Any:
    """fun of each entry of an array, as nested lists."""
    plain = np.asarray(values).tolist()
    walk = lambda x: [walk(y) for y in x] if isinstance(x, list) else fun(x)
    return walk(plain)


def _number(x: Any) -> Any:
    return x if np.isfinite(x) else repr(x)  # JSON has no nan


# --- back ---------------------------------------------------------------------------------------------------------


def made(model: Model, arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> Any:
    """The motion, or the batch of motions, of arrays and facts that were checked."""
    batch, dtype = arrays["time"].shape[:-1], arrays["q"].dtype
    kept = {name: jnp.asarray(values) for name, values in arrays.items()}
    if kept["q"].dtype != dtype:
        advice = 'jax.config.update("jax_enable_x64", True) keeps them'
        raise MechanismError(f"the numbers are {dtype}, which jax would round; {advice}")
    if batch and model.mass.ndim == 1:
        model = jax.tree.map(lambda a: jnp.broadcast_to(a, (*batch, *a.shape)), model)
    if about["format"] == KINEMATICS:
        names = [*NEEDED[KINEMATICS], "side", "ok"]
        kept["side"], kept["ok"] = kept["side"].astype(int), kept["ok"].astype(bool)
        return KinematicSimulation(**{"ts" if name == "time" else name: kept[name] for name in names}, model=model)
    whole = lambda x: jnp.asarray(_shaped(x, int, batch))
    size = lambda x: jnp.asarray(_shaped(x, dtype, batch))
    steps, rejected, error, correction = (about["statistics"][name] for name in STATISTICS)
    events = tuple(str(name) for name in about["events"])
    return Trajectory(
        kept["time"],
        kept["q"],
        kept["v"],
        kept["z"],
        kept.get("on"),
        model,
        _tables(model, arrays),
        _result(about["result"], batch),
        whole(about["reached"]),
        Statistics(whole(steps), whole(rejected), size(error), size(correction), str(about["solver"])),
        kept["event_time"] if events else jnp.zeros((*batch, 0), dtype),
        kept["event_number"] if events else jnp.zeros((*batch, 0), int),
        events,
    )


def _shaped(values: Any, dtype: Any, batch: tuple[int, ...]) -> np.ndarray:
    found = np.asarray(values).astype(dtype)  # "nan" is a number for numpy
    if found.shape != batch:
        raise ValueError(f"{found.shape} facts for a batch of {batch}")
    return found


def _result(names: Any, batch: tuple[int, ...]) -> Any:
    known = list(RESULTS._name_to_item)
    for name in np.unique(np.asarray(names)).tolist():
        if name not in known:
            raise MechanismError(f"the result {name!r} is not known to this diffmb")
    item = jax.tree.map(jnp.asarray, RESULTS.successful)
    codes = _shaped(_each(names, known.index), np.asarray(item._value).dtype, batch)
    return eqx.tree_at(lambda item: item._value, item, jnp.asarray(codes))


def _tables(model: Model, arrays: Mapping[str, np.ndarray]) -> Inputs:
    """The values of the inputs at the rows, as tables; what is zero throughout is left out."""
    ts = jnp.asarray(_increasing(arrays["time"]))
    signals, places = [], []
    for name, size in (("tau", model.nv), ("u", model.nu)):
        values = jnp.asarray(arrays[name])
        if not (values != 0).any():
            continue
        if ts.shape[-1] == 1:
            ts, values = jnp.concatenate([ts, ts + 1.0], -1), jnp.concatenate([values, values], -2)
        table = Table([0.0, 1.0], [0.0, 0.0])
        parts = lambda table: (table.times, table.values)
        signals.append(eqx.tree_at(parts, table, (ts, values[..., : ts.shape[-1], :])))  # a failed run may hold nan
        places.append((name, 0, size))
    return Inputs(tuple(signals), tuple(places), (model.nv, model.nu))


def _increasing(times: np.ndarray) -> np.ndarray:
    """Times that repeat, as on both sides of an event, a unit of round-off apart."""
    ts = np.array(times)
    for k in range(1, ts.shape[-1]):
        ts[..., k] = np.maximum(ts[..., k], np.nextafter(ts[..., k - 1], np.inf))
    return ts
