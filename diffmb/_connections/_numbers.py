"""Numbers that connections are given, checked when they are built: shape, sign, and that they are finite."""

import dataclasses
from typing import Any

import numpy as np

from .._errors import MechanismError
from .._spatial._axis import is_concrete


@dataclasses.dataclass(frozen=True)
class Quantity:
    """A unit, and what is allowed: `least` to `most`, or only above `above`; None in `shape` is any length above 0."""

    unit: str
    least: float | None = None
    most: float | None = None
    above: float | None = None
    shape: tuple[int | None, ...] = ()

    def allows(self, numbers: np.ndarray) -> np.ndarray:
        fine = np.isfinite(numbers)
        fine = fine if self.least is None else fine & (numbers >= self.least)
        fine = fine if self.most is None else fine & (numbers <= self.most)
        return fine if self.above is None else fine & (numbers > self.above)

    def fits(self, shape: tuple[int, ...]) -> bool:
        same = len(shape) == len(self.shape)
        return same and all(n == m or (m is None and n > 0) for n, m in zip(shape, self.shape, strict=True))

    @property
    def range(self) -> str:
        spell = lambda number: "zero" if number == 0.0 else f"{number:g}"
        parts = (self.least, ", {} or more"), (self.most, ", {} or less"), (self.above, ", above {}")
        return "".join(words.format(spell(number)) for number, words in parts if number is not None)


STIFFNESS = Quantity("N/m or N m/rad", least=0.0)
DAMPING = Quantity("N s/m or N m s/rad", least=0.0)
PLACE = Quantity("m or rad")
LOAD = Quantity("N or N m")
LENGTH = Quantity("m", above=0.0)
LAG = Quantity("s", least=0.0)
TIME = Quantity("s", above=0.0)


def check_numbers(title: str, holder: Any, **quantities: Quantity) -> None:
    """Refuses fields of `holder` that are not such quantities; `title` says whose they are."""
    for what, quantity in quantities.items():
        value, about = getattr(holder, what), f"the {what} of {title}"
        if not quantity.fits(value.shape):
            wanted = "x".join("n" if n is None else str(n) for n in quantity.shape)
            wanted = f"{wanted} numbers" if wanted else "one number"
            raise MechanismError(f"{about} has shape {value.shape}; give {wanted}, in {quantity.unit}")
        if is_concrete(value):
            numbers = np.atleast_1d(np.asarray(value, float))
            for number in numbers[~quantity.allows(numbers)]:
                shown = f"{number:g} {quantity.unit}"
                raise MechanismError(f"{about} is {shown}; give a finite number{quantity.range}")
