"""RESULTS in files: a trajectory with its names, units and versions, to be read again here or by any other program.

    run.nc               one netCDF file, through xarray
    run.npz + run.json   arrays for numpy, and beside them what they are

Both hold the arrays of `traj.to_xarray()` and one description in JSON (`_description.py`): the sidecar, or the
attribute `diffmb` of the netCDF file. A hash tells a file that was cut or changed. The model is not in the file: it is
given again when the file is read, and its names and sizes must agree.
"""

import hashlib
import json
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._errors import MechanismError
from .._inputs import Inputs, Table
from .._model import Model
from .._results import RESULTS
from .._spatial._axis import is_concrete
from .._trajectory import SCHEMA, STATISTICS, Statistics, Trajectory, variables
from ._description import check_names, check_shapes, description, parsed, sealed, unsealed
from ._files import check_place, content, replacing
from ._netcdf import libraries, read_netcdf, write_netcdf
from ._npz import from_npz, to_npz


def save(traj: Trajectory, path: str | PathLike) -> None:
    """Writes a trajectory to a file that describes itself: `run.nc` (netCDF; needs `pip install "diffmb[io]"`), or
    `run.npz` with `run.json` beside it.

    A file appears whole or not at all; one that is there already is replaced at the end. Inputs are functions of time,
    of which the file keeps the values at the rows. The same trajectory gives the same bytes of `run.npz`.
    """
    path = _path(path)
    check_place(path)
    if not is_concrete(*jax.tree.leaves(traj)):
        raise MechanismError("mb.save needs numbers; return the trajectory from jax.jit and save it outside")
    if traj.ts.ndim != 1:
        raise MechanismError(
            f"{str(path)!r} holds one motion, but this is a batch of shape {traj.ts.shape[:-1]}; save its members, "
            "jax.tree.map(lambda a: a[0], traj), or write traj.to_xarray().to_netcdf(...)"
        )
    if path.suffix == ".nc":
        _save_netcdf(traj, path)
    else:
        _save_npz(traj, path)


def load(path: str | PathLike, model: Model) -> Trajectory:
    """Reads what `mb.save` wrote, with the model it belongs to.

    Refuses a file that is cut, changed, newer than this diffmb, or of another mechanism. The numbers of the model
    (masses, lengths, ...) are not compared: give the same. Inputs are tables, linear between the rows.
    """
    path = _path(path)
    arrays, about = _load_netcdf(path) if path.suffix == ".nc" else _load_npz(path)
    try:
        empty = {name: own for name, own in about["arrays"].items() if 0 in own["shape"]}  # netCDF leaves them out
        arrays = {name: np.zeros(own["shape"], own["dtype"]) for name, own in empty.items()} | arrays
        check_shapes(arrays, about)
        check_names(model, about)
        return _trajectory(model, arrays, about)
    except MechanismError as error:
        raise MechanismError(f"the file {str(path)!r}: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise MechanismError(
            f"the file {str(path)!r} is no trajectory of schema_version {SCHEMA}: {error!r}"
        ) from error


def _path(path: str | PathLike) -> Path:
    path = Path(path)
    if path.suffix not in (".nc", ".npz"):
        raise MechanismError(f"{str(path)!r} ends in {path.suffix!r}; give a name that ends in .nc or .npz")
    return path


def _save_netcdf(traj: Trajectory, path: Path) -> None:
    libraries()
    dataset = traj.to_xarray()
    arrays = {str(name): (x.dims, x.values, x.attrs["units"]) for name, x in dataset.variables.items() if x.attrs}
    dataset.attrs["diffmb"] = json.dumps(description(traj, arrays))
    with replacing(path) as file:
        write_netcdf(dataset, file)


def _load_netcdf(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    data, name = content(path, "the file"), f"the file {str(path)!r}"
    try:
        arrays, attrs = read_netcdf(data)
    except MechanismError:
        raise
    except Exception as error:  # whatever HDF5 makes of bytes that somebody else has sealed
        raise MechanismError(f"{name} cannot be read: {error}") from error
    return arrays, parsed(str(attrs.get("diffmb")), name)


def _save_npz(traj: Trajectory, path: Path) -> None:
    sidecar = path.with_suffix(".json")
    check_place(sidecar)
    arrays = variables(traj)
    data = to_npz({name: values for name, (_, values, _) in arrays.items()})
    written = datetime.now(UTC).isoformat(timespec="seconds")
    about = {"file": path.name, "sha256": hashlib.sha256(data).hexdigest(), "written": written}
    with replacing(sidecar) as beside, replacing(path) as file:
        file.write_bytes(data)
        beside.write_text(sealed(description(traj, arrays) | about), encoding="ascii")


def _load_npz(path: Path) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    data, sidecar = content(path, "the file"), path.with_suffix(".json")
    text = content(sidecar, "the sidecar").decode("ascii", "replace")
    about = unsealed(text, f"the sidecar {str(sidecar)!r}")
    if hashlib.sha256(data).hexdigest() != about.get("sha256"):
        raise MechanismError(
            f"the file {str(path)!r} is not the one that {str(sidecar)!r} describes, its hash differs: it was cut or "
            "changed, or the two belong to different runs"
        )
    try:
        return from_npz(data), about
    except ValueError as error:
        raise MechanismError(f"the file {str(path)!r} cannot be read: {error}") from error


def _trajectory(model: Model, arrays: dict[str, np.ndarray], about: dict[str, Any]) -> Trajectory:
    kept = {name: jnp.asarray(values) for name, values in arrays.items()}
    dtype = arrays["q"].dtype
    if kept["q"].dtype != dtype:
        advice = 'jax.config.update("jax_enable_x64", True) keeps them'
        raise MechanismError(f"the numbers are {dtype}, which jax would round; {advice}")
    if about["result"] not in RESULTS._name_to_item:
        raise MechanismError(f"the result {about['result']!r} is not known to this diffmb")
    steps, rejected, error, correction = (about["statistics"][name] for name in STATISTICS)
    count, size = lambda x: jnp.asarray(int(x)), lambda x: jnp.asarray(float(x), dtype)
    return Trajectory(
        kept["time"],
        kept["q"],
        kept["v"],
        kept["z"],
        kept.get("on"),
        model,
        _tables(model, arrays),
        jax.tree.map(jnp.asarray, RESULTS._name_to_item[about["result"]]),
        count(about["reached"]),
        Statistics(count(steps), count(rejected), size(error), size(correction), str(about["solver"])),
        kept["event_time"] if about["events"] else jnp.zeros(0, dtype),
        kept["event_number"] if about["events"] else jnp.zeros(0, int),
        tuple(str(name) for name in about["events"]),
    )


def _tables(model: Model, arrays: dict[str, np.ndarray]) -> Inputs:
    """The values of the inputs at the rows, as tables; what is zero throughout is left out."""
    new = np.diff(arrays["time"], prepend=-np.inf) > 0  # after an event rows may repeat the last one
    ts = arrays["time"][new]
    signals, places = [], []
    for name, size in (("tau", model.nv), ("u", model.nu)):
        values = arrays[name][new]
        if not values.any():
            continue
        if len(ts) == 1:
            ts, values = np.array([ts[0], ts[0] + 1.0]), np.concatenate([values, values])
        table = Table(ts, np.zeros_like(values))
        signals.append(eqx.tree_at(lambda t: t.values, table, jnp.asarray(values)))  # a failed run may hold nan
        places.append((name, 0, size))
    return Inputs(tuple(signals), tuple(places), (model.nv, model.nu))
