"""NETCDF: a dataset in an HDF5 file, as xarray reads and writes it, and behind its end a line that seals it.

    the file = what h5netcdf writes + "\\ndiffmb sha256 <64 hex digits>\\n"

HDF5 does not look behind its own end, so every netCDF reader takes the file as it is. A file that is cut or changed is
refused by the seal before its bytes reach the HDF5 library.
"""

import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np

from .._trajectory import optional

_SEAL = b"\ndiffmb sha256 "
_LENGTH = len(_SEAL) + 65


def libraries() -> Any:
    """xarray, and what it writes netCDF with."""
    what = "a file that ends in .nc"
    xarray = optional("xarray", what)
    for package in ("h5netcdf", "h5py"):
        optional(package, what)
    return xarray


def write_netcdf(dataset: Any, path: Path) -> None:
    """Variables without numbers are left out, because netCDF takes a length of zero for an unlimited one."""
    dataset = dataset.drop_dims([dim for dim, size in dataset.sizes.items() if not size])
    encoding = {name: {"_FillValue": None} for name in dataset.variables if dataset[name].dtype.kind == "f"}
    try:
        dataset.to_netcdf(path, engine="h5netcdf", encoding=encoding)
    except RuntimeError as error:  # so HDF5 says that the disk is full
        raise OSError(str(error)) from error
    with open(path, "r+b") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
        file.write(_SEAL + digest.encode() + b"\n")


def read_netcdf(data: bytes) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """The variables that hold numbers, and the attributes. Raises ValueError, in words."""
    xarray = libraries()
    body, seal = data[:-_LENGTH], data[-_LENGTH:]
    if seal != _SEAL + hashlib.sha256(body).hexdigest().encode() + b"\n":
        raise ValueError("it was cut or changed since mb.save wrote it, or written by something else")
    with xarray.open_dataset(io.BytesIO(body), engine="h5netcdf", decode_cf=False) as dataset:
        found = {str(name): np.asarray(dataset[name].values) for name in dataset.variables}
        return {name: value for name, value in found.items() if value.dtype.kind in "fiub"}, dict(dataset.attrs)
