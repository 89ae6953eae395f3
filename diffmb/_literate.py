"""LITERATE: what every numbered experiment needs around its mechanics: its settings, and a figure in `out/`.

    config = mb.settings(__file__)                       # configs/<name>.toml, or the file named on the command line
    mb.draw("out/03_x.png", drawing, columns=2)          # drawing(axes) fills the panels

Without matplotlib an experiment still runs and prints; it says what would bring the figure.
"""

import sys
import tomllib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ._errors import MechanismError
from ._plots import figure, png


def settings(script: str) -> dict[str, Any]:
    """The numbers of an experiment, from the file that the command line names or from `configs/`."""
    own = Path(script).resolve()
    file = Path(sys.argv[1]) if len(sys.argv) > 1 else own.parent.parent / "configs" / f"{own.stem}.toml"
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise MechanismError(f"the settings of {own.name} in {str(file)!r} cannot be read: {problem}") from problem


def draw(
    target: str, drawing: Callable[[list[Any]], None], *, rows: int = 1, columns: int = 1, size: Any = (9.0, 4.0)
) -> None:
    """A figure of rows x columns panels: `drawing(axes)` fills them, row by row, and `target` receives the PNG file."""
    if find_spec("matplotlib") is None:
        print('no figure: matplotlib is missing; pip install -e ".[viz]" brings it')  # noqa: T201
        return
    made, axes = figure(rows, columns, size=size)
    drawing(axes)
    Path(target).parent.mkdir(exist_ok=True)
    Path(target).write_bytes(png(made))
    print(f"figure: {target}")  # noqa: T201
