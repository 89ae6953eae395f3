"""BUILD: the tables of a file and values of its parameters as a mechanism, a start, inputs and times.

Numbers may be expressions of the parameters ("=crank/2"), so that geometry that belongs together moves together, and
everything here is traceable with respect to them.
"""

import warnings
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from .._bodies._marker import Marker
from .._errors import MechanismError
from .._mechanism import Mechanism
from .._names import nearest
from .._units import looks_like_number
from ._document import Entry
from ._expression import FUNCTIONS, expression, is_expression
from ._laws import LAWS, Law, Table, law
from ._registry import Argument, family
from ._schema import Time

Values = Mapping[str, Any]
_UNITS = {
    **dict.fromkeys(("length", "radius", "position", "com", "size", "thickness", "radii"), "m"),
    "mass": "kg", "density": "kg/m3", "gravity": "m/s2", "inertia": "kg m2",
}
_LARGE = {"m": (200.0, "mm"), "rad": (30.0, "deg")}  # beyond this a bare number is probably in the other unit
_FUNCTIONS = {name: getattr(jnp, name) for name in FUNCTIONS}
_GROUPS = ("bodies", "joints", "constraints", "connections", "drives")


def numbers(at: Entry, values: Values, unit: str | None = None) -> Any:
    """A number, or lists of them, with units and expressions resolved; other texts are refused."""
    if isinstance(at.value, list):
        return tuple(numbers(item, values, unit) for item in at.items)
    if is_expression(at.value):
        return _resolved(at, values)
    found = at.number(unit)
    if unit in _LARGE and not isinstance(at.value, str) and abs(found) > _LARGE[unit][0]:
        other = _LARGE[unit][1]
        warnings.warn(f'{at.path} = {found:g} {unit} is large; did you mean "{found:g} {other}"?', stacklevel=2)
    return found


def _resolved(at: Entry, values: Values) -> Any:
    try:
        return expression(at.value, list(values)).value(values, _FUNCTIONS)
    except ZeroDivisionError:
        at.fail(f'is "{at.value}", which divides by zero')
    except ValueError as error:
        at.fail(str(error))


def _anything(at: Entry, values: Values, unit: str | None) -> Any:
    """Numbers where there are numbers, else the text, table or nested part itself."""
    if isinstance(at.value, list):
        return tuple(_anything(item, values, unit) for item in at.items)
    if isinstance(at.value, dict):
        if "kind" in at.value:
            return _piece(at, values)
        if "body" in at.value:
            return marker(at, values)
        return {_term(key): _anything(value, values, unit) for key, value in at.table().items()}
    if isinstance(at.value, bool):
        at.fail(f"is {str(at.value).lower()}; give a number")
    if isinstance(at.value, str) and not is_expression(at.value) and not looks_like_number(at.value):
        return at.value
    if isinstance(at.value, int) and unit is None:
        return at.value
    return numbers(at, values, unit)


def _term(key: str) -> Any:
    """"slider[1]" is the coordinate 1 of the joint slider."""
    name, bracket, rest = key.partition("[")
    return (name, int(rest[:-1])) if bracket and rest[:-1].isdigit() and rest.endswith("]") else key


def _piece(at: Entry, values: Values) -> Any:
    """What a part is given: a profile, a law, a curve."""
    known = family("pieces")
    if at["kind"].text() not in known:
        at["kind"].fail(f'is "{at.value["kind"]}"; {nearest(at.value["kind"], list(known))}')
    return _part(at, "pieces", values)


def marker(at: Entry, values: Values) -> Marker:
    """A body's name, or {body, position, rotation}."""
    if isinstance(at.value, str):
        return Marker(at.value)
    table = at.table(["body", "position", "rotation"])
    if "body" not in table:
        at.fail('has no body; write { body = "crank", position = [0.1, 0, 0] }')
    place = {key: numbers(table[key], values, _UNITS.get(key)) for key in ("position", "rotation") if key in table}
    return _made(at, Marker, {"body": table["body"].text(), **place})


def law_of(at: Entry, values: Values) -> Law | Table:
    """{kind = "sine", amplitude = 1, speed = "2 Hz"}, or a number that stays."""
    if not isinstance(at.value, dict):
        return law("constant", {"value": numbers(at, values)})
    if "kind" not in at.value:
        at.fail(f"has no kind; give one of {', '.join(LAWS)}")
    kind = at["kind"].choice(list(LAWS))
    wanted = LAWS[kind][1]
    table = at.table(["kind", *wanted])
    found = {}
    for name, default in wanted.items():
        if name not in table and default is None:
            at.fail(f"has no {name}, which the law {kind} needs")
        given = isinstance(default, str)
        read = (lambda e: e.choice(["linear", "hold", "cubic"])) if given else (lambda e: numbers(e, values))
        found[name] = read(table[name]) if name in table else default
    return _made(at, law, {"kind": kind, "numbers": found})


def _part(at: Entry, group: str, values: Values) -> Any:
    """One part: its kind by name, and what that takes."""
    kinds = family(group)
    table = at.table()
    if "kind" not in table:
        at.fail(f"has no kind; give one of {', '.join(kinds)}")
    kind = kinds[at["kind"].choice(list(kinds))]
    needs_law = group == "drives"
    hidden = ("function", "params") if needs_law else ()
    known = [name for name in kind.arguments if name not in hidden] + ["law"] * needs_law
    at.table(["kind", *known])
    given = {n: _argument(table[n], kind.arguments[n], values) for n in kind.arguments if n in table}
    if needs_law:
        if "law" not in table:
            at.fail('has no law; for example law = { kind = "linear", slope = "100 rpm" }')
        found = law_of(table["law"], values)
        own = found if isinstance(found, Law) else Law(LAWS["table"][0], {"table": found})
        given |= {"function": own.function, "params": own.params}
    for name, argument in kind.arguments.items():
        if argument.type == "function" and name not in given and argument.needed:
            at.fail(f"is a {kind.name}, which needs a function in Python: describe it there, and use --mechanism")
        if argument.needed and name not in given:
            at.fail(f"is a {kind.name} and has no {name}")
    return _made(at, kind.make, given)


def _argument(at: Entry, argument: Argument, values: Values) -> Any:
    if argument.type == "function":
        at.fail("is a function, which a file cannot hold: describe the mechanism in Python, and use --mechanism")
    if argument.type == "marker":
        several = isinstance(at.value, list)
        return tuple(marker(item, values) for item in at.items) if several else marker(at, values)
    if argument.type == "text":
        return at.text()
    if argument.type == "flag":
        return at.flag()
    if argument.type == "integer":
        return at.integer(0)
    return _anything(at, values, _UNITS.get(argument.name))


def _made(at: Entry, make: Any, given: dict[str, Any]) -> Any:
    """What `make` gives; its refusal says where in the file the culprit stands."""
    try:
        return make(**given)
    except MechanismError as error:
        at.fail(f"is refused: {error}")
    except (TypeError, ValueError) as error:
        at.fail(f"is refused: {str(error).splitlines()[0]}")


def mechanism(at: Entry, values: Values) -> Mechanism:
    """The mechanism that [mechanism] describes."""
    table = at.table([*_GROUPS, "gravity"])
    parts = {group: [_part(e, group, values) for e in table[group].members()] for group in _GROUPS if group in table}
    if "bodies" not in parts:
        at.fail("has no bodies; give at least one, with [[mechanism.bodies]]")
    gravity = {"gravity": numbers(table["gravity"], values, "m/s2")} if "gravity" in table else {}
    return _made(at, Mechanism, {**parts, **gravity})


def coordinates(at: Entry | None, values: Values, what: str) -> dict[str, Any]:
    """Numbers by joint; bare angles that look like degrees are pointed out."""
    if at is None:
        return {}
    read = _angle if what == "q" else numbers
    return {name: read(value, values) for name, value in at.table().items()}


def _angle(at: Entry, values: Values) -> Any:
    found = numbers(at, values)
    limit, other = _LARGE["rad"]
    if isinstance(at.value, int | float) and abs(at.value) > limit:
        warnings.warn(f'{at.path} = {at.value:g} rad is large; did you mean "{at.value:g} {other}"?', stacklevel=2)
    return found


def times(time: Time, section: Entry) -> Array:
    if time.times is not None:
        return jnp.asarray(time.times)
    if time.end is None:
        section.fail("has no [time] with an end; write for example [time] end = 1.0")
    return jnp.asarray(np.linspace(time.start, time.end, time.points))
