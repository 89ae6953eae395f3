"""Marker: a frame fixed to a body."""

import equinox as eqx
import jax
import numpy as np
from jax import Array

from .._errors import MechanismError
from .._spatial._axis import as_array, is_concrete
from .._spatial._pose import Pose, quat_to_rotation, rotation_to_quat


def _as_quaternion(value) -> Array:
    """A quaternion (w, x, y, z) from itself, a rotation matrix or `None` (no rotation)."""
    if value is None:
        return as_array((1.0, 0.0, 0.0, 0.0))
    value = as_array(value)
    if value.shape not in ((4,), (3, 3)):
        raise MechanismError(f"a marker's rotation has shape {value.shape}; give a 3x3 matrix or (w, x, y, z)")
    if is_concrete(value):
        numbers = np.asarray(value)
        if value.shape == (4,) and not np.linalg.norm(numbers) > 0:
            raise MechanismError(f"the quaternion {numbers.tolist()} has no direction; (1, 0, 0, 0) means no rotation")
        right_handed = value.shape == (4,) or np.linalg.det(numbers) > 0
        if value.shape == (3, 3) and not (right_handed and np.allclose(numbers @ numbers.T, np.eye(3), atol=1e-5)):
            raise MechanismError(f"a marker's rotation {numbers.tolist()} is no rotation: its rows must be orthonormal")
    return jax.jit(rotation_to_quat)(value) if value.shape == (3, 3) else value


class Marker(eqx.Module):
    """A frame fixed to `body` at `position` (m, in the body's frame), turned by `rotation`.

    **Arguments:**

    - `body`: the body's name; "world" is the ground.
    - `position`: three numbers, metres.
    - `rotation`: a 3x3 rotation matrix or a quaternion (w, x, y, z); by default none. Kept as a
        quaternion, so that a derivative step or an optimiser cannot leave the rotations.
    """

    body: str = eqx.field(static=True)
    position: Array = eqx.field(converter=as_array, default=(0.0, 0.0, 0.0))
    rotation: Array = eqx.field(converter=_as_quaternion, default=None)

    @property
    def pose(self) -> Pose:
        """X_BM: the marker in its body."""
        return Pose(quat_to_rotation(self.rotation), self.position)


def as_marker(value: "Marker | str") -> Marker:
    if isinstance(value, Marker):
        return value
    if isinstance(value, str):
        return Marker(value)
    raise MechanismError(f"{value!r} is neither a Marker nor the name of a body")
