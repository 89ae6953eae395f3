"""Hinge: the joint that you write as the relative pose f of your own coordinates and time.

    X = f(q, t, params)          V, S, b by jvp of f; qd = v

Sol 1983, ch. 3: position c(q, t) and rotation C(q, t) of the child marker are all that a hinge needs to say. The
coordinates must be independent (`rank_deficient` tells), and f may depend on time (rheonomic).
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
from jax import Array

from .._bodies._marker import Marker
from .._errors import MechanismError
from .._spatial._pose import Pose
from ._abstract import AbstractJoint
from ._lift import as_params, as_pose, check_function, lift


class Hinge(AbstractJoint):
    """Moves as the function `pose` says.

    **Arguments:**

    - `pose`: `f(q, t, params)`, written for one sample: `q` is (size,), `t` a scalar. It returns a `Pose`, or the tuple
        (rotation (3, 3), translation (3,)) of the child marker in the parent marker, and must be smooth.
    - `size`: the number of coordinates, 0 to 6; the speeds are their rates.
    - `params`: numbers that `pose` uses, in any tree; they are differentiable, unlike those that `pose` closes over.

    Joints that share one function object and the structure of their params are handled together. The markers need not
    coincide at q = 0.

    !!! Example

        ```python
        def screw(q, t, pitch):
            c, s = jnp.cos(q[0]), jnp.sin(q[0])
            return jnp.array([[c, -s, 0], [s, c, 0], [0, 0, 1]]), jnp.array([0, 0, pitch * q[0]])

        Hinge("thread", "frame", "nut", screw, size=1, params=0.002)
        ```
    """

    function: Callable = eqx.field(static=True)
    size: int = eqx.field(static=True)
    params: Any = eqx.field(converter=as_params)

    def __init__(
        self,
        name: str,
        parent: Marker | str,
        child: Marker | str,
        pose: Callable,
        size: int,
        params: Any = None,
        *,
        cut: bool | None = None,
    ):
        self.name, self.parent, self.child, self.cut = name, parent, child, cut  # pyright: ignore[reportAttributeAccessIssue]
        self.function, self.size, self.params = pose, size, params

    def __check_init__(self):
        if not isinstance(self.size, int) or not 0 <= self.size <= 6:
            raise MechanismError(f"Hinge {self.name!r} has size={self.size!r}; give its number of coordinates, 0 to 6")
        check_function(f"Hinge {self.name!r}", self.function, self._sample, self.size, self.params)

    @property
    def nq(self) -> int:
        return self.size

    @property
    def nv(self) -> int:
        return self.size

    def _sample(self, q: Array, t: Array, params: Any) -> Pose:
        return as_pose(f"Hinge {self.name!r}", self.function(q, t, params), q)

    def pose(self, q: Array, t: Array) -> Pose:
        return lift(self._sample, q.ndim - 1, q, t, self.params)
