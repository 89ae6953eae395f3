"""DESCRIPTION of a saved motion, in JSON: what its arrays are, whose they are, and how they came about.

A sidecar ends with a hash of its own text, so that a change of any letter is seen.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from .._errors import MechanismError
from .._model import Model
from .._trajectory import SCHEMA, labels, versions
from ._contents import KINEMATICS, NEEDED, TRAJECTORY, Arrays, facts_of, format_of

_SEAL = "sha256_of_the_above"


def description(found: Any, arrays: Arrays) -> dict[str, Any]:
    """What is to know about a motion whose `arrays` are saved."""
    return {
        "format": format_of(found),
        "schema_version": SCHEMA,
        **versions(),
        "numpy_version": np.__version__,
        "device": jax.default_backend(),
        **facts_of(found),
        "joints": _joints(found.model),
        "connections": _connections(found.model),
        "names": labels(found.model),
        "arrays": {
            name: {"dims": list(dims), "shape": list(values.shape), "dtype": values.dtype.str, "units": unit}
            for name, (dims, values, unit) in arrays.items()
        },
    }


def _joints(model: Model) -> list[list]:
    """[name, coordinates, speeds] of each joint in the tree."""
    return [list(entry) for entry in zip(model.inboard, model.topology.nqs, model.topology.nvs, strict=True)]


def _connections(model: Model) -> list[list]:
    """[name, states, inputs] of each connection."""
    return [[name, group.kind.nz, group.kind.nu] for group in model.connections for (name,) in group.names]


def sealed(about: Mapping[str, Any]) -> str:
    """The text of a sidecar."""
    text = json.dumps(about, indent=1)
    return json.dumps({**about, _SEAL: hashlib.sha256(text.encode()).hexdigest()}, indent=1)


def unsealed(text: str, name: str) -> dict[str, Any]:
    """The description in a sidecar."""
    about = parsed(text, name)
    about.pop(_SEAL, None)
    if sealed(about) != text:
        raise MechanismError(f"{name} was changed since mb.save wrote it: its hash differs")
    return about


def parsed(text: str, name: str) -> dict[str, Any]:
    """A description that this version can read."""
    try:
        about = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MechanismError(f"{name} is not JSON ({error}): it was cut or changed") from error
    if not isinstance(about, dict) or about.get("format") not in (TRAJECTORY, KINEMATICS):
        raise MechanismError(f"{name} does not describe a trajectory of diffmb; mb.save writes those")
    schema = about.get("schema_version")
    if not isinstance(schema, int) or schema < 1:
        raise MechanismError(f"{name} has schema_version {schema!r}: it was changed since mb.save wrote it")
    if schema > SCHEMA:
        raise MechanismError(
            f"{name} has schema_version {schema}, and this diffmb reads up to {SCHEMA}: pip install --upgrade diffmb"
        )
    return about


def check_shapes(arrays: Mapping[str, np.ndarray], about: Mapping[str, Any]) -> None:
    """Refuses arrays that are not as described."""
    for name, own in about["arrays"].items():
        if name not in arrays:
            raise MechanismError(f"the array {name!r} is missing")
        shape, dtype = list(arrays[name].shape), arrays[name].dtype.str
        if (shape, dtype) != (own["shape"], own["dtype"]):
            told = f"{own['shape']} of {own['dtype']}"
            raise MechanismError(f"{name!r} has shape {shape} of {dtype}, but {told} in the description")
    sizes = {
        "nq": sum(nq for _, nq, _ in about["joints"]),
        "nv": sum(nv for _, _, nv in about["joints"]),
        "nz": sum(nz for _, nz, _ in about["connections"]),
        "nu": sum(nu for _, _, nu in about["connections"]),
    }
    needed = {name: tuple(sizes[dim] for dim in dims) for name, dims in NEEDED[about["format"]].items()}
    needed |= {"on": (len(about["names"]["switch"]),)} if "on" in arrays else {}
    for name, rest in needed.items():
        expected = (*arrays["time"].shape, *rest)
        if arrays[name].shape != expected or arrays[name].dtype.kind != "f":
            raise MechanismError(f"{name!r} is {arrays[name].dtype} of shape {arrays[name].shape}, not {expected}")


def check_names(model: Model, about: Mapping[str, Any]) -> None:
    """Refuses a model whose joints, connections or switches are others than those described."""
    _compare("joint", ("coordinates", "speeds"), about["joints"], _joints(model))
    _compare("connection", ("states", "inputs"), about["connections"], _connections(model))
    if "on" in about["arrays"]:
        _compare("switch", (), [[name] for name in about["names"]["switch"]], [[name] for name in model.switches])


def _compare(what: str, counts: tuple[str, ...], file: list, model: list) -> None:
    theirs, own = ({name: sizes for name, *sizes in entries} for entries in (file, model))
    for name in theirs:
        if name not in own:
            raise MechanismError(f"the file has the {what} {name!r}, which the model does not have")
    for name in own:
        if name not in theirs:
            raise MechanismError(f"the model has the {what} {name!r}, which the file does not have")
        for count, a, b in zip(counts, theirs[name], own[name], strict=True):
            if a != b:
                raise MechanismError(f"the {what} {name!r} has {a} {count} in the file, but {b} in the model")
    if list(theirs) != list(own):
        names = "the names are the same, but their order is"
        raise MechanismError(f"{names} {list(theirs)} in the file and {list(own)} in the model ({what})")
