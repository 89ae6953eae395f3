"""CURVES: sensitivities over time, and what a tolerance does to a response.

    s(t) = dy(t)/dp                      one curve for each response and number                                    (1)
    y(p - d), y(p + d) = y -+ J d        to first order: a bar of the tornado                                      (2)
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from ._errors import MechanismError
from ._names import nearest

_ROWS = 30  # of a printed table


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Curves:
    """Responses and their derivatives over time; print it.

    - `ts`: times, s; `values`: (times,) by response; `slopes`: (times,) by response and number.
    - `numbers`: values by name.
    """

    ts: np.ndarray
    values: dict[str, np.ndarray]
    slopes: dict[str, dict[str, np.ndarray]]
    numbers: dict[str, float]

    @property
    def table(self) -> list[tuple[str, str, float, float, float]]:
        """(number, response, largest |s p|, its s, its time), the largest first."""
        rows = []
        for response, own in self.slopes.items():
            for name, slope in own.items():
                k = int(np.abs(slope).argmax())
                weight = abs(self.numbers[name]) or 1.0
                rows.append((name, response, float(abs(slope[k]) * weight), float(slope[k]), float(self.ts[k])))
        return sorted(rows, key=lambda row: -row[2])

    def __repr__(self) -> str:
        span = f"{len(self.ts)} times from {self.ts[0]:g} to {self.ts[-1]:g} s"
        rows = [["number", "value", "response", "largest slope", "at t, s", "for 1 %"]]
        for name, response, size, slope, t in self.table[:_ROWS]:
            rows.append([name, f"{self.numbers[name]:.6g}", response, f"{slope:.6g}", f"{t:.4g}", f"{0.01 * size:.4g}"])
        return "\n".join([f"Sensitivity curves: {span}", *lay_out(rows, "<><>>>")])


@dataclasses.dataclass(frozen=True)
class Bar:
    """A bar of a tornado: the response, to first order, if the number is lower or higher by `change`."""

    name: str
    response: str
    change: float
    low: float
    high: float


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Tornado:
    """What tolerances of numbers do to responses; print it. `bars`: the widest first."""

    bars: tuple[Bar, ...]
    responses: dict[str, float]

    def __repr__(self) -> str:
        rows = [["number", "+-", "response", "low", "nominal", "high", ""]]
        widest = max((abs(bar.high - bar.low) for bar in self.bars), default=0.0) or 1.0
        for bar in self.bars[:_ROWS]:
            stars = "#" * round(20 * abs(bar.high - bar.low) / widest)
            numbers = [f"{x:.6g}" for x in (bar.low, self.responses[bar.response], bar.high)]
            rows.append([bar.name, f"{bar.change:.4g}", bar.response, *numbers, stars])
        return "\n".join(["Tornado, to first order", *lay_out(rows, "<><>>><")])


def lay_out(rows: list[list[str]], sides: str) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(f"{x:{s}{w}}" for x, s, w in zip(row, sides, widths, strict=True)) for row in rows]
    return [f"  {line}".rstrip() for line in lines]


def curves(value: Any, ts: Any, numbers: Mapping[str, float], J: np.ndarray) -> Curves:
    """(1) from all responses, whose first axis is time."""
    ts = np.asarray(ts, float)
    values, slopes, row = {}, {}, 0
    for path, leaf in jax.tree_util.tree_flatten_with_path(value)[0]:
        name = jax.tree_util.keystr(path, simple=True, separator=".") or "response"
        leaf = np.asarray(leaf)
        if leaf.ndim < 1 or leaf.shape[0] != len(ts):
            raise MechanismError(f"{name} has shape {leaf.shape}, but there are {len(ts)} times; give ts of fn")
        table, own = leaf.reshape(len(ts), -1), J[row : row + leaf.size].reshape(len(ts), -1, J.shape[1])
        for k in range(table.shape[1]):
            key = name if leaf.ndim == 1 else f"{name}[{k}]"
            values[key] = table[:, k]
            slopes[key] = {number: own[:, k, i] for i, number in enumerate(numbers)}
        row += leaf.size
    return Curves(ts, values, slopes, dict(numbers))


def tornado(
    numbers: Mapping[str, float], responses: Mapping[str, float], J: np.ndarray, change: float | Mapping[str, float]
) -> Tornado:
    """(2) for relative changes of all numbers, or absolute ones by name."""
    if isinstance(change, Mapping):
        for name in change:
            if name not in numbers:
                raise MechanismError(f"tornado: there is no number {name!r}; {nearest(name, [*numbers])}")
        changes: Sequence[float] = [float(change.get(name, 0.0)) for name in numbers]
    else:
        changes = [change * abs(value) for value in numbers.values()]
    bars = [
        Bar(name, response, d, y - float(slope) * d, y + float(slope) * d)
        for (response, y), row in zip(responses.items(), J, strict=True)
        for name, slope, d in zip(numbers, row, changes, strict=True)
        if d
    ]
    return Tornado(tuple(sorted(bars, key=lambda bar: -abs(bar.high - bar.low))), dict(responses))
