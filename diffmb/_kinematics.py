"""KINEMATICS: poses, twists, accelerations, Jacobians, centre of mass and momentum, as a user asks for them.

    x = p + R m                     a marker m of a body
    xd = V_v + w x x                from the twist about the fixed point (here written as the origin)
    xdd = A_v + wd x x + w x xd     classical acceleration: a twist's rate plus the turning of the velocity
    J = columns s_d of the speeds on the path, about the marker;  xdd = J vd + bias acceleration

Twists and accelerations are (angular, linear) in world axes; the linear part belongs to the origin of the body or
marker.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from ._batch import batch_last
from ._bodies._marker import Marker, as_marker
from ._checks import as_time, check_coordinates, check_speeds
from ._configuration import Configuration, accelerations, by_group, configuration, in_order, twists
from ._errors import MechanismError
from ._model import Model
from ._names import nearest
from ._spatial._pose import Pose
from ._spatial._vector import cross, join, matvec
from ._sweep import each
from ._types import Coordinates, Jacobian, Speeds, Twist, Vector, Wrench
from ._walk import walk


class Motion(eqx.Module):
    """Pose, twist and acceleration of one frame, or of all bodies stacked in front; `motion["crank"]` picks one.

    A `Marker` picks a frame fixed to a body: `motion[mb.Marker("crank", (0.1, 0, 0))]`.
    """

    pose: Pose
    twist: Array
    acceleration: Array
    names: tuple[str, ...] = eqx.field(static=True)

    def __getitem__(self, frame: str | Marker) -> "Motion":
        marker = as_marker(frame)
        if not self.names:
            raise MechanismError("this motion belongs to one frame already")
        index = moving_body(self.names, marker)
        pose, twist, acceleration = jax.tree.map(lambda a: a[index], (self.pose, self.twist, self.acceleration))
        body = Motion(pose, twist, acceleration, ())
        return body if isinstance(frame, str) else body.at(marker.pose)

    @property
    def angle(self) -> Array:
        """How far the frame's x axis is turned about the world's z axis, rad, from -pi to pi; for planar mechanisms."""
        return planar_angle(self.pose)

    def at(self, offset: Pose) -> "Motion":
        """The motion of a frame fixed to this one."""
        arm = self.pose.rotate(offset.translation)
        w, wd = self.twist[:3], self.acceleration[:3]
        slip = cross(w, arm)
        twist = join(w, self.twist[3:] + slip)
        acceleration = join(wd, self.acceleration[3:] + cross(wd, arm) + cross(w, slip))
        return Motion(self.pose @ offset, twist, acceleration, ())


def planar_angle(pose: Pose) -> Array:
    """Of the x axis about the world's z axis, rad, from -pi to pi."""
    return jnp.arctan2(pose.rotation[..., 1, 0], pose.rotation[..., 0, 0])


def moving_body(names: tuple[str, ...], marker: Marker) -> int:
    """The place of a marker's body among those that move."""
    if marker.body not in names:
        raise MechanismError(f"there is no body {marker.body!r}; {nearest(marker.body, names)}")
    return names.index(marker.body)


def pose_of(model: Model, q: Array, frame: str | Marker, t: Array) -> Pose:
    """The pose of a body or marker in the world."""
    marker = as_marker(frame)
    own = jax.tree.map(lambda a: a[moving_body(model.topology.bodies, marker)], _poses(model, q, t))
    return own if isinstance(frame, str) else own @ marker.pose


@batch_last
def _poses(model: Model, q: Array, t: Array) -> Pose:
    """Of all bodies, stacked in front."""
    return each(Pose.__matmul__)(configuration(model, q, t).pose, model.frame)


def kinematics(model: Model, q, v=None, vd=None, t: Any = 0.0) -> Motion:
    """Motion of all bodies, stacked in the order of `motion.names`.

    **Arguments:**

    - `q`, `v`, `vd`: coordinates, speeds and their rates; speeds and rates are zero by default.
    - `t`: time in s; it matters to rheonomic joints only.
    """
    q = check_coordinates(model, q)
    v = check_speeds(model, "v", v, q)
    vd = check_speeds(model, "vd", vd, q)
    return _kinematics(model, q, v, vd, as_time(t, q))


@batch_last
def _kinematics(model: Model, q: Array, v: Array, vd: Array, t: Array) -> Motion:
    c = configuration(model, q, t)
    V, bias = twists(model, c, q, v, t)
    A = accelerations(model, c, bias, vd)
    pose = each(Pose.__matmul__)(c.pose, model.frame)
    arm = pose.translation - c.centre

    def at_origin(V, A, arm):
        velocity = V[3:] + cross(V[:3], arm)
        return join(V[:3], velocity), join(A[:3], A[3:] + cross(A[:3], arm) + cross(V[:3], velocity))

    twist, acceleration = each(at_origin)(V, A, arm)
    return Motion(pose, twist, acceleration, model.topology.bodies)


def jacobian(model: Model, q, frame: str | Marker, t: Any = 0.0) -> Jacobian:
    """J (6, nv): the twist of a body or marker is J v, angular part first, world axes, at the frame's origin."""
    q = check_coordinates(model, q)
    marker = as_marker(frame)
    model.body(marker.body)
    return _jacobian(model, q, marker, as_time(t, q))


@batch_last
def _jacobian(model: Model, q: Array, marker: Marker, t: Array) -> Array:
    c = configuration(model, q, t)
    body = model.body(marker.body) - 1
    if body < 0:
        return jnp.zeros((6, model.nv, c.columns.shape[-1]), c.columns.dtype)
    frame = jax.tree.map(lambda a: a[body], model.frame)
    point = Pose(c.pose.rotation[body], c.arm[body]).apply(frame.apply(marker.position))
    columns = each(lambda s: join(s[:3], s[3:] + cross(s[:3], point)))(c.columns)
    on_path = walk(model.topology).paths[body][walk(model.topology).speed_body]
    return jnp.swapaxes(jnp.where(on_path[:, None, None], columns, 0.0), 0, 1)


def bias_acceleration(model: Model, q, v, frame: str | Marker, t: Any = 0.0) -> Twist:
    """The acceleration (6,) that a body or marker has when vd = 0: Jdot v, and the time terms of rheonomic joints."""
    return kinematics(model, q, v, None, t)[frame].acceleration


def center_of_mass(model: Model, q, t: Any = 0.0) -> Vector:
    """Centre of mass of all bodies, (3,), m."""
    q = check_coordinates(model, q)
    return _center_of_mass(model, q, as_time(t, q))


@batch_last
def _center_of_mass(model: Model, q: Array, t: Array) -> Array:
    return _mean_position(model, configuration(model, q, t))


def _mean_position(model: Model, c: Configuration) -> Array:
    position = each(Pose.apply)(c.pose, model.com)
    return (model.mass[:, None] * position).sum(0) / model.mass.sum(0)


def momentum(model: Model, q, v, t: Any = 0.0) -> Wrench:
    """Angular momentum about the centre of mass, then linear momentum, (6,), world axes."""
    q = check_coordinates(model, q)
    return _momentum(model, q, check_speeds(model, "v", v, q), as_time(t, q))


@batch_last
def _momentum(model: Model, q: Array, v: Array, t: Array) -> Array:
    c = configuration(model, q, t)
    V, _ = twists(model, c, q, v, t)
    middle = _mean_position(model, c)

    def one(X, centre, V, mass, com, inertia):
        position = X.apply(com)
        linear = mass * (V[3:] + cross(V[:3], position - centre))
        spin = matvec(X.rotation, matvec(inertia, matvec(jnp.swapaxes(X.rotation, 0, 1), V[:3])))
        return join(spin + cross(position - middle, linear), linear)

    centre = jnp.broadcast_to(c.centre, c.arm.shape)
    return each(one)(c.pose, centre, V, model.mass, model.com, model.inertia).sum(0)


# --- the manifold of coordinates ----------------------------------------------------------------------------------


def _joint_by_joint(fun: Callable[..., Array], first: str, second: str, result: str) -> Callable[..., Array]:
    """`fun(joint, a, b)` on each joint's part of two arrays; the strings say which are coordinates and which speeds."""

    def run(model: Model, a: Array, b: Array) -> Array:
        pairs = zip(by_group(model, a, first), by_group(model, b, second), strict=True)
        return in_order(model, [each(fun)(group.kind, x, y) for (group, x), (_, y) in pairs], result)

    return run


rates_of = _joint_by_joint(lambda joint, q, v: joint.qdot(q, v), "q", "v", "q")
moved = _joint_by_joint(lambda joint, q, step: joint.retract(joint.unit(q), step), "q", "v", "q")
_qdot = batch_last(rates_of)
_retract = batch_last(_joint_by_joint(lambda joint, q, step: joint.retract(q, step), "q", "v", "q"))
_difference = batch_last(_joint_by_joint(lambda joint, start, end: joint.difference(start, end), "q", "q", "v"))


@batch_last
def unit_quaternions(model: Model, q: Array) -> Array:
    """q with unit quaternions."""
    return in_order(model, [each(lambda joint, q: joint.unit(q))(g.kind, x) for g, x in by_group(model, q, "q")], "q")


def qdot(model: Model, q, v) -> Coordinates:
    """qd = N(q) v."""
    q = check_coordinates(model, q)
    return _qdot(model, q, check_speeds(model, "v", v, q))


def retract(model: Model, q, step) -> Coordinates:
    """The coordinates reached from `q` with the constant speeds `step` in unit time; unit quaternions stay unit."""
    q = check_coordinates(model, q)
    return _retract(model, q, check_speeds(model, "step", step, q))


def difference(model: Model, start, end) -> Speeds:
    """The step (nv,) with `retract(start, step) == end`."""
    return _difference(model, check_coordinates(model, start), check_coordinates(model, end))
