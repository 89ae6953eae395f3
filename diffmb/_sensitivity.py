"""SENSITIVITY: how responses depend on the numbers of a mechanism, by name.

    y = fn(mechanism)         J = dy/dp, p the numbers that are picked                                             (1)
    check                     J e_k = (y(p + h e_k) - y(p - h e_k)) / 2h + O(h^2)                                  (2)
    influence                 (dy/y) / (dp/p) = J p / y: per cent of the response for one per cent of the number   (3)

Columns or rows of J: `_program.py` has both, and says which are cheaper.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from ._checks import check_positive, kind_of
from ._curves import Curves, Tornado, curves, lay_out, tornado
from ._errors import MechanismError
from ._model import Model
from ._names import nearest
from ._parameters import as_numbers, concrete, pick
from ._program import FAILURES, Program, cheaper, sizes, trace

_ROWS = 30  # of a printed table
_EACH, _MIXTURES = 50, 10  # so many numbers are checked one by one; if there are more, so many mixtures of them
_AGREE = 1e-3  # a relative difference below this may come from the steps of the integration
_WEAK = 1e-3  # derivatives are compared at least with this part of the response and of the strongest one


@dataclasses.dataclass(frozen=True)
class Influence:
    """A row of the table: one number and one response.

    - `name`, `value`: of the number; `derivative`: of the response with respect to it; `response`: its name.
    - `influence`: per cent of the response for one per cent of the number; if the response is zero, derivative * value.
    - `difference`: relative, from finite differences; `None` if that was not checked.
    - `note`: "no dependence" if the number does not enter the response at all; "differences disagree"; "cannot vary
        alone" if fn fails when it is changed, as a planar loop in space that is bent; or empty.
    """

    name: str
    value: float
    derivative: float
    influence: float
    response: str
    difference: float | None
    note: str


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Sensitivity:
    """What `mb.sensitivity` found; print it.

    - `value`: what fn returns; `mode`: "forward" or "reverse".
    - `gradient`: its derivatives, in the shape of what `where` picks, axes of the response in front; if fn returns a
        dict, one of these for each entry.
    - `difference`: the largest relative difference from finite differences; `None` if that was not checked.
    - `numbers`, `responses`: names and values of both; `jacobian`: (responses, numbers).
    """

    value: Any
    gradient: Any
    mode: str
    numbers: dict[str, float]
    responses: dict[str, float]
    jacobian: np.ndarray
    depends: np.ndarray  # like the jacobian: does the number enter
    differences: np.ndarray | None  # the same, or of random mixtures
    difference: float | None

    @cached_property
    def table(self) -> list[Influence]:
        """Every number and response, the largest influence first."""
        names, values, each, rows = list(self.numbers), list(self.numbers.values()), self.differences, []
        each = each if each is not None and each.shape == self.jacobian.shape else None
        for i, (response, y) in enumerate(self.responses.items()):
            for k, slope in enumerate(self.jacobian[i].tolist()):
                difference = None if each is None else float(each[i, k])
                note = "" if self.depends[i, k] else "no dependence"
                if difference is not None and not note and not difference <= _AGREE:
                    note = "differences disagree" if difference > _AGREE else "cannot vary alone"
                influence = slope * values[k] / (y or 1.0) + 0.0  # (3)
                rows.append(Influence(names[k], values[k], slope, influence, response, difference, note))
        least = 1e-12 * max((abs(r.influence) for r in rows if np.isfinite(r.influence)), default=0.0)
        size = lambda x: -abs(x) if np.isfinite(x) else -np.inf
        rank = lambda r: (r.note == "no dependence", 0.0 if abs(r.influence) <= least else size(r.influence))
        return sorted(rows, key=lambda r: (*rank(r), size(r.derivative)))

    @property
    def independent(self) -> tuple[str, ...]:
        """The numbers that enter none of the responses."""
        return tuple(name for k, name in enumerate(self.numbers) if not self.depends[:, k].any())

    def over(self, ts: Any) -> Curves:
        """Curves over time, if fn returns what it sees at the times `ts`, first axis: dy(t)/dp for each number."""
        return curves(self.value, ts, self.numbers, self.jacobian)

    def tornado(self, change: float | Mapping[str, float] = 0.1) -> Tornado:
        """What changes of numbers do to the responses: relative ones of all, or absolute ones by name."""
        return tornado(self.numbers, self.responses, self.jacobian, change)

    def __repr__(self) -> str:
        lines = [["number", "value", "derivative", "% per %", "response", ""]]
        for r in self.table[:_ROWS]:
            slopes = ["", ""] if r.note == "no dependence" else [f"{r.derivative:.6g}", f"{r.influence:.4g}"]
            lines.append([r.name, f"{r.value:.6g}", *slopes, r.response, r.note])
        checked = "" if self.difference is None else f"; finite differences differ by {self.difference:.1e}"
        title = f"Sensitivity: {len(self.numbers)} numbers, responses: {len(self.responses)}, {self.mode} mode{checked}"
        more = [f"  ... {len(self.table) - _ROWS} more in .table"] if len(self.table) > _ROWS else []
        return "\n".join([title, *lay_out(lines, "<>>><<"), *more])


def sensitivity(
    fn: Any,
    mech: Any,
    where: Any = None,
    *,
    mode: Any = None,
    check: Any = False,
    step: Any = 1e-6,
    names: Any = None,
    throw: Any = True,
) -> Sensitivity:
    """The derivatives of responses with respect to numbers of a mechanism, and a table of them by influence.

    **Arguments:**

    - `fn`: a function of the mechanism that returns a number, an array, or a dict of such; usually it compiles,
        assembles, simulates and picks a response. It is traced and compiled once, as by `jax.jit`; the same function
        with other numbers is not compiled again.
    - `mech`: a `mb.Mechanism`, or any pytree of numbers that fn takes, such as `{"length": 0.3}`.
    - `where`: which numbers: `lambda m: m["crank"].mass`, or a tuple, list or dict of such; or names, "crank.mass",
        ["coupler.com[0]", "A.parent.position"]. By default all.
    - `mode`: "forward" or "reverse"; by default forward up to four numbers for each response.
    - `check`: whether to compare with central finite differences, number by number (10 random mixtures if there are
        more than 50). A simulation is smooth to its tolerance only; differences are no better than that.
    - `step`: of the differences, relative to the largest entry of an array.
    - `names`: of the responses.
    - `throw`: whether a derivative that is not finite is an error; else look at `.table`.
    """
    _refuse(fn, mech, mode, check, step, names, throw)
    tree = as_numbers(mech)
    leaves, structure = jax.tree.flatten(tree)
    concrete("sensitivity", leaves)
    picked = pick(tree, where)
    places = jax.tree.leaves(picked)
    study = trace(fn, structure, leaves, places)
    p, _ = ravel_pytree([place.read(leaves) for place in places])
    responses = study.response_names(names)
    way = mode or cheaper(p.size, len(responses))
    try:
        y, J = study.run[way](p, leaves)
        if mode is None and way == "forward" and bool(jnp.isfinite(y).all() & ~jnp.isfinite(J).all()):
            way = "reverse"  # an infinite slope times a tangent of zero spoils every column; rows keep it to its own
            y, J = study.run[way](p, leaves)
        differences = _differences(study, p, leaves, places, y, J, step) if check else None
    except FAILURES:
        fn(tree)  # outside of jit, what fails says why in words
        raise
    numbers = [name for place in places for name in place.names]
    named = lambda names, values: dict(zip(names, np.asarray(values).tolist(), strict=True))
    depends = np.repeat(np.repeat(study.depends, sizes(study.outs), 0), sizes(places), 1)
    largest = None if differences is None else float(np.nanmax(differences, initial=0.0))
    found = Sensitivity(
        *(study.shaped(y), _gradient(study, picked, J), way, named(numbers, p), named(responses, y)),
        *(np.asarray(J), depends, differences, largest),
    )
    return _finite(found) if throw else found


def _refuse(fn: Any, mech: Any, mode: Any, check: Any, step: Any, names: Any, throw: Any) -> None:
    """What cannot be meant."""
    if not callable(fn):
        raise MechanismError(f"fn is {kind_of(fn)}; give a function of the mechanism that returns numbers")
    if isinstance(mech, Model):
        raise MechanismError("mech is a compiled model; give the Mechanism, and let fn compile it")
    if mode not in (None, "forward", "reverse"):
        raise MechanismError(f"mode is {mode!r}; {nearest(mode, ['forward', 'reverse'])}")
    for name, value in (("check", check), ("throw", throw)):
        if not isinstance(value, bool | np.bool_):
            raise MechanismError(f"{name} is {kind_of(value)}; give True or False")
    check_positive("step", step, "a relative change, such as 1e-6")
    if not isinstance(names, str | Sequence | None) or not all(isinstance(name, str) for name in names or ()):
        raise MechanismError(f"names is {kind_of(names)}; give a string for each number that fn returns")


def _finite(found: Sensitivity) -> Sensitivity:
    """The same, refused if something in it is not finite."""
    for name, value in found.responses.items():
        if not np.isfinite(value):
            raise MechanismError(f"{name} is {value} for these numbers, so it has no derivative; see what fn returns")
    bad = [row for row in found.table if not np.isfinite(row.derivative)]
    if bad:
        row, among = bad[0], f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
        raise MechanismError(
            f"the derivative of {row.response} with respect to {row.name} = {row.value:g} is {row.derivative}{among}; "
            "sensitivity(..., check=True, throw=False) compares with finite differences"
        )
    return found


def _gradient(study: Program, picked: Any, J: Array) -> Any:
    """J in the shape of what fn returns, with the shape of what `where` picks in each place."""
    places, inner = jax.tree.flatten(picked)
    columns = jnp.split(J, np.cumsum(sizes(places))[:-1], 1)
    for k, place in enumerate(places):
        outs = jax.vmap(study.shaped, -1, -1)(columns[k])
        columns[k] = jax.tree.map(lambda a: a.reshape(a.shape[:-1] + place.shape), outs)
    return jax.tree.transpose(inner, study.structure, jax.tree.unflatten(inner, columns))


def _differences(study: Program, p: Array, leaves: list, places: list, y: Array, J: Array, step: float) -> np.ndarray:
    """(2): relative differences of each derivative, or of random mixtures of them if there are many; nan: fn fails."""
    scale = np.repeat([float(jnp.abs(leaves[place.leaf]).max()) or 1.0 for place in places], sizes(places))
    ways, slopes = np.diag(scale), np.asarray(J) * scale
    if p.size > _EACH:  # without numbers of no influence: they may be those that cannot vary alone
        ways = np.random.default_rng(0).standard_normal((_MIXTURES, p.size)) * scale
        ways = ways * (np.abs(slopes).max(0) > 1e-9 * np.abs(slopes).max())
    step = max(step, float(np.finfo(p.dtype).eps) ** 0.4)

    def moved(way: np.ndarray) -> np.ndarray:
        try:
            return np.asarray(study.run["evaluate"](p + jnp.asarray(way, p.dtype), leaves))
        except FAILURES:
            return np.full(y.shape, np.nan)

    found = np.stack([(moved(step * way) - moved(-step * way)) / (2 * step) for way in ways], 1)
    exact = np.asarray(J) @ ways.T
    least = _WEAK * np.maximum(np.abs(slopes).max(1), np.abs(np.asarray(y)))[:, None]
    size = np.maximum(np.maximum(np.abs(exact), np.abs(found)), least)
    return np.abs(exact - found) / np.where(size == 0, 1.0, size)
