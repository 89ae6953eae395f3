"""Connections that you write: functions for one sample, of the motion between markers or of joint coordinates.

    Connection         two markers          w = function(t, rel, twist, z, u, params)
    Span               several markers      zd = state_rate(the same)
    JointConnection    coordinates q, v     E = energy(t, rel or q, z, params)

With `strain(t, rel, params)` they see e and ed in the place of rel and twist, and `function` gives the load along e.
"""

from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from .._bodies._marker import Marker
from .._constraints._coupling import as_terms
from .._errors import MechanismError
from .._joints._lift import as_params
from .._spatial._axis import as_array
from ._abstract import (
    AbstractConnection,
    AbstractJointConnection,
    AbstractLoad,
    AbstractSpan,
    check_load,
)


class LoadFunctions(eqx.Module):
    """What a user wrote, and how many states and inputs go with it."""

    function: Callable = eqx.field(static=True)
    strain: Callable | None = eqx.field(static=True)
    state_rate: Callable | None = eqx.field(static=True)
    energy: Callable | None = eqx.field(static=True)
    dissipation: Callable | None = eqx.field(static=True)
    supply: Callable | None = eqx.field(static=True)
    states: int = eqx.field(static=True)
    inputs: int = eqx.field(static=True)
    follows: tuple[str, ...] = eqx.field(static=True)
    params: Any
    start: Array

    def __init__(
        self, title: str, function: Callable, params: Any = None, *, strain: Callable | None = None, states: int = 0,
        inputs: int = 0, state_rate: Callable | None = None, energy: Callable | None = None,
        dissipation: Callable | None = None, supply: Callable | None = None, start: Any = None, follows: Any = (),
    ):  # fmt: skip
        for what, count in (("states", states), ("inputs", inputs)):
            if not isinstance(count, int) or count < 0:
                raise MechanismError(f"{title} has {what}={count!r}; give their number, 0 or more")
        if (states > 0) != (state_rate is not None):
            raise MechanismError(
                f"{title} has states={states} and {'no' if state_rate is None else 'a'} state_rate; states and the "
                "function that gives their rates go together"
            )
        self.function, self.strain, self.state_rate, self.energy = function, strain, state_rate, energy
        self.dissipation, self.supply = dissipation, supply
        self.follows = (follows,) if isinstance(follows, str) else tuple(follows)
        self.states, self.inputs, self.params = states, inputs, as_params(params)
        self.start = jnp.zeros(states) if start is None else jnp.atleast_1d(as_array(start))
        if self.start.shape != (states,):
            raise MechanismError(f"the start of {title} has shape {self.start.shape}; it has states={states}")
        for given in (function, strain, state_rate, energy, dissipation, supply):
            _check_hashable(title, given)


def _check_hashable(title: str, function: Any) -> None:
    try:
        hash(function)
    except TypeError as error:
        raise MechanismError(
            f"the function of {title} fails: TypeError: {error}; give a plain function, its numbers in params"
        ) from error


class AbstractWritten(AbstractLoad):
    """A connection by functions of a user."""

    functions: eqx.AbstractVar[LoadFunctions]

    @property
    def params(self) -> Any:
        return self.functions.params

    @property
    def nz(self) -> int:
        return self.functions.states

    @property
    def nu(self) -> int:
        return self.functions.inputs

    @property
    def follows(self) -> tuple[str, ...]:
        return self.functions.follows

    @property
    def strained(self) -> bool:
        return self.functions.strain is not None

    def word_for(self, method: str) -> str:
        return {"load": "function", "zdot": "state_rate"}.get(method, method)

    def strain(self, t: Array, x: Any) -> Any:
        return x if self.functions.strain is None else jnp.atleast_1d(self.functions.strain(t, x, self.params))

    def load(self, t: Array, e: Any, ed: Array, z: Array, u: Array) -> Array:
        load = jnp.asarray(self.functions.function(t, e, ed, z, u, self.params))
        return jnp.atleast_1d(load) if ed.shape == (1,) else load

    def zdot(self, t: Array, e: Any, ed: Array, z: Array, u: Array) -> Array:
        if self.functions.state_rate is None:
            return jnp.zeros_like(z)
        rate = jnp.asarray(self.functions.state_rate(t, e, ed, z, u, self.params))
        return jnp.atleast_1d(rate) if self.nz == 1 else rate

    def energy(self, t: Array, e: Any, z: Array) -> Array:
        return jnp.zeros(()) if self.functions.energy is None else self.functions.energy(t, e, z, self.params)

    def dissipation(self, t: Array, e: Any, ed: Array, z: Array, u: Array) -> Array:
        given = self.functions.dissipation
        return jnp.zeros(()) if given is None else given(t, e, ed, z, u, self.params)

    def supply(self, t: Array, e: Any, ed: Array, z: Array, u: Array) -> Array:
        given = self.functions.supply
        return jnp.zeros(()) if given is None else given(t, e, ed, z, u, self.params)

    def start(self) -> Array:
        return self.functions.start


class Connection(AbstractWritten, AbstractConnection):
    """A load between two markers by a function that you write.

    **Arguments:**

    - `function`: `function(t, rel, twist, z, u, params)` for one sample: `t` is a scalar, `rel` the `Pose` of the
        second marker in the first, `twist` (6,) its twist relative to the first, angular part first, in the second
        marker's axes at its origin. It returns the wrench (6,) on the second marker there, in the same axes: moment in
        N m, then force in N.
    - `params`: numbers that the functions use, in any tree; they are differentiable, unlike those closed over.
    - `strain`: `strain(t, rel, params)`: strains e (k,). Every other function then gets e and its rate ed (k,) in the
        place of rel and twist, and `function` returns the load (k,) along e.
    - `states`, `inputs`: how many states `z` and inputs `u` it has, static.
    - `state_rate`: `state_rate(t, rel, twist, z, u, params)`: the rates (states,) of z.
    - `energy`: `energy(t, rel, z, params)`: the stored energy, J; none by default.
    - `dissipation`, `supply`: the same arguments as `function`: power that becomes heat or is brought in, W.
    - `start`: z (states,) from which a motion starts, zero by default.
    - `follows`: names of constraints or drives whose multipliers stand behind the inputs in u.
    """

    functions: LoadFunctions

    def __init__(self, name: str, first: Marker | str, second: Marker | str, function: Callable, params: Any = None,
                 **more: Any):  # fmt: skip
        self.name, self.first, self.second = name, first, second  # pyright: ignore[reportAttributeAccessIssue]
        self.functions = LoadFunctions(f"Connection {name!r}", function, params, **more)
        _check_early(self)


class Span(AbstractWritten, AbstractSpan):
    """A load between several markers by a function that you write.

    **Arguments:**

    - `markers`: a list of `Marker`s or names of bodies, two or more.
    - the others as in `Connection`: `rel` is a tuple of the poses of all but the first marker in the first one, and
        `twist` (k, 6) holds their twists; without `strain`, `function` returns the wrenches (k, 6) on them.
    """

    functions: LoadFunctions

    def __init__(self, name: str, markers: Iterable, function: Callable, params: Any = None, **more: Any):
        self.name, self.markers = name, markers  # pyright: ignore[reportAttributeAccessIssue]
        self.functions = LoadFunctions(f"Span {name!r}", function, params, **more)
        _check_early(self)


class JointConnection(AbstractWritten, AbstractJointConnection):
    """A load on joint coordinates by a function that you write.

    **Arguments:**

    - `terms`: a joint's name, or a list of joint names or pairs (name, number of the coordinate): k coordinates.
    - `function`: `function(t, q, v, z, u, params)` for one sample: `q` and `v` (k,) are those coordinates and their
        speeds. It returns the loads (k,) on them, N or N m; a number will do if k = 1.
    - the others as in `Connection`, with q and v in the place of rel and twist.
    """

    functions: LoadFunctions

    def __init__(self, name: str, terms: Any, function: Callable, params: Any = None, **more: Any):
        title = f"JointConnection {name!r}"
        self.name, self.terms = name, as_terms(title, terms)
        self.functions = LoadFunctions(title, function, params, **more)
        _check_early(self)


def _check_early(load: AbstractWritten) -> None:
    """Mistakes show at once, unless multipliers are needed, whose number is known when the mechanism is compiled."""
    if not load.follows:
        check_load(load)
