"""Weld: no motion.

X = (I, 0)        nq = nv = 0
"""

from typing import ClassVar

import jax.numpy as jnp
import numpy as np
from jax import Array

from .._spatial._pose import Pose
from .._spatial._vector import eye, join
from ._abstract import AbstractConstantJoint
from ._rows import PLACE, TURN, no_turn


class Weld(AbstractConstantJoint):
    """Holds the two markers together; no coordinates."""

    nq: ClassVar[int] = 0
    nv: ClassVar[int] = 0

    def pose(self, q: Array, t: Array) -> Pose:
        batch = q.shape[1:]
        return Pose(jnp.broadcast_to(eye(3, q), (3, 3) + batch), jnp.zeros((3,) + batch, q.dtype))

    def constant_subspace(self) -> np.ndarray:
        return np.zeros((6, 0), int)

    def constraint(self, rel: Pose, t: Array) -> Array:
        return join(no_turn(rel), rel.translation)

    def row_names(self) -> tuple[str, ...]:
        return TURN + PLACE
