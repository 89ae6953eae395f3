"""LAZY: the public names of the package, imported when they are first asked for.

`import diffmb` and `diffmb --help` then cost nothing; jax comes with the first name that needs it. The names are those
that `__init__.py` imports for the type checker, read from its text, so that they stand in one place.
"""

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from ._names import nearest


def lazily(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of the package whose `__init__.py` is `file`."""
    places: dict[str, tuple[str, str | None]] = {}
    for node in ast.walk(ast.parse(Path(file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            for alias in node.names:
                own = (f".{node.module}", alias.name) if node.module else (f".{alias.name}", None)
                places[alias.asname or alias.name] = own
    del places["lazily"]

    def find(name: str) -> Any:
        if name not in places:
            close = "" if name.startswith("_") else f"; {nearest(name, list(places))}"
            raise AttributeError(f"module {package!r} has no attribute {name!r}{close}")
        module, attribute = places[name]
        found = import_module(module, package)
        found = found if attribute is None else getattr(found, attribute)
        setattr(sys.modules[package], name, found)
        return found

    return find, lambda: sorted({*vars(sys.modules[package]), *places})
