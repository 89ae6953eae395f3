"""Laws of one strain: what a spring, a rope, a dashpot or friction answers to e and ed, wherever it is mounted.

    T  = tension(e, ed, z, u)            the load against growing e, N or N m: its power on the mechanism is -T ed
    zd = zdot(e, ed, z, u)               states
    E  = energy(e, z)                    D = dissipation(e, ed, z, u) >= 0        dE/dt = T ed - D

A law is mounted by `AlongLine`, `AlongAxis`, `AboutAxis` or `OnCoordinate` (`_mounts.py`). Units are those of the
mount: e in m or rad, T in N or N m.
"""

from abc import abstractmethod

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from .._errors import MechanismError


class AbstractLaw(eqx.Module):
    """A load against one strain. Methods are written for one sample; e, ed and T are scalars."""

    @property
    def nz(self) -> int:
        """Number of states."""
        return 0

    @property
    def follows(self) -> tuple[str, ...]:
        """Names of the elements whose multipliers are `u`."""
        return ()

    @abstractmethod
    def check(self, title: str) -> None:
        """Refuses senseless numbers; `title` says whose law it is."""

    @abstractmethod
    def tension(self, e: Array, ed: Array, z: Array, u: Array) -> Array:
        """T, against growing e."""

    def zdot(self, e: Array, ed: Array, z: Array, u: Array) -> Array:
        """The rates of the states, (nz,)."""
        return jnp.zeros_like(z)

    def energy(self, e: Array, z: Array) -> Array:
        """Stored energy, J."""
        return jnp.zeros_like(e)

    def dissipation(self, e: Array, ed: Array, z: Array, u: Array) -> Array:
        """What becomes heat, W."""
        return jnp.zeros_like(e)


def _as_laws(laws) -> tuple[AbstractLaw, ...]:
    return (laws,) if isinstance(laws, AbstractLaw) else tuple(laws)


class ParallelLaw(AbstractLaw):
    """Laws side by side: the same strain, the sum of the loads. States stand in the order of the laws.

    **Arguments:**

    - `laws`: a list of laws; at most one of them may follow multipliers.
    """

    laws: tuple[AbstractLaw, ...] = eqx.field(converter=_as_laws)

    @property
    def nz(self) -> int:
        return sum(law.nz for law in self.laws)

    @property
    def follows(self) -> tuple[str, ...]:
        return tuple(name for law in self.laws for name in law.follows)

    def check(self, title: str) -> None:
        if not self.laws:
            raise MechanismError(f"{title} has no laws; give at least one")
        if sum(bool(law.follows) for law in self.laws) > 1:
            raise MechanismError(f"{title} has several laws that follow multipliers; give each its own connection")
        for law in self.laws:
            check_law(title, law)

    def _shares(self, z: Array) -> list[tuple[AbstractLaw, Array]]:
        found, start = [], 0
        for law in self.laws:
            found.append((law, z[start : start + law.nz]))
            start += law.nz
        return found

    def tension(self, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return jnp.stack([law.tension(e, ed, own, u) for law, own in self._shares(z)]).sum()

    def zdot(self, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return jnp.concatenate([law.zdot(e, ed, own, u) for law, own in self._shares(z)])

    def energy(self, e: Array, z: Array) -> Array:
        return jnp.stack([law.energy(e, own) for law, own in self._shares(z)]).sum()

    def dissipation(self, e: Array, ed: Array, z: Array, u: Array) -> Array:
        return jnp.stack([law.dissipation(e, ed, own, u) for law, own in self._shares(z)]).sum()


def check_law(title: str, law: object) -> None:
    """Refuses what is no law, and a law with senseless numbers."""
    if not isinstance(law, AbstractLaw):
        raise MechanismError(f"the law of {title} is {law!r}; give a law, for example mb.LinearLaw(k=100.0)")
    law.check(f"{type(law).__name__} in {title}")
