"""OPTIMUM: what an optimisation found, iterate by iterate, and how it ended in words."""

import dataclasses
from typing import Any

from ._curves import lay_out
from ._evaluations import Evaluations


class Stopped(Exception):
    """The user's callback said so."""


@dataclasses.dataclass(frozen=True)
class Iterate:
    """One iteration of one start.

    - `number`, `start`: counted from zero; `numbers`: by name; `value`: of the objective.
    - `violation`: of the worst limit, relative to its size; `optimality`: what is left of the first-order conditions,
        relative to the objective at the start, None without derivatives.
    - `evaluations`: asked so far; `replayed`: whether this comes from the log of an earlier run.
    """

    number: int
    start: int
    numbers: dict[str, float]
    value: float
    violation: float
    optimality: float | None
    evaluations: int
    replayed: bool


@dataclasses.dataclass(frozen=True)
class Start:
    """How one start ended."""

    numbers: dict[str, float]  # where it began
    value: float
    violation: float
    optimality: float
    iterations: int
    reason: str


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Optimum:
    """What `mb.optimise` found; print it.

    - `mech`: the description with the numbers found; `numbers`: these by name; `value`: of the objective.
    - `responses`: those under limits, by name.
    - `converged`: whether the limits hold and the first-order conditions too, to the tolerance; `reason`: in words.
    - `violation`: of the worst limit, relative to its size; `optimality`: what is left of the first-order conditions
        |g + A^T lam + mu|, largest entry, for numbers of size one, relative to the objective at the start.
    - `multipliers`: by name of a limit or a bound that is active: how much the objective falls for each unit that an
        upper one is raised; negative for lower ones.
    - `history`: an `mb.Iterate` for each iteration; `starts`: an `mb.Start` for each start, the best one `best`.
    - `independent`: numbers on which nothing depends; they stay as they were.
    - `evaluations`: the log; `simulations`: how often the objective was evaluated.
    """

    mech: Any
    numbers: dict[str, float]
    value: float
    responses: dict[str, float]
    converged: bool
    reason: str
    violation: float
    optimality: float
    multipliers: dict[str, float]
    history: tuple[Iterate, ...]
    starts: tuple[Start, ...]
    best: int
    independent: tuple[str, ...]
    bounds: dict[str, tuple[float, float]]
    method: Any
    evaluations: Evaluations

    @property
    def simulations(self) -> int:
        return sum(record.x.shape[0] if record.x.ndim == 2 else 1 for record in self.evaluations.records)

    def __repr__(self) -> str:
        first = self.starts[self.best].numbers
        count = sum(start.iterations for start in self.starts)
        among = f", best of {len(self.starts)} starts" if len(self.starts) > 1 else ""
        lines = [
            f"Optimum: {self.value:.8g} by {type(self.method).__name__}, {count} iterations, "
            f"{self.simulations} evaluations{among}",
            f"  {'converged' if self.converged else 'NOT CONVERGED'}: {self.reason}",
        ]
        rows = [["number", "start", "optimum", "bounds", "multiplier"]]
        for name, value in self.numbers.items():
            low, high = self.bounds.get(name, (float("-inf"), float("inf")))
            between = f"{low:g} to {high:g}" if name in self.bounds else ""
            rows.append([name, f"{first[name]:.6g}", f"{value:.6g}", between, self._multiplier(name)])
        rows += [[name, "", f"{value:.6g}", "limit", self._multiplier(name)] for name, value in self.responses.items()]
        rows += [[name, "", "", "no dependence", ""] for name in self.independent]
        return "\n".join([*lines, *lay_out(rows, "<>><>")])

    def _multiplier(self, name: str) -> str:
        return f"{self.multipliers[name]:.4g}" if name in self.multipliers else ""
