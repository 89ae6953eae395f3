"""PLOTS: channels over time, convergence, influence and sweeps as PNG files; matplotlib is asked for when needed.

Figures are made without a display and without touching matplotlib's global state; the same numbers give the same bytes.
"""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ._errors import MechanismError
from ._names import nearest
from ._trajectory import optional
from ._viewer._scene import COLOURS

_ROWS = 8  # panels of one figure
Curve = tuple[np.ndarray, str]  # values over time, unit


def figure(rows: int = 1, columns: int = 1, *, height: float = 2.6, size: Any = None) -> tuple[Any, list[Any]]:
    """A figure and its panels, row by row; `height` is that of a row if the `size` of the whole is not given, inch."""
    size = (8.0, 0.7 + height * rows) if size is None else size
    made = optional("matplotlib.figure", "a plot", "viz").Figure(figsize=size, dpi=110)
    axes = made.subplots(rows, columns, squeeze=False).ravel()
    for axis in axes:
        axis.grid(True, color="#e3e7eb", linewidth=0.8)
        axis.set_axisbelow(True)
        for side in ("top", "right"):
            axis.spines[side].set_visible(False)
        axis.set_prop_cycle(color=list(COLOURS))
    return made, list(axes)


def png(made: Any) -> bytes:
    """The picture; without the version of matplotlib in it."""
    optional("matplotlib.backends.backend_agg", "a plot", "viz").FigureCanvasAgg(made)
    made.tight_layout()
    file = io.BytesIO()
    made.savefig(file, format="png", metadata={"Software": None})
    return file.getvalue()


def plot_channels(
    ts: np.ndarray, channels: Mapping[str, Curve], title: str = "", before: Mapping[str, Curve] | None = None
) -> bytes:
    """Channels over time, those of one unit in one panel; `before` is drawn dashed behind them."""
    units: dict[str, list[str]] = {}
    for name, (_, unit) in channels.items():
        units.setdefault(unit, []).append(name)
    if not units:
        raise MechanismError(f"there is nothing to plot; {nearest('', list(channels))}")
    made, axes = figure(min(len(units), _ROWS))
    for axis, (unit, names) in zip(axes, list(units.items())[:_ROWS], strict=True):
        for k, name in enumerate(names):
            colour = COLOURS[k % len(COLOURS)]
            if before is not None and name in before:
                axis.plot(ts, before[name][0], "--", color=colour, alpha=0.55, linewidth=1.3, label=f"{name} (before)")
            axis.plot(ts, channels[name][0], color=colour, linewidth=1.7, label=name)
        axis.set_ylabel(unit)
        axis.legend(fontsize=8, frameon=False, ncols=2 if before else 1)
    axes[-1].set_xlabel("time, s")
    axes[0].set_title(title, fontsize=11, loc="left")
    return png(made)


def plot_history(series: Mapping[str, Sequence[float]], title: str = "", label: str = "iteration") -> bytes:
    """Numbers over iterations, one panel each; logarithmic where all are positive and span more than a decade."""
    made, axes = figure(max(min(len(series), _ROWS), 1), height=1.9)
    for axis, (name, numbers) in zip(axes, series.items(), strict=False):
        values = np.asarray(numbers, float)
        axis.plot(np.arange(len(values)), values, "o-", markersize=3, linewidth=1.5, color=COLOURS[0])
        positive = values[np.isfinite(values) & (values > 0)]
        if len(positive) == len(values) > 1 and positive.max() > 10 * positive.min():
            axis.set_yscale("log")
        axis.set_ylabel(name)
    axes[-1].set_xlabel(label)
    axes[0].set_title(title, fontsize=11, loc="left")
    return png(made)


def plot_influence(names: Sequence[str], values: Sequence[float], title: str = "", unit: str = "% per %") -> bytes:
    """A tornado: bars by size, the largest on top."""
    order = sorted(range(len(names)), key=lambda k: -abs(values[k]))[:25]
    made, (axis,) = figure(height=0.5 + 0.3 * len(order))
    numbers = [values[k] for k in order][::-1]
    colours = [COLOURS[0] if x >= 0 else COLOURS[3] for x in numbers]
    axis.barh(range(len(order)), numbers, color=colours, height=0.62)
    axis.set_yticks(range(len(order)), [names[k] for k in order][::-1], fontsize=9)
    axis.axvline(0.0, color="#5a6672", linewidth=0.9)
    axis.set_xlabel(unit)
    axis.set_title(title, fontsize=11, loc="left")
    return png(made)


def plot_sweep(x: np.ndarray, y: np.ndarray, names: tuple[str, str], ok: np.ndarray, title: str = "") -> bytes:
    """One response over one number; members that failed are marked below."""
    made, (axis,) = figure(height=3.2)
    order = np.argsort(x[ok], kind="stable")
    few = len(np.unique(x)) == len(x)
    axis.plot(x[ok][order], y[ok][order], "o-" if few else "o", markersize=3, linewidth=1.2, alpha=0.9 if few else 0.5)
    if not ok.all():
        low = np.nanmin(y[ok]) if ok.any() else 0.0
        axis.plot(x[~ok], np.full((~ok).sum(), low), "x", color=COLOURS[3], label=f"{(~ok).sum()} failed")
        axis.legend(fontsize=8, frameon=False)
    axis.set_xlabel(names[0])
    axis.set_ylabel(names[1])
    axis.set_title(title, fontsize=11, loc="left")
    return png(made)


def plot_fit(
    ts: np.ndarray, measured: Mapping[str, np.ndarray], simulated: Mapping[str, np.ndarray], title: str = ""
) -> bytes:
    """Measured points and simulated lines, one panel for each channel."""
    made, axes = figure(min(len(measured), _ROWS))
    for axis, (name, values) in zip(axes, measured.items(), strict=False):
        axis.plot(ts, values, ".", color=COLOURS[1], markersize=4, alpha=0.7, label="measured")
        axis.plot(ts, simulated[name], color=COLOURS[0], linewidth=1.7, label="simulated")
        axis.set_ylabel(name)
        axis.legend(fontsize=8, frameon=False)
    axes[-1].set_xlabel("time, s")
    axes[0].set_title(title, fontsize=11, loc="left")
    return png(made)
