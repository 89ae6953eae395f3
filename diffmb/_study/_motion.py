"""MOTION of a study, in pieces: each piece is a simulation from where the one before ended, and a checkpoint.

The pieces follow from the config alone, so a run that was interrupted and resumed has the bits of one that was not.
"""

from itertools import pairwise
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .._assembly import State
from .._checks import check_states
from .._errors import Exit, MechanismError, StudyError
from .._inputs import as_inputs
from .._io._netcdf import libraries
from .._kinematic_simulation import simulate_kinematics
from .._mechanism import Mechanism
from .._model import Model
from .._results import RESULTS
from .._solver import explicit, implicit
from .._trajectory import STATISTICS, Statistics, Trajectory
from ._checkpoint import load_checkpoint, save_checkpoint
from ._folder import Folder
from ._study import Study, method
from ._watch import Watch

_METHODS = ("", "Tsit5", "Kvaerno5")  # what `auto` may have chosen


class Outcome(NamedTuple):
    """A motion, whole or as far as it came, and what stopped it."""

    traj: Trajectory
    fault: StudyError | None


def prepared(study: Study) -> tuple[Mechanism, Model, State]:
    """The mechanism, its model and its start; faults of the description are bad input, others a failed solve."""
    try:
        mech = study.mechanism
        model = study.model
        study.inputs({})
        if study.config.output.format == "nc":
            libraries()
        study.channels([*study.config.output.channels, *(r.channel for r in study.config.responses.values())])
    except MechanismError as error:
        raise StudyError(str(error)) from error
    try:
        return mech, model, study.assemble(model, {})
    except MechanismError as error:
        raise StudyError(str(error), Exit.SOLVE_FAILED) from error


def cuts(intervals: int, wanted: int) -> list[int]:
    """Where pieces begin and end: equal ones if a number near the wanted one divides the intervals."""
    near = [p for p in range(max(1, (wanted + 1) // 2), 2 * wanted + 1) if intervals % p == 0]
    pieces = min(near, key=lambda p: abs(p - wanted)) if near else min(wanted, intervals)
    length = -(-intervals // pieces)
    return [*range(0, intervals, length), intervals]


def move(study: Study, folder: Folder, watch: Watch, model: Model, state: State) -> Outcome:
    """The motion by dynamics."""
    ts, rows = study.ts, len(study.ts)
    z0 = np.asarray(check_states(model, study.states({}), state.q))
    kept: dict[str, Any] = {
        "done": np.zeros((), np.int64),
        "method": np.zeros((), np.int64),
        "q": np.full((rows, model.nq), np.nan),
        "v": np.full((rows, model.nv), np.nan),
        "z": np.full((rows, len(z0)), np.nan),
        "counts": np.zeros(2, np.int64),
        "errors": np.zeros(2),
    }
    if (found := load_checkpoint(folder, kept)) is not None:
        kept, warning = {k: np.array(a) for k, a in found[0].items()}, found[1]
        watch.say(f"going on at t = {ts[int(kept['done'])]:.6g} s" + (f" ({warning})" if warning else ""))
    else:
        kept["q"][0], kept["v"][0], kept["z"][0] = state.q, state.v, z0
    ends = cuts(rows - 1, study.config.solver.pieces)
    for k, (first, last) in enumerate(pairwise(ends)):
        if last <= int(kept["done"]):
            continue
        piece = _piece(study, model, state, kept, first, last)
        result = piece.result
        count = len(piece.ts)
        for name in ("q", "v", "z"):
            kept[name][first : first + count] = np.asarray(getattr(piece, name))[: last - first + 1]
        kept["done"] = np.asarray(first + count - 1)
        kept["counts"] += [int(piece.stats.steps), int(piece.stats.rejected)]
        errors = [float(piece.stats.constraint_error), float(piece.stats.largest_correction)]
        kept["errors"] = np.maximum(kept["errors"], errors)
        if result != RESULTS.successful:
            return Outcome(_joined(study, model, kept, result), _why(study, model, state, kept, first, last))
        kept["method"] = np.asarray(_METHODS.index(piece.stats.solver) if piece.stats.solver in _METHODS else 0)
        save_checkpoint(folder, kept)
        try:
            watch.step(k + 1, len(ends) - 1, f"t = {ts[last]:.6g} s")
        except StudyError as fault:
            return Outcome(_joined(study, model, kept, result), fault)
    return Outcome(_joined(study, model, kept, RESULTS.successful), None)


def _piece(study: Study, model: Model, state: State, kept: dict, first: int, last: int, **more: Any) -> Trajectory:
    ts = jnp.asarray(study.ts[first : last + 1])
    here = eqx.tree_at(
        lambda s: (s.q, s.v, s.t), state, (jnp.asarray(kept["q"][first]), jnp.asarray(kept["v"][first]), ts[0])
    )
    own = study.config.solver
    if own.method == "auto" and int(kept["method"]):
        more["solver"] = explicit() if int(kept["method"]) == 1 else implicit()
    return study.go(model, here, ts, {}, z=jnp.asarray(kept["z"][first]), **{"throw": False} | more)


def _why(study: Study, model: Model, state: State, kept: dict, first: int, last: int) -> StudyError:
    """The piece that failed once more, for what it says."""
    try:
        _piece(study, model, state, kept, first, last, throw=True)
    except MechanismError as error:
        return StudyError(str(error), Exit.SOLVE_FAILED)
    return StudyError("the simulation failed", Exit.SOLVE_FAILED)


def _joined(study: Study, model: Model, kept: dict, result: Any) -> Trajectory:
    rows = int(kept["done"]) + 1
    own = study.config.solver
    chosen = _METHODS[int(kept["method"])]
    name = chosen or ("auto" if own.method == "auto" else type(method(own)).__name__)
    numbers = dict(zip(STATISTICS, [*map(jnp.asarray, kept["counts"]), *map(jnp.asarray, kept["errors"])], strict=True))
    parts = (jnp.asarray(kept[name][:rows]) for name in ("q", "v", "z"))
    return trajectory_of(study, model, study.ts[:rows], parts, result, Statistics(**numbers, solver=name))


def trajectory_of(study: Study, model: Model, ts: Any, parts: Any, result: Any, stats: Statistics) -> Trajectory:
    q, v, z = parts
    ts = jnp.asarray(ts)
    inputs = as_inputs(model, study.inputs({}), jnp.asarray(study.ts))
    none = (jnp.zeros(0), jnp.zeros(0, int), ())
    result = jax.tree.map(jnp.asarray, result)
    return Trajectory(ts, q, v, z, None, model, inputs, result, jnp.asarray(len(ts)), stats, *none)


def move_by_drives(study: Study, model: Model, state: State) -> Outcome:
    """The motion that drives prescribe, without an integrator."""
    found = simulate_kinematics(model, state, jnp.asarray(study.ts), throw=False)
    ok = np.asarray(found.ok)
    rows, fault = len(ok), None
    if not ok.all():
        rows = max(int(np.argmin(ok)), 1)
        try:
            simulate_kinematics(model, state, jnp.asarray(study.ts))
        except MechanismError as error:
            fault = StudyError(str(error), Exit.SOLVE_FAILED)
    error = jnp.asarray(float(np.asarray(found.residual)[:rows].max()))
    stats = Statistics(jnp.asarray(rows), jnp.asarray(0), error, jnp.asarray(0.0), solver="kinematics")
    parts = (found.q[:rows], found.v[:rows], jnp.zeros((rows, model.nz)))
    result = RESULTS.successful if fault is None else RESULTS.drift
    return Outcome(trajectory_of(study, model, study.ts[:rows], parts, result, stats), fault)
