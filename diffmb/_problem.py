"""PROBLEM: an objective and limits as an optimiser sees them: numbers and values of size one, each question logged.

    min f(p) / F      subject to      lo <= c(p) / C <= hi,    lower <= x <= upper,    p = T(s x)

F is the size of the objective at the start, C that of a limit. Value, rows and all derivatives come from one program,
so that a question costs one simulation, and are answered from the log where it has them (`_evaluations.py`).
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ._errors import MechanismError
from ._evaluations import Evaluations, Record
from ._names import nearest
from ._optimality import Point, Region
from ._parameters import Place, put
from ._program import FAILURES, Program, cheaper, sizes, trace
from ._transforms import Variables


@dataclasses.dataclass(frozen=True, eq=False)
class Limit:
    """A constraint: lower <= response <= upper; an equality if both are the same.

    **Arguments:**

    - `fn`: a function of the mechanism that returns a number or an array. Without it, the response of this name that
        the objective returns beside its value, `return value, {"stroke": stroke}`: one simulation for both.
    - `lower`, `upper`: numbers, or arrays like the response; None: open.
    """

    fn: Callable[[Any], Any] | None = None
    lower: Any = None
    upper: Any = None

    def __post_init__(self):
        if self.lower is None and self.upper is None:
            raise MechanismError("mb.Limit without lower and upper limits nothing; give one of them")


@dataclasses.dataclass(frozen=True)
class _Responses:
    """The objective and the responses under limits, as one function."""

    objective: Callable
    names: tuple[str, ...]
    functions: tuple[Callable | None, ...]

    def __call__(self, mech: Any, *key: Any) -> list:
        found: Any = self.objective(mech, *key)
        value, more = found if isinstance(found, tuple) and len(found) == 2 else (found, {})
        shape = np.shape(value)
        if shape != ():
            raise MechanismError(f"the objective returns an array of shape {shape}; return one number")
        return [value, *(self._response(mech, more, *pair) for pair in zip(self.names, self.functions, strict=True))]

    def _response(self, mech: Any, more: Any, name: str, fn: Callable | None) -> Any:
        if fn is not None:
            return fn(mech)
        if not isinstance(more, Mapping) or name not in more:
            known = nearest(name, list(more)) if isinstance(more, Mapping) and more else "it returns none"
            raise MechanismError(
                f"constraint {name!r} has no function, and the objective returns no such response beside its value; "
                f"{known}"
            )
        return more[name]


@dataclasses.dataclass(frozen=True)
class _Keyed:
    """A stochastic objective: a function of the pair (mechanism, random key)."""

    fn: _Responses

    def __call__(self, pair: tuple) -> list:
        return self.fn(pair[0], pair[1])


class Failed(Exception):
    """At x something is not finite; `why` says what."""

    def __init__(self, x: np.ndarray, why: str):
        super().__init__(why)
        self.x, self.why = x, why


class Problem:
    """What a method asks: `point(x)`, `value(x)`, `values(xs)`; bounds and limits in `region`."""

    def __init__(
        self, objective: Callable, constraints: Mapping[str, Limit], mech: Any, places: Sequence[Place],
        variables: Variables, log: Evaluations, seed: int | None,
    ):  # fmt: skip
        self.variables, self.log, self.seed, self.mech = variables, log, seed, mech
        functions = tuple(limit.fn for limit in constraints.values())
        self.fn: Any = _Responses(objective, tuple(constraints), functions)
        tree = mech
        if seed is not None:
            self.fn, tree = _Keyed(self.fn), (mech, jax.random.key(seed))
        self.leaves, structure = jax.tree.flatten(tree)
        self.program: Program = trace(self.fn, structure, self.leaves, places)
        self.names = self.program.response_names(["objective", *constraints])
        self.region = Region(variables.lower, variables.upper, *self._limits(constraints))
        self.F, self.C = 1.0, np.ones(len(self.names) - 1)
        self._known: dict[tuple[bytes, int], Record] = {}

    def _limits(self, constraints: Mapping[str, Limit]) -> list[np.ndarray]:
        """Lower and upper limits of all rows."""
        found: list[list] = [[np.zeros(0)], [np.zeros(0)]]
        for (name, limit), out in zip(constraints.items(), self.program.outs[1:], strict=True):
            pair = []
            for side, given, none in ((0, limit.lower, -np.inf), (1, limit.upper, np.inf)):
                try:
                    row = np.broadcast_to(np.asarray(none if given is None else given, float), out.shape).ravel()
                except ValueError:
                    shapes = f"an array of shape {out.shape} by one of shape {np.asarray(given).shape}"
                    raise MechanismError(f"constraint {name!r} limits {shapes}") from None
                found[side].append(row)
                pair.append(row)
            if not (pair[0] <= pair[1]).all():
                raise MechanismError(f"constraint {name!r}: lower {limit.lower} is above upper {limit.upper}")
        return [np.concatenate(rows) for rows in found]

    def start(self, x: np.ndarray, derivative: bool) -> None:
        """Sizes from the start, where everything must be finite."""
        record = self.ask(x, derivative)
        why = self.fault(record)
        if why:
            self._say(x)
            raise MechanismError(f"at the start {why}; start elsewhere")
        self.F = abs(float(record.y[0])) or 1.0
        limits = np.stack([np.where(np.isfinite(a), np.abs(a), 0.0) for a in self.region[2:]]).max(0)
        size = np.where(limits > 0, limits, np.abs(record.y[1:]))
        self.C = np.where(size > 0, size, 1.0)
        self.region = self.region._replace(lo=self.region.lo / self.C, hi=self.region.hi / self.C)

    def _say(self, x: np.ndarray) -> None:
        """Outside of jit, what fails says why in words."""
        if not self.log.replayed and self.seed is None:
            self.fn(self.mech)

    def fault(self, record: Record) -> str:
        """What is not finite in an answer, in words."""
        for name, value in zip(self.names, record.y, strict=True):
            if not np.isfinite(value):
                return f"{name} is not finite ({value})"
        bad = np.argwhere(~np.isfinite(record.J)) if record.J.size else []
        if len(bad):
            i, k = bad[0]
            name = self.variables.name_of(int(k))
            value = self.variables.named(record.x)[name]
            return f"the derivative of {self.names[i]} with respect to {name} = {value:g} is {record.J[i, k]}"
        return ""

    def ask(self, x: np.ndarray, derivative: bool = True, draw: int = 0) -> Record:
        """The answer to x, which is brought within its bounds first; no question is asked twice."""
        x = np.clip(np.asarray(x, float), self.region.lower, self.region.upper)
        known = self._known.get((x.tobytes(), draw))
        if known is None or (derivative and not known.J.size):
            known = self.log.ask(x, derivative, lambda: self._compute(x, derivative, draw))
            self._known[x.tobytes(), draw] = known
        return known

    def _compute(self, x: np.ndarray, derivative: bool, draw: int) -> tuple:
        leaves, count = self.leaves, len(self.names)
        if self.seed is not None:
            leaves = [*leaves[:-1], jax.random.fold_in(jax.random.key(self.seed), draw)]
        mode = cheaper(len(self.variables.start), count) if derivative else "evaluate"
        try:
            found = self.program.run[mode](self.variables.numbers(x), leaves)
        except FAILURES:
            return np.full(count, np.nan), np.full((count, len(x)) if derivative else (0,), np.nan)
        if not derivative:
            return np.asarray(found, float), np.zeros(0)
        return np.asarray(found[0], float), self.variables.chain(found[1], x)

    def point(self, x: np.ndarray, draw: int = 0) -> Point:
        """Everything at x; `Failed` if something is not finite."""
        record = self.ask(x, draw=draw)
        why = self.fault(record)
        if why:
            raise Failed(record.x, why)
        J = record.J / np.concatenate([[self.F], self.C])[:, None]
        return Point(record.x, float(record.y[0]) / self.F, J[0], record.y[1:] / self.C, J[1:])

    def values(self, xs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Values and rows of many x (members, n), side by side; infinite where something fails."""
        xs = np.clip(xs, self.region.lower, self.region.upper)
        if any((x.tobytes(), 0) not in self._known for x in xs):  # then all of them: another number would compile again
            record = self.log.ask(xs, False, lambda: self._compute_many(xs))
            for x, y in zip(xs, record.y, strict=True):
                self._known.setdefault((x.tobytes(), 0), Record(x, y, np.zeros(0)))
        y = np.array([self._known[x.tobytes(), 0].y for x in xs]).reshape(len(xs), len(self.names))
        y = np.where(np.isfinite(y), y, np.inf)
        return y[:, 0] / self.F, y[:, 1:] / self.C

    def merit(self, x: np.ndarray) -> tuple[float, float]:
        """Value and violation at x, without derivatives."""
        y = self.ask(x, derivative=False).y
        c = np.where(np.isfinite(y[1:]), y[1:] / self.C, np.inf)
        over = np.concatenate([self.region.lo - c, c - self.region.hi])
        return float(y[0]) / self.F, float(over.max(initial=0.0))

    def _compute_many(self, xs: np.ndarray) -> tuple:
        try:
            ps = jnp.stack([self.variables.numbers(x) for x in xs])
            return np.asarray(self.program.run["many"](ps, self.leaves), float), np.zeros(0)
        except FAILURES:  # one of them stops all: one by one
            return np.stack([self._compute(x, False, 0)[0] for x in xs]), np.zeros(0)

    def mechanism(self, x: np.ndarray, places: Sequence[Place], leaves: list, structure: Any) -> Any:
        """The description with the numbers of x."""
        p, ends = self.variables.numbers(x), np.cumsum(sizes(places))[:-1]
        parts = [part.reshape(place.shape) for part, place in zip(jnp.split(p, ends), places, strict=True)]
        return jax.tree.unflatten(structure, put(leaves, [place.pick for place in places], parts))
