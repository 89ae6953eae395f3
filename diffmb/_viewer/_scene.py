"""SCENE: a mechanism and its motion as simple shapes, in plain numbers.

A body is drawn as the solid of its mass and inertia: with principal moments I1, I2, I3 about its centre of mass,

    all equal           sphere,   r^2 = 5 I / (2 m)
    two equal           cylinder, r^2 = 2 I_along / m,  l^2 = 12 I_across / m - 3 r^2
    else                box,      x^2 = 6 (I2 + I3 - I1) / m, and so on

so that rods, boxes, cylinders and spheres look like themselves. Slender rods tie it to its markers; revolute joints are
pins, springs coils.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np

from .._bodies._marker import Marker
from .._bodies._rigid import RigidBody
from .._connections._abstract import AbstractConnection, AbstractSpan
from .._constraints._abstract import AbstractConstraint
from .._constraints._points import Distance
from .._errors import MechanismError
from .._joints._abstract import AbstractJoint
from .._kinematics import kinematics
from .._mechanism import Mechanism
from .._names import WORLD
from .._spatial._pose import rotation_to_quat
from .._tiles import over_rows
from .._trajectory import Trajectory

COLOURS = ("#4878a8", "#d98b3a", "#5b9a68", "#b8575c", "#7d6aa8", "#4aa3a2", "#a8824f", "#c274a0", "#6c7f8f", "#9aa53a")
_FRAMES = 600
_STEEL = (0.35, 0.39, 0.43)
_GHOST = (0.82, 0.84, 0.86)


@dataclass(frozen=True)
class Shape:
    """A solid fixed to a body (-1: the ground): edges of a box, or (radius, radius, length) along z."""

    body: int
    kind: str
    position: np.ndarray
    rotation: np.ndarray  # wxyz
    size: np.ndarray
    colour: tuple[float, ...]


@dataclass(frozen=True)
class Tie:
    """A line between points of two bodies: a rod, or a coil if it has a width."""

    first: int
    a: np.ndarray
    second: int
    b: np.ndarray
    radius: float
    width: float
    colour: tuple[float, ...]


@dataclass(frozen=True)
class Scene:
    """Everything that a viewer draws; `positions` (times, bodies, 3) and `rotations` (times, bodies, 4), wxyz."""

    title: str
    times: np.ndarray
    bodies: tuple[str, ...]
    positions: np.ndarray
    rotations: np.ndarray
    labels: tuple[np.ndarray, ...]
    shapes: tuple[Shape, ...]
    ties: tuple[Tie, ...]
    paths: tuple[tuple[str, np.ndarray], ...]
    up: np.ndarray
    away: np.ndarray
    middle: np.ndarray
    size: float
    floor: float


def scene(mech: Mechanism, traj: Trajectory, trace: Mapping[str, Marker] | None = None, title: str = "") -> Scene:
    """The scene of a motion; `trace` are markers whose paths are drawn."""
    names = tuple(body.name for body in mech.bodies)
    rows = np.unique(np.linspace(0, len(traj.ts) - 1, min(len(traj.ts), _FRAMES)).round().astype(int))
    positions, rotations = _poses(traj, rows, names)
    paths = tuple((name, _path(marker, names, positions, rotations)) for name, marker in (trace or {}).items())
    points = _points(mech, names, positions, rotations)
    low, high = points.min(0), points.max(0)
    size = float(max(np.linalg.norm(high - low), 1e-6))
    gravity = np.asarray(mech.gravity)
    up = -gravity / np.linalg.norm(gravity) if np.linalg.norm(gravity) > 0 else np.array([0.0, 0.0, 1.0])
    up = np.eye(3)[np.argmax(np.abs(up))] * np.sign(up[np.argmax(np.abs(up))])
    shapes, ties = _drawn(mech, names, size)
    floor = float(min((points @ up).min(), 0.0) - 0.06 * size)
    labels = tuple(np.asarray(body.com) for body in mech.bodies)
    away, middle = _away(high - low, up), (low + high) / 2
    times = np.asarray(traj.ts)[rows]
    return Scene(title, times, names, positions, rotations, labels, shapes, ties, paths, up, away, middle, size, floor)


def with_ghost(now: Scene, before: Scene) -> Scene:
    """A scene with another one of the same times behind it, in a pale grey without names: what has changed."""
    if now.times.shape != before.times.shape or not np.allclose(now.times, before.times):
        raise MechanismError(
            f"the motion before has {len(before.times)} times up to {before.times[-1]:.6g} s, the other one "
            f"{len(now.times)} up to {now.times[-1]:.6g} s; simulate both at the same times"
        )
    shift = lambda k: k if k < 0 else k + len(now.bodies)
    shapes = tuple(replace(s, body=shift(s.body), colour=_GHOST) for s in before.shapes)
    ties = tuple(replace(t, first=shift(t.first), second=shift(t.second), colour=_GHOST) for t in before.ties)
    return replace(
        now,
        bodies=now.bodies + ("",) * len(before.bodies),
        positions=np.concatenate([now.positions, before.positions], 1),
        rotations=np.concatenate([now.rotations, before.rotations], 1),
        labels=now.labels + before.labels,
        shapes=now.shapes + shapes,
        ties=now.ties + ties,
        paths=now.paths + tuple((f"{name} before", path) for name, path in before.paths),
        size=max(now.size, before.size),
        floor=min(now.floor, before.floor),
    )


def _poses(traj: Trajectory, rows: np.ndarray, names: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    motion = jax.jit(lambda *at: over_rows(lambda q, t: kinematics(traj.model, q, t=t), *at))(
        traj.q[rows], traj.ts[rows]
    )
    order = [motion.names.index(name) for name in names]
    turn = jax.jit(jax.vmap(jax.vmap(rotation_to_quat)))(motion.pose.rotation)
    return np.asarray(motion.pose.translation)[:, order], np.asarray(turn)[:, order]


def _turned(rotations: np.ndarray, point: np.ndarray) -> np.ndarray:
    """R x for quaternions (..., 4)."""
    w, e = rotations[..., :1], rotations[..., 1:]
    cross = np.cross(e, np.broadcast_to(point, e.shape))
    return point + 2 * (w * cross + np.cross(e, cross))


def _path(marker: Marker, names: tuple[str, ...], positions: np.ndarray, rotations: np.ndarray) -> np.ndarray:
    point = np.asarray(marker.position)
    if marker.body == WORLD:
        return np.broadcast_to(point, (len(positions), 3))
    k = names.index(marker.body)
    return positions[:, k] + _turned(rotations[:, k], point)


def _markers(mech: Mechanism) -> list[Marker]:
    """Every marker that something is attached to."""
    ends = [(j.parent, j.child) for j in mech.joints]
    ends += [(c.first, c.second) for c in mech.constraints if isinstance(c, AbstractConstraint)]
    ends += [c.markers for c in mech.connections if isinstance(c, AbstractConnection | AbstractSpan)]
    return [marker for pair in ends for marker in pair]


def _points(mech: Mechanism, names: tuple[str, ...], positions: np.ndarray, rotations: np.ndarray) -> np.ndarray:
    """Where anything ever is: centres of mass, ends of bodies and markers."""
    found = [_path(marker, names, positions, rotations) for marker in _markers(mech)]
    for body in mech.bodies:
        solid = _solid(body)
        corners = [np.zeros(3)] if solid is None else [solid[1] + s * _reach(solid) for s in (-1, 1)]
        found += [_path(Marker(body.name, corner), names, positions, rotations) for corner in corners]
    return np.concatenate(found)


def _reach(solid: tuple) -> np.ndarray:
    """From the centre of a solid to its end along its longest axis."""
    kind, _, axes, size = solid
    edges = size * (np.array([2, 2, 1]) if kind == "cylinder" else np.array([2, 2, 2]) if kind == "sphere" else 1)
    return axes[:, np.argmax(edges)] * edges.max() / 2


def _solid(body: RigidBody) -> tuple[str, np.ndarray, np.ndarray, np.ndarray] | None:
    """Kind, centre, axes as columns and size of the solid that has the body's inertia; None for a frame or point."""
    mass, inertia = float(body.mass), np.asarray(body.inertia)
    moments, axes = np.linalg.eigh(inertia)
    if mass <= 0 or moments[2] <= 0:
        return None
    axes = axes * np.sign(np.linalg.det(axes))
    near = 1e-6 * moments[2]
    if moments[2] - moments[0] <= near:
        kind, size = "sphere", np.full(3, np.sqrt(2.5 * moments[2] / mass))
    elif moments[1] - moments[0] <= near or moments[2] - moments[1] <= near:
        k = 2 if moments[1] - moments[0] <= near else 0  # the odd one is along the axis
        radius = np.sqrt(max(2 * moments[k] / mass, 0.0))
        length = np.sqrt(max(12 * moments[1] / mass - 3 * radius**2, 0.0))
        axes = np.roll(axes, 2 - k, axis=1)
        kind, size = "cylinder", np.array([radius, radius, length])
    else:
        kind, size = "box", np.sqrt(np.maximum(6 * (moments.sum() - 2 * moments) / mass, 0.0))
    return kind, np.asarray(body.com), axes, size


def _rgb(colour: str) -> tuple[float, ...]:
    return tuple(int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5))


def _drawn(mech: Mechanism, names: tuple[str, ...], size: float) -> tuple[tuple[Shape, ...], tuple[Tie, ...]]:
    thin, shapes, ties = 0.008 * size, [], []
    still = np.array([1.0, 0.0, 0.0, 0.0])
    for k, body in enumerate(mech.bodies):
        colour, solid = _rgb(COLOURS[k % len(COLOURS)]), _solid(body)
        if solid is not None:
            kind, centre, axes, edges = solid
            least = thin if kind != "box" else 1.6 * thin
            turn = np.asarray(rotation_to_quat(jnp.asarray(axes)))
            shapes.append(Shape(k, kind, centre, turn, np.maximum(edges, least), colour))
        points = {tuple(np.asarray(m.position).tolist()) for m in _markers(mech) if m.body == body.name}
        for point in map(np.array, sorted(points)):
            if solid is None or not _within(solid, point, thin):
                ties.append(Tie(k, np.asarray(body.com), k, point, 0.6 * thin, 0.0, colour))
    index = {WORLD: -1, **{name: k for k, name in enumerate(names)}}
    for joint in mech.joints:
        shapes.append(_pin(joint, index, thin))
        if WORLD in (joint.parent.body, joint.child.body):
            ground = joint.parent if joint.parent.body == WORLD else joint.child
            place = np.asarray(ground.position)
            shapes.append(Shape(-1, "box", place, still, np.full(3, 3.2 * thin), (0.62, 0.66, 0.7)))
    lines = [((c.first, c.second), 0.0) for c in mech.constraints if isinstance(c, Distance)]
    lines += [(c.markers, 2.5 * thin) for c in mech.connections if isinstance(c, AbstractConnection)]
    lines += [(c.markers, 0.0) for c in mech.connections if isinstance(c, AbstractSpan)]
    for markers, width in lines:
        for first, second in pairwise(markers):
            ends = (index[first.body], np.asarray(first.position), index[second.body], np.asarray(second.position))
            ties.append(Tie(*ends, 0.4 * thin, width, _STEEL))
    return tuple(shapes), tuple(ties)


def _within(solid: tuple, point: np.ndarray, slack: float) -> bool:
    kind, centre, axes, size = solid
    local = np.abs(axes.T @ (point - centre))
    half = size * (np.array([1, 1, 0.5]) if kind == "cylinder" else 1.0 if kind == "sphere" else 0.5)
    return bool((local <= half + slack).all())


def _pin(joint: AbstractJoint, index: Mapping[str, int], thin: float) -> Shape:
    """A pin along the axis of a joint that has one, else a ball."""
    marker, axis = joint.child, getattr(joint, "axis", None)
    k, turn = index[marker.body], np.asarray(marker.rotation) / np.linalg.norm(np.asarray(marker.rotation))
    if axis is None or np.shape(axis) != (3,):
        return Shape(k, "sphere", np.asarray(marker.position), turn, np.full(3, 1.9 * thin), _STEEL)
    z = _turned(turn, np.asarray(axis) / np.linalg.norm(np.asarray(axis)))
    x = np.cross(np.eye(3)[np.argmin(np.abs(z))], z)
    x /= np.linalg.norm(x)
    rotation = np.asarray(rotation_to_quat(jnp.asarray(np.stack([x, np.cross(z, x), z], 1))))
    return Shape(k, "cylinder", np.asarray(marker.position), rotation, np.array([1.7, 1.7, 4.5]) * thin, _STEEL)


def _away(extent: np.ndarray, up: np.ndarray) -> np.ndarray:
    """From the middle to the eye: across the plane of the motion, a little from above and the side."""
    flat = np.abs(extent) * (1 - np.abs(up)) + 1e12 * np.abs(up)
    across = np.eye(3)[np.argmin(flat)]
    across = across if np.abs(up[2]) == 0 else -across  # with z up one looks along +y
    side = np.cross(up, across)
    return across + 0.35 * up + 0.28 * side
