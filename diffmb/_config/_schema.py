"""SCHEMA: the sections of a study as frozen dataclasses, read entry by entry. No jax inside.

A field says how it is read; a key that is no field is refused with the nearest one that is, a missing one by name.
Numbers of the mechanism, the start and the inputs may be expressions of the parameters and stay entries here.
"""

import re
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeVar

from .._names import nearest
from ._document import Document, Entry

SCHEMA = 1
Section = TypeVar("Section")
_ROUND = 1e-14  # about 50 times the spacing of double precision: no tolerance below this can be kept


def entry(read: Callable[[Entry], Any], default: Any = MISSING) -> Any:
    """A field that is read by `read`; without a default it must be given."""
    about = {"read": read}
    if default is MISSING:
        return field(metadata=about)
    return field(metadata=about, default_factory=dict) if default == {} else field(metadata=about, default=default)


def section(kind: type[Section], at: Entry) -> Section:
    """A section from its table."""
    known = {f.name: f for f in fields(kind)}  # type: ignore[arg-type]
    found = {key: known[key].metadata["read"](value) for key, value in at.table(list(known)).items()}
    for name, own in known.items():
        if name not in found and own.default is MISSING and own.default_factory is MISSING:
            at.fail(f"has no {name}; give it" if at.keys else f"has no [{name}]; give it")
    return kind(**found)


def _number(unit: str | None = None) -> Callable[[Entry], float]:
    return lambda at: at.number(unit)


def _positive(unit: str | None = None) -> Callable[[Entry], float]:
    return lambda at: at.positive(unit)


def _texts(at: Entry) -> tuple[str, ...]:
    return tuple(item.text() for item in at.members())


def _names(at: Entry) -> tuple[str, ...]:
    found = _texts(at)
    for k, name in enumerate(found):
        if name in found[:k]:
            at.fail(f'names "{name}" twice')
    return found


def _choice(*known: str) -> Callable[[Entry], str]:
    return lambda at: at.choice(list(known))


def _mapping(read: Callable[[Entry], Any]) -> Callable[[Entry], dict[str, Any]]:
    return lambda at: {key: read(value) for key, value in at.table().items()}


def _table(at: Entry) -> Entry:
    at.table()
    return at


@dataclass(frozen=True)
class Time:
    """When the motion is looked at: `points` from `start` to `end`, or `times`; s."""

    end: float | None = entry(_number("s"), None)
    start: float = entry(_number("s"), 0.0)
    points: int = entry(lambda at: at.integer(2, 1_000_000), 101)
    times: tuple[float, ...] | None = entry(lambda at: tuple(item.number("s") for item in at.members()), None)


@dataclass(frozen=True)
class Solver:
    """The method, its tolerance or its fixed step, and limits; `pieces` are what a run is cut into for checkpoints."""

    method: str = entry(_choice("explicit", "implicit", "auto"), "explicit")
    order: int = entry(lambda at: at.integer(3, 8), 5)
    rtol: float = entry(_positive(), 1e-8)
    atol: float | None = entry(_positive(), None)
    step: float | None = entry(_positive("s"), None)
    max_steps: int = entry(lambda at: at.integer(1, 10**9), 1_000_000)
    stored_steps: int = entry(lambda at: at.integer(1, 10**7), 4096)
    pieces: int = entry(lambda at: at.integer(1, 1000), 10)


@dataclass(frozen=True)
class Start:
    """Where the motion starts: held coordinates `q` and speeds `v` by joint, and a `guess` of the others."""

    q: Entry | None = entry(_table, None)
    v: Entry | None = entry(_table, None)
    guess: Entry | None = entry(_table, None)
    z: Entry | None = entry(_table, None)


@dataclass(frozen=True)
class Output:
    """What is kept and shown."""

    channels: tuple[str, ...] = entry(_names, ())
    format: str = entry(_choice("npz", "nc"), "npz")
    plots: bool = entry(Entry.flag, True)
    animation: bool = entry(Entry.flag, True)
    trace: tuple[str, ...] = entry(_names, ())
    speed: float = entry(_positive(), 1.0)


@dataclass(frozen=True)
class Response:
    """One number of a motion: a channel over time, reduced; with `target`, the squared distance from it."""

    channel: str = entry(Entry.text)
    reduce: str = entry(_choice("max", "min", "mean", "rms", "range", "final", "first", "integral", "peak"), "final")
    target: tuple[float, ...] | float | None = entry(
        lambda at: tuple(i.number() for i in at.members()) if isinstance(at.value, list) else at.number(), None
    )
    start: float | None = entry(_number("s"), None)
    end: float | None = entry(_number("s"), None)


def _response(at: Entry) -> Response:
    return section(Response, at)


@dataclass(frozen=True)
class Sensitivity:
    """Which numbers, which responses; `over_time` asks for curves of channels."""

    where: tuple[str, ...] = entry(_names)
    responses: tuple[str, ...] = entry(_names, ())
    over_time: tuple[str, ...] = entry(_names, ())
    check: bool = entry(Entry.flag, False)


@dataclass(frozen=True)
class Variable:
    """A number that is sought or varied: its bounds, start and size; `points` or `values` of a grid; `spread` of a
    normal distribution."""

    lower: float | None = entry(_number(), None)
    upper: float | None = entry(_number(), None)
    start: float | None = entry(_number(), None)
    scale: float | None = entry(_positive(), None)
    points: int | None = entry(lambda at: at.integer(1, 1_000_000), None)
    values: tuple[float, ...] | None = entry(lambda at: tuple(item.number() for item in at.members()), None)
    spread: float | None = entry(_positive(), None)


def _variable(at: Entry) -> Variable:
    found = section(Variable, at)
    if found.lower is not None and found.upper is not None and not found.lower < found.upper:
        at.fail(f"has lower = {found.lower:g} and upper = {found.upper:g}; lower must be below upper")
    if found.start is not None:
        outside = (found.lower is not None and found.start < found.lower) or (
            found.upper is not None and found.start > found.upper
        )
        if outside:
            at.fail(f"starts at {found.start:g}, outside of its bounds {found.lower} to {found.upper}")
    return found


def _variables(at: Entry) -> dict[str, Variable]:
    found = _mapping(_variable)(at)
    if not found:
        at.fail("is empty; name at least one number")
    return found


@dataclass(frozen=True)
class Limit:
    """A response that must stay within limits, or be equal to a number."""

    response: str = entry(Entry.text)
    lower: float | None = entry(_number(), None)
    upper: float | None = entry(_number(), None)
    equals: float | None = entry(_number(), None)


def _limits(at: Entry) -> tuple[Limit, ...]:
    found = []
    for item in at.members():
        limit = section(Limit, item)
        if limit.equals is None and limit.lower is None and limit.upper is None:
            item.fail("has no lower, upper or equals; give one of them")
        if limit.lower is not None and limit.upper is not None and limit.lower > limit.upper:
            item.fail(f"has lower = {limit.lower:g} above upper = {limit.upper:g}: nothing satisfies it")
        if limit.equals is not None and (limit.lower is not None or limit.upper is not None):
            item.fail("has equals and a limit; give one or the other")
        found.append(limit)
    return tuple(found)


def _weights(at: Entry) -> dict[str, float]:
    return {at.value: 1.0} if isinstance(at.value, str) else _mapping(_number())(at)


@dataclass(frozen=True)
class Optimise:
    """Minimise a response, or a weighted sum of them, over variables, within limits."""

    minimise: dict[str, float] = entry(_weights)
    variables: dict[str, Variable] = entry(_variables)
    constraints: tuple[Limit, ...] = entry(_limits, ())
    method: str = entry(Entry.text, "SLSQP")
    iterations: int = entry(lambda at: at.integer(1, 1_000_000), 100)
    tolerance: float = entry(_positive(), 1e-5)
    starts: int = entry(lambda at: at.integer(1, 10_000), 1)
    seed: int = entry(lambda at: at.integer(0, 2**31 - 1), 0)


@dataclass(frozen=True)
class Fit:
    """Numbers from measured data: CSV files in the folder of the study, columns against channels; `unknown` are start
    values that are sought too."""

    data: tuple[str, ...] = entry(lambda at: (at.text(),) if isinstance(at.value, str) else _texts(at))
    channels: dict[str, str] = entry(_mapping(Entry.text))
    variables: dict[str, Variable] = entry(_variables)
    unknown: tuple[str, ...] = entry(_names, ())
    noise: dict[str, float] = entry(_mapping(_positive()), {})
    delimiter: str | None = entry(_choice(",", ";", "\t"), None)
    iterations: int = entry(lambda at: at.integer(1, 1_000_000), 100)


@dataclass(frozen=True)
class Sweep:
    """Responses over a grid of variables, or over `samples` drawn from their spreads."""

    variables: dict[str, Variable] = entry(_variables)
    responses: tuple[str, ...] = entry(_names, ())
    samples: int | None = entry(lambda at: at.integer(1, 10_000_000), None)
    chunk: int = entry(lambda at: at.integer(1, 1_000_000), 256)
    seed: int = entry(lambda at: at.integer(0, 2**31 - 1), 0)


@dataclass(frozen=True)
class Duration:
    """A duration, s: given (lower = upper), or to be found."""

    lower: float = entry(_positive("s"))
    upper: float = entry(_positive("s"))
    guess: float | None = entry(_positive("s"), None)


def _duration(at: Entry) -> Duration:
    if isinstance(at.value, dict):
        return section(Duration, at)
    return Duration(at.positive("s"), at.positive("s"))


@dataclass(frozen=True)
class Control:
    """The inputs of a best motion from [start] to `end`: `minimise` weighs "time" and "effort" (squares of inputs)."""

    inputs: dict[str, Variable] = entry(_variables)
    duration: Duration = entry(_duration)
    minimise: dict[str, float] = entry(_weights)
    end: Start = entry(lambda at: section(Start, at), Start())
    bounds: dict[str, Variable] = entry(_mapping(_variable), {})
    speed_bounds: dict[str, Variable] = entry(_mapping(_variable), {})
    nodes: int = entry(lambda at: at.integer(1, 10_000), 40)
    points: int = entry(lambda at: at.integer(1, 5), 3)
    accuracy: float | None = entry(_positive(), None)
    tolerance: float = entry(_positive(), 1e-8)
    iterations: int = entry(lambda at: at.integer(1, 1_000_000), 500)


@dataclass(frozen=True)
class Config:
    """A whole study."""

    schema_version: int = entry(lambda at: at.integer(1, 10**6))
    title: str = entry(Entry.text, "")
    parameters: dict[str, float] = entry(_mapping(_number()), {})
    mechanism: Entry | None = entry(_table, None)
    markers: Entry | None = entry(_table, None)
    start: Start = entry(lambda at: section(Start, at), Start())
    time: Time = entry(lambda at: section(Time, at), Time())
    solver: Solver = entry(lambda at: section(Solver, at), Solver())
    inputs: Entry | None = entry(_table, None)
    output: Output = entry(lambda at: section(Output, at), Output())
    responses: dict[str, Response] = entry(_mapping(_response), {})
    sensitivity: Sensitivity | None = entry(lambda at: section(Sensitivity, at), None)
    optimise: Optimise | None = entry(lambda at: section(Optimise, at), None)
    fit: Fit | None = entry(lambda at: section(Fit, at), None)
    sweep: Sweep | None = entry(lambda at: section(Sweep, at), None)
    control: Control | None = entry(lambda at: section(Control, at), None)


def config_of(document: Document) -> Config:
    """The sections of a document, each checked, and with each other."""
    root = document.root
    version = root["schema_version"].integer(0, 10**6) if "schema_version" in root else None
    if version is None:
        root.fail(f"has no schema_version; write schema_version = {SCHEMA} at the top")
    if version > SCHEMA:
        root["schema_version"].fail(f"is {version}, and this diffmb reads up to {SCHEMA}: pip install --upgrade diffmb")
    if version < SCHEMA:
        root["schema_version"].fail(f"is {version}, which no diffmb ever wrote; write schema_version = {SCHEMA}")
    found = section(Config, root)
    for name in found.parameters:
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            root["parameters"][name].fail("is no name; letters, digits and _ make one")
    _check_time(root, found.time)
    _check_solver(root, found.solver)
    _check_responses(root, found)
    return found


def _check_time(root: Entry, time: Time) -> None:
    if time.times is not None:
        at = root["time"]["times"]
        for key in ("end", "start", "points"):
            if key in root["time"]:
                root["time"][key].fail("stands beside times; give one or the other")
        if len(time.times) < 2:
            at.fail(f"has {len(time.times)} entries; give at least two")
        for k in range(1, len(time.times)):
            if time.times[k] <= time.times[k - 1]:
                at[k].fail(f"is {time.times[k]:g} after {time.times[k - 1]:g}; times must increase")
    elif time.end is not None and not time.end > time.start:
        root["time"]["end"].fail(f"is {time.end:g} s, not after the start at {time.start:g} s")


def _check_solver(root: Entry, solver: Solver) -> None:
    if solver.rtol < _ROUND:
        root["solver"]["rtol"].fail(f"is {solver.rtol:g}, below what float64 can keep ({_ROUND:g}); take a larger one")
    orders = {"explicit": (3, 5, 8), "implicit": (3, 4, 5), "auto": (5,)}[solver.method]
    if solver.order not in orders:
        at = root["solver"]["order"] if "order" in root["solver"] else root["solver"]
        at.fail(f"is {solver.order}; {solver.method} methods here have order {', '.join(map(str, orders))}")
    if solver.step is not None and "rtol" in root["solver"]:
        root["solver"]["rtol"].fail("stands beside step; fixed steps have no tolerance, give one or the other")


def _check_responses(root: Entry, config: Config) -> None:
    """Responses that are asked for must exist."""
    known, asked = list(config.responses), []
    if config.sensitivity:
        asked += [(root["sensitivity"]["responses"][k], name) for k, name in enumerate(config.sensitivity.responses)]
    if config.sweep:
        asked += [(root["sweep"]["responses"][k], name) for k, name in enumerate(config.sweep.responses)]
    if config.optimise:
        at = root["optimise"]["minimise"]
        asked += [(at if isinstance(at.value, str) else at[name], name) for name in config.optimise.minimise]
        limits = config.optimise.constraints
        asked += [(root["optimise"]["constraints"][k]["response"], limit.response) for k, limit in enumerate(limits)]
    for name in config.control.minimise if config.control else ():
        if name not in ("time", "effort"):
            root["control"]["minimise"].fail(f'names "{name}"; {nearest(name, ["time", "effort"])}')
    for at, name in asked:
        if name not in known:
            at.fail(f'names the response "{name}", which [responses] does not have; {nearest(name, known)}')
