"""What a constraint is: rows that are zero along every motion, holonomic or not.

Between two markers, with X the pose of the second in the first and V its twist (in the second marker's axes at its
origin: Xdot = X [V]),

    phi(t, X) = 0                nh holonomic rows; rheonomic when t matters
    pfaff(t, X, V) = 0           nn nonholonomic rows, affine in V: P(t, X) V + p0(t, X)

and between joint coordinates the same with X = q, V = v, Xdot = v. Differentiating once and twice along the motion,

    rate         = (d phi/dt, pfaff)              nh + nn rows, affine in V      G v - nu
    acceleration = d rate/dt                      all rows, affine in V, Vdot    G vd - gamma

by jvp: every velocity and time term is there (Sol 1983, ch. 3: all that a constraint must say is f, or P and p0). The
load of a constraint on the second marker is -P^T lam, and the opposite one acts on the first: it does no work on the
motions that the rows allow. Arrays have component axes first and any batch axes behind.
"""

import dataclasses
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .._bodies._marker import Marker, as_marker
from .._spatial._pose import Pose
from .._spatial._vector import join

if TYPE_CHECKING:
    from typing import ClassVar as AbstractClassVar  # equinox's own is an instance variable to pyright
else:
    from equinox import AbstractClassVar


class AbstractElement(eqx.Module):
    """Rows on relative coordinates `x` that change with the rate `xd`: `AbstractConstraint` or `AbstractCoupling`."""

    name: str = eqx.field(static=True)

    nh: AbstractClassVar[int]
    nn: AbstractClassVar[int]

    @property
    def na(self) -> int:
        """Rows that exist at acceleration level only."""
        return 0

    @abstractmethod
    def flow(self, x: Any, xd: Array) -> Any:
        """The time derivative of `x`."""

    def phi(self, t: Array, x: Any) -> Array:
        """Holonomic rows, (nh, *batch)."""
        return _no_rows(x)

    def pfaff(self, t: Array, x: Any, xd: Array) -> Array:
        """Nonholonomic rows, (nn, *batch), affine in xd."""
        return _no_rows(x)

    def rate(self, t: Array, x: Any, xd: Array) -> Array:
        """All rows that exist at velocity level, (nh + nn, *batch)."""
        rows = []
        if self.nh:
            rows.append(jax.jvp(self.phi, (t, x), (jnp.ones_like(t), self.flow(x, xd)))[1])
        if self.nn:
            rows.append(self.pfaff(t, x, xd))
        return join(*rows) if rows else _no_rows(x)

    def acceleration(self, t: Array, x: Any, xd: Array, xdd: Array) -> Array:
        """All rows, (nh + nn + na, *batch), affine in xdd."""
        return jax.jvp(self.rate, (t, x, xd), (jnp.ones_like(t), self.flow(x, xd), xdd))[1]

    def row_names(self) -> tuple[str, ...]:
        """What each row holds, in the order of `acceleration`."""
        return tuple(f"row {k + 1}" for k in range(self.nh + self.nn + self.na))


def _no_rows(x: Any) -> Array:
    leaf = jax.tree.leaves(x)[-1]
    return jnp.zeros((0, *leaf.shape[1:]), leaf.dtype)


class AbstractConstraint(AbstractElement):
    """Rows between two markers: x is the pose of `second` in `first`, xd its twist in the axes of `second`.

    **Arguments:**

    - `name`: the constraint's name, unique in the mechanism.
    - `first`, `second`: a `Marker`, or a body's name for a marker at its origin.
    """

    first: Marker = eqx.field(converter=as_marker)
    second: Marker = eqx.field(converter=as_marker)

    def flow(self, x: Pose, xd: Array) -> Pose:
        return x.rate(xd)


class AbstractCoupling(AbstractElement):
    """Rows between joint coordinates: x are the coordinates that `terms` names, xd their speeds.

    **Arguments:**

    - `name`: the coupling's name, unique in the mechanism.
    - `terms`: pairs of a joint's name and the number of its coordinate (from 0), static.
    """

    terms: tuple[tuple[str, int], ...] = eqx.field(static=True)

    def flow(self, x: Array, xd: Array) -> Array:
        return xd


def bare(element: AbstractElement) -> AbstractElement:
    """The element without its name, markers and terms: elements of one kind then have the same tree structure."""
    blank = {"name": "", "first": None, "second": None, "terms": ()}
    plain = object.__new__(type(element))
    for field in dataclasses.fields(element):
        value = blank[field.name] if field.name in blank else getattr(element, field.name)
        object.__setattr__(plain, field.name, bare(value) if isinstance(value, AbstractElement) else value)
    return plain
