"""What a connection is: a load that follows from the motion, from states of its own and from inputs (Sol 1983, ch. 3).

Between markers, x are the poses of the others in the first one and xd their twists (each in its own marker's axes at
its origin), or on joint coordinates x = q and xd = v. A connection says what it feels, its strains e, and answers:

    e  = strain(t, x)                    relevant strains; without `strain` these are x itself, and ed = xd
    F  = load(t, e, ed, z, u)            what it exerts along e: its power is F . ed
    zd = zdot(t, e, ed, z, u)            nz states, nu inputs
    E  = energy(t, e, z)                 what it stores, J
    D  = dissipation(t, e, ed, z, u)     what it turns into heat, W, never negative
    P  = supply(t, e, ed, z, u)          what inputs, time and active parts bring in, W

so that dE/dt = P - D - F . ed along every motion. Rates and virtual work follow by differentiation,

    ed = strain_t + strain_x xdot        w = (d ed / d xd)^T F         wrenches on the markers                    (1)

and the first marker gets what balances them. A load that depends on multipliers names their elements (`follows`); it
finds them behind its inputs, u = (inputs, lam).

Methods are written for one sample: scalars, (3,), (3, 3). A class that sets `batch_last` promises that its methods take
any batch axes behind the component axes; that is worth the trouble where there are many of a kind.
"""

import copy
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .._bodies._marker import Marker, as_marker
from .._constraints._coupling import as_terms
from .._constraints._numbers import check_sample, example
from .._errors import MechanismError
from .._joints._lift import as_component, lift
from .._spatial._pose import Pose


class AbstractLoad(eqx.Module):
    """Loads on what changes with the rate `xd`: between two markers (`AbstractConnection`), several markers
    (`AbstractSpan`), or on joint coordinates (`AbstractJointConnection`)."""

    name: str = eqx.field(static=True)

    batch_last: ClassVar[bool] = False

    @property
    def nz(self) -> int:
        """Number of states."""
        return 0

    @property
    def nu(self) -> int:
        """Number of inputs."""
        return 0

    @property
    def follows(self) -> tuple[str, ...]:
        """Names of the constraints, drives or cut joints whose multipliers stand behind the inputs in `u`."""
        return ()

    @property
    def strained(self) -> bool:
        """Whether the other methods see strains, not the relative motion itself."""
        return type(self).strain is not AbstractLoad.strain

    @abstractmethod
    def motion_example(self) -> tuple[Any, Any]:
        """(x, xd) of one sample, without values."""

    @abstractmethod
    def flow(self, x: Any, xd: Array) -> Any:
        """The time derivative of `x`."""

    def strain(self, t: Array, x: Any, /) -> Any:
        """The strains (k,)."""
        return x

    def word_for(self, method: str) -> str:
        """How a message calls one of its methods."""
        return method

    @abstractmethod
    def load(self, t: Array, e: Any, ed: Array, z: Array, u: Array, /) -> Array:
        """The load, shaped like ed; its power is the sum of load * ed."""

    def zdot(self, t: Array, e: Any, ed: Array, z: Array, u: Array, /) -> Array:
        """The rates of the states, (nz,)."""
        return jnp.zeros_like(z)

    def energy(self, t: Array, e: Any, z: Array, /) -> Array:
        """Stored energy, J."""
        return _nothing(e)

    def dissipation(self, t: Array, e: Any, ed: Array, z: Array, u: Array, /) -> Array:
        """What becomes heat, W."""
        return _nothing(e)

    def supply(self, t: Array, e: Any, ed: Array, z: Array, u: Array, /) -> Array:
        """What inputs, time and active parts bring in, W."""
        return _nothing(e)

    def start(self) -> Array:
        """The states (nz,) from which a motion starts, unless others are given."""
        return jnp.zeros(self.nz)


def _nothing(e: Any) -> Array:
    leaf = jax.tree.leaves(e)[-1]
    return jnp.zeros(leaf.shape[1:], leaf.dtype)


class AbstractConnection(AbstractLoad):
    """A load between two markers: x is the pose of `second` in `first`, xd its twist in the axes of `second`.

    Without `strain`, `load` is the wrench (moment, force) on `second` at its origin, in its axes.

    **Arguments:**

    - `name`: the connection's name, unique in the mechanism.
    - `first`, `second`: a `Marker`, or a body's name for a marker at its origin.
    """

    first: Marker = eqx.field(converter=as_marker)
    second: Marker = eqx.field(converter=as_marker)

    @property
    def markers(self) -> tuple[Marker, ...]:
        return self.first, self.second

    def motion_example(self) -> tuple[Any, Any]:
        return jax.eval_shape(Pose.identity), example((6,))[0]

    def flow(self, x: Pose, xd: Array) -> Pose:
        return x.rate(xd)


def _as_markers(markers: Any) -> tuple[Marker, ...]:
    if isinstance(markers, str | Marker):
        markers = (markers,)
    return tuple(as_marker(marker) for marker in markers)


class AbstractSpan(AbstractLoad):
    """A load between several markers: x is a tuple of the poses of all but the first in the first, xd (k, 6) their
    twists, each in the axes of its own marker.

    Without `strain`, `load` (k, 6) are the wrenches on these k markers at their origins, in their axes.

    **Arguments:**

    - `name`: the connection's name, unique in the mechanism.
    - `markers`: a list of `Marker`s or names of bodies, two or more.
    """

    markers: tuple[Marker, ...] = eqx.field(converter=_as_markers)

    def __check_init__(self):
        if len(self.markers) < 2:
            raise MechanismError(f"connection {self.name!r} has {len(self.markers)} marker; give at least two")

    def motion_example(self) -> tuple[Any, Any]:
        others = len(self.markers) - 1
        return (jax.eval_shape(Pose.identity),) * others, example((others, 6))[0]

    def flow(self, x: tuple[Pose, ...], xd: Array) -> tuple[Pose, ...]:
        return tuple(pose.rate(twist) for pose, twist in zip(x, xd, strict=True))


def _as_terms(terms: Any) -> tuple[tuple[str, int], ...]:
    return as_terms("a joint connection", terms)


class AbstractJointConnection(AbstractLoad):
    """A load on joint coordinates: x are the coordinates that `terms` names, xd their speeds.

    Without `strain`, `load` (k,) is the generalised load on each of them, N or N m.

    **Arguments:**

    - `name`: the connection's name, unique in the mechanism.
    - `terms`: a joint's name, a pair (name, number of the coordinate from 0), or a list of these, static.
    """

    terms: tuple[tuple[str, int], ...] = eqx.field(static=True, converter=_as_terms)

    def motion_example(self) -> tuple[Any, Any]:
        size = (len(self.terms),)
        return example(size)[0], example(size)[0]

    def flow(self, x: Array, xd: Array) -> Array:
        return xd


# --- what the rest of diffmb asks a connection; arguments have any batch axes behind -------------------------------


def exerted(load: AbstractLoad, t: Array, x: Any, xd: Array, z: Array, u: Array) -> Array:
    """(1): the load along xd."""

    def one(load, t, x, xd, z, u):
        if not load.strained:
            return load.load(t, x, xd, z, u)
        rate = lambda xd: _strain_rate(load, t, x, xd)[1]
        (e, _), (ed, pull) = _strain_rate(load, t, x, xd), jax.vjp(rate, xd)
        return pull(as_component(load.load(t, e, ed, z, u), ed))[0]

    return _over_batch(load, one, t, x, xd, z, u)


def answer(load: AbstractLoad, what: Callable, t: Array, x: Any, xd: Array, z: Array, u: Array) -> Array:
    """`what(load, t, e, ed, z, u)`, one of the methods."""

    def one(load, t, x, xd, z, u):
        e, ed = _strain_rate(load, t, x, xd) if load.strained else (x, xd)
        return what(load, t, e, ed, z, u)

    return _over_batch(load, one, t, x, xd, z, u)


def strain_and_rate(load: AbstractLoad, t: Array, x: Any, xd: Array) -> tuple[Array, Array]:
    """(e, ed), (k, *batch) each, of a connection that has strains."""
    return _over_batch(load, _strain_rate, t, x, xd)


def stored(load: AbstractLoad, t: Array, x: Any, z: Array) -> Array:
    """E."""

    def one(load, t, x, z):
        return load.energy(t, load.strain(t, x), z)

    return _over_batch(load, one, t, x, z)


def _strain_rate(load: AbstractLoad, t: Array, x: Any, xd: Array) -> tuple[Array, Array]:
    return jax.jvp(load.strain, (t, x), (jnp.ones_like(t), load.flow(x, xd)))


def _over_batch(load: AbstractLoad, one: Callable, t: Array, x: Any, *rest: Array) -> Any:
    """`one` sample by sample, or at once if the class promises that it can."""
    if load.batch_last:
        return one(load, t, x, *rest)
    like = jax.tree.leaves(x)[-1]
    sample = lambda *args: jax.tree.map(lambda a: as_component(a, like), one(*args))
    return lift(sample, like.ndim - 1, load, t, x, *rest)


# --- checks -------------------------------------------------------------------------------------------------------


def check_load(load: AbstractLoad, followed: int = 0) -> None:
    """Refuses methods that fail or give another shape than the interface asks for, found on shapes alone.

    `followed` is the number of multipliers behind the inputs.
    """
    (x, xd), kind, title = load.motion_example(), type(load), f"{type(load).__name__} {load.name!r}"
    t, z, u = example((), (load.nz,), (load.nu + followed,))
    e, ed = x, xd
    if load.strained:
        e = ed = _strains(load, title, t, x)
    for what, arguments, shape in (
        ("load", (t, e, ed, z, u), ed.shape),
        ("zdot", (t, e, ed, z, u), z.shape),
        ("energy", (t, e, z), ()),
        ("dissipation", (t, e, ed, z, u), ()),
        ("supply", (t, e, ed, z, u), ()),
        ("start", (), z.shape),
    ):
        check_sample(f"{title} ({load.word_for(what)})", kind, getattr(load, what), arguments, shape)


def _strains(load: AbstractLoad, title: str, t: Any, x: Any) -> Any:
    try:
        e = jax.eval_shape(lambda t, x: jnp.asarray(load.strain(t, x)), t, x)
    except MechanismError:
        raise
    except Exception as error:
        raise MechanismError(f"the function of {title} (strain) fails: {type(error).__name__}: {error}") from error
    if e.ndim != 1:
        raise MechanismError(f"the function of {title} (strain) returns shape {e.shape}; give the strains as (k,)")
    return e


def plain(load: AbstractLoad) -> AbstractLoad:
    """The load without its name, markers and terms: loads of one kind then have the same tree structure."""
    found = copy.copy(load)
    for field, blank in (("name", ""), ("first", None), ("second", None), ("markers", ()), ("terms", ())):
        if field in load.__dataclass_fields__:
            object.__setattr__(found, field, blank)
    return found
