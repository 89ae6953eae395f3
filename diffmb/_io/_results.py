"""RESULTS in files: a motion with its names, units and versions, to be read again here or by any other program.

    run.nc               one netCDF file, through xarray
    run.npz + run.json   arrays for numpy, and beside them what they are

Both hold the arrays of `_contents.py`, for one run those of `traj.to_xarray()`, and one description in JSON
(`_description.py`): the sidecar, or the attribute `diffmb` of the netCDF file. A hash tells a file that was cut or
changed. The model is not in the file: it is given again when the file is read, and its names and sizes must agree.
"""

import hashlib
import json
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import Any

import jax
import numpy as np

from .._errors import MechanismError
from .._kinematic_simulation import KinematicSimulation
from .._model import Model
from .._spatial._axis import is_concrete
from .._trajectory import SCHEMA, Trajectory
from ._contents import arrays_of, dataset_of, format_of, made
from ._description import check_names, check_shapes, description, parsed, sealed, unsealed
from ._files import check_place, content, replacing
from ._netcdf import libraries, read_netcdf, write_netcdf
from ._npz import from_npz, to_npz


def save(traj: Any, path: str | PathLike) -> None:
    """Writes what `mb.simulate` or `mb.simulate_kinematics` found, or a batch of it, to a file that describes itself:
    `run.nc` (netCDF; needs `pip install "diffmb[io]"`), or `run.npz` with `run.json` beside it.

    A file appears whole or not at all; one that is there already is replaced at the end. Inputs are functions of time,
    of which the file keeps the values at the rows. The same motion gives the same bytes of `run.npz`.
    """
    path = _path(path)
    format_of(traj)
    check_place(path)
    if not is_concrete(*jax.tree.leaves(traj)):
        raise MechanismError("mb.save needs numbers; return the trajectory from jax.jit and save it outside")
    if path.suffix == ".nc":
        _save_netcdf(traj, path)
    else:
        _save_npz(traj, path)


def load(path: str | PathLike, model: Any) -> Any:
    """Reads what `mb.save` wrote, with the model it belongs to: a `Trajectory` or a `KinematicSimulation`.

    Refuses a file that is cut, changed, newer than this diffmb, or of another mechanism. The numbers of the model
    (masses, lengths, ...) are not compared: give the same; for a batch whose members differ in them, `traj.model` of
    the batch. Inputs are tables, linear between the rows.
    """
    path = _path(path)
    if not isinstance(model, Model):
        raise MechanismError(f"mb.load needs the model that the motion belongs to, not a {type(model).__name__}")
    arrays, about = _load_netcdf(path) if path.suffix == ".nc" else _load_npz(path)
    try:
        empty = {name: own for name, own in about["arrays"].items() if 0 in own["shape"]}  # netCDF leaves them out
        arrays = {name: np.zeros(own["shape"], own["dtype"]) for name, own in empty.items()} | arrays
        check_shapes(arrays, about)
        check_names(model, about)
        return made(model, arrays, about)
    except MechanismError as error:
        raise MechanismError(f"the file {str(path)!r}: {error}") from error
    except Exception as error:  # whatever a description can be that somebody else has sealed
        raise MechanismError(
            f"the file {str(path)!r} is no trajectory of schema_version {SCHEMA}: {error!r}"
        ) from error


def _path(path: str | PathLike) -> Path:
    path = Path(path)
    if path.suffix not in (".nc", ".npz"):
        raise MechanismError(f"{str(path)!r} ends in {path.suffix!r}; give a name that ends in .nc or .npz")
    return path


def _save_netcdf(traj: Trajectory | KinematicSimulation, path: Path) -> None:
    libraries()
    arrays = arrays_of(traj)
    dataset = dataset_of(traj, arrays)
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
    arrays |= {"time": arrays["t"]} if "t" in arrays else {}  # of a batch
    return arrays, parsed(str(attrs.get("diffmb")), name)


def _save_npz(traj: Trajectory | KinematicSimulation, path: Path) -> None:
    sidecar = path.with_suffix(".json")
    check_place(sidecar)
    arrays = arrays_of(traj)
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
