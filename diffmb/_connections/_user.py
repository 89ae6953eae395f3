"""Connections that you write: a load as a function of the relative motion, states and inputs.

    Connection         w = function(t, rel, twist, z, u, params)        zd = state_rate(the same)
    JointConnection    w = function(t, q, v, z, u, params)              E = energy(t, rel or q, z, params)
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from .._bodies._marker import Marker
from .._constraints._coupling import as_terms
from .._constraints._numbers import check_sample, example
from .._errors import MechanismError
from .._joints._lift import as_component, as_params, lift
from .._spatial._axis import as_array
from .._spatial._pose import Pose
from ._abstract import AbstractConnection, AbstractJointConnection


class LoadFunctions(eqx.Module):
    """What a user wrote for one sample, reaching a batch."""

    function: Callable = eqx.field(static=True)
    state_rate: Callable | None = eqx.field(static=True)
    energy: Callable | None = eqx.field(static=True)
    states: int = eqx.field(static=True)
    inputs: int = eqx.field(static=True)
    params: Any
    start: Array

    def __init__(self, title: str, function: Callable, params: Any, states, inputs, state_rate, energy, start):
        for what, count in (("states", states), ("inputs", inputs)):
            if not isinstance(count, int) or count < 0:
                raise MechanismError(f"{title} has {what}={count!r}; give their number, 0 or more")
        if (states > 0) != (state_rate is not None):
            raise MechanismError(
                f"{title} has states={states} and {'no' if state_rate is None else 'a'} state_rate; states and the "
                "function that gives their rates go together"
            )
        self.function, self.state_rate, self.energy = function, state_rate, energy
        self.states, self.inputs, self.params = states, inputs, as_params(params)
        self.start = jnp.zeros(states) if start is None else jnp.atleast_1d(as_array(start))
        if self.start.shape != (states,):
            raise MechanismError(f"the start of {title} has shape {self.start.shape}; it has states={states}")

    def check(self, title: str, x: Any, xd: Any, size: int) -> None:
        """Runs the functions on shapes alone: mistakes show at once."""
        t, z, u = example((), (self.states,), (self.inputs,))
        motion = (t, x, xd, z, u, self.params)
        number = size == 1  # a bare number will do
        one = lambda *args: jnp.atleast_1d(self.function(*args)) if number else self.function(*args)
        check_sample(title, self.function, one, motion, (size,))
        if self.state_rate is not None:
            one = lambda *args: _rows(self.state_rate(*args), self.states)  # pyright: ignore
            check_sample(f"{title} (state_rate)", self.state_rate, one, motion, (self.states,))
        if self.energy is not None:
            check_sample(f"{title} (energy)", self.energy, self.energy, (t, x, z, self.params), ())

    def load(self, t: Array, x: Any, xd: Array, z: Array, u: Array) -> Array:
        sample = lambda *args: jnp.atleast_1d(as_component(self.function(*args), xd))
        return lift(sample, xd.ndim - 1, t, x, xd, z, u, self.params)

    def zdot(self, t: Array, x: Any, xd: Array, z: Array, u: Array) -> Array:
        if self.state_rate is None:
            return jnp.zeros_like(z)
        rate = self.state_rate
        sample = lambda *args: _rows(as_component(rate(*args), xd), self.states)
        return lift(sample, xd.ndim - 1, t, x, xd, z, u, self.params)

    def stored(self, t: Array, x: Any, z: Array, like: Array) -> Array:
        if self.energy is None:
            return jnp.zeros(like.shape[1:], like.dtype)
        energy = self.energy
        sample = lambda *args: as_component(energy(*args), like)
        return lift(sample, like.ndim - 1, t, x, z, self.params)


def _rows(value: Any, count: int) -> Array:
    return jnp.atleast_1d(value) if count == 1 else jnp.asarray(value)


class Connection(AbstractConnection):
    """A load between two markers by a function that you write.

    **Arguments:**

    - `function`: `function(t, rel, twist, z, u, params)` for one sample: `t` is a scalar, `rel` the `Pose` of the
        second marker in the first, `twist` (6,) its twist relative to the first, angular part first, in the second
        marker's axes at its origin. It returns the wrench (6,) on the second marker there, in the same axes: moment in
        N m, then force in N.
    - `params`: numbers that the functions use, in any tree; they are differentiable, unlike those closed over.
    - `states`, `inputs`: how many states `z` and inputs `u` it has, static.
    - `state_rate`: `state_rate(t, rel, twist, z, u, params)`: the rates (states,) of z.
    - `energy`: `energy(t, rel, z, params)`: the stored energy, J; none by default.
    - `start`: z (states,) from which a motion starts, zero by default.
    """

    functions: LoadFunctions

    def __init__(self, name: str, first: Marker | str, second: Marker | str, function: Callable, params: Any = None, *,
                 states: int = 0, inputs: int = 0, state_rate: Callable | None = None,
                 energy: Callable | None = None, start: Any = None):  # fmt: skip
        title = f"Connection {name!r}"
        self.name, self.first, self.second = name, first, second  # pyright: ignore[reportAttributeAccessIssue]
        self.functions = LoadFunctions(title, function, params, states, inputs, state_rate, energy, start)
        self.functions.check(title, *self.motion_example(), 6)

    @property
    def params(self) -> Any:
        return self.functions.params

    @property
    def nz(self) -> int:
        return self.functions.states

    @property
    def nu(self) -> int:
        return self.functions.inputs

    def load(self, t: Array, x: Pose, xd: Array, z: Array, u: Array) -> Array:
        return self.functions.load(t, x, xd, z, u)

    def zdot(self, t: Array, x: Pose, xd: Array, z: Array, u: Array) -> Array:
        return self.functions.zdot(t, x, xd, z, u)

    def energy(self, t: Array, x: Pose, z: Array) -> Array:
        return self.functions.stored(t, x, z, x.translation)

    def start(self) -> Array:
        return self.functions.start


class JointConnection(AbstractJointConnection):
    """A load on joint coordinates by a function that you write.

    **Arguments:**

    - `terms`: a joint's name, or a list of joint names or pairs (name, number of the coordinate): k coordinates.
    - `function`: `function(t, q, v, z, u, params)` for one sample: `q` and `v` (k,) are those coordinates and their
        speeds. It returns the loads (k,) on them, N or N m; a number will do if k = 1.
    - the others as in `Connection`, with q and v in the place of rel and twist.
    """

    functions: LoadFunctions

    def __init__(self, name: str, terms: Any, function: Callable, params: Any = None, *,
                 states: int = 0, inputs: int = 0, state_rate: Callable | None = None,
                 energy: Callable | None = None, start: Any = None):  # fmt: skip
        title = f"JointConnection {name!r}"
        self.name, self.terms = name, as_terms(title, (terms,) if isinstance(terms, str) else terms)
        self.functions = LoadFunctions(title, function, params, states, inputs, state_rate, energy, start)
        self.functions.check(title, *self.motion_example(), len(self.terms))

    @property
    def params(self) -> Any:
        return self.functions.params

    @property
    def nz(self) -> int:
        return self.functions.states

    @property
    def nu(self) -> int:
        return self.functions.inputs

    def load(self, t: Array, x: Array, xd: Array, z: Array, u: Array) -> Array:
        return self.functions.load(t, x, xd, z, u)

    def zdot(self, t: Array, x: Array, xd: Array, z: Array, u: Array) -> Array:
        return self.functions.zdot(t, x, xd, z, u)

    def energy(self, t: Array, x: Array, z: Array) -> Array:
        return self.functions.stored(t, x, z, x)

    def start(self) -> Array:
        return self.functions.start
