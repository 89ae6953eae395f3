"""LIVE: a motion in the browser, served by viser to this machine only."""

import threading
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from .._bodies._marker import Marker
from .._errors import MechanismError
from .._mechanism import Mechanism
from .._trajectory import Trajectory, optional
from ._scene import COLOURS, Scene, Shape, scene

HOST = "127.0.0.1"
_RATE = 30.0  # pictures in a second


def view(
    mech: Mechanism,
    traj: Trajectory,
    *,
    trace: Mapping[str, Marker] | None = None,
    title: str = "diffmb",
    speed: float = 1.0,
    port: int = 8080,
    block: bool = True,
) -> Any:
    """Shows the motion at http://127.0.0.1:8080 until Ctrl-C; needs `pip install "diffmb[viz]"`.

    **Arguments:**

    - `mech`, `traj`, `trace`, `title`, `speed`: as for `mb.animate`.
    - `port`: another one is taken if it is in use.
    - `block`: whether to wait here; else the server of viser is returned, whose `stop()` ends it.
    """
    viser = optional("viser", "mb.view", "viz")
    if not speed > 0:
        raise MechanismError(f"speed = {speed}; give a number above zero")
    found = scene(mech, traj, trace, title)
    server = viser.ViserServer(host=HOST, port=port, label=title, verbose=False)
    frames = _add(server, found)
    play = server.gui.add_checkbox("play", True)
    pace = server.gui.add_slider("speed", 0.05, 4.0, 0.05, min(max(speed, 0.05), 4.0))
    last = float(found.times[-1] - found.times[0])
    clock = server.gui.add_slider("time", 0.0, last, max(last / 1000, 1e-6), 0.0)

    def run(stop: threading.Event) -> None:
        while not stop.wait(1 / _RATE):
            if play.value:
                after = clock.value + pace.value / _RATE
                clock.value = after % last if last else 0.0
            _place(found, frames, float(found.times[0]) + clock.value)

    stop = threading.Event()
    worker = threading.Thread(target=run, args=(stop,), daemon=True)
    worker.start()
    if not block:
        return _Server(server, stop, worker)
    try:
        while True:
            time.sleep(0.5)
    except KeyboardInterrupt:
        _Server(server, stop, worker).stop()
    return None


class _Server:
    """A running server."""

    def __init__(self, server: Any, stop: threading.Event, worker: threading.Thread):
        self.server, self._stop, self._worker = server, stop, worker
        self.host, self.port = server.get_host(), server.get_port()

    def stop(self) -> None:
        self._stop.set()
        self._worker.join(2.0)
        self.server.stop()


def _add(server: Any, found: Scene) -> list[Any]:
    """Puts everything into the scene; a frame for each body moves."""
    draw = server.scene
    draw.set_up_direction(tuple(float(x) for x in found.up))
    draw.add_frame("/world", show_axes=False)
    frames = [draw.add_frame(f"/world/body{k}", show_axes=False) for k in range(len(found.bodies))]
    for k, (name, label) in enumerate(zip(found.bodies, found.labels, strict=True)):
        draw.add_label(f"/world/body{k}/label", name, position=tuple(label))
    for number, shape in enumerate(found.shapes):
        root = "/world" if shape.body < 0 else f"/world/body{shape.body}"
        _add_shape(draw, f"{root}/shape{number}", shape)
    for number, tie in enumerate(found.ties):
        if tie.first == tie.second >= 0:
            points = np.stack([tie.a, tie.b])[None]
            colour = tuple(round(255 * c) for c in tie.colour)
            place = f"/world/body{tie.first}/tie{number}"
            draw.add_line_segments(place, points, colour, thickness=4.0, thickness_units="screen")
    for number, (_, points) in enumerate(found.paths):
        text = COLOURS[(number + 3) % len(COLOURS)]
        colour = tuple(int(text[k : k + 2], 16) for k in (1, 3, 5))
        segments = np.stack([points[:-1], points[1:]], 1)
        draw.add_line_segments(f"/world/path{number}", segments, colour, thickness=2.0, thickness_units="screen")
    away = found.middle + found.away / np.linalg.norm(found.away) * 2.0 * found.size

    @server.on_client_connect
    def _(client: Any) -> None:
        client.camera.position, client.camera.look_at = tuple(away), tuple(found.middle)

    return frames


def _add_shape(draw: Any, name: str, shape: Shape) -> None:
    colour = tuple(round(255 * c) for c in shape.colour)
    place = {"position": tuple(shape.position), "wxyz": tuple(shape.rotation), "color": colour}
    if shape.kind == "box":
        draw.add_box(name, dimensions=tuple(shape.size), **place)
    elif shape.kind == "sphere":
        draw.add_icosphere(name, radius=float(shape.size[0]), **place)
    else:
        draw.add_cylinder(name, radius=float(shape.size[0]), height=float(shape.size[2]), **place)


def _place(found: Scene, frames: list[Any], t: float) -> None:
    k = int(np.clip(np.searchsorted(found.times, t, side="right") - 1, 0, len(found.times) - 1))
    for frame, position, rotation in zip(frames, found.positions[k], found.rotations[k], strict=True):
        frame.position, frame.wxyz = position, rotation
