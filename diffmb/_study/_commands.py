"""COMMANDS: what `diffmb run`, `kinematics`, `sensitivity` and `check` do with a study and its folder."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from .._errors import Exit, MechanismError, StudyError
from .._mobility import mobility
from .._plots import plot_channels, plot_influence
from .._sensitivity import sensitivity
from ._control import controlled
from ._fit import fitted
from ._folder import Folder
from ._motion import Outcome, move, move_by_drives, prepared
from ._optimise import optimised
from ._results import Report, csv_text, picture, write_motion, write_pictures
from ._study import Study
from ._sweep import swept
from ._watch import Watch


def run(study: Study, folder: Folder, watch: Watch) -> None:
    """Simulates the motion."""
    mech, model, state = prepared(study)
    watch.say(f"{len(mech.bodies)} bodies, {model.nv} speeds, {model.nc} rows of constraint")
    _motion(study, folder, watch, move(study, folder, watch, model, state), "run")


def kinematics(study: Study, folder: Folder, watch: Watch) -> None:
    """The motion that the drives prescribe."""
    _, model, state = prepared(study)
    _motion(study, folder, watch, move_by_drives(study, model, state), "kinematics")


def _motion(study: Study, folder: Folder, watch: Watch, outcome: Outcome, command: str) -> None:
    found = write_motion(study, folder, outcome.traj)
    report = Report(study, folder, command)
    if outcome.fault is None:
        write_pictures(study, folder, watch, outcome.traj, found)
    else:
        report.text(f"**Not finished:** {outcome.fault}. What follows is the part that was reached.")
    report.motion(outcome.traj, found)
    report.write()
    if outcome.fault is not None:
        raise outcome.fault


def sensitivities(study: Study, folder: Folder, watch: Watch) -> None:
    """Derivatives of responses, and of channels over time, with respect to named numbers."""
    own = study.config.sensitivity
    if own is None:
        study.root.fail("has no [sensitivity]; name numbers and responses there")
    if not own.responses and not own.over_time:
        study.root["sensitivity"].fail("asks for nothing; give responses = [...] or over_time = [...]")
    prepared(study)
    values = study.current(own.where)
    report = Report(study, folder, "sensitivity")
    try:
        if own.responses:
            _table(study, folder, watch, report, values)
        watch.step(1, 2)
        if own.over_time:
            _curves(study, folder, watch, report, values)
        watch.step(2, 2)
    except MechanismError as error:
        raise StudyError(str(error), Exit.SOLVE_FAILED) from error
    report.write()


def _table(study: Study, folder: Folder, watch: Watch, report: Report, values: dict) -> None:
    own = study.config.sensitivity
    assert own is not None
    found = sensitivity(lambda p: study.responses(p, own.responses), values, check=own.check, mode=_mode(values))
    rows = found.table
    columns = {
        "response": [r.response for r in rows],
        "number": [r.name for r in rows],
        "value": [r.value for r in rows],
        "derivative": [r.derivative for r in rows],
        "percent_per_percent": [r.influence for r in rows],
        "difference": ["" if r.difference is None else r.difference for r in rows],
        "note": [r.note for r in rows],
    }
    folder.write("sensitivity.csv", csv_text(columns))
    report.section("Derivatives")
    if found.difference is not None:
        report.text(f"Central finite differences differ by {found.difference:.1e} at most.")
    head = ("response", "number", "value", "derivative", "% per %", "note")
    report.table(head, [(r.response, r.name, r.value, r.derivative, r.influence, r.note) for r in rows])
    for response in own.responses if study.config.output.plots else ():
        those = [r for r in rows if r.response == response and r.note != "no dependence"]
        name = f"plots/influence_{_plain(response)}.png"
        if those:
            draw = lambda: plot_influence([r.name for r in those], [r.influence for r in those], response)
            picture(folder, watch, name, draw)
        report.picture(name, f"influence on {response}")
    watch.say(str(found))


def _mode(values: dict) -> str | None:
    """Forward for few numbers: its program compiles in a fraction of the time."""
    return "forward" if len(values) <= 32 else None


def _curves(study: Study, folder: Folder, watch: Watch, report: Report, values: dict) -> None:
    """d(channel)/d(number) at every time, by forward mode: one column for each number."""
    own = study.config.sensitivity
    assert own is not None
    slopes = jax.jit(jax.jacfwd(lambda p: study.channel_values(study.simulate(p), own.over_time, p)))(values)
    units = {c.name: c.unit for c in study.channels(own.over_time)}
    curves = {
        f"d {name} / d {number}": (np.asarray(slopes[name][number]), f"{units[name]} per unit")
        for name in own.over_time
        for number in values
    }
    bad = [name for name, (y, _) in curves.items() if not np.isfinite(y).all()]
    if bad:
        raise MechanismError(f"{bad[0]} is not finite")
    columns = {"time [s]": study.ts, **{name: y for name, (y, _) in curves.items()}}
    folder.write("sensitivity_over_time.csv", csv_text(columns))
    report.section("Derivatives over time")
    for k, channel in enumerate(own.over_time if study.config.output.plots else ()):
        those = {name: curve for name, curve in curves.items() if name.startswith(f"d {channel} / d ")}
        name = f"plots/over_time_{k + 1}.png"
        picture(folder, watch, name, lambda: plot_channels(study.ts, those, f"derivatives of {channel}"))
        report.picture(name, f"derivatives of {channel}")


def _plain(name: str) -> str:
    return "".join(c if c.isalnum() or c in "-_" else "_" for c in name)


def check(study: Study, watch: Watch) -> str:
    """What a study describes, in words; nothing is simulated or written."""
    mech, model, state = prepared(study)
    lines = [repr(mech), f"start closes to {float(state.residual):.2g}; {int(state.iterations)} iterations"]
    lines.append(str(mobility(model, state.q, state.t, drives=False)))
    if int(state.branch) < 0:
        lines.append("the start lies on the other branch than the guess: give a better guess in [start]")
    for section in ("sensitivity", "optimise", "fit", "sweep"):
        own = getattr(study.config, section)
        if own is not None:
            study.current(own.where if section == "sensitivity" else own.variables)
            lines.append(f"[{section}] is consistent")
    if not bool(jnp.isfinite(state.q).all()):
        raise StudyError("the start is not finite", Exit.SOLVE_FAILED)
    return "\n".join(lines)


def motion_to_view(study: Study) -> tuple:
    """Mechanism, motion and traced markers, for the live viewer."""
    mech, model, state = prepared(study)
    try:
        traj = study.go(model, state, jnp.asarray(study.ts), {}, z=study.states({}))
    except MechanismError as error:
        raise StudyError(str(error), Exit.SOLVE_FAILED) from error
    return mech, traj, study.markers({})


def work_of(command: str) -> Callable[[Study, Folder, Watch], None] | None:
    """What a command does in a folder."""
    works = {"run": run, "kinematics": kinematics, "sensitivity": sensitivities}
    return {**works, "optimise": optimised, "fit": fitted, "sweep": swept, "control": controlled}.get(command)
