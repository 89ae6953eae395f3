"""NPZ: arrays of numbers in a zip archive, as numpy reads and writes them. Bytes from a file are not trusted.

The same arrays give the same bytes. What is read back must be numbers, stored plainly, and as long as it says.
"""

import io
import zipfile
from collections.abc import Mapping

import numpy as np
from numpy.lib import format as npy


def to_npz(arrays: Mapping[str, np.ndarray]) -> bytes:
    """What np.savez writes, with a fixed time in each entry."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, values in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                npy.write_array(member, np.ascontiguousarray(values), (1, 0))
    return file.getvalue()


def from_npz(data: bytes) -> dict[str, np.ndarray]:
    """Raises ValueError, in words, if there is anything but arrays of numbers."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for member in archive.infolist():
                if member.compress_type != zipfile.ZIP_STORED or member.file_size > len(data):
                    raise ValueError(f"{member.filename!r} is compressed; np.savez stores plainly")
            return {info.filename.removesuffix(".npy"): _array(archive.read(info)) for info in archive.infolist()}
    except ValueError:
        raise
    except Exception as error:  # whatever zipfile makes of bytes that somebody else has put together
        raise ValueError(f"not an npz archive: {error}") from error


def _array(data: bytes) -> np.ndarray:
    file = io.BytesIO(data)
    if npy.read_magic(file) != (1, 0):
        raise ValueError("an array with a header of another version")
    shape, fortran, dtype = npy.read_array_header_1_0(file)
    if dtype.kind not in "fiub":
        raise ValueError(f"an array of {dtype}, not of numbers")
    rest = data[file.tell() :]
    if int(np.prod(shape, dtype=object)) * dtype.itemsize != len(rest):
        raise ValueError(f"an array of shape {shape} with {len(rest)} bytes")
    return np.frombuffer(rest, dtype).reshape(shape, order="F" if fortran else "C")
