"""OPTIMISE a study: `mb.optimise` over named numbers, with a log on the disk that lets it go on bit by bit."""

import json
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from .._config._registry import family
from .._config._schema import Optimise, Variable
from .._errors import Exit, MechanismError, StudyError
from .._evaluations import Evaluations, Record
from .._methods import AbstractMethod
from .._names import nearest
from .._optimise import optimise
from .._optimum import Iterate, Optimum
from .._plots import plot_history
from .._problem import Limit
from ._checkpoint import Log
from ._folder import Folder
from ._motion import prepared
from ._results import Report, csv_text, curves, picture, write_motion, write_pictures
from ._study import Study
from ._watch import Watch


def optimised(study: Study, folder: Folder, watch: Watch) -> None:
    """Changes numbers until the responses are smallest; writes the optimum, its history, and the motion before and
    after."""
    own = study.config.optimise
    if own is None:
        study.root.fail("has no [optimise]; say there what to minimise, and over which numbers")
    method = _method(study, own)
    prepared(study)
    values = started(study, own.variables)
    log = Log(folder)
    if log.records or log.warning:
        watch.say(f"{len(log.records)} evaluations are known {f'({log.warning})' if log.warning else ''}".rstrip())
    evaluations = evaluations_of(log, watch)
    watch.say("compiling the motion and its derivatives; the first time takes a minute or two")
    try:
        found = optimise(
            lambda p: _objective(study, own, p),
            values,
            bounds={name: (v.lower, v.upper) for name, v in own.variables.items() if bounded(v)},
            constraints=_limits(own),
            method=method,
            scales={name: v.scale for name, v in own.variables.items() if v.scale is not None},
            starts=own.starts,
            seed=own.seed,
            tolerance=own.tolerance,
            callback=lambda iterate: _seen(watch, own, iterate),
            evaluations=evaluations,
        )
    except MechanismError as error:
        raise StudyError(str(error), Exit.SOLVE_FAILED) from error
    finally:
        log.close()
    _write(study, folder, watch, values, found)
    if watch.stopped and not found.converged:
        raise watch.interrupted()
    if not found.converged:
        raise StudyError(f"not converged: {found.reason}", Exit.SOLVE_FAILED)


def bounded(own: Variable) -> bool:
    return own.lower is not None or own.upper is not None


def evaluations_of(log: Log, watch: Watch) -> Evaluations:
    """The log of an optimiser, kept on the disk. Once it is asked to stop, what it still evaluates is not kept: these
    are questions about where it stands, which a run that goes on does not ask."""

    def added(record: Record) -> None:
        if not watch.stopped:
            log.add({"x": record.x, "y": record.y, "J": record.J})

    return Evaluations([(r["x"], r["y"], r["J"]) for r in log.records], added)


def _method(study: Study, own: Optimise) -> AbstractMethod:
    """The method of that name, with the iterations of the config and the seed if it takes one."""
    kinds = family("methods")
    if own.method not in kinds:
        study.root["optimise"]["method"].fail(f'is "{own.method}"; {nearest(own.method, list(kinds))}')
    kind = kinds[own.method]
    given = {"iterations": own.iterations, "seed": own.seed}
    needed = [name for name, argument in kind.arguments.items() if argument.needed and name not in given]
    if needed:
        study.root["optimise"]["method"].fail(f'is "{own.method}", which needs {needed[0]}: use it in Python')
    takes = [name for name in given if name in kind.arguments and (name != "seed" or kind.arguments[name].needed)]
    return kind.make(**{name: given[name] for name in takes})


def started(study: Study, variables: Mapping[str, Variable]) -> dict[str, Any]:
    """Where the numbers start; one outside of its bounds is refused."""
    values = study.current(variables)
    for name, own in variables.items():
        start = float(values[name]) if own.start is None else own.start
        if not (-np.inf if own.lower is None else own.lower) <= start <= (np.inf if own.upper is None else own.upper):
            raise StudyError(f"{name} starts at {start:g}, outside of its bounds {own.lower} to {own.upper}")
        values[name] = jnp.asarray(start, float)
    return values


def _limits(own: Optimise) -> dict[str, Limit]:
    found = {}
    for limit in own.constraints:
        low, high = (limit.lower, limit.upper) if limit.equals is None else (limit.equals, limit.equals)
        if limit.response in found:
            raise StudyError(f'two constraints limit "{limit.response}"; give lower and upper in one')
        found[limit.response] = Limit(None, low, high)
    return found


def _objective(study: Study, own: Optimise, values: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    names = dict.fromkeys([*own.minimise, *(limit.response for limit in own.constraints)])
    found = study.responses(values, names, throw=False)
    value = sum(weight * found[name] for name, weight in own.minimise.items())
    return jnp.asarray(value), {limit.response: found[limit.response] for limit in own.constraints}


def _seen(watch: Watch, own: Optimise, iterate: Iterate) -> bool:
    """Tells how it goes; True asks the search to stop."""
    if not iterate.replayed:
        where = f"start {iterate.start + 1}, " if own.starts > 1 else ""
        over = f", violation {iterate.violation:.1e}" if iterate.violation > 0 else ""
        text = f"{where}objective {iterate.value:.8g}{over}"
        watch.tell(iterate.start * own.iterations + iterate.number, own.starts * own.iterations, text)
    return watch.stopped


def _write(study: Study, folder: Folder, watch: Watch, values: dict[str, Any], found: Optimum) -> None:
    about = {
        "numbers": found.numbers,
        "value": found.value,
        "responses": found.responses,
        "converged": found.converged,
        "reason": found.reason,
        "violation": found.violation,
        "optimality": found.optimality,
        "multipliers": found.multipliers,
        "simulations": found.simulations,
        "independent": list(found.independent),
    }
    folder.write("optimum.json", json.dumps(about, indent=1) + "\n")
    _write_history(folder, found)
    report = Report(study, folder, "optimise")
    report.section("Optimum")
    report.text("```", str(found), "```")
    series = {"objective": [i.value for i in found.history]}
    if any(i.optimality is not None for i in found.history):
        series["first-order conditions"] = [np.nan if i.optimality is None else i.optimality for i in found.history]
    if study.config.output.plots and found.history:
        picture(folder, watch, "plots/convergence.png", lambda: plot_history(series, study.config.title))
    report.picture("plots/convergence.png", "convergence")
    after = {name: jnp.asarray(value) for name, value in found.numbers.items()}
    try:
        old, new = study.simulate(values), study.simulate(after)
    except MechanismError as error:
        report.text(f"There is no motion to show: {error}")
    else:
        found_after = write_motion(study, folder, new, after)
        before = curves(study, old, values), study.build(values), old
        write_pictures(study, folder, watch, new, found_after, after, before)
        report.motion(new, found_after)
    report.write()
    watch.say(str(found))


def _write_history(folder: Folder, found: Optimum) -> None:
    columns: dict[str, Any] = {
        "start": [i.start for i in found.history],
        "iteration": [i.number for i in found.history],
        "objective": [i.value for i in found.history],
        "violation": [i.violation for i in found.history],
        "optimality": ["" if i.optimality is None else i.optimality for i in found.history],
    }
    columns |= {name: [i.numbers[name] for i in found.history] for name in found.numbers}
    folder.write("history.csv", csv_text(columns))
