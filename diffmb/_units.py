"""UNITS: "25 mm", "1000 rpm", "5 N/mm" as numbers in SI. No jax inside.

    quantity = number unit          unit = factor {(space | * | /) factor}          factor = symbol [power]

A slash holds for the factor behind it. Angles count as rad: Hz, rpm and rev/s are all turning speeds in rad/s.
"""

import math
import re
from typing import NamedTuple

from ._names import nearest

_BASES = ("m", "kg", "s", "A")  # rad has no dimension


class Unit(NamedTuple):
    """`factor` takes a number to SI; `powers` are those of m, kg, s and A."""

    factor: float
    powers: tuple[int, ...]


def _unit(factor: float, m: int = 0, kg: int = 0, s: int = 0, A: int = 0) -> Unit:
    return Unit(factor, (m, kg, s, A))


def _table() -> dict[str, Unit]:
    turn = 2 * math.pi
    found = {
        "mm": _unit(1e-3, 1), "cm": _unit(1e-2, 1), "km": _unit(1e3, 1), "um": _unit(1e-6, 1), "m": _unit(1.0, 1),
        "in": _unit(0.0254, 1), "ft": _unit(0.3048, 1),
        "kg": _unit(1.0, 0, 1), "g": _unit(1e-3, 0, 1), "t": _unit(1e3, 0, 1), "lb": _unit(0.45359237, 0, 1),
        "s": _unit(1.0, 0, 0, 1), "ms": _unit(1e-3, 0, 0, 1), "us": _unit(1e-6, 0, 0, 1),
        "min": _unit(60.0, 0, 0, 1), "h": _unit(3600.0, 0, 0, 1),
        "rad": _unit(1.0), "mrad": _unit(1e-3), "deg": _unit(math.pi / 180), "rev": _unit(turn), "%": _unit(0.01),
        "Hz": _unit(turn, 0, 0, -1), "rpm": _unit(turn / 60, 0, 0, -1),
        "N": _unit(1.0, 1, 1, -2), "mN": _unit(1e-3, 1, 1, -2), "kN": _unit(1e3, 1, 1, -2),
        "MN": _unit(1e6, 1, 1, -2), "lbf": _unit(4.4482216152605, 1, 1, -2),
        "Nm": _unit(1.0, 2, 1, -2), "kNm": _unit(1e3, 2, 1, -2), "Nmm": _unit(1e-3, 2, 1, -2),
        "J": _unit(1.0, 2, 1, -2), "kJ": _unit(1e3, 2, 1, -2), "mJ": _unit(1e-3, 2, 1, -2),
        "W": _unit(1.0, 2, 1, -3), "kW": _unit(1e3, 2, 1, -3), "mW": _unit(1e-3, 2, 1, -3),
        "Pa": _unit(1.0, -1, 1, -2), "kPa": _unit(1e3, -1, 1, -2), "MPa": _unit(1e6, -1, 1, -2),
        "GPa": _unit(1e9, -1, 1, -2), "bar": _unit(1e5, -1, 1, -2),
        "A": _unit(1.0, 0, 0, 0, 1), "mA": _unit(1e-3, 0, 0, 0, 1), "V": _unit(1.0, 2, 1, -3, -1),
        "Ohm": _unit(1.0, 2, 1, -3, -2), "H": _unit(1.0, 2, 1, -2, -2), "mH": _unit(1e-3, 2, 1, -2, -2),
    }
    return found


UNITS = _table()
_QUANTITY = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(\S.*?)?\s*$")
_FACTOR = re.compile(r"\s*([*/ ]?)\s*([A-Za-z%]+)\^?(-?\d)?")


def looks_like_number(text: str) -> bool:
    """Whether a string begins like a number, and so can be no name of a direction or a part."""
    return bool(re.match(r"\s*[+-]?\.?\d", text))


def quantity(text: str, expected: str | None = None) -> float:
    """The number in SI. Raises ValueError, in words; `expected` is a unit of the kind that is wanted."""
    match = _QUANTITY.match(text)
    if not match:
        raise ValueError(f'is the text "{text}", not a number; write a number, or one with a unit such as "25 mm"')
    number, unit = float(match[1]), match[2]
    if unit is None:
        advice = f'write {text.strip()} without quotes, or with a unit: "{text.strip()} {expected or "mm"}"'
        raise ValueError(f'is the text "{text}"; {advice}')
    found = parse_unit(unit)
    if expected is not None and found.powers != parse_unit(expected).powers:
        raise ValueError(f"is in {unit}, which measures something else; give it in {expected}")
    return number * found.factor


def parse_unit(text: str) -> Unit:
    factor, powers, place = 1.0, [0] * len(_BASES), 0
    while place < len(text):
        match = _FACTOR.match(text, place)
        if match is None or match[2] not in UNITS:
            symbol = match[2] if match else text[place:].strip()
            raise ValueError(f'has the unknown unit "{symbol}"; {nearest(symbol, list(UNITS))}, known: {_known()}')
        own, power = UNITS[match[2]], int(match[3] or 1) * (-1 if match[1] == "/" else 1)
        factor *= own.factor**power
        powers = [a + power * b for a, b in zip(powers, own.powers, strict=True)]
        place = match.end()
    return Unit(factor, tuple(powers))


def _known() -> str:
    return " ".join(UNITS)
