"""RESULTS of a study: files of numbers, pictures and a page, written into its folder.

    results.npz + results.json, or results.nc      the motion, with names, units and versions
    channels.csv                                    what was asked for, over time
    plots/*.png, animation.html                     the same to look at
    report.md                                       all of it on a page
"""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import equinox as eqx
import numpy as np

from .._errors import MechanismError
from .._io._results import save
from .._mechanism import Mechanism
from .._plots import plot_channels
from .._trajectory import Trajectory, variables
from .._viewer._html import page
from .._viewer._scene import scene, with_ghost
from ._folder import Folder, files
from ._study import Study
from ._watch import Watch

Curves = dict[str, tuple[np.ndarray, str]]


def curves(study: Study, traj: Trajectory, values: Mapping[str, Any] | None = None) -> Curves:
    """The asked channels over time, with their units; the coordinates of some joints if none are asked."""
    asked = study.config.output.channels
    if not asked:
        sizes = zip(traj.model.inboard, traj.model.topology.nqs, strict=True)
        asked = tuple(f"{n}.coordinate" for n, size in sizes if size == 1 and n in study.mechanism)[:8]
    found = study.channels(asked, values)
    read = eqx.filter_jit(lambda traj: [own.read(traj) for own in found])(traj)
    return {own.name: (np.asarray(y), own.unit) for own, y in zip(found, read, strict=True)}


def csv_text(columns: Mapping[str, Iterable[Any]]) -> str:
    """A table; numbers in full."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    plain = lambda x: repr(x.item() if hasattr(x, "item") else x) if not isinstance(x, str) else x
    for row in zip(*columns.values(), strict=True):
        writer.writerow([plain(x) for x in row])
    return file.getvalue()


def write_motion(study: Study, folder: Folder, traj: Trajectory, values: Mapping[str, Any] | None = None) -> Curves:
    """The motion as numbers."""
    with files():
        suffix = study.config.output.format
        save(traj, folder.place(f"results.{suffix}"))
        if suffix == "npz":
            folder.place("results.json")
    found = curves(study, traj, values)
    columns = {"time [s]": np.asarray(traj.ts), **{f"{n} [{unit}]": y for n, (y, unit) in found.items()}}
    folder.write("channels.csv", csv_text(columns))
    return found


def write_pictures(
    study: Study,
    folder: Folder,
    watch: Watch,
    traj: Trajectory,
    found: Curves,
    values: Mapping[str, Any] | None = None,
    before: tuple[Curves, Mechanism, Trajectory] | None = None,
) -> None:
    """The motion as pictures, with what was before; without matplotlib there are no plots, and a line says so."""
    own = study.config.output
    title = study.config.title or "diffmb"
    if own.plots and found:
        old = None if before is None else before[0]
        picture(folder, watch, "plots/channels.png", lambda: plot_channels(np.asarray(traj.ts), found, title, old))
    if own.animation:
        markers = study.markers(values or {})
        trace = {name: markers[name] for name in (own.trace or markers) if name in markers}
        shown = scene(study.build(values or {}), traj, trace, title)
        folder.write(
            "animation.html", page(shown if before is None else with_ghost(shown, scene(*before[1:])), own.speed)
        )


def picture(folder: Folder, watch: Watch, name: str, draw: Any) -> None:
    try:
        data = draw()
    except MechanismError as error:
        watch.say(f"no {name}: {error}")
        return
    folder.write(name, data)


class Report:
    """A page in Markdown, piece by piece."""

    def __init__(self, study: Study, folder: Folder, command: str):
        self.folder, self.command = folder, command
        self.lines = [f"# {study.config.title or 'Study'}", ""]
        about = folder.about
        self.lines += [f"`diffmb {command} {about['config_file']}`, {about['versions']}", ""]

    def text(self, *lines: str) -> None:
        self.lines += [*lines, ""]

    def section(self, title: str) -> None:
        self.lines += [f"## {title}", ""]

    def table(self, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        cell = lambda x: f"{x:.6g}" if isinstance(x, float | np.floating) else str(x).replace("|", "\\|")
        self.lines += [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
        self.lines += [f"| {' | '.join(map(cell, row))} |" for row in rows] + [""]

    def picture(self, name: str, caption: str) -> None:
        if name in self.folder.written:
            self.lines += [f"![{caption}]({name})", ""]

    def motion(self, traj: Trajectory, found: Curves) -> None:
        self.section("Motion")
        numbers = variables(traj)
        energy = numbers["kinetic_energy"][1] + numbers["potential_energy"][1]
        self.text(f"{traj!r}.", f"Largest change of energy: {float(np.abs(energy - energy[0]).max()):.3g} J.")
        if found:
            least = lambda y: (float(y[0]), float(np.min(y)), float(np.max(y)), float(y[-1]))
            head = ("channel", "unit", "first", "least", "largest", "last")
            self.table(head, [(name, unit, *least(y)) for name, (y, unit) in found.items()])
        self.picture("plots/channels.png", "channels over time")
        if "animation.html" in self.folder.written:
            ghost = "; what was before is pale" if self.command == "optimise" else ""
            self.text(f"[animation.html](animation.html) shows the motion in 3-D{ghost}: open it in a browser.")

    def write(self) -> None:
        """Puts the page into the folder, with a list of the files beside it."""
        names = sorted({*self.folder.written, "report.md", "study.json", "status.json"})
        listed = [name for name in names if not name.startswith("checkpoint")]
        self.section("Files")
        self.lines += [f"- [{name}]({name})" for name in listed]
        self.folder.write("report.md", "\n".join(self.lines) + "\n")
