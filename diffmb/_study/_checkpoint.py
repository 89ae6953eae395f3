"""CHECKPOINT: the state of a long piece of work, and the log of what was computed.

    checkpoint.bin      header in JSON (schema, study, names, shapes), then the arrays as npz; its first line is a hash
    checkpoint.old      the one before: if the last is damaged, this one is used
    evaluations.log     one record for each evaluation: length, hash chained to the record before, arrays as npz

An optimiser that is a deterministic function of what it evaluates is resumed by running it again and answering from the
log: it takes the same path bit by bit, and goes on where the log ends. Bytes from files are checked, never trusted.
"""

import hashlib
import json
import os
import struct
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from .._errors import Exit, StudyError
from .._io._npz import from_npz, to_npz
from ._folder import Folder, files

SCHEMA = 1
CURRENT, PREVIOUS, EVALUATIONS = "checkpoint.bin", "checkpoint.old", "evaluations.log"
_MAGIC = b"diffmb checkpoint "
_LENGTH = struct.Struct("<Q")
_LIMIT = 1 << 34  # bytes of a record


def save_checkpoint(folder: Folder, tree: Any) -> None:
    """Keeps a tree of arrays; the checkpoint before stays as the second one."""
    names, arrays = _named(tree)
    header = {
        "schema_version": SCHEMA,
        "study": folder.about["hash"],
        "arrays": [[name, list(a.shape), a.dtype.str] for name, a in zip(names, arrays, strict=True)],
    }
    data = to_npz({f"{k}": a for k, a in enumerate(arrays)})
    body = json.dumps(header).encode() + b"\n" + data
    seal = _MAGIC + hashlib.sha256(body).hexdigest().encode() + b"\n"
    with files():
        if (folder.path / CURRENT).exists():
            os.replace(folder.path / CURRENT, folder.path / PREVIOUS)
    folder.write(CURRENT, seal + body)


def load_checkpoint(folder: Folder, like: Any, shapes: bool = True) -> tuple[Any, str] | None:
    """The tree that was kept last, in the structure of `like`, and a warning or nothing; None if there is none.

    Without `shapes` only the names must agree.

    A damaged file is passed over for the one before it. One of another study, or whose names or shapes differ, is
    refused.
    """
    faults = []
    if folder.fresh:
        folder.remove(CURRENT, PREVIOUS)
    for name in (CURRENT, PREVIOUS):
        data = folder.read(name)
        if data is None:
            continue
        try:
            header, arrays = _opened(data)
        except ValueError as error:
            faults.append(f"{folder.path / name} is damaged ({error})")
            continue
        _check(folder, name, header, like, shapes)
        names, _ = _named(like)
        leaves = [arrays[f"{k}"] for k in range(len(names))]
        return jax.tree.unflatten(jax.tree.structure(like), leaves), "; ".join(faults)
    if faults:
        raise StudyError(f"{'; '.join(faults)}: nothing to go on from, start again with --overwrite", Exit.FILES)
    return None


def _opened(data: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Raises ValueError, in words."""
    first, _, body = data.partition(b"\n")
    if not first.startswith(_MAGIC):
        raise ValueError("no checkpoint of diffmb")
    if hashlib.sha256(body).hexdigest().encode() != first[len(_MAGIC) :]:
        raise ValueError("its hash differs: it was cut or changed")
    head, _, rest = body.partition(b"\n")
    try:
        header = json.loads(head)
        shapes = [tuple(shape) for _, shape, _ in header["arrays"]]
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise ValueError("its header cannot be read") from error
    arrays = from_npz(rest)
    if sorted(arrays) != sorted(f"{k}" for k in range(len(shapes))):
        raise ValueError("arrays are missing")
    return header, {f"{k}": arrays[f"{k}"].reshape(shape) for k, shape in enumerate(shapes)}  # npz makes () into (1,)


def _check(folder: Folder, name: str, header: Mapping[str, Any], like: Any, shapes: bool) -> None:
    place, again = folder.path / name, "--overwrite starts again"
    if header.get("schema_version") != SCHEMA:
        raise StudyError(f"{place} has schema_version {header.get('schema_version')}, not {SCHEMA}; {again}")
    if header.get("study") != folder.about["hash"]:
        raise StudyError(f"{place} belongs to another study or model; {again}")
    names, leaves = _named(like)
    wanted = [[n, list(a.shape), a.dtype.str] for n, a in zip(names, leaves, strict=True)]
    for own, found in zip(wanted, header["arrays"], strict=False):
        if own[: 3 if shapes else 1] != found[: 3 if shapes else 1]:
            raise StudyError(f"{place} holds {found[0]} {found[1]} instead of {own[0]} {own[1]}; {again}")
    if len(wanted) != len(header["arrays"]):
        raise StudyError(f"{place} has {len(header['arrays'])} arrays instead of {len(wanted)}; {again}")


def _named(tree: Any) -> tuple[list[str], list[np.ndarray]]:
    found = jax.tree_util.tree_flatten_with_path(tree)[0]
    return [jax.tree_util.keystr(path) for path, _ in found], [np.asarray(leaf) for _, leaf in found]


class Log:
    """Records of arrays by name, in order, each on the disk before the next is computed.

    `records` are those of an earlier run and those that were added; `warning` says what was dropped from the end of a
    damaged file, if anything.
    """

    def __init__(self, folder: Folder):
        if folder.fresh:
            folder.remove(EVALUATIONS)
        self.path = folder.place(EVALUATIONS)
        self._seal = bytes.fromhex(folder.about["hash"])
        self.records, good, self.warning = self._read()
        with files():
            self._file = open(self.path, "r+b" if self.path.exists() else "w+b")  # noqa: SIM115
            self._file.truncate(good)
            self._file.seek(good)

    def add(self, record: dict[str, np.ndarray]) -> None:
        """Keeps one more."""
        data = to_npz(record)
        self._seal = hashlib.sha256(self._seal + data).digest()
        with files():
            self._file.write(_LENGTH.pack(len(data)) + self._seal + data)
            self._file.flush()
            os.fsync(self._file.fileno())
        self.records.append(record)

    def _read(self) -> tuple[list[dict[str, np.ndarray]], int, str]:
        """The good records, where they end, and what is wrong behind."""
        with files():
            data = self.path.read_bytes() if self.path.exists() else b""
        records, place = [], 0
        while place < len(data):
            start = place + _LENGTH.size + 32
            size = _LENGTH.unpack_from(data, place)[0] if start <= len(data) else _LIMIT
            if size >= _LIMIT or start + size > len(data):
                return records, place, "the last record is incomplete"
            body = data[start : start + size]
            seal = hashlib.sha256(self._seal + body).digest()
            try:
                if seal != data[place + _LENGTH.size : start]:
                    raise ValueError("its hash differs")
                records.append(from_npz(body))
            except ValueError as error:
                return records, place, f"record {len(records) + 1} is damaged ({error})"
            self._seal, place = seal, start + size
        return records, place, ""

    def close(self) -> None:
        self._file.close()

