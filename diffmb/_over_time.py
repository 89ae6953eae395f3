"""OVER TIME: what is read off a motion, a `Trajectory`, row by row, when it is asked for.

Each is one program of all rows, made with what is seen of the model's numbers (`_known.py`).
"""

import dataclasses
from typing import Any

import equinox as eqx
from jax import Array

from ._constrained import Dynamics, connection_power, dynamics
from ._kinematics import Motion, kinematics, planar_angle, pose_of
from ._known import with_known
from ._reactions import reactions
from ._spatial._pose import Pose
from ._tiles import members, over_rows


class FrameOverTime(eqx.Module):
    """The motion of a body or of a frame fixed to one, one row for each time; world axes, angular part first."""

    trajectory: Any
    frame: Any

    @property
    def pose(self) -> Pose:
        return members(self.trajectory, lambda one: _poses(looked_at(one), self.frame))

    @property
    def angle(self) -> Array:
        """How far the frame's x axis is turned about the world's z axis, rad, from -pi to pi; for planar mechanisms."""
        return planar_angle(self.pose)

    @property
    def twist(self) -> Array:
        """(times, 6), rad/s and m/s."""
        return members(self.trajectory, lambda one: _moving(looked_at(one), None, self.frame).twist)

    @property
    def acceleration(self) -> Array:
        """(times, 6), rad/s2 and m/s2."""
        return members(self.trajectory, lambda one: _moving(looked_at(one), one.vd, self.frame).acceleration)


def each_time(traj: Any, fun: Any) -> Array:
    """fun(model, t, q, v, z) over time."""
    at = lambda one: over_rows(lambda *row: fun(one.model, *row), one.ts, one.q, one.v, one.z)
    return members(traj, at)


def looked_at(traj: Any) -> Any:
    """With what is seen of the model's numbers, for a program that is made of it."""
    return dataclasses.replace(traj, model=with_known(traj.model))


@eqx.filter_jit
def _poses(traj: Any, frame: Any) -> Pose:
    return over_rows(lambda t, q: pose_of(traj.model, q, frame, t), traj.ts, traj.q)


@eqx.filter_jit
def _moving(traj: Any, vd: Array | None, frame: Any) -> Motion:
    return over_rows(lambda t, q, v, vd: kinematics(traj.model, q, v, vd, t)[frame], traj.ts, traj.q, traj.v, vd)


def _loaded(traj: Any, fun: Any) -> Any:
    """fun(model, q, v, tau, t, z=, u=, on=) over time, with the inputs of the run."""

    def at(t, q, v, z, on):
        tau, u = traj.inputs(t)
        return fun(traj.model, q, v, tau, t, z=z, u=u, on=on)

    return over_rows(at, traj.ts, traj.q, traj.v, traj.z, traj.on)


@eqx.filter_jit
def dynamics_of(traj: Any) -> Dynamics:
    return _loaded(traj, dynamics)


@eqx.filter_jit
def powers_of(traj: Any) -> tuple[Array, Array]:
    return _loaded(traj, connection_power)


@eqx.filter_jit
def reactions_of(traj: Any, name: str, frame: Any) -> Array:
    def at(t, q, v, z, on):
        tau, u = traj.inputs(t)
        return reactions(traj.model, q, v, tau, t, frame=frame, z=z, u=u, on=on)[name]

    return over_rows(at, traj.ts, traj.q, traj.v, traj.z, traj.on)
