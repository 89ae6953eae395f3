"""Constraints that you write: a residual of the relative pose, or of pose and twist.

    Constraint      phi(t, rel, params) = 0              holonomic, rheonomic when t matters
    Nonholonomic    pfaff(t, rel, twist, params) = 0     affine in the twist

Sol 1983, ch. 3: f(y, t) = 0, and P(y, t) yd + p0(y, t) = 0. Everything else follows by jvp.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .._bodies._marker import Marker
from .._joints._lift import as_component, as_params, lift
from .._spatial._pose import Pose
from ._abstract import AbstractConstraint
from ._numbers import count_rows, example


class Constraint(AbstractConstraint):
    """Holds `phi(t, rel, params) = 0`.

    **Arguments:**

    - `phi`: written for one sample: `t` is a scalar, `rel` the `Pose` of the second marker in the first. It returns a
        number or (rows,) of them, smooth.
    - `params`: numbers that `phi` uses, in any tree; they are differentiable, unlike those that `phi` closes over.

    !!! Example

        ```python
        Constraint("wire", "post", "bead", lambda t, rel, length: rel.translation @ rel.translation - length**2, 0.4)
        ```
    """

    function: Callable = eqx.field(static=True)
    params: Any = eqx.field(converter=as_params)
    nh: int = eqx.field(static=True)
    nn: int = eqx.field(static=True)

    def __init__(self, name: str, first: Marker | str, second: Marker | str, phi: Callable, params: Any = None):
        self.name, self.first, self.second = name, first, second  # pyright: ignore[reportAttributeAccessIssue]
        self.function, self.params = phi, as_params(params)
        self.nh, self.nn = count_rows(f"Constraint {name!r}", phi, (*_example()[:2], self.params)), 0

    def _sample(self, t: Array, rel: Pose, params: Any) -> Array:
        return jnp.atleast_1d(as_component(self.function(t, rel, params), rel.translation))

    def phi(self, t: Array, x: Pose) -> Array:
        return lift(self._sample, x.translation.ndim - 1, t, x, self.params)


class Nonholonomic(AbstractConstraint):
    """Holds `pfaff(t, rel, twist, params) = 0`, affine in the twist.

    **Arguments:**

    - `pfaff`: written for one sample: `t` is a scalar, `rel` the `Pose` of the second marker in the first, `twist` (6,)
        its twist relative to the first marker, angular part first, in the second marker's axes at its origin.
    - `params`: numbers that `pfaff` uses, in any tree.
    """

    function: Callable = eqx.field(static=True)
    params: Any = eqx.field(converter=as_params)
    nh: int = eqx.field(static=True)
    nn: int = eqx.field(static=True)

    def __init__(self, name: str, first: Marker | str, second: Marker | str, pfaff: Callable, params: Any = None):
        self.name, self.first, self.second = name, first, second  # pyright: ignore[reportAttributeAccessIssue]
        self.function, self.params = pfaff, as_params(params)
        self.nh, self.nn = 0, count_rows(f"Nonholonomic {name!r}", pfaff, (*_example(), self.params))

    def _sample(self, t: Array, rel: Pose, twist: Array, params: Any) -> Array:
        return jnp.atleast_1d(as_component(self.function(t, rel, twist, params), twist))

    def pfaff(self, t: Array, x: Pose, xd: Array) -> Array:
        return lift(self._sample, xd.ndim - 1, t, x, xd, self.params)


def _example() -> tuple:
    """(t, rel, twist) without values."""
    t, twist = example((), (6,))
    return t, jax.eval_shape(Pose.identity), twist
