"""The numbers of a connection, checked when it is built."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from .._errors import MechanismError
from .._spatial._axis import is_concrete


def check_numbers(load: Any, fields: Mapping[str, tuple[str, str]]) -> None:
    """Refuses fields that are not one finite number, in this unit and range: "above zero", "zero or more" or "any"."""
    for name, (unit, least) in fields.items():
        title, value = f"the {name} of {type(load).__name__} {load.name!r}", getattr(load, name)
        if value.shape != ():
            raise MechanismError(f"{title} has shape {value.shape}; give one number, in {unit}")
        if not is_concrete(value):
            continue
        number = float(np.asarray(value))
        fits = {"above zero": number > 0.0, "zero or more": number >= 0.0, "any": True}[least]
        if not np.isfinite(number) or not fits:
            wanted = "" if least == "any" else f", {least}"
            raise MechanismError(f"{title} is {number:g} {unit}; give a finite number{wanted}")
