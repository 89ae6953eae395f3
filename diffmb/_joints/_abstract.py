"""What a joint is: the pose of its child marker in its parent marker as a function of coordinates and time.

    X(q, t)                     pose of the child marker in the parent marker
    V = S(q, t) v + s(q, t)     twist of child in parent, in the child marker's axes at its origin: vee(X^-1 Xdot)
    A = S vd + b(q, v, t)       its time derivative in the child marker's axes; b = Sdot v + sdot, the bias
    qd = N(q) v                 v are the speeds; qd = v unless the coordinates live on a manifold (unit quaternions)
    phi(X, t) = 0               6 - nv rows that hold exactly when X is a pose of this joint: the joint as a constraint

Only `pose` must be written: the others follow from it by jvp (Sol 1983, ch. 3: all partial derivatives of a hinge
follow from c(q, t) and C(q, t)). Kinds that matter for speed give closed forms. Arrays have component axes first and
any batch axes behind: index components (`q[0]`) and build with `stack`.
"""

import dataclasses
from abc import abstractmethod
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._bodies._marker import Marker, as_marker
from .._spatial._pose import Pose
from .._spatial._twist import body_twist
from .._spatial._vector import eye, matvec
from ._locate import generic_rows

if TYPE_CHECKING:
    from typing import ClassVar as AbstractClassVar  # equinox's own is an instance variable to pyright
else:
    from equinox import AbstractClassVar


class AbstractJoint(eqx.Module):
    """A joint between two markers. At q = 0 the markers coincide, unless the kind says otherwise.

    **Arguments:**

    - `name`: the joint's name, unique in the mechanism.
    - `parent`, `child`: a `Marker`, or a body's name for a marker at its origin.
    - `cut`: `True` makes this joint the one at which a loop is opened, `False` keeps it in the tree; by default the
        topology decides.
    """

    name: str = eqx.field(static=True)
    parent: Marker = eqx.field(converter=as_marker)
    child: Marker = eqx.field(converter=as_marker)
    cut: bool | None = eqx.field(static=True, kw_only=True, default=None)

    nq: AbstractClassVar[int]
    nv: AbstractClassVar[int]

    @abstractmethod
    def pose(self, q: Array, t: Array) -> Pose:
        """X(q, t)."""

    def twist(self, q: Array, v: Array, t: Array) -> Array:
        """V = S v + s."""
        X, Xdot = jax.jvp(self.pose, (q, t), (self.qdot(q, v), jnp.ones_like(t)))
        return body_twist(X, Xdot)

    def subspace(self, q: Array, t: Array) -> Array:
        """S, (6, nv, *batch): column k is the twist of unit speed k, without the rheonomic part."""
        batch = q.shape[1:]
        if self.nv == 0:
            return jnp.zeros((6, 0) + batch, q.dtype)
        still = jnp.zeros((self.nv,) + batch, q.dtype)
        units = jnp.broadcast_to(eye(self.nv, still), (self.nv, self.nv) + batch)
        # The twist is traced once for all columns: written column by column, six of them take long to compile.
        column = lambda unit: jax.jvp(lambda v: self.twist(q, v, t), (still,), (unit,))[1]
        return jax.vmap(column, in_axes=1, out_axes=1)(units)

    def bias(self, q: Array, v: Array, t: Array) -> Array:
        """b = Sdot v + sdot."""
        return jax.jvp(lambda q, t: self.twist(q, v, t), (q, t), (self.qdot(q, v), jnp.ones_like(t)))[1]

    def qdot(self, q: Array, v: Array) -> Array:
        """N(q) v."""
        return v

    def retract(self, q: Array, step: Array) -> Array:
        """The coordinates reached from `q` by the constant speed `step` in unit time; stays on the manifold."""
        return q + step

    def difference(self, start: Array, end: Array) -> Array:
        """The `step` with `retract(start, step) == end`."""
        return end - start

    def unit(self, q: Array) -> Array:
        """The coordinates with unit quaternions, where there are any."""
        return q

    def neutral(self) -> Array:
        """Coordinates at which the markers coincide, (nq,)."""
        return jnp.zeros(self.nq)

    def constraint(self, rel: Pose, t: Array) -> Array:
        """phi, (6 - nv, *batch), of a pose of the child marker in the parent marker: what closes a loop here."""
        return generic_rows(self, rel, t)

    def row_names(self) -> tuple[str, ...]:
        """What each row of `constraint` holds."""
        return tuple(f"row {k + 1}" for k in range(6 - self.nv))


class AbstractConstantJoint(AbstractJoint):
    """A scleronomic joint whose subspace does not change in the child's axes: V = S v, b = 0."""

    @abstractmethod
    def constant_subspace(self) -> Array | np.ndarray:
        """S, (6, nv, *batch of the parameters); whole numbers take the precision of the coordinates."""

    def subspace(self, q: Array, t: Array) -> Array:
        S = self.constant_subspace()
        S = jnp.asarray(S, jnp.result_type(S, q))
        S = S.reshape(S.shape + (1,) * (1 + q.ndim - S.ndim))
        return jnp.broadcast_to(S, (6, self.nv) + jnp.broadcast_shapes(S.shape[2:], q.shape[1:]))

    def twist(self, q: Array, v: Array, t: Array) -> Array:
        if self.nv == 0:
            return jnp.zeros((6,) + v.shape[1:], v.dtype)
        return matvec(self.subspace(q, t), v)

    def bias(self, q: Array, v: Array, t: Array) -> Array:
        return jnp.zeros((6,) + v.shape[1:], v.dtype)


def kind_of(joint: AbstractJoint) -> AbstractJoint:
    """The joint without its name and markers: joints of the same kind then have the same tree structure."""
    bare = object.__new__(type(joint))
    for field in dataclasses.fields(joint):
        value = {"name": "", "parent": None, "child": None, "cut": None}.get(field.name, getattr(joint, field.name))
        object.__setattr__(bare, field.name, value)
    return bare


def rank_deficient(joint: AbstractJoint, q: Array, t: Array, tol: float = 1e-6) -> Array:
    """Whether the speeds are dependent here, (*batch): the columns of S, each scaled to unit length, have lost rank.

    Sol 1983, ch. 3: the coordinates of a hinge must stay independent. Three angles in gimbal lock are not.
    """
    if joint.nv == 0:
        return jnp.zeros(q.shape[1:], bool)
    S = joint.subspace(q, t)
    length = jnp.sqrt((S * S).sum(0))
    columns = jnp.moveaxis(S / jnp.where(length > 0, length, 1.0), (0, 1), (-2, -1))
    return jnp.linalg.svd(columns, compute_uv=False)[..., -1] < tol
