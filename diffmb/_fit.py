"""FIT: numbers of a mechanism from measured data, with what the data say about them.

    min over p   sum over experiments, channels and times of   w (y(p) - data)^2 / sigma^2                         (1)
    y(p): simulated channels, dy/dp exact, all columns side by side over the steps of one simulation (forward mode)

Levenberg-Marquardt as a trust region, within bounds by the scaling of Branch, Coleman and Li 1999 (SciPy's `trf`).
Where the noise sigma of a channel is not known, it is the rms of what is left, found by turns with p (2); gaps do not
count. Intervals and identifiability: `_identify.py`. Each question and answer is logged (`_evaluations.py`).
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ._assembly import assemble
from ._curves import lay_out
from ._errors import MechanismError
from ._evaluations import Evaluations
from ._experiment import Experiment, Simulated, start_places
from ._identify import Identified, identify
from ._model import compile
from ._optimum import Iterate, Stopped
from ._parameters import as_numbers, concrete, pick, put
from ._program import FAILURES, sizes, trace
from ._simulate import simulate
from ._transforms import Variables

_TURNS = 10  # of noise and numbers
_EXACT = 1e-9  # of the range of a channel: there is no noise


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Fit:
    """What `mb.fit` found; print it.

    - `mech`: the description with the numbers found; `numbers`: these by name, with start values that were unknown.
    - `intervals`: (low, high) by name, at `level`; None where the data, or a bound, leave none; `errors`: standard.
    - `identified`: an `mb.Identified`: rank, combinations that the data do not see, covariance.
    - `noise`: standard deviation by channel, given or estimated; `residual`: rms of what is left in units of it.
    - `simulated`: channels of each experiment at the measured times.
    - `converged`, `reason`, `history`, `independent`, `evaluations`: as for `mb.Optimum`.
    """

    mech: Any
    numbers: dict[str, float]
    start: dict[str, float]
    intervals: dict[str, tuple[float, float] | None]
    errors: dict[str, float]
    level: float
    identified: Identified
    noise: dict[str, float]
    residual: float
    count: int
    simulated: tuple[dict[str, np.ndarray], ...]
    converged: bool
    reason: str
    history: tuple[Iterate, ...]
    independent: tuple[str, ...]
    evaluations: Evaluations

    def __repr__(self) -> str:
        some = f"{len(self.simulated)} experiment{'s' if len(self.simulated) > 1 else ''}"
        lines = [
            f"Fit: {len(self.numbers)} numbers from {self.count} measured ones, {some}; "
            f"{len(self.history)} iterations, {len(self.evaluations)} simulations",
            f"  {'converged' if self.converged else 'NOT CONVERGED'}: {self.reason}",
        ]
        rows = [["number", "start", "value", f"{100 * self.level:g} % interval", ""]]
        for name, value in self.numbers.items():
            pair = self.intervals[name]
            between = "" if pair is None else f"{pair[0]:.6g} to {pair[1]:.6g}"
            note = "at its bound" if name in self.identified.held else "undetermined" if pair is None else ""
            rows.append([name, f"{self.start[name]:.6g}", f"{value:.6g}", between, note])
        rows += [[name, "", "", "", "no dependence"] for name in self.independent]
        lines += lay_out(rows, "<>><<")
        lines.append("  noise: " + ", ".join(f"{name} {value:.3g}" for name, value in self.noise.items()))
        for combination in self.identified.combinations:
            told = ", ".join(f"{name} {value:+.3g}" for name, value in combination.items())
            lines.append(f"  the data do not see relative changes in proportion: {told}")
        return "\n".join(lines)


def fit(
    mech: Any,
    experiments: Experiment | Sequence[Experiment],
    where: Any = None,
    *,
    build: Callable[[Any], Any] | None = None,
    bounds: Mapping[str, Any] | None = None,
    transforms: Mapping[str, Any] | None = None,
    scales: Mapping[str, Any] | None = None,
    level: float = 0.95,
    iterations: int = 100,
    tolerance: float = 1e-10,
    callback: Callable[[Iterate], Any] | None = None,
    evaluations: Evaluations | None = None,
) -> Fit:
    """The numbers of a mechanism for which simulations agree best with measurements.

    **Arguments:**

    - `mech`: a `mb.Mechanism`, or any tree of numbers of which `build` makes one.
    - `experiments`: one `mb.Experiment`, or a list of them.
    - `where`, `bounds`, `transforms`, `scales`, `callback`, `evaluations`: as in `mb.optimise`. Start values that an
        experiment calls unknown are numbers too: "start.A", or "name.start.A" if there are several experiments.
    - `level`: of the confidence intervals.
    - `iterations`: of each turn, at most; `tolerance`: relative change of numbers of size one at which it stops.
    """
    experiments = [experiments] if isinstance(experiments, Experiment) else list(experiments)
    _check(experiments, level)
    own = as_numbers(mech)
    tree = (own, [experiment.tree() for experiment in experiments])
    leaves, structure = jax.tree.flatten(tree)
    concrete("fit", leaves)
    log = evaluations if evaluations is not None else Evaluations()
    log.rewind()
    places = [*jax.tree.leaves(pick(own, where)), *start_places(tree, experiments)]
    fn = Simulated(build, tuple(experiment.plan() for experiment in experiments))
    program = trace(fn, structure, leaves, places)
    used = [place for k, place in enumerate(places) if program.depends[:, k].any()]
    independent = tuple(name for place in places if place not in used for name in place.names)
    if not used:
        raise MechanismError(f"no channel depends on {', '.join(independent[:5])}; pick others")
    bounds = {k: v for k, v in (bounds or {}).items() if k not in independent}
    variables = Variables(own, used, leaves, bounds, transforms, scales)
    program = program if len(used) == len(places) else trace(fn, structure, leaves, used)
    problem = _Residuals(program, leaves, variables, log, _Data(experiments))
    problem.first(lambda: _say(experiments, own, build))
    watch = _Watch(problem, callback)
    x, reason, good = _by_turns(problem, watch, iterations, tolerance)
    p, ends = variables.numbers(x), np.cumsum(sizes(used))[:-1]
    parts = [part.reshape(place.shape) for part, place in zip(jnp.split(p, ends), used, strict=True)]
    found = jax.tree.unflatten(structure, put(leaves, [place.pick for place in used], parts))[0]
    return _result(problem, watch, x, reason, good, independent, found, level)


def _check(experiments: Sequence[Any], level: float) -> None:
    for experiment in experiments:
        if not isinstance(experiment, Experiment):
            raise MechanismError(f"experiments holds a {type(experiment).__name__}; give mb.Experiment(data, ...)")
    titles = [experiment.title for experiment in experiments]
    if not titles or len(set(titles)) < len(titles):
        raise MechanismError(f"experiments are called {titles}; give at least one, and each a name of its own")
    if not 0 < level < 1:
        raise MechanismError(f"level = {level:g}; give a number between 0 and 1, such as 0.95")


def _say(experiments: Sequence[Experiment], mech: Any, build: Callable | None) -> None:
    """Outside of jit, what fails says why in words."""
    model = compile(mech if build is None else build(mech))
    for experiment in experiments:
        if experiment.run is None:
            own = experiment.tree()
            state = assemble(model, own["q"], own["v"], guess=own["guess"], t=own["ts"][0])
            simulate(model, state, own["ts"], **own["options"])


class _Data:
    """What was measured, flat: experiment after experiment, (times, channels) each."""

    def __init__(self, experiments: Sequence[Experiment]):
        stack = lambda e, table: np.stack([table[key] for key in e.data.channels], 1).ravel()
        columns = lambda e: np.tile(np.array([*e.data.channels]), len(e.data.times))
        self.experiments = experiments
        self.values = np.concatenate([stack(e, e.data.channels) for e in experiments])
        self.weights = np.concatenate([stack(e, e.data.weights) for e in experiments])
        self.used = np.isfinite(self.values) & (self.weights > 0)
        known = [{key: e.noise.get(key, np.nan) for key in e.data.channels} for e in experiments]
        self.known = np.concatenate([np.tile([*own.values()], len(e.data.times)) for e, own in zip(experiments, known)])
        self.column = np.concatenate([columns(e) for e in experiments])
        if not self.used.any():
            raise MechanismError("the experiments hold no number with a weight; there is nothing to fit")
        self.open = [key for key in dict.fromkeys(self.column.tolist()) if self._rows(key).any()]

    def _rows(self, key: str) -> np.ndarray:
        """Numbers of a channel whose noise is not known."""
        return (self.column == key) & np.isnan(self.known) & self.used

    def ranges(self) -> dict[str, float]:
        return {key: float(np.ptp(self.values[self._rows(key)])) or 1.0 for key in self.open}

    def left(self, r: np.ndarray) -> dict[str, float]:
        """(2): rms of what is left in channels whose noise is not known."""
        rms = lambda rows: float(np.sqrt((self.weights[rows] * r[rows] ** 2).sum() / rows.sum()))
        return {key: rms(self._rows(key)) for key in self.open}

    def factors(self, noise: Mapping[str, float]) -> np.ndarray:
        """What residuals are multiplied with; zero for gaps."""
        sigma = np.where(np.isnan(self.known), [noise.get(key, 1.0) for key in self.column], self.known)
        return np.where(self.used, np.sqrt(self.weights) / sigma, 0.0)

    def split(self, y: np.ndarray) -> tuple[dict[str, np.ndarray], ...]:
        found, start = [], 0
        for e in self.experiments:
            shape = (len(e.data.times), len(e.data.channels))
            table = y[start : start + shape[0] * shape[1]].reshape(shape)
            found.append({key: table[:, k] for k, key in enumerate(e.data.channels)})
            start += table.size
        return tuple(found)


class _Residuals:
    """(1) as SciPy asks for it; no question is asked twice."""

    def __init__(self, program: Any, leaves: list, variables: Variables, log: Evaluations, data: _Data):
        self.program, self.leaves, self.variables, self.log, self.data = program, leaves, variables, log, data
        self.noise = data.ranges()
        self._known: dict[bytes, Any] = {}

    def ask(self, x: np.ndarray) -> Any:
        key = np.asarray(x, float).tobytes()
        if key not in self._known:
            self._known[key] = self.log.ask(np.array(x, float), True, lambda: self._compute(x))
        return self._known[key]

    def _compute(self, x: np.ndarray) -> tuple:
        try:
            y, J = self.program.run["forward"](self.variables.numbers(x), self.leaves)
        except FAILURES:
            return np.full(self.data.values.shape, np.nan), np.full((len(self.data.values), len(x)), np.nan)
        return np.asarray(y, float), np.asarray(J, float) @ self.variables.slope(x)

    def first(self, say: Callable[[], None]) -> None:
        """The start must be finite."""
        record, used = self.ask(self.variables.x0), self.data.used
        bad = np.flatnonzero(used & ~np.isfinite(record.y))
        if len(bad):
            say()
            raise MechanismError(f"at the start {self.data.column[bad[0]]} is not finite; start from other numbers")
        if len(bad := np.argwhere(~np.isfinite(record.J[used]))):
            name = self.variables.name_of(int(bad[0][1]))
            raise MechanismError(
                f"at the start the derivative of {self.data.column[used][bad[0][0]]} with respect to {name} is not "
                "finite; start from other numbers, or see mb.sensitivity(..., check=True)"
            )

    def left(self, x: np.ndarray) -> np.ndarray:
        return np.where(self.data.used, self.ask(x).y - self.data.values, 0.0)

    def r(self, x: np.ndarray) -> np.ndarray:
        return (self.left(x) * self.data.factors(self.noise))[self.data.used]

    def J(self, x: np.ndarray) -> np.ndarray:
        return (self.ask(x).J * self.data.factors(self.noise)[:, None])[self.data.used]


class _Watch:
    """Sees every iterate."""

    def __init__(self, problem: _Residuals, callback: Callable | None):
        self.problem, self.callback, self.history = problem, callback, []
        self.x = problem.variables.x0

    def __call__(self, x: np.ndarray) -> None:
        problem, log = self.problem, self.problem.log
        if self.history and x.tobytes() == self.x.tobytes():
            return
        self.x, r, J = np.array(x), problem.r(x), problem.J(x)
        numbers, slope = problem.variables.named(x), float(np.abs(J.T @ r).max())
        self.history.append(
            Iterate(len(self.history), 0, numbers, float(r @ r), 0.0, slope, log.asked, log.replayed)
        )
        if self.callback is not None and self.callback(self.history[-1]):
            raise Stopped


def _by_turns(problem: _Residuals, watch: _Watch, iterations: int, tolerance: float) -> tuple[np.ndarray, str, bool]:
    """Numbers for a noise, noise for the numbers, until both agree."""
    least_squares: Any = import_module("scipy.optimize").least_squares  # takes a second to import
    words = {
        0: f"the limit of {iterations} iterations was reached",
        1: "the gradient is as small as asked",
        2: "the sum of squares no longer changes",
        3: "the numbers no longer change",
        4: "neither numbers nor sum of squares change",
    }

    def slopes(x: np.ndarray) -> np.ndarray:
        watch(x)
        return problem.J(x)

    x, status, ranges = problem.variables.x0, 0, problem.data.ranges()
    box = (problem.variables.lower, problem.variables.upper)
    try:
        for _ in range(_TURNS):
            found = least_squares(
                *(problem.r, x, slopes, box), x_scale=1.0, max_nfev=iterations, xtol=tolerance, ftol=1e-14, gtol=1e-14
            )
            x, status = np.array(found.x), int(found.status)
            new = problem.data.left(problem.left(x))
            exact = all(new[key] <= _EXACT * ranges[key] for key in new)
            agree = all(abs(new[key] - problem.noise[key]) <= 0.01 * new[key] for key in new)
            if exact or agree or len(new) == 0:
                break
            single = len(new) == 1 and not np.isfinite(problem.data.known[problem.data.used]).any()
            problem.noise = new
            if single:  # another weight of everything changes nothing
                break
    except Stopped:
        return watch.x, "stopped by the callback", False
    return x, words.get(status, "it fails"), status > 0


def _result(
    problem: _Residuals, watch: _Watch, x: np.ndarray, reason: str, good: bool, independent: tuple, mech: Any,
    level: float,
) -> Fit:  # fmt: skip
    variables, data = problem.variables, problem.data
    r, J = problem.r(x), problem.J(x)
    near = lambda bound: np.abs(x - bound) < 1e-6
    pushed = -J.T @ r
    free = ~((near(variables.lower) & (pushed <= 0)) | (near(variables.upper) & (pushed >= 0)))
    p = np.asarray(variables.numbers(x), float)
    found = identify(variables.names, p, variables.slope(x), r, J, free, level)
    numbers = variables.named(x)
    intervals = {
        name: (value - found.half[name], value + found.half[name]) if np.isfinite(found.half[name]) else None
        for name, value in numbers.items()
    }
    if found.combinations:
        reason += f"; but the data determine only {found.rank} of {int(free.sum())} numbers"
    residual = float(np.sqrt(r @ r / max(found.freedom, 1)))
    given = {key: own for e in data.experiments for key, own in e.noise.items()}
    start = dict(zip(variables.names, variables.start.tolist(), strict=True))
    return Fit(
        *(mech, numbers, start, intervals, found.errors, level, found, given | data.left(problem.left(x)), residual),
        *(int(data.used.sum()), data.split(problem.ask(x).y), good, reason, tuple(watch.history), independent),
        problem.log,
    )
