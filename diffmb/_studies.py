"""STUDIES: a response over a grid of numbers, or over numbers drawn from their spreads; members side by side.

    sweep           every combination of the values given, y[i, j, ...] = fn(p_i, p_j, ...)
    monte_carlo     y[k] = fn(p_k), p_k drawn; mean, spread, quantiles, and Spearman's rank correlation with each number

Members run through `mb.batch`, in pieces of one size. One that fails is reported with its numbers and the reason, and
does not touch the others.
"""

import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ._batches import batch
from ._curves import lay_out
from ._errors import MechanismError
from ._parameters import Place, as_numbers, concrete, pick, put
from ._program import FAILURES
from ._results import RESULTS

_ROWS = 10  # of a printed table


class AbstractSpread(eqx.Module):
    """How a number varies."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        """So many numbers, (count,)."""


class Uniform(AbstractSpread):
    """Between two limits."""

    low: float
    high: float

    def __check_init__(self):
        if not self.low < self.high:
            raise MechanismError(f"mb.Uniform from {self.low:g} to {self.high:g}: give the lower one first")

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        return rng.uniform(self.low, self.high, count)


class Normal(AbstractSpread):
    """Normal with a mean and a standard deviation."""

    mean: float
    deviation: float

    def __check_init__(self):
        if not self.deviation > 0:
            raise MechanismError(f"mb.Normal has deviation {self.deviation:g}; give it above zero")

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        return rng.normal(self.mean, self.deviation, count)


class LogNormal(AbstractSpread):
    """Positive, with a median and a relative deviation: log p is normal."""

    median: float
    deviation: float

    def __check_init__(self):
        if not (self.median > 0 and self.deviation > 0):
            raise MechanismError(f"mb.LogNormal({self.median:g}, {self.deviation:g}): give both above zero")

    def draw(self, rng: np.random.Generator, count: int) -> np.ndarray:
        return self.median * np.exp(rng.normal(0.0, self.deviation, count))


@dataclasses.dataclass(frozen=True)
class Failure:
    """A member that failed: its place, its numbers, and why."""

    member: tuple[int, ...]
    numbers: dict[str, float]
    reason: str


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Sweep:
    """What `mb.sweep` or `mb.monte_carlo` found; print it.

    - `values`: what fn returns, with the axes of the members in front: one for each number of a grid, or one for draws.
    - `numbers`: the values of each number by name: its axis of the grid, or its draws.
    - `ok`: like those axes, whether a member is finite; `failed`: an `mb.Failure` for each one that is not.
    """

    values: Any
    numbers: dict[str, np.ndarray]
    ok: np.ndarray
    failed: tuple[Failure, ...]

    def responses(self) -> dict[str, np.ndarray]:
        """Every number that fn returns, by name, (members,)."""
        found, count = {}, self.ok.size
        for path, leaf in jax.tree_util.tree_flatten_with_path(_numeric(self.values))[0]:
            name = jax.tree_util.keystr(path, simple=True, separator=".") or "response"
            flat = np.asarray(leaf).reshape(count, -1)
            found |= {name if flat.shape[1] == 1 else f"{name}[{k}]": flat[:, k] for k in range(flat.shape[1])}
        return found

    def statistics(self) -> dict[str, dict[str, float]]:
        """Mean, deviation, smallest, 5 %, median, 95 % and largest of each response, over members that are ok."""
        found = {}
        for name, values in self.responses().items():
            good = values[self.ok.ravel()]
            if len(good):
                low, middle, high = np.quantile(good, [0.05, 0.5, 0.95])
                spread = good.std(ddof=1) if len(good) > 1 else 0.0
                own = (good.mean(), spread, good.min(), low, middle, high, good.max())
                found[name] = dict(zip(("mean", "deviation", "min", "5 %", "median", "95 %", "max"), map(float, own)))
        return found

    def correlations(self) -> dict[str, dict[str, float]]:
        """Spearman's rank correlation of each response with each number, over members that are ok; for draws."""
        good = self.ok.ravel()
        rank = lambda x: x[good].argsort().argsort().astype(float)
        with np.errstate(invalid="ignore"):
            return {
                name: {key: float(np.corrcoef(rank(values), rank(own))[0, 1]) for key, own in self.numbers.items()}
                for name, values in self.responses().items()
                if self.ok.ndim == 1
            }

    def __repr__(self) -> str:
        told = ", ".join(f"{name} {v.min():.6g} to {v.max():.6g}" for name, v in self.numbers.items())
        lines = [f"Sweep: {self.ok.size} members, {len(self.failed)} failed; {told}"]
        rows = [["response", "mean", "deviation", "min", "5 %", "median", "95 %", "max"]]
        rows += [[name, *(f"{x:.6g}" for x in own.values())] for name, own in self.statistics().items()]
        lines += lay_out(rows[: _ROWS + 1], "<>>>>>>>")
        for failure in self.failed[:_ROWS]:
            numbers = ", ".join(f"{name} = {value:.6g}" for name, value in failure.numbers.items())
            lines.append(f"  failed {failure.member}: {numbers}: {failure.reason}")
        more = len(self.failed) - _ROWS
        return "\n".join([*lines, *([f"  ... {more} more in .failed"] if more > 0 else [])])


def sweep(fn: Callable[[Any], Any], mech: Any, grid: Mapping[str, Any], *, chunk: int | None = None) -> Sweep:
    """A response for every combination of numbers.

    **Arguments:**

    - `fn`: a function of the mechanism that returns numbers in any tree; it may return `traj.result` among them, which
        then says why a member failed. If it simulates, let it say `throw=False`; else members run one by one.
    - `mech`: a `mb.Mechanism`, or any tree of numbers that fn takes.
    - `grid`: values by name, `{"coupler.mass": jnp.linspace(0.1, 1.0, 20), "coupler.com[0]": [0.1, 0.2]}`.
    - `chunk`: members at a time, see `mb.batch`.
    """
    axes = {name: np.atleast_1d(np.asarray(values, float)) for name, values in grid.items()}
    for name, values in axes.items():
        if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
            raise MechanismError(f"sweep: {name} has values of shape {values.shape}; give finite numbers in one list")
    mesh = [a.ravel() for a in np.meshgrid(*axes.values(), indexing="ij")]
    shape = tuple(len(values) for values in axes.values())
    return _members(fn, mech, dict(zip(axes, mesh, strict=True)), axes, shape, chunk)


def monte_carlo(
    fn: Callable[[Any], Any],
    mech: Any,
    spreads: Mapping[str, Any],
    *,
    samples: int,
    seed: int = 0,
    chunk: int | None = None,
) -> Sweep:
    """A response for numbers that are drawn, each from its own spread.

    **Arguments:**

    - `fn`, `mech`, `chunk`: as in `mb.sweep`.
    - `spreads`: by name, `{"spring.k": mb.Normal(500.0, 20.0)}`; `mb.Uniform`, `mb.LogNormal`.
    - `samples`, `seed`: how many members, and of which random numbers; more samples begin with the same ones.
    """
    if samples < 1:
        raise MechanismError(f"samples = {samples}; give at least one")
    drawn = {}
    for k, (name, spread) in enumerate(spreads.items()):
        if not isinstance(spread, AbstractSpread):
            raise MechanismError(f"monte_carlo: {name} has {spread!r}; give mb.Normal(...), mb.Uniform(...) or so")
        drawn[name] = spread.draw(np.random.default_rng([seed, k]), samples)
    return _members(fn, mech, drawn, drawn, (samples,), chunk)


def _members(
    fn: Callable, mech: Any, columns: Mapping[str, np.ndarray], axes: Mapping[str, np.ndarray], shape: tuple, chunk: Any
) -> Sweep:
    tree = as_numbers(mech)
    leaves, structure = jax.tree.flatten(tree)
    concrete("a sweep", leaves)
    if not columns:
        raise MechanismError("there are no numbers to vary; give for example {'coupler.mass': [0.1, 0.2]}")
    places = [_single(tree, name) for name in columns]
    table = np.stack(list(columns.values()), 1)

    def member(row: Any) -> Any:
        values = [value.reshape(place.shape) for value, place in zip(row, places, strict=True)]
        return fn(jax.tree.unflatten(structure, put(leaves, [place.pick for place in places], values)))

    try:
        found = batch(member, chunk=chunk or min(len(table), 128))(jnp.asarray(table))
    except MechanismError as error:
        if "a member of the batch fails" not in str(error):
            raise
        found = _one_by_one(member, table)
    numeric = [np.asarray(leaf).reshape(len(table), -1) for leaf in jax.tree.leaves(_numeric(found))]
    fine = np.all([np.isfinite(leaf).all(1) for leaf in numeric], 0) if numeric else np.ones(len(table), bool)
    reasons = _reasons(found, len(table))
    fine = fine & np.array([not reason for reason in reasons])
    failed = [
        Failure(
            tuple(int(i) for i in np.unravel_index(k, shape)),
            {name: float(values[k]) for name, values in columns.items()},
            reasons[k] or "a response is not finite",
        )
        for k in np.flatnonzero(~fine)
    ]
    values = jax.tree.map(lambda a: np.asarray(a).reshape(shape + np.shape(a)[1:]), _numeric(found))
    return Sweep(values, dict(axes), fine.reshape(shape), tuple(failed))


def _single(tree: Any, name: str) -> Place:
    found = jax.tree.leaves(pick(tree, name))
    if len(found) != 1 or found[0].size != 1:
        names = [own for place in found for own in place.names]
        raise MechanismError(f"{name!r} holds {len(names)} numbers; vary one, such as {names[0]!r}")
    return found[0]


def _one_by_one(member: Callable, table: np.ndarray) -> Any:
    """For functions that raise: nan for the members that do."""
    run, found, like = eqx.filter_jit(member), [], None
    for row in table:
        try:
            found.append(run(jnp.asarray(row)))
            like = found[-1]
        except FAILURES:
            found.append(None)
    if like is None:
        member(jnp.asarray(table[0]))  # says why in words
        raise MechanismError("every member of the sweep fails")
    empty = jax.tree.map(lambda a: np.full(np.shape(a), np.nan) if _is_float(a) else np.asarray(a), like)
    return jax.tree.map(lambda *rows: np.stack(rows), *(empty if own is None else own for own in found))


def _is_float(leaf: Any) -> bool:
    return jnp.issubdtype(jnp.asarray(leaf).dtype, jnp.floating)


def _is_result(leaf: Any) -> bool:
    return isinstance(leaf, type(RESULTS.successful))


def _numeric(found: Any) -> Any:
    """Floating numbers alone."""
    keep = lambda leaf: leaf if not _is_result(leaf) and eqx.is_array_like(leaf) and _is_float(leaf) else None
    return jax.tree.map(keep, found, is_leaf=_is_result)


def _reasons(found: Any, count: int) -> list[str]:
    """Why each member failed, if fn returns how its simulation ended."""
    reasons = [""] * count
    for leaf in jax.tree.leaves(found, is_leaf=_is_result):
        if _is_result(leaf):
            for k, code in enumerate(np.asarray(leaf._value).reshape(count).tolist()):
                message = RESULTS._index_to_message[code]
                reasons[k] = reasons[k] or ("" if message == RESULTS[RESULTS.event] else message)
    return reasons
