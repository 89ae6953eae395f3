"""OPTIMISE: numbers of a mechanism for which an objective is smallest, within bounds and limits.

    min f(mechanism(p))    subject to    lo <= c(mechanism(p)) <= hi,    lower <= p <= upper

The method sees numbers and values of size one (`_transforms.py`, `_problem.py`); whether what it found is an optimum is
decided by the first-order conditions (`_optimality.py`), not by the method. A trial where something is not finite ends
the attempt: the next one starts from the last good iterate in a box that reaches half as far,

    |x - x_good| <= |x_bad - x_good|_max / 2                                                                      (1)

which doubles again as long as it is in the way. Each question and answer is logged (`_evaluations.py`).
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from ._errors import MechanismError
from ._evaluations import Evaluations
from ._methods import SLSQP, AbstractMethod
from ._optimality import Conditions, Point, conditions
from ._optimum import Iterate, Optimum, Start, Stopped
from ._parameters import as_numbers, concrete, pick
from ._problem import Failed, Limit, Problem
from ._transforms import Variables

_FAILURES = 40  # attempts that end at something that is not finite
_ROUNDS = 3  # attempts from where the method thought it was done
_FEASIBLE = 1e-6  # violation of a limit, relative to its size


def optimise(
    objective: Callable[..., Any],
    mech: Any,
    where: Any = None,
    *,
    bounds: Mapping[str, Any] | None = None,
    constraints: Mapping[str, Any] | None = None,
    method: Any = None,
    transforms: Mapping[str, Any] | None = None,
    scales: Mapping[str, Any] | None = None,
    starts: int = 1,
    seed: int = 0,
    tolerance: float = 1e-5,
    callback: Callable[[Iterate], Any] | None = None,
    evaluations: Evaluations | None = None,
) -> Optimum:
    """The numbers of a mechanism for which the objective is smallest.

    **Arguments:**

    - `objective`: a function of the mechanism that returns a number, or a pair of a number and a dict of responses for
        `constraints`. Usually it compiles, assembles and simulates; let it say `throw=False`, then a simulation that
        fails is a trial that is not taken.
    - `mech`: a `mb.Mechanism`, or any tree of numbers that the objective takes, such as `{"length": 0.3}`.
    - `where`: which numbers, as in `mb.sensitivity`; by default all.
    - `bounds`: pairs by name, `{"crank.mass": (0.1, 2.0)}`, None for an open side.
    - `constraints`: limits of responses by name, `{"stroke": mb.Limit(stroke, lower=0.1)}`.
    - `method`: `mb.SLSQP()` by default; see `mb.TrustConstr`, `mb.LBFGSB`, `mb.Adam`, `mb.DifferentialEvolution`.
    - `transforms`: by name, `{"k": mb.Log()}`; masses and whole bodies have theirs already.
    - `scales`: by name, what is a large change of a number; by default the width of its bounds, or its size.
    - `starts`, `seed`: how many starts: the first from the mechanism as it is, the others drawn between bounds, or
        within half the size of a number where it has none.
    - `tolerance`: of the first-order conditions, relative to the objective at the start.
    - `callback`: called with each `mb.Iterate`; a true answer stops.
    - `evaluations`: an `mb.Evaluations` log, to keep what was computed, or to go on with a run that was stopped.
    """
    tree = as_numbers(mech)
    leaves, structure = jax.tree.flatten(tree)
    concrete("optimise", leaves)
    method, constraints = method or SLSQP(), dict(constraints or {})
    _check(method, constraints, starts)
    log = evaluations if evaluations is not None else Evaluations()
    log.rewind()
    places = jax.tree.leaves(pick(tree, where))
    make = lambda used, bounds: Problem(
        *(objective, constraints, tree, used),
        *(Variables(tree, used, leaves, bounds, transforms, scales), log, method.stochastic),
    )
    problem = make(places, bounds)
    used = [place for k, place in enumerate(places) if problem.program.depends[:, k].any()]
    independent = tuple(name for place in places if place not in used for name in place.names)
    if not used:
        raise MechanismError(f"neither the objective nor a limit depends on {', '.join(independent[:5])}; pick others")
    if independent:
        kept = {name: pair for name, pair in problem.variables.limits.items() if name not in independent}
        problem = make(used, kept)
    watch = _Watch(problem, method, tolerance, callback)
    found = _search(problem, method, watch, starts, seed)
    return _optimum(problem, method, watch, found, independent, problem.mechanism(watch.x, used, leaves, structure))


def _check(method: Any, constraints: Mapping[str, Any], starts: int) -> None:
    if not isinstance(method, AbstractMethod):
        raise MechanismError(f"method is {method!r}; give an object such as mb.SLSQP() or mb.LBFGSB()")
    for name, limit in constraints.items():
        if not isinstance(limit, Limit):
            raise MechanismError(f"constraint {name!r} is {limit!r}; give mb.Limit(fn, lower=..., upper=...)")
    if constraints and not method.limits:
        raise MechanismError(
            f"mb.{type(method).__name__} keeps bounds but no constraints ({', '.join(constraints)}); take mb.SLSQP() "
            "or mb.TrustConstr(), or mb.DifferentialEvolution(seed) without derivatives"
        )
    if starts < 1:
        raise MechanismError(f"starts = {starts}; give at least one")


@dataclasses.dataclass
class _Best:
    """The best iterate of a start, or of all of them."""

    x: np.ndarray
    value: float
    violation: float
    start: int

    def rank(self) -> tuple[float, float]:
        finite = np.isfinite(self.value)
        over = self.violation if self.violation > _FEASIBLE else 0.0
        return (over if finite else np.inf, self.value if finite else np.inf)


class _Watch:
    """Sees every iterate: keeps the history, the last one and the best."""

    def __init__(self, problem: Problem, method: AbstractMethod, tolerance: float, callback: Callable | None):
        self.problem, self.method, self.tolerance, self.callback = problem, method, tolerance, callback
        self.history: list[Iterate] = []
        self.best: _Best | None = None  # of all starts
        self.own: _Best | None = None  # of this start
        self.start = -1
        self.optimality = np.inf

    @property
    def x(self) -> np.ndarray:
        assert self.best is not None
        return self.best.x

    def begin(self, x: np.ndarray) -> None:
        self.start, self.own, self.last, self.seen, self.optimality = self.start + 1, None, np.array(x), b"", np.inf
        self.first = len(self.history)

    def __call__(self, x: np.ndarray, draw: int = 0) -> None:
        x = np.clip(x, self.problem.region.lower, self.problem.region.upper)
        if x.tobytes() == self.seen:
            return
        self.seen, optimality = x.tobytes(), None
        if self.method.derivative:
            point = self.problem.point(x, draw)
            found = conditions(point, self.problem.region)
            value, violation, optimality = point.f, found.violation, found.residual
            self.optimality = found.residual
        else:
            value, violation = self.problem.merit(x)
        self.last = x
        self._rank(_Best(x, value, violation, self.start))
        log = self.problem.log
        iterate = Iterate(
            *(len(self.history) - self.first, self.start, self.problem.variables.named(x), value * self.problem.F),
            *(violation, optimality, log.asked, log.replayed),
        )
        self.history.append(iterate)
        if self.callback is not None and self.callback(iterate):
            raise Stopped

    def _rank(self, new: _Best) -> None:
        lucky = self.method.stochastic is not None  # a low value may be chance: the last one counts
        if self.own is None or lucky or new.rank() < self.own.rank():
            self.own = new
            if self.best is None or self.best.start == self.start or new.rank() < self.best.rank():
                self.best = new


def _search(problem: Problem, method: AbstractMethod, watch: _Watch, starts: int, seed: int) -> list[Start]:
    """All starts, one after the other."""
    found = []
    problem.start(problem.variables.x0, method.derivative)
    for x in _starting_points(problem.variables, starts, seed):
        watch.begin(x)
        stopped = False
        try:
            watch(x)
            reason = _descend(problem, method, watch)
        except Failed as fault:
            reason = f"it cannot start: {fault.why}"
        except Stopped:
            reason, stopped = "stopped by the callback", True
        own = watch.own
        ended = (own.value * problem.F, own.violation) if own is not None else (np.nan, np.inf)
        count = max(len(watch.history) - watch.first - 1, 0)
        found.append(Start(problem.variables.named(x), *ended, watch.optimality, count, reason))
        if stopped:
            break
    return found


def _starting_points(variables: Variables, starts: int, seed: int) -> list[np.ndarray]:
    rng, x0 = np.random.default_rng(seed), variables.x0
    low = np.where(np.isfinite(variables.lower), variables.lower, x0 - 0.5)
    high = np.where(np.isfinite(variables.upper), variables.upper, x0 + 0.5)
    return [x0, *(rng.uniform(low, high) for _ in range(starts - 1))]


def _descend(problem: Problem, method: AbstractMethod, watch: _Watch) -> str:
    """Attempts from the last good iterate, until the first-order conditions hold or nothing gets better."""
    lower, upper = problem.region.lower, problem.region.upper
    reach, failures, rounds, before, why = np.inf, 0, 0, np.inf, ""
    while True:
        x = watch.last
        box = np.maximum(lower, x - reach), np.minimum(upper, x + reach)
        try:
            reason = method.run(problem, x, *box, watch)
        except Failed as fault:
            failures, why = failures + 1, fault.why
            distance = float(np.abs(fault.x - watch.last).max())
            reach = 0.5 * min(distance, reach)  # (1)
            if failures > _FAILURES or reach < 1e-12:
                return f"given up after {failures} trials that are not finite: {why}"
            continue
        if not method.derivative or method.stochastic is not None:
            return reason
        held = np.isfinite(reach) and (np.abs(watch.last - x) >= 0.999 * reach).any()
        if held:
            reach *= 2.0
        elif watch.optimality <= watch.tolerance or rounds == _ROUNDS or watch.optimality > 0.5 * before:
            return reason
        else:
            rounds, before = rounds + 1, watch.optimality


def _optimum(
    problem: Problem, method: AbstractMethod, watch: _Watch, starts: Sequence[Start], independent: tuple, mech: Any
) -> Optimum:
    """The best of all, with its first-order conditions."""
    best = watch.best
    assert best is not None
    x, variables = best.x, problem.variables
    try:
        point: Point | None = problem.point(x)
        found = conditions(point, problem.region)
    except Failed as fault:
        point, found = None, Conditions(np.nan, best.violation, np.zeros(len(problem.C)), np.zeros(len(x)))
        starts = [*starts[: best.start], dataclasses.replace(starts[best.start], reason=fault.why)]
    y = problem.ask(x, derivative=point is not None).y
    responses = dict(zip(problem.names[1:], y[1:].tolist(), strict=True))
    if not method.derivative:
        starts = [*starts]
        starts[best.start] = dataclasses.replace(starts[best.start], optimality=found.residual)
    multipliers = {
        name: float(lam * problem.F / size)
        for name, lam, size in zip(problem.names[1:], found.rows, problem.C, strict=True)
        if lam
    } | _bound_multipliers(problem, x, found)
    converged = bool(found.residual <= watch.tolerance and found.violation <= _FEASIBLE)
    reason = f"{starts[best.start].reason}; {_verdict(problem, x, found, watch.tolerance, y)}"
    return Optimum(
        *(mech, variables.named(x), float(y[0]), responses, converged, reason, found.violation, found.residual),
        *(multipliers, tuple(watch.history), tuple(starts), best.start, independent, variables.limits),
        *(method, problem.log),
    )


def _bound_multipliers(problem: Problem, x: np.ndarray, found: Conditions) -> dict[str, float]:
    slope, names = problem.variables.slope(x), problem.variables.names
    return {
        name: float(found.bounds[column] * problem.F / slope[names.index(name), column])
        for name, column in problem.variables.columns()
        if column is not None and found.bounds[column]
    }


def _verdict(problem: Problem, x: np.ndarray, found: Conditions, tolerance: float, y: np.ndarray) -> str:
    """The first-order conditions in words."""
    c, region = y[1:] / problem.C, problem.region
    if not found.violation <= _FEASIBLE:
        over = np.maximum(region.lo - c, c - region.hi)
        worst = problem.names[1 + int(over.argmax())] if len(over) else "a bound"
        return f"but {worst} is violated by {found.violation:.2g} of its size"
    if not found.residual <= tolerance:
        return f"but the first-order conditions are left by {found.residual:.2g} (tolerance {tolerance:.0e})"
    return f"first-order conditions hold to {found.residual:.1e}, limits to {found.violation:.1e}"
