"""FIT a study: `mb.fit` of named numbers to measured tables, with a log on the disk that lets it go on bit by bit.

Data files stand in the folder of the study, or below it; the names of columns and channels are in [fit].
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from .._config._document import Entry
from .._config._expression import is_expression
from .._config._schema import Fit as Section
from .._errors import Exit, MechanismError, StudyError
from .._experiment import Experiment
from .._fit import Fit, fit
from .._measurement import read_csv
from .._plots import plot_fit
from ._checkpoint import Log
from ._folder import Folder
from ._motion import prepared
from ._optimise import bounded, evaluations_of, started
from ._results import Report, csv_text, picture
from ._study import Study, controller, method
from ._watch import Watch

_LIMIT = 200_000_000  # bytes of a table


def fitted(study: Study, folder: Folder, watch: Watch) -> None:
    """Finds the numbers for which simulation and measurement agree best."""
    own = study.config.fit
    if own is None:
        study.root.fail("has no [fit]; say there which data, channels and numbers")
    try:
        experiments = [_experiment(study, own, name, k) for k, name in enumerate(own.data)]
    except MechanismError as error:
        raise StudyError(str(error)) from error
    prepared(study)
    values = started(study, own.variables)
    log = Log(folder)
    if log.records or log.warning:
        watch.say(f"{len(log.records)} evaluations are known {f'({log.warning})' if log.warning else ''}".rstrip())

    def seen(iterate: Any) -> bool:
        if not iterate.replayed:
            watch.tell(iterate.number, own.iterations, f"sum of squares {iterate.value:.8g}")
        return watch.stopped

    try:
        found = fit(
            values,
            experiments,
            build=study.build,
            bounds={name: (v.lower, v.upper) for name, v in own.variables.items() if bounded(v)},
            scales={name: v.scale for name, v in own.variables.items() if v.scale is not None},
            iterations=own.iterations,
            callback=seen,
            evaluations=evaluations_of(log, watch),
        )
    except MechanismError as error:
        raise StudyError(str(error), Exit.SOLVE_FAILED) from error
    finally:
        log.close()
    _write(study, folder, watch, found, experiments)
    if watch.stopped and not found.converged:
        raise watch.interrupted()
    if not found.converged:
        raise StudyError(f"not converged: {found.reason}", Exit.SOLVE_FAILED)


def _experiment(study: Study, own: Section, name: str, number: int) -> Experiment:
    path = data_path(study, name, number)
    data = read_csv(path, channels={c: c for c in own.channels}, delimiter=own.delimiter)
    solver = study.config.solver
    options = {"solver": method(solver), "controller": controller(solver), "inputs": study.inputs({})}
    return Experiment(
        data,
        study.start({}, "q"),
        study.start({}, "v"),
        study.start({}, "guess"),
        unknown=own.unknown,
        begin=min(study.config.time.start, float(data.times[0])),
        channels={column: _reader(study, own, channel) for column, channel in own.channels.items()},
        noise=own.noise,
        options=options | {"max_steps": solver.max_steps},
        name=path.stem,
    )


def _reader(study: Study, own: Section, channel: str) -> Any:
    """What reads a channel; markers that move with the numbers sought are refused."""
    found = study.channels([channel])[0]
    section = study.config.markers
    for name, at in section.table().items() if section is not None else ():
        if channel.startswith(f"{name}.") and _moves(at):
            raise StudyError(f'the channel "{channel}" is on a marker given by an expression; fit a channel of a body')
    return found.read


def _moves(at: Entry) -> bool:
    """Whether an expression stands anywhere in it."""
    if isinstance(at.value, dict):
        return any(_moves(entry) for entry in at.table().values())
    return any(_moves(item) for item in at.items) if isinstance(at.value, list) else is_expression(at.value)


def data_path(study: Study, name: str, number: int) -> Path:
    """A file that the study names: in its folder or below."""
    at = study.root["fit"]["data"]
    at = at if isinstance(at.value, str) else at[number]
    home = Path(study.document.name).resolve().parent
    path = (home / name).resolve()
    if not path.is_relative_to(home):
        at.fail(f'is "{name}", outside of the folder of the study; put the data beside it')
    if not path.is_file():
        at.fail(f'is "{name}", which {"is a folder" if path.is_dir() else f"is not in {home}"}')
    if path.stat().st_size > _LIMIT:
        at.fail(f'is "{name}", larger than {_LIMIT // 1_000_000} MB; give fewer rows')
    return path


def _write(study: Study, folder: Folder, watch: Watch, found: Fit, experiments: list[Experiment]) -> None:
    finite = lambda x: x if np.isfinite(x) else None
    about = {
        "numbers": found.numbers,
        "intervals": {name: pair if pair is None else list(pair) for name, pair in found.intervals.items()},
        "level": found.level,
        "standard_errors": {name: finite(x) for name, x in found.errors.items()},
        "noise": found.noise,
        "residual": found.residual,
        "rank": found.identified.rank,
        "undetermined": [dict(c) for c in found.identified.combinations],
        "independent": list(found.independent),
        "converged": found.converged,
        "reason": found.reason,
    }
    folder.write("fit.json", json.dumps(about, indent=1) + "\n")
    report = Report(study, folder, "fit")
    report.section("Numbers")
    report.text("```", str(found), "```")
    for k, (experiment, simulated) in enumerate(zip(experiments, found.simulated, strict=True)):
        data = experiment.data
        columns = {"time [s]": data.times}
        for name, values in data.channels.items():
            columns |= {f"{name} measured": values, f"{name} simulated": simulated[name]}
        folder.write(f"fit_{k + 1}.csv", csv_text(columns))
        name = f"plots/fit_{k + 1}.png"
        if study.config.output.plots:
            draw = lambda data=data, simulated=simulated: plot_fit(data.times, data.channels, simulated, data.name)
            picture(folder, watch, name, draw)
        report.picture(name, experiment.title)
    report.write()
    watch.say(str(found))
