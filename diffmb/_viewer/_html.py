"""HTML: a motion as one file that any browser shows, without a network or a server."""

import base64
import html
import json
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from .._bodies._marker import Marker
from .._io._files import check_place, replacing
from .._mechanism import Mechanism
from .._trajectory import Trajectory
from ._scene import COLOURS, Scene, scene, with_ghost


def animate(
    mech: Mechanism,
    traj: Trajectory,
    path: str | PathLike,
    *,
    trace: Mapping[str, Marker] | None = None,
    title: str = "diffmb",
    speed: float = 1.0,
    before: tuple[Mechanism, Trajectory] | None = None,
) -> None:
    """Writes a page that shows the motion in 3-D: open it by a double click, it needs no network.

    **Arguments:**

    - `mech`, `traj`: the mechanism and its motion.
    - `path`: of the file, such as "run.html".
    - `trace`: markers by name whose paths are drawn.
    - `title`: above the picture; `speed`: seconds of motion in one second.
    - `before`: another mechanism and its motion at the same times, drawn in a pale grey behind: what a change did.
    """
    place = Path(path)
    check_place(place)
    found = scene(mech, traj, trace, title)
    text = page(found if before is None else with_ghost(found, scene(*before, trace)), speed)
    with replacing(place) as temporary:
        temporary.write_text(text, encoding="utf-8")


def page(found: Scene, speed: float = 1.0) -> str:
    """The text of the file."""
    template = (Path(__file__).parent / "template.html").read_text(encoding="utf-8")
    # JSON inside of a script element: a "<" in a name must not end it.
    data = json.dumps(_data(found, speed), separators=(",", ":")).replace("<", "\\u003c")
    return template.replace("__TITLE__", html.escape(found.title)).replace("__SCENE__", data)


def _data(found: Scene, speed: float) -> dict[str, Any]:
    row = lambda a: [round(float(x), 7) for x in a]
    text = lambda a: base64.b64encode(np.ascontiguousarray(a, "<f4").tobytes()).decode()
    ties = [
        {"first": t.first, "a": row(t.a), "second": t.second, "b": row(t.b), "radius": t.radius, "width": t.width}
        | {"colour": row(t.colour)}
        for t in found.ties
    ]
    return {
        "times": row(found.times),
        "poses": text(np.concatenate([found.positions, found.rotations], -1)),
        "bodies": [{"name": n, "label": row(c)} for n, c in zip(found.bodies, found.labels, strict=True)],
        "shapes": [
            {"body": s.body, "kind": s.kind, "position": row(s.position), "rotation": row(s.rotation)}
            | {"size": row(s.size), "colour": row(s.colour)}
            for s in found.shapes
        ],
        "rods": [t for t in ties if not t["width"]],
        "coils": [t for t in ties if t["width"]],
        "paths": [
            {"name": name, "points": text(points), "colour": COLOURS[(k + 3) % len(COLOURS)]}
            for k, (name, points) in enumerate(found.paths)
        ],
        "up": row(found.up),
        "away": row(found.away),
        "middle": row(found.middle),
        "size": found.size,
        "floor": found.floor,
        "grid": _nice(found.size / 8),
        "speed": speed,
    }


def _nice(length: float) -> float:
    """1, 2 or 5 times a power of ten."""
    power = 10.0 ** np.floor(np.log10(length))
    return float(power * min((1, 2, 5, 10), key=lambda k: abs(k - length / power)))
