"""REGISTRY: what a file may name, found by looking at the public names of diffmb.

A class belongs to the family whose abstract class it extends, a function to the family of what it says it returns. What
each takes is read from its signature, so that a class that is added to the library can be used in files at once.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, get_type_hints

import equinox as eqx

from .._bodies._marker import Marker
from .._bodies._rigid import RigidBody
from .._connections._abstract import AbstractLoad
from .._constraints._abstract import AbstractConstraint, AbstractCoupling
from .._constraints._drive import AbstractDrive
from .._joints._abstract import AbstractJoint
from .._methods import AbstractMethod

FAMILIES: dict[str, tuple[type, ...]] = {
    "bodies": (RigidBody,),
    "joints": (AbstractJoint,),
    "constraints": (AbstractConstraint, AbstractCoupling),
    "connections": (AbstractLoad,),
    "drives": (AbstractDrive,),
    "methods": (AbstractMethod,),
    "pieces": (eqx.Module,),
}
_HOMES = ("_connections", "_constraints", "_joints", "_bodies")  # where pieces of parts come from: profiles, laws, ...


@dataclass(frozen=True)
class Argument:
    """What a class or function takes: `type` is "text", "flag", "integer", "marker", "function" or "numbers"."""

    name: str
    type: str
    needed: bool


@dataclass(frozen=True)
class Kind:
    """A class or function that makes a part."""

    name: str
    make: Callable[..., Any]
    arguments: dict[str, Argument]


@cache
def family(name: str) -> dict[str, Kind]:
    """The kinds of a family, by name."""
    package = import_module(__name__.partition(".")[0])
    found = {}
    for title in sorted(dir(package)):
        thing = getattr(package, title)
        if title.startswith(("_", "Abstract")) or not callable(thing):
            continue
        made = thing if isinstance(thing, type) else _returned(thing)
        if made is not None and issubclass(made, FAMILIES[name]) and (name != "pieces" or _is_piece(made)):
            found[title] = Kind(title, thing, _arguments(thing))
    return found


def _is_piece(made: type) -> bool:
    """Whether it is something that parts are given: a profile, a law, a curve; no part itself."""
    parts = tuple(kind for name, kinds in FAMILIES.items() if name != "pieces" for kind in kinds)
    home = made.__module__.split(".")[1:2]
    return home != [] and home[0] in _HOMES and not issubclass(made, (*parts, Marker))


def _hints(thing: Any) -> dict[str, Any]:
    try:
        return get_type_hints(thing)
    except (NameError, TypeError):
        return {}


def _returned(function: Any) -> type | None:
    if not inspect.isfunction(function):
        return None
    made = _hints(function).get("return")
    return made if isinstance(made, type) else None


def _arguments(thing: Any) -> dict[str, Argument]:
    # The fields of a class that writes no __init__ carry the types; else the signature does.
    hints = _hints(thing) | (_hints(thing.__init__) if isinstance(thing, type) else {})
    plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {
        p.name: Argument(p.name, _type(hints.get(p.name, p.annotation)), p.default is inspect.Parameter.empty)
        for p in inspect.signature(thing).parameters.values()
        if p.kind in plain
    }


def _type(hint: Any) -> str:
    text = getattr(hint, "__name__", "") if isinstance(hint, type) else str(hint)
    if hint is Marker or "Marker" in text:
        return "marker"
    if hint is str:
        return "text"
    if hint is bool or "bool" in text:
        return "flag"
    if hint is int:
        return "integer"
    return "function" if "Callable" in text else "numbers"
