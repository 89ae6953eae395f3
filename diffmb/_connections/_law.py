"""Laws of one strain: what a spring, a rope, friction, a motor or a muscle answers to e and ed, wherever it is mounted.

    F  = load(t, e, ed, z, u)            along growing e, N or N m: its power is F ed; T = -F is tension
    zd = zdot(t, e, ed, z, u)            nz states, nu inputs
    E  = energy(t, e, z)                 D = dissipation(t, e, ed, z, u) >= 0        P = supply(t, e, ed, z, u)

with dE/dt = P - D - F ed, as for every connection (`_abstract.py`). A law is mounted by `AlongLine`, `AlongAxis`,
`AboutAxis`, `AlongPath` or `OnCoordinates` (`_mounts.py`). Units are those of the mount: e in m or rad, F in N or N m.
"""

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from .._errors import MechanismError


class AbstractLaw(eqx.Module):
    """A load along one strain. Methods are written for one sample; e, ed and F are scalars."""

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
        """Names of the elements whose multipliers stand behind the inputs in `u`."""
        return ()

    @abstractmethod
    def check(self, title: str) -> None:
        """Refuses senseless numbers; `title` says whose law it is."""

    @abstractmethod
    def load(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        """F along growing e."""

    def zdot(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        """The rates of the states, (nz,)."""
        return jnp.zeros_like(z)

    def energy(self, t: Array, e: Array, z: Array) -> Array:
        """Stored energy, J."""
        return jnp.zeros_like(e)

    def dissipation(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        """What becomes heat, W."""
        return jnp.zeros_like(e)

    def supply(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        """What inputs, time and active parts bring in, W."""
        return jnp.zeros_like(e)

    def start(self) -> Array:
        """The states (nz,) from which a motion starts."""
        return jnp.zeros(self.nz)


def _as_laws(laws: Any) -> tuple[AbstractLaw, ...]:
    return (laws,) if isinstance(laws, AbstractLaw) else tuple(laws)


class ParallelLaw(AbstractLaw):
    """Laws side by side: the same strain, the sum of the loads. States and inputs stand in the order of the laws.

    **Arguments:**

    - `laws`: a list of laws; at most one of them may follow multipliers.
    """

    laws: tuple[AbstractLaw, ...] = eqx.field(converter=_as_laws)

    @property
    def nz(self) -> int:
        return sum(law.nz for law in self.laws)

    @property
    def nu(self) -> int:
        return sum(law.nu for law in self.laws)

    @property
    def follows(self) -> tuple[str, ...]:
        return tuple(name for law in self.laws for name in law.follows)

    def check(self, title: str) -> None:
        if not self.laws:
            raise MechanismError(f"{title} has no laws; give at least one")
        for law in self.laws:
            check_law(title, law)
        if sum(bool(law.follows) for law in self.laws) > 1:
            raise MechanismError(f"{title} has several laws that follow multipliers; give each its own connection")

    def _own(self, z: Array) -> Iterator[tuple[AbstractLaw, Array]]:
        """Each law with its states."""
        first = 0
        for law in self.laws:
            yield law, z[first : first + law.nz]
            first += law.nz

    def _each(self, what: str, t: Array, e: Array, ed: Array, z: Array, u: Array) -> list[Array]:
        """The answers of all laws, each with its states and inputs; multipliers stand behind all inputs."""
        found, first = [], 0
        for law, own in self._own(z):
            given = u[first : first + law.nu]
            given = jnp.concatenate([given, u[self.nu :]]) if law.follows else given
            found.append(getattr(law, what)(t, e, ed, own, given))
            first += law.nu
        return found

    def load(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return jnp.stack(self._each("load", t, e, ed, z, u)).sum()

    def zdot(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return jnp.concatenate(self._each("zdot", t, e, ed, z, u))

    def energy(self, t: Array, e: Array, z: Array) -> Array:
        return jnp.stack([law.energy(t, e, own) for law, own in self._own(z)]).sum()

    def dissipation(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return jnp.stack(self._each("dissipation", t, e, ed, z, u)).sum()

    def supply(self, t: Array, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return jnp.stack(self._each("supply", t, e, ed, z, u)).sum()

    def start(self) -> Array:
        return jnp.concatenate([law.start() for law in self.laws])


def check_law(title: str, law: object) -> None:
    """Refuses what is no law, and a law with senseless numbers."""
    if not isinstance(law, AbstractLaw):
        raise MechanismError(f"the law of {title} is {law!r}; give a law, for example mb.LinearLaw(k=100.0)")
    law.check(f"{type(law).__name__} in {title}")
