"""SWEEP a study: responses for many values of named numbers, on a grid or drawn at random, piece by piece.

Each piece runs side by side and is on the disk before the next begins. A member that fails stops alone: the others are
right, `failed.csv` lists it, and the command ends with code 4.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from .._batches import batch
from .._config._schema import Sweep, Variable
from .._errors import Exit, MechanismError, StudyError
from .._plots import plot_sweep
from ._checkpoint import Log
from ._folder import Folder
from ._motion import prepared
from ._results import Report, csv_text, picture
from ._study import Study
from ._watch import Watch

_MEMBERS = 5_000_000


def swept(study: Study, folder: Folder, watch: Watch) -> None:
    """Responses of all members."""
    own = study.config.sweep
    if own is None:
        study.root.fail("has no [sweep]; name numbers and responses there")
    names = own.responses or tuple(study.config.responses)
    if not names:
        study.root["sweep"].fail("asks for no responses; describe some in [responses]")
    members = _members(study, own)
    count = len(next(iter(members.values())))
    prepared(study)
    log = Log(folder)
    run = batch(lambda values: study.responses(values, names, throw=False), chunk=own.chunk)
    starts = range(0, count, own.chunk)
    try:
        for k, start in enumerate(starts):
            if k >= len(log.records):
                piece = {name: jnp.asarray(values[start : start + own.chunk]) for name, values in members.items()}
                log.add({name: np.asarray(y) for name, y in run(piece).items()})
            watch.step(k + 1, len(starts), f"{min(start + own.chunk, count)} members")
    except StudyError as fault:
        _write(study, folder, watch, members, names, log)
        raise fault
    except MechanismError as error:
        raise StudyError(str(error), Exit.SOLVE_FAILED) from error
    finally:
        log.close()
    failed = _write(study, folder, watch, members, names, log)
    if failed:
        raise StudyError(f"{failed} of {count} members failed; failed.csv lists them", Exit.PARTIAL)


def _members(study: Study, own: Sweep) -> dict[str, np.ndarray]:
    """The values of each number, one for each member."""
    current = study.current(own.variables)
    if own.samples is not None:
        rng = np.random.default_rng(own.seed)
        draw = lambda name, v: _drawn(study, name, v, float(current[name]), rng, own.samples or 0)
        return {name: draw(name, v) for name, v in own.variables.items()}
    axes = [_axis(study, name, v) for name, v in own.variables.items()]
    if int(np.prod([len(axis) for axis in axes], dtype=object)) > _MEMBERS:
        study.root["sweep"].fail(f"has more than {_MEMBERS} members; take fewer points, or samples")
    return dict(zip(own.variables, [a.ravel() for a in np.meshgrid(*axes, indexing="ij")], strict=True))


def _axis(study: Study, name: str, own: Variable) -> np.ndarray:
    if own.values is not None:
        return np.asarray(own.values, float)
    if own.lower is None or own.upper is None or own.points is None:
        study.root["sweep"]["variables"][name].fail("needs values, or lower, upper and points")
    return np.linspace(own.lower, own.upper, own.points)


def _drawn(study: Study, name: str, own: Variable, value: float, rng: Any, samples: int) -> np.ndarray:
    """Normal around the value with `spread`, cut at the bounds; else even between the bounds."""
    low, high = (-np.inf if own.lower is None else own.lower), (np.inf if own.upper is None else own.upper)
    if own.spread is not None:
        return np.clip(rng.normal(value if own.start is None else own.start, own.spread, samples), low, high)
    if not np.isfinite([low, high]).all():
        study.root["sweep"]["variables"][name].fail("needs spread, or lower and upper, to be drawn from")
    return rng.uniform(low, high, samples)


def _write(study: Study, folder: Folder, watch: Watch, members: dict, names: tuple[str, ...], log: Log) -> int:
    """Tables and pictures of the members that are done; how many of them failed."""
    if not log.records:
        return 0
    found = {name: np.concatenate([record[name] for record in log.records]) for name in names}
    count = len(next(iter(found.values())))
    done = {name: values[:count] for name, values in members.items()}
    ok = np.all([np.isfinite(y) for y in found.values()], 0)
    status = {"status": np.where(ok, "ok", "failed").tolist()}
    folder.write("sweep.csv", csv_text({"member": range(count), **done, **found, **status}))
    if not ok.all():
        bad = np.flatnonzero(~ok)
        folder.write("failed.csv", csv_text({"member": bad, **{name: values[bad] for name, values in done.items()}}))
    report = Report(study, folder, "sweep")
    report.section("Responses")
    report.text(f"{count} members, {int((~ok).sum())} failed.")
    rows = [(n, *(float(f(y[ok])) for f in (np.min, np.mean, np.max, np.std))) for n, y in found.items() if ok.any()]
    report.table(("response", "least", "mean", "largest", "standard deviation"), rows)
    for k, name in enumerate(names if study.config.output.plots else ()):
        for j, (number, values) in enumerate(list(done.items())[:4]):
            place = f"plots/sweep_{k + 1}_{j + 1}.png"
            draw = lambda values=values, name=name, number=number: plot_sweep(values, found[name], (number, name), ok)
            picture(folder, watch, place, draw)
            report.picture(place, f"{name} over {number}")
    report.write()
    return int((~ok).sum())
