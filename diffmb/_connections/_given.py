"""Numbers that a connection is given: finite ones, in their range, or an error that names all of it."""

import equinox as eqx
import numpy as np
from jax import Array

from .._errors import MechanismError
from .._spatial._axis import is_concrete


class Rule(eqx.Module):
    """What numbers must be: of this unit and shape, from `least` to `most`; `strict` leaves the ends out."""

    unit: str
    least: float = -np.inf
    most: float = np.inf
    strict: bool = False
    shape: tuple[int, ...] = ()

    @property
    def words(self) -> str:
        if np.isfinite(self.most):
            return f" from {self.least:g} to {self.most:g}"
        if not np.isfinite(self.least):
            return ""
        return f" above {self.least:g}" if self.strict else f", {self.least:g} or more"

    def check(self, title: str, what: str, value: Array) -> None:
        many = "one number" if self.shape == () else f"shape {self.shape}"
        if value.shape != self.shape:
            raise MechanismError(f"the {what} of {title} has shape {value.shape}; give {many}, in {self.unit}")
        if not is_concrete(value):
            return
        for number in np.asarray(value, float).reshape(-1):
            inside = self.least < number < self.most if self.strict else self.least <= number <= self.most
            if not np.isfinite(number) or not inside:
                problem = f"the {what} of {title} is {number:g} {self.unit}"
                raise MechanismError(f"{problem}; give a finite number{self.words}")


def positive(unit: str) -> Rule:
    return Rule(unit, 0.0, strict=True)


def not_negative(unit: str) -> Rule:
    return Rule(unit, 0.0)


def finite(unit: str) -> Rule:
    return Rule(unit)
