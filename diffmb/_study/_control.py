"""CONTROL of a study: `mb.control.collocation` from [start] to the end that [control] asks for, kept by iterates.

    minimise  w_time T + w_effort integral of u . u dt
"""

import json
from dataclasses import fields
from typing import Any

import jax.numpy as jnp
import numpy as np

from .._config._build import coordinates
from .._config._schema import Control, Variable
from .._control._collocation import collocation
from .._control._interior_point import Iterate
from .._control._problem import Free, Problem
from .._control._solution import Progress, Solution
from .._errors import Exit, MechanismError, StudyError
from .._plots import plot_channels
from ._checkpoint import load_checkpoint, save_checkpoint
from ._folder import Folder
from ._motion import prepared
from ._results import Report, csv_text, picture, write_motion, write_pictures
from ._study import Study
from ._watch import Watch


def controlled(study: Study, folder: Folder, watch: Watch) -> None:
    """Finds the inputs of the best motion; writes them, and the motion that they make in a simulation."""
    own = study.config.control
    if own is None:
        study.root.fail("has no [control]; say there which inputs, where to, and what to minimise")
    problem = _problem(study, own)
    found = load_checkpoint(folder, _blank(), shapes=False)
    resume = None if found is None else found[0]
    if resume is not None:
        watch.say(f"going on after {int(resume.iterate.count)} iterations")

    def seen(progress: Progress) -> bool:
        save_checkpoint(folder, progress)
        text = f"cost {progress.cost:.8g}, violation {progress.violation:.1e}, optimality {progress.optimality:.1e}"
        watch.tell(int(progress.iterate.count), own.iterations, text)
        return watch.stopped

    options = {"points": own.points, "accuracy": own.accuracy, "tolerance": own.tolerance}
    try:
        solution = collocation(
            problem, own.nodes, max_iterations=own.iterations, callback=seen, resume=resume, throw=False, **options
        )
    except MechanismError as error:
        raise StudyError(str(error), Exit.SOLVE_FAILED) from error
    _write(study, folder, watch, solution)
    if watch.stopped and not solution.converged:
        raise watch.interrupted()
    if not solution.converged:
        raise StudyError(f"not converged: {solution.reason}", Exit.SOLVE_FAILED)


def _blank() -> Progress:
    """A progress of any size, for the names of its arrays."""
    return Progress(np.zeros(0), Iterate(*(np.zeros(()) for _ in fields(Iterate))))


def _problem(study: Study, own: Control) -> Problem:
    _, model, state = prepared(study)
    pair = lambda v: (-np.inf if v.lower is None else v.lower, np.inf if v.upper is None else v.upper)
    pairs = lambda table: {name: pair(v) for name, v in table.items()}
    end = {what: coordinates(getattr(own.end, what), study.parameters({}), what) for what in ("q", "v", "z")}
    w_time, w_effort = own.minimise.get("time", 0.0), own.minimise.get("effort", 0.0)
    fixed = own.duration.lower == own.duration.upper
    try:
        return Problem(
            model,
            pairs(_with_names(study, own.inputs)),
            start=state,
            end={what: values for what, values in end.items() if values},
            duration=own.duration.lower if fixed else Free(own.duration.lower, own.duration.upper, own.duration.guess),
            running=lambda t, q, v, z, u, p: w_time + w_effort * jnp.sum(u * u),
            bounds=pairs(own.bounds),
            speed_bounds=pairs(own.speed_bounds),
            guess=study.start({}, "guess"),
        )
    except MechanismError as error:
        raise StudyError(str(error)) from error


def _with_names(study: Study, inputs: dict[str, Variable]) -> dict[str, Variable]:
    """The inputs; one that also stands in [inputs] would be given twice."""
    for name in study.inputs({}):
        if name in inputs:
            study.root["inputs"][name].fail("is sought by [control] too; give it in one place")
    return inputs


def _write(study: Study, folder: Folder, watch: Watch, found: Solution) -> None:
    about = {
        "cost": float(found.cost),
        "duration": found.duration,
        "violation": float(found.violation),
        "optimality": float(found.optimality),
        "iterations": found.iterations,
        "converged": found.converged,
        "reason": found.reason,
        "mesh_error": float(np.max(found.errors)) if len(found.errors) else None,
    }
    folder.write("control.json", json.dumps(about, indent=1) + "\n")
    inputs = {name: np.asarray(found.input(name)) for name, *_ in found.problem.places}
    flat: dict[str, Any] = {}
    for name, u in inputs.items():
        flat |= {name: u} if u.ndim == 1 else {f"{name}[{k}]": u[:, k] for k in range(u.shape[1])}
    folder.write("inputs.csv", csv_text({"time [s]": found.ts, **flat}))
    report = Report(study, folder, "control")
    report.section("Best motion")
    report.text(f"{found!r}.")
    if study.config.output.plots:
        drawn = {name: (u, "N m, N or that of the connection") for name, u in flat.items()}
        picture(folder, watch, "plots/inputs.png", lambda: plot_channels(found.ts, drawn, study.config.title))
    report.picture("plots/inputs.png", "inputs over time")
    try:
        traj = found.trajectory(np.linspace(0.0, found.duration, 201))
    except MechanismError as error:
        report.text(f"There is no motion to show: {error}")
    else:
        curves = write_motion(study, folder, traj)
        write_pictures(study, folder, watch, traj, curves)
        report.motion(traj, curves)
    report.write()
    watch.say(repr(found))
