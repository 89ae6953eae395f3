"""What a connection is: a load that follows from the motion, from states of its own and from inputs.

Between two markers, with x the pose of the second in the first and xd its twist (in the second marker's axes at its
origin, as for constraints), or on joint coordinates with x = q and xd = v,

    w  = load(t, x, xd, z, u)        on the second marker; the opposite wrench acts on the first at the same point
    zd = zdot(t, x, xd, z, u)        nz states, nu inputs
    E  = energy(t, x, z)             what it stores, J

so that its power is w . xd, and E + (what it turns into heat) + (what u and time bring in) balance it. Arrays have
component axes first and any batch axes behind.
"""

import copy
from abc import abstractmethod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .._bodies._marker import Marker, as_marker
from .._constraints._coupling import as_terms
from .._constraints._numbers import check_sample, example
from .._spatial._pose import Pose


class AbstractLoad(eqx.Module):
    """Loads on relative coordinates `x` that change with the rate `xd`: `AbstractConnection` or
    `AbstractJointConnection`."""

    name: str = eqx.field(static=True)

    @property
    def nz(self) -> int:
        """Number of states."""
        return 0

    @property
    def nu(self) -> int:
        """Number of inputs."""
        return 0

    @abstractmethod
    def motion_example(self) -> tuple[Any, Any]:
        """(x, xd) of one sample, without values."""

    @abstractmethod
    def load(self, t: Array, x: Any, xd: Array, z: Array, u: Array) -> Array:
        """The load, (6, *batch) moment and force or (k, *batch): its power is load . xd."""

    def zdot(self, t: Array, x: Any, xd: Array, z: Array, u: Array) -> Array:
        """The rates of the states, (nz, *batch)."""
        return jnp.zeros_like(z)

    def energy(self, t: Array, x: Any, z: Array) -> Array:
        """Stored energy, (*batch), J."""
        leaf = jax.tree.leaves(x)[-1]
        return jnp.zeros(leaf.shape[1:], leaf.dtype)

    def start(self) -> Array:
        """The states (nz,) from which a motion starts, unless others are given."""
        return jnp.zeros(self.nz)


class AbstractConnection(AbstractLoad):
    """A load between two markers: x is the pose of `second` in `first`, xd its twist in the axes of `second`.

    `load` is the wrench (moment, force) on `second` at its origin, in its axes.

    **Arguments:**

    - `name`: the connection's name, unique in the mechanism.
    - `first`, `second`: a `Marker`, or a body's name for a marker at its origin.
    """

    first: Marker = eqx.field(converter=as_marker)
    second: Marker = eqx.field(converter=as_marker)

    def motion_example(self) -> tuple[Any, Any]:
        return jax.eval_shape(Pose.identity), example((6,))[0]


def _as_terms(terms: Any) -> tuple[tuple[str, int], ...]:
    return as_terms("a joint connection", (terms,) if isinstance(terms, str) else terms)


class AbstractJointConnection(AbstractLoad):
    """A load on joint coordinates: x are the coordinates that `terms` names, xd their speeds.

    `load` (k,) is the generalised load on each of them, N or N m.

    **Arguments:**

    - `name`: the connection's name, unique in the mechanism.
    - `terms`: a joint's name, or a list of names and pairs (name, number of the coordinate from 0), static.
    """

    terms: tuple[tuple[str, int], ...] = eqx.field(static=True, converter=_as_terms)

    def motion_example(self) -> tuple[Any, Any]:
        size = (len(self.terms),)
        return example(size)[0], example(size)[0]


def check_load(load: AbstractLoad) -> None:
    """Refuses methods that fail or give another shape than the interface asks for, found on shapes alone."""
    (x, xd), title = load.motion_example(), f"{type(load).__name__} {load.name!r}"
    t, z, u = example((), (load.nz,), (load.nu,))
    for what, method, arguments, shape in (
        ("load", load.load, (t, x, xd, z, u), xd.shape),
        ("zdot", load.zdot, (t, x, xd, z, u), z.shape),
        ("energy", load.energy, (t, x, z), ()),
        ("start", load.start, (), z.shape),
    ):
        check_sample(f"{title} ({what})", type(load), method, arguments, shape)


def plain(load: AbstractLoad) -> AbstractLoad:
    """The load without its name, markers and terms: loads of one kind then have the same tree structure."""
    found = copy.copy(load)
    for field, blank in (("name", ""), ("first", None), ("second", None), ("terms", ())):
        if hasattr(load, field):
            object.__setattr__(found, field, blank)
    return found
