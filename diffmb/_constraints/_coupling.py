"""Couplings of joint coordinates: gears, racks, threads, and functions that you write.

    LinearCoupling       sum_i a_i q_i = offset
    gear                 n_1 q_1 + n_2 q_2 = offset          outside teeth; n_2 < 0 for a ring gear
    rack                 q_slide - r q_turn = offset
    screw_coupling       q_slide - p q_turn = offset         p: metres per radian
    Coupling             phi(t, q_1 ... q_k, params) = 0
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from .._errors import MechanismError
from .._joints._lift import as_component, as_params, lift
from .._spatial._axis import as_array
from .._spatial._vector import dot
from ._abstract import AbstractCoupling
from ._numbers import count_rows, example


def as_terms(title: str, terms: Any) -> tuple[tuple[str, int], ...]:
    """Pairs of a joint's name and a coordinate's number from one name or pair, or from several."""
    one = isinstance(terms, str) or (isinstance(terms, tuple) and len(terms) == 2 and isinstance(terms[1], int))
    found = []
    for term in (terms,) if one else terms:
        joint, index = (term, 0) if isinstance(term, str) else term
        if not isinstance(joint, str) or not isinstance(index, int) or index < 0:
            raise MechanismError(f"{title} names {term!r}; give a joint's name, or a pair such as ('slider', 1)")
        found.append((joint, index))
    return tuple(found)


class LinearCoupling(AbstractCoupling):
    """Holds sum of coefficient * coordinate = offset.

    **Arguments:**

    - `terms`: a mapping from a joint's name, or a pair (name, number of the coordinate), to its coefficient:
        `{"A": 2.0, ("slider", 1): -1.0}`.
    - `offset`: the value of the sum.
    """

    coefficients: Array
    offset: Array
    nh: int = eqx.field(static=True, default=1)
    nn: int = eqx.field(static=True, default=0)

    def __init__(self, name: str, terms: Mapping, offset=0.0):
        if not isinstance(terms, Mapping) or not terms:
            raise MechanismError(f"coupling {name!r} has terms {terms!r}; give a dict, for example {{'A': 2, 'B': -1}}")
        self.name, self.terms = name, as_terms(f"coupling {name!r}", terms)
        self.coefficients, self.offset = as_array(list(terms.values())), as_array(offset)
        self.nh, self.nn = 1, 0
        if self.coefficients.shape != (len(self.terms),) or self.offset.shape != ():
            raise MechanismError(f"coupling {name!r}: each coefficient, and the offset, must be one number")

    def phi(self, t: Array, x: Array) -> Array:
        return (dot(self.coefficients, x) - self.offset)[None]

    def row_names(self) -> tuple[str, ...]:
        return ("coupling",)


class Coordinates(AbstractCoupling):
    """The coordinates themselves as rows, for a drive. Made when a mechanism is compiled."""

    size: int = eqx.field(static=True)

    @property
    def nh(self) -> int:
        return self.size

    @property
    def nn(self) -> int:
        return 0

    def phi(self, t: Array, x: Array) -> Array:
        return x

    def row_names(self) -> tuple[str, ...]:
        return tuple(f"coordinate {k}" for k in range(self.nh))


def gear(name: str, first, second, teeth: Sequence, offset=0.0) -> LinearCoupling:
    """Two gears on joints `first` and `second`: `teeth` (or radii) n_1, n_2; negative teeth for a ring gear."""
    return LinearCoupling(name, {first: teeth[0], second: teeth[1]}, offset)


def rack(name: str, pinion, slide, radius, offset=0.0) -> LinearCoupling:
    """A pinion of `radius` (m) on a revolute joint moves a prismatic joint: q_slide = r q_turn + offset."""
    return LinearCoupling(name, {slide: 1.0, pinion: -radius}, offset)


def screw_coupling(name: str, turn, slide, pitch, offset=0.0) -> LinearCoupling:
    """A thread between two coordinates: q_slide = pitch q_turn + offset, pitch in m/rad."""
    return LinearCoupling(name, {slide: 1.0, turn: -pitch}, offset)


class Coupling(AbstractCoupling):
    """Holds `phi(t, x, params) = 0` for the coordinates x named by `terms`.

    **Arguments:**

    - `terms`: a list of joint names or pairs (name, number of the coordinate).
    - `phi`: written for one sample: `t` is a scalar, `x` (k,). It returns a number or (rows,) of them, smooth.
    - `params`: numbers that `phi` uses, in any tree.
    """

    function: Callable = eqx.field(static=True)
    params: Any = eqx.field(converter=as_params)
    nh: int = eqx.field(static=True)
    nn: int = eqx.field(static=True)

    def __init__(self, name: str, terms: Sequence, phi: Callable, params: Any = None):
        self.name, self.terms = name, as_terms(f"coupling {name!r}", terms)
        self.function, self.params = phi, as_params(params)
        t, x = example((), (len(self.terms),))
        self.nh, self.nn = count_rows(f"coupling {name!r}", phi, (t, x, self.params)), 0

    def _sample(self, t: Array, x: Array, params: Any) -> Array:
        return jnp.atleast_1d(as_component(self.function(t, x, params), x))

    def phi(self, t: Array, x: Array) -> Array:
        return lift(self._sample, x.ndim - 1, t, x, self.params)
