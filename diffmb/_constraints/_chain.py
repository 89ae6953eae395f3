"""Chain: a massless linkage of joints between two markers, as one constraint (Sol 1983, ch. 7, kinematic connections).

    X(w, t) = product of the joints' poses and the links between them, in their coordinates w
    e(w, rel) = how far `rel` is from X(w, t)          f(w) = 0: couplings inside the chain
    phi = C^T (e, f) at the nearest w                  C: what the slope by w leaves over, 6 + k - rank rows

The coordinates may be redundant: a bar between two balls has six, and spins about itself; it leaves five motions and
holds one row, the distance. How rows are found is said in `_joints/_locate.py`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._bodies._marker import Marker
from .._errors import MechanismError
from .._joints._abstract import AbstractJoint
from .._joints._lift import as_component, as_params
from .._joints._locate import located_rows, pose_misfit
from .._joints._reversed import reverse
from .._spatial._axis import is_concrete
from .._spatial._pose import Pose
from ._abstract import AbstractConstraint


class Links(eqx.Module):
    """The joints in order, each pointing from "0" to "1"; coordinates w are steps from their neutral positions."""

    joints: tuple[AbstractJoint, ...]
    params: Any
    coupling: Callable | None = eqx.field(static=True)

    @property
    def nv(self) -> int:
        return sum(joint.nv for joint in self.joints)

    def neutral(self) -> Array:
        return jnp.zeros(self.nv)

    def pose(self, w: Array, t: Array) -> Pose:
        X, start = Pose.identity(w.dtype), 0
        for joint in self.joints:
            q = joint.retract(joint.neutral().astype(w.dtype), w[start : start + joint.nv])
            X = X @ joint.parent.pose @ joint.pose(q, t) @ joint.child.pose.inverse()
            start += joint.nv
        return X


def _misfit(links: Links, w: Array, rel: Pose, t: Array) -> Array:
    e = pose_misfit(links, w, rel, t)
    if links.coupling is None:
        return e
    return jnp.concatenate([e, jnp.atleast_1d(as_component(links.coupling(w, links.params), w))])


class Chain(AbstractConstraint):
    """Holds what a chain of joints with massless links between the two markers holds.

    **Arguments:**

    - `joints`: a list of joints that lead from "0", the first marker, over links of any name to "1", the second; their
        markers say where on the links they are.
    - `coupling`: `coupling(w, params)`: (k,) that vanish, of the coordinates of all joints in their order (three of a
        ball: a rotation vector).
    - `params`: numbers that `coupling` uses.

    !!! Example

        ```python
        Chain("rod", "crank", "slider", [Spherical("a", "0", "bar"), Spherical("b", Marker("bar", (0.3, 0, 0)), "1")])
        ```
    """

    links: Links
    rank: int = eqx.field(static=True)
    rows: int = eqx.field(static=True)

    def __init__(
        self, name: str, first: Marker | str, second: Marker | str, joints: Sequence[AbstractJoint],
        coupling: Callable | None = None, params: Any = None,
    ):  # fmt: skip
        self.name, self.first, self.second = name, first, second  # pyright: ignore[reportAttributeAccessIssue]
        self.links = Links(_in_order(f"Chain {name!r}", joints), as_params(params), coupling)
        self.rank, size = _rank(self.links)
        self.rows = size - self.rank
        if not self.rows:
            raise MechanismError(f"Chain {name!r} leaves every motion free: its coordinates have rank {self.rank}")

    @property
    def nh(self) -> int:
        return self.rows

    @property
    def nn(self) -> int:
        return 0

    def phi(self, t: Array, x: Pose) -> Array:
        return located_rows(_misfit, self.rank, self.links, x, t)


def _in_order(title: str, joints: Sequence[AbstractJoint]) -> tuple[AbstractJoint, ...]:
    """The joints from "0" to "1", turned to point that way."""
    left, here, found = list(joints), "0", []
    while here != "1":
        near = [j for j in left if here in (j.parent.body, j.child.body)]
        if len(near) != 1:
            raise MechanismError(f"{title}: {len(near)} joints go on from {here!r}; give one way from '0' to '1'")
        left.remove(near[0])
        found.append(near[0] if near[0].parent.body == here else reverse(near[0]))
        here = found[-1].child.body
    if left:
        raise MechanismError(f"{title}: joint {left[0].name!r} is not on the way from '0' to '1'")
    return tuple(found)


def _rank(links: Links) -> tuple[int, int]:
    """Of the slope of the misfit at some coordinates, and the number of its rows; shapes and structure decide both."""
    with jax.ensure_compile_time_eval():
        numbers = jax.tree.map(lambda a: a if is_concrete(a) else jnp.ones(a.shape, a.dtype), links)
        w, t = jnp.asarray(np.random.default_rng(0).uniform(0.3, 0.8, links.nv)), jnp.zeros(())
        rel = numbers.pose(w, t)
        S = np.asarray(jax.jacfwd(lambda w: _misfit(numbers, w, rel, t))(w)).reshape(-1, links.nv)
    return int(np.linalg.matrix_rank(S, tol=1e-6 * max(1.0, np.abs(S).max(initial=0.0)))), S.shape[0]
