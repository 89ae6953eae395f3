"""MEASUREMENT: numbers over time from a test bench, as a table of text.

    time [s], A [deg], rocker.x [mm]           the first row names the columns; units in brackets, or in a row below
    0.00,     28.6,    300.2
    0.01,     29.1,                            an empty field or nan is a gap
    0.02,     29.9,    298.7

Everything is converted to SI. A column `A.weight` holds weights of the column A, one for each row. What is wrong is
said with its row, counted as an editor does.
"""

import csv
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ._errors import MechanismError
from ._names import nearest
from ._units import parse_unit

_DELIMITERS = {",": "a comma", ";": "a semicolon", "\t": "a tab"}
_GAPS = {"", "nan", "na", "n/a"}
_HEAD = re.compile(r"(?P<name>.*?)\s*(?:\[(?P<square>[^\]\d][^\]]*)\]|\((?P<round>[^)]+)\))?")


class Measurement:
    """Channels over time, in SI.

    **Arguments:**

    - `times`: increasing, s.
    - `channels`: arrays by name, as many numbers as times; nan is a gap.
    - `weights`: arrays by name, or numbers, zero or more; one where nothing is said.
    - `name`: what messages call it.
    """

    def __init__(
        self, times: Any, channels: Mapping[str, Any], weights: Mapping[str, Any] | None = None, name: str = "data"
    ):
        self.times = np.asarray(times, float)
        self.channels = {key: np.asarray(values, float) for key, values in channels.items()}
        self.name = name
        count = len(self.times) if self.times.ndim == 1 else 0
        if count < 1 or not np.isfinite(self.times).all():
            raise MechanismError(f"{name}: the times have shape {self.times.shape}; give finite numbers in one list")
        back = np.flatnonzero(np.diff(self.times) <= 0)
        if len(back):
            k = int(back[0])
            raise MechanismError(f"{name}: time {self.times[k + 1]:g} follows {self.times[k]:g}; times must increase")
        for key, values in self.channels.items():
            if values.shape != (count,):
                raise MechanismError(f"{name}: channel {key!r} has shape {values.shape}, but there are {count} times")
            if np.isinf(values).any():
                raise MechanismError(f"{name}: channel {key!r} holds an infinite number at row {_first(values)}")
            if np.isnan(values).all():
                raise MechanismError(f"{name}: channel {key!r} has no number at all; leave it away")
        self.weights = {key: self._weights(key, (weights or {}).get(key, 1.0)) for key in self.channels}
        for key in weights or {}:
            if key not in self.channels:
                raise MechanismError(f"{name}: weights of {key!r}, which is no channel; {nearest(key, [*channels])}")

    def _weights(self, key: str, given: Any) -> np.ndarray:
        try:
            weights = np.broadcast_to(np.asarray(given, float), self.times.shape)
        except ValueError:
            raise MechanismError(f"{self.name}: {key!r} has {np.size(given)} weights; give one for each time") from None
        if not (np.isfinite(weights).all() and (weights >= 0).all()):
            raise MechanismError(f"{self.name}: a weight of {key!r} is negative or not finite")
        return weights

    def __repr__(self) -> str:
        gaps = {key: int(np.isnan(values).sum()) for key, values in self.channels.items()}
        told = ", ".join(f"{key} ({count} gaps)" if count else key for key, count in gaps.items())
        span = f"{len(self.times)} times from {self.times[0]:g} to {self.times[-1]:g} s"
        return f"Measurement {self.name}: {span}, {told}"


def _first(values: np.ndarray) -> int:
    return int(np.flatnonzero(np.isinf(values))[0])


def read_csv(
    path: str | Path,
    *,
    time: str | None = None,
    channels: Mapping[str, str] | None = None,
    units: Mapping[str, str] | None = None,
    delimiter: str | None = None,
    decimal: str = ".",
) -> Measurement:
    """A measured table.

    **Arguments:**

    - `path`: of a text file; its first row names the columns.
    - `time`: the name of the column of times; by default the first.
    - `channels`: what columns are called here, `{"angle sensor": "A"}`; others keep their names. By default all
        columns are read, else only these.
    - `units`: by column, where the file does not say; SI by default.
    - `delimiter`: ",", ";" or a tab; by default the one that the first row uses most.
    - `decimal`: "," for numbers such as 0,5.
    """
    path = Path(path)
    rows = _rows(path, delimiter, decimal)
    names, told = _header(path, rows)
    body = rows[1:]
    if body and (row_units := _unit_row(path, body[0], decimal)) is not None:
        told = [own or other for own, other in zip(row_units, told, strict=True)]
        body = body[1:]
    if not body:
        raise MechanismError(f"{path}: there is a header, but no row of numbers")
    for key in (*(channels or {}), *(units or {}), *([time] if time else [])):
        if key not in names:
            raise MechanismError(f"{path}: there is no column {key!r}; {nearest(key, names)}")
    clock = names.index(time) if time else 0
    factors = [_factor(path, n, (units or {}).get(n) or unit) for n, unit in zip(names, told, strict=True)]
    table = [[_number(path, line, n, x, decimal) for n, x in zip(names, row, strict=True)] for line, row in body]
    numbers = np.array(table) * np.array(factors)
    _check_times(path, numbers[:, clock], [line for line, _ in body], names[clock])
    columns = {name: numbers[:, k] for k, name in enumerate(names) if k != clock}
    weights = {k.removesuffix(".weight"): columns.pop(k) for k in list(columns) if k.endswith(".weight")}
    for key in weights:
        if key not in columns:
            raise MechanismError(f"{path}: column {key + '.weight'!r} belongs to no column; {nearest(key, [*columns])}")
    called = channels or {name: name for name in columns}
    if clash := [new for new in called.values() if list(called.values()).count(new) > 1]:
        raise MechanismError(f"{path}: two columns are called {clash[0]!r}; give each channel one")
    weights = {called[k]: np.nan_to_num(w) for k, w in weights.items() if k in called}
    return Measurement(numbers[:, clock], {new: columns[own] for own, new in called.items()}, weights, str(path))


def _rows(path: Path, delimiter: str | None, decimal: str) -> list[tuple[int, list[str]]]:
    """Numbered rows of fields, all of the same length."""
    if decimal not in (".", ","):
        raise MechanismError(f"decimal = {decimal!r}; give '.' or ','")
    if not path.is_file():
        raise MechanismError(f"{path} {'is a folder' if path.is_dir() else 'does not exist'}; give a text file")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise MechanismError(f"{path} is no text in UTF-8 (byte {error.start}); save it as CSV in UTF-8") from None
    except OSError as error:
        raise MechanismError(f"{path} cannot be read: {error.strerror}") from None
    lines = [(k, line) for k, line in enumerate(text.splitlines(), 1) if line.strip() and not line.startswith("#")]
    if "\0" in text:
        raise MechanismError(f"{path} is no text; give a table with a header")
    if not lines:
        raise MechanismError(f"{path} is empty; give a table with a header")
    head = lines[0][1]
    delimiter = delimiter or max(_DELIMITERS, key=head.count)
    try:
        rows = [(k, [x.strip() for x in next(csv.reader([line], delimiter=delimiter))]) for k, line in lines]
    except (csv.Error, TypeError, StopIteration) as error:
        raise MechanismError(f"{path}: cannot be split by {delimiter!r}: {error}") from None
    width = len(rows[0][1])
    if width < 2:
        others = [told for sign, told in _DELIMITERS.items() if sign != delimiter and sign in head]
        advice = f"it has {' and '.join(others)}: pass delimiter=" if others else "give at least a time and a channel"
        raise MechanismError(f"{path}, row {rows[0][0]}: one column {head[:40]!r}; {advice}")
    for k, row in rows:
        if len(row) != width:
            comma = "; numbers with a decimal comma need another delimiter" if delimiter == "," else ""
            raise MechanismError(f"{path}, row {k}: {len(row)} fields instead of {width}{comma}")
    return rows


def _header(path: Path, rows: list[tuple[int, list[str]]]) -> tuple[list[str], list[str]]:
    """Names and units of the columns."""
    line, fields = rows[0]
    names, units = [], []
    for k, field in enumerate(fields):
        match = _HEAD.fullmatch(field)
        name = match["name"].strip() if match else field
        if not name or re.fullmatch(r"[+-]?[\d.,]+(e[+-]?\d+)?", name, re.IGNORECASE):
            raise MechanismError(f"{path}, row {line}: column {k + 1} is called {field!r}; name the columns there")
        if name in names:
            raise MechanismError(f"{path}, row {line}: two columns are called {name!r}")
        names.append(name)
        units.append((match["square"] or match["round"] or "") if match else "")
    return names, units


def _unit_row(path: Path, row: tuple[int, list[str]], decimal: str) -> list[str] | None:
    """The units in a row of their own; None if it holds numbers."""
    fields = [x.strip("[]()") for x in row[1]]
    if any(x.lower() in _GAPS or _parsed(x, decimal) is not None for x in fields if x) or not any(fields):
        return None
    return ["" if x in ("-", "1") else x for x in fields]


def _factor(path: Path, name: str, unit: str) -> float:
    if unit in ("", "-", "1"):
        return 1.0
    try:
        return parse_unit(unit).factor
    except ValueError as error:
        raise MechanismError(f"{path}: column {name!r} {error}") from None


def _parsed(text: str, decimal: str) -> float | None:
    try:
        return float(text.replace(",", ".") if decimal == "," else text)
    except ValueError:
        return None


def _number(path: Path, line: int, name: str, text: str, decimal: str) -> float:
    if text.lower() in _GAPS:
        return math.nan
    number = _parsed(text, decimal)
    if number is None:
        comma = "; it has a decimal comma: pass decimal=','" if _parsed(text, ",") is not None else ""
        raise MechanismError(f"{path}, row {line}: {name} is {text!r}, not a number{comma}")
    if math.isinf(number):
        raise MechanismError(f"{path}, row {line}: {name} is infinite; leave the field empty for a gap")
    return number


def _check_times(path: Path, times: np.ndarray, lines: list[int], name: str) -> None:
    for k, t in enumerate(times):
        if math.isnan(t):
            raise MechanismError(f"{path}, row {lines[k]}: {name} is missing; every row needs its time")
        if k and t <= times[k - 1]:
            what = "comes twice" if t == times[k - 1] else f"comes after {times[k - 1]:g}"
            raise MechanismError(f"{path}, row {lines[k]}: {name} = {t:g} {what}; times must increase")
