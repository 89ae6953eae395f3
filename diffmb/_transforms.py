"""TRANSFORMS: numbers an optimiser may change at will, and the physical numbers that they stand for.

    p = T(s * x)                  x: what the optimiser sees, of size one;  s: scale;  p: physical numbers         (1)
    T = identity, exp, or the log-Cholesky form of a whole body (`_bodies/_pseudo_inertia.py`)                     (2)
    dy/dx = dy/dp T'(s x) s                                                                                        (3)

The mass of a body goes through exp, so it stays positive. Where mass, centre and inertia of a body are picked, all
three go through its log-Cholesky form: there is no way out of the physical set. An inertia alone is refused, because
its nine entries are not nine numbers.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ._bodies._pseudo_inertia import body_from_log_cholesky, inertia_to_log_cholesky
from ._bodies._rigid import RigidBody
from ._errors import MechanismError
from ._mechanism import Mechanism
from ._names import nearest
from ._parameters import Place, by_number


class AbstractTransform(eqx.Module):
    """Between physical numbers and free ones."""

    @abstractmethod
    def free(self, p: np.ndarray) -> np.ndarray:
        """The free numbers of physical ones."""

    @abstractmethod
    def physical(self, x: np.ndarray) -> np.ndarray:
        """The physical numbers of free ones."""

    @abstractmethod
    def slope(self, x: np.ndarray) -> np.ndarray:
        """Derivatives of the physical numbers by the free ones."""

    @abstractmethod
    def scale(self, x: np.ndarray) -> np.ndarray:
        """What is a large change of each free number."""

    @abstractmethod
    def place(self, k: int) -> int | None:
        """Which free number alone, rising with it, decides physical number k; None: no single one."""

    @abstractmethod
    def bound(self, k: int, value: float) -> float:
        """That free number where physical number k is at the value."""


class Same(AbstractTransform):
    """The numbers themselves."""

    def free(self, p: np.ndarray) -> np.ndarray:
        return p

    def physical(self, x: np.ndarray) -> np.ndarray:
        return x

    def slope(self, x: np.ndarray) -> np.ndarray:
        return np.eye(len(x))

    def scale(self, x: np.ndarray) -> np.ndarray:
        size = np.abs(x)
        return np.where(size > 0, size, size.max(initial=0.0) or 1.0)

    def place(self, k: int) -> int | None:
        return k

    def bound(self, k: int, value: float) -> float:
        return value


class Log(AbstractTransform):
    """The logarithm of a positive number: it stays positive."""

    def free(self, p: np.ndarray) -> np.ndarray:
        return np.log(p)

    def physical(self, x: np.ndarray) -> np.ndarray:
        return np.exp(x)

    def slope(self, x: np.ndarray) -> np.ndarray:
        return np.diag(np.exp(x))

    def scale(self, x: np.ndarray) -> np.ndarray:
        return np.ones_like(x)

    def place(self, k: int) -> int | None:
        return k

    def bound(self, k: int, value: float) -> float:
        return float(np.log(value)) if value > 0 else -np.inf


class _WholeBody(AbstractTransform):
    """Mass, centre and inertia (1 + 3 + 9 numbers) as ten log-Cholesky numbers."""

    name: str = eqx.field(static=True)

    def free(self, p: np.ndarray) -> np.ndarray:
        body = RigidBody(self.name, p[0], p[1:4], p[4:].reshape(3, 3))
        return np.asarray(inertia_to_log_cholesky(body), float)

    def physical(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(_body_numbers(jnp.asarray(x)), float)

    def slope(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(_body_slopes(jnp.asarray(x)), float)

    def scale(self, x: np.ndarray) -> np.ndarray:
        length = np.exp(x[1:4]).max()
        return np.array([1.0] * 4 + [length] * 6)

    def place(self, k: int) -> int | None:
        return 0 if k == 0 else 6 + k if k < 4 else None

    def bound(self, k: int, value: float) -> float:
        return value if k else 0.5 * float(np.log(value)) if value > 0 else -np.inf


@jax.jit
def _body_numbers(x: Array) -> Array:
    body = body_from_log_cholesky("body", x)
    return jnp.concatenate([body.mass[None], body.com, body.inertia.ravel()])


@jax.jit
def _body_slopes(x: Array) -> Array:
    return jax.jacfwd(_body_numbers)(x)


class Variables:
    """What the optimiser sees: x, with bounds; and the way to the physical numbers p."""

    def __init__(
        self,
        mech: Any,
        places: Sequence[Place],
        leaves: Sequence[Any],
        bounds: Mapping[str, Any] | None = None,
        transforms: Mapping[str, Any] | None = None,
        scales: Mapping[str, Any] | None = None,
    ):
        self.names = [name for place in places for name in place.names]
        values = jnp.concatenate([jnp.ravel(place.read(leaves)) for place in places])
        self.dtype, self.start = values.dtype, np.asarray(values, float)
        self.blocks = _blocks(mech, places, by_number("transforms", transforms, places), self.start)
        parts = [block.free(self.start[rows]) for block, rows in self.blocks]
        self.sizes, free = [len(part) for part in parts], np.concatenate(parts)
        given = by_number("bounds", bounds, places)
        self.limits = {name: _pair(name, pair) for name, pair in given.items()}
        lower, upper = self._bounds(free)
        self.scale = self._scales(free, lower, upper, by_number("scales", scales, places))
        self.x0, self.lower, self.upper = free / self.scale, lower / self.scale, upper / self.scale

    def _parts(self, x: np.ndarray) -> list[tuple]:
        """Block, rows of p, columns of x, and free numbers."""
        ends = np.cumsum([0, *self.sizes])
        spans = [slice(a, b) for a, b in pairwise(ends.tolist())]
        free = np.asarray(x, float) * self.scale
        return [(*block, span, free[span]) for block, span in zip(self.blocks, spans, strict=True)]

    def numbers(self, x: np.ndarray) -> Array:
        """(1)"""
        p = np.zeros(len(self.start))
        for block, rows, _, free in self._parts(x):
            p[rows] = block.physical(free)
        return jnp.asarray(p, self.dtype)

    def slope(self, x: np.ndarray) -> np.ndarray:
        """(3): dp/dx."""
        found = np.zeros((len(self.start), len(x)))
        for block, rows, span, free in self._parts(x):
            found[rows, span] = block.slope(free) * self.scale[span]
        return found

    def chain(self, J: Any, x: np.ndarray) -> np.ndarray:
        """(3): dy/dx of dy/dp; what is not finite stays in the columns of its own number."""
        J, T = np.asarray(J, float), self.slope(x)
        if np.isfinite(J).all():
            return J @ T
        with np.errstate(invalid="ignore"):
            return np.where(T == 0.0, 0.0, J[:, :, None] * T).sum(1)

    def named(self, x: np.ndarray) -> dict[str, float]:
        return dict(zip(self.names, np.asarray(self.numbers(x), float).tolist(), strict=True))

    def columns(self) -> list[tuple[str, int | None]]:
        """Each physical number with the number of the optimiser that alone decides it."""
        found: dict[int, int | None] = {}
        for (block, rows), start in zip(self.blocks, np.cumsum([0, *self.sizes]), strict=False):
            for k, row in enumerate(rows.tolist()):
                at = block.place(k)
                found[row] = None if at is None else int(start) + at
        return [(name, found[k]) for k, name in enumerate(self.names)]

    def name_of(self, column: int) -> str:
        """The physical number that number `column` of the optimiser moves, or the first of them."""
        for (_, rows), size, end in zip(self.blocks, self.sizes, np.cumsum(self.sizes), strict=True):
            if column < end:
                k = column - (int(end) - size)
                return self.names[rows[k if k < len(rows) else 0]]
        return self.names[0]

    def _bounds(self, free: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Bounds of the free numbers; refuses what cannot be kept, or what the start does not keep."""
        lower, upper = np.full(len(free), -np.inf), np.full(len(free), np.inf)
        columns = dict(self.columns())
        for name, pair in self.limits.items():
            value, column = self.start[self.names.index(name)], columns[name]
            if column is None:
                raise MechanismError(
                    f"bounds: {name} is one of several entries that move together; give mb.Limit as a constraint"
                )
            if not pair[0] <= value <= pair[1]:
                raise MechanismError(
                    f"{name} starts at {value:g}, outside of its bounds {pair[0]:g} to {pair[1]:g}; start within"
                )
            row = self.names.index(name)
            block, rows = next((block, rows) for block, rows in self.blocks if row in rows)
            k = rows.tolist().index(row)
            lower[column], upper[column] = block.bound(k, pair[0]), block.bound(k, pair[1])
        return lower, upper

    def _scales(self, free: np.ndarray, lower: np.ndarray, upper: np.ndarray, given: Mapping[str, Any]) -> np.ndarray:
        starts = np.cumsum([0, *self.sizes])
        parts = [
            block.scale(free[a : a + n])
            for (block, _), a, n in zip(self.blocks, starts, self.sizes, strict=False)
        ]
        width = upper - lower
        scale = np.where(np.isfinite(width), width, np.concatenate(parts))
        columns = dict(self.columns())
        for name, value in given.items():
            if not float(value) > 0:
                raise MechanismError(f"scales: {name} has {value!r}; give a positive number, a large change of it")
            if columns[name] is not None:
                scale[columns[name]] = float(value)
        return scale


def _pair(name: str, pair: Any) -> tuple[float, float]:
    """Lower and upper bound as numbers."""
    try:
        lower, upper = pair
        low, high = -np.inf if lower is None else float(lower), np.inf if upper is None else float(upper)
    except (TypeError, ValueError):
        raise MechanismError(f"bounds: {name} has {pair!r}; give (lower, upper), None for an open side") from None
    if not low < high:
        same = "leave it out of where to keep it as it is" if low == high else "nothing lies between them"
        raise MechanismError(f"bounds: {name} from {low:g} to {high:g}: {same}")
    return low, high


def _blocks(mech: Any, places: Sequence[Place], given: Mapping[str, Any], start: np.ndarray) -> list[tuple]:
    """Which transform takes which of the physical numbers."""
    rows = {id(place): r for place, r in zip(places, _rows(places), strict=True)}
    bodies = {body.name: body for body in mech.bodies} if isinstance(mech, Mechanism) else {}
    found, done = [], set()
    for name in bodies:
        own = [next((p for p in places if p.name == f"{name}.{f}"), None) for f in ("mass", "com", "inertia")]
        if own[2] is None:
            continue
        if any(p is None or p.flat is not None for p in own):
            raise MechanismError(
                f"where picks {name}.inertia alone, which would leave what bodies can have; pick {name!r}, that is "
                "mass, com and inertia together, or a number of your own from which you build the body"
            )
        found.append((_WholeBody(name), np.concatenate([rows[id(p)] for p in own])))
        done |= {id(p) for p in own}
    for place in places:
        if id(place) in done:
            continue
        own_rows, default = rows[id(place)], Log() if _is_mass(place, bodies) else Same()
        if not any(own in given for own in place.names):
            found.append((default, own_rows))
            continue
        for own, row in zip(place.names, own_rows, strict=True):
            block = given.get(own, default)
            if not isinstance(block, AbstractTransform):
                raise MechanismError(f"transforms: {own} has {block!r}; give {nearest('', ['mb.Log()', 'mb.Same()'])}")
            found.append((block, np.array([row])))
    _check_positive(places, found, start)
    return found


def _is_mass(place: Place, bodies: Mapping[str, Any]) -> bool:
    return any(place.name == f"{name}.mass" for name in bodies)


def _check_positive(places: Sequence[Place], blocks: list[tuple], start: np.ndarray) -> None:
    names = [name for place in places for name in place.names]
    for block, rows in blocks:
        for row in rows[: 1 if isinstance(block, _WholeBody) else None]:
            if not isinstance(block, Same) and not start[row] > 0:
                raise MechanismError(
                    f"{names[row]} = {start[row]:g} goes by its logarithm; start from a positive number"
                )


def _rows(places: Sequence[Place]) -> list[np.ndarray]:
    ends = np.cumsum([0, *(place.size for place in places)])
    return [np.arange(a, b) for a, b in pairwise(ends)]
