"""SENSITIVITY: how responses depend on the numbers of a mechanism, by name.

    y = fn(mechanism)         J = dy/dp, p the numbers that are picked                                             (1)
    forward                   one column J e_k for each number                                                     (2)
    reverse                   one row e_i^T J for each response                                                    (3)
    check                     J e_k = (y(p + h e_k) - y(p - h e_k)) / 2h + O(h^2)                                  (4)
    influence                 (dy/y) / (dp/p) = J p / y: per cent of the response for one per cent of the number   (5)

All columns, or all rows, go side by side over the steps of one simulation. Measured on a four-bar, in simulations: 1,
4, 16, 64, 110 columns cost 2, 10, 14, 16, 25, and 1, 4, 16 rows cost 3, 9, 16. A column and a row cost about the same,
so the fewer decide: forward if there are no more numbers than responses, else reverse. Whether a response depends on a
number at all is read off the program of `fn`, not off a derivative that is zero.
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import Literal, jaxpr_as_fun
from jax.flatten_util import ravel_pytree

from . import _batch
from ._errors import MechanismError
from ._mechanism import Mechanism
from ._names import nearest
from ._spatial._axis import as_array, is_concrete

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
                influence = slope * values[k] / (y or 1.0) + 0.0  # (5)
                rows.append(Influence(names[k], values[k], slope, influence, response, difference, note))
        least = 1e-12 * max((abs(r.influence) for r in rows if np.isfinite(r.influence)), default=0.0)
        size = lambda x: -abs(x) if np.isfinite(x) else -np.inf
        rank = lambda r: (r.note == "no dependence", 0.0 if abs(r.influence) <= least else size(r.influence))
        return sorted(rows, key=lambda r: (*rank(r), size(r.derivative)))

    @property
    def independent(self) -> tuple[str, ...]:
        """The numbers that enter none of the responses."""
        return tuple(name for k, name in enumerate(self.numbers) if not self.depends[:, k].any())

    def __repr__(self) -> str:
        lines = [["number", "value", "derivative", "% per %", "response", ""]]
        for r in self.table[:_ROWS]:
            slopes = ["", ""] if r.note == "no dependence" else [f"{r.derivative:.6g}", f"{r.influence:.4g}"]
            lines.append([r.name, f"{r.value:.6g}", *slopes, r.response, r.note])
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        texts = ["  ".join(f"{x:{s}{w}}" for x, s, w in zip(line, "<>>><<", widths, strict=True)) for line in lines]
        checked = "" if self.difference is None else f"; finite differences differ by {self.difference:.1e}"
        title = f"Sensitivity: {len(self.numbers)} numbers, responses: {len(self.responses)}, {self.mode} mode{checked}"
        more = [f"  ... {len(self.table) - _ROWS} more in .table"] if len(self.table) > _ROWS else []
        return "\n".join([title, *(f"  {text}".rstrip() for text in texts), *more])


def sensitivity(
    fn: Callable[[Any], Any],
    mech: Any,
    where: Any = None,
    *,
    mode: str | None = None,
    check: bool = False,
    step: float = 1e-6,
    names: str | Sequence[str] | None = None,
    throw: bool = True,
) -> Sensitivity:
    """The derivatives of responses with respect to numbers of a mechanism, and a table of them by influence.

    **Arguments:**

    - `fn`: a function of the mechanism that returns a number, an array, or a dict of such; usually it compiles,
        assembles, simulates and picks a response. It is traced and compiled once, as by `jax.jit`; the same function
        with other numbers is not compiled again.
    - `mech`: a `mb.Mechanism`, or any pytree of numbers that fn takes, such as `{"length": 0.3}`.
    - `where`: which numbers: `lambda m: m["crank"].mass`, or a tuple, list or dict of such; or names, "crank.mass",
        ["coupler.com", "A.parent.position"]. By default all.
    - `mode`: "forward" or "reverse"; by default forward if there are no more numbers than responses.
    - `check`: whether to compare with central finite differences, number by number (10 random mixtures if there are
        more than 50). A simulation is smooth to its tolerance only; differences are no better than that.
    - `step`: of the differences, relative to the largest entry of an array.
    - `names`: of the responses.
    - `throw`: whether a derivative that is not finite is an error; else look at `.table`.
    """
    if mode not in (None, "forward", "reverse"):
        raise MechanismError(f"mode is {mode!r}; {nearest(mode, ['forward', 'reverse'])}")
    is_float = lambda a: jnp.issubdtype(getattr(a, "dtype", type(a)), jnp.floating)
    tree = jax.tree.map(lambda a: as_array(a) if is_float(a) else a, mech)
    leaves, structure = jax.tree.flatten(tree)
    if not is_concrete(*leaves):
        raise MechanismError("sensitivity does not run inside of jax.jit, jax.grad or jax.vmap; take jax.jacrev of fn")
    picked = _pick(tree, where)
    places = jax.tree.leaves(picked)
    if not places:
        raise MechanismError("where picks no numbers; give for example where=lambda m: m['crank'].mass")
    study = _study(fn, structure, leaves, tuple(place.leaf for place in places))
    p, _ = ravel_pytree([leaves[place.leaf] for place in places])
    responses = _response_names(study, names)
    mode = mode or ("forward" if p.size <= len(responses) else "reverse")
    try:
        y, J = study.run[mode](p, leaves)
        differences = _differences(study, p, leaves, places, y, J, step) if check else None
    except (eqx.EquinoxRuntimeError, jax.errors.JaxRuntimeError):
        fn(tree)  # outside of jit, what fails says why in words
        raise
    numbers = [place.name + i for place in places for i in _entries(place.shape)]
    named = lambda names, values: dict(zip(names, np.asarray(values).tolist(), strict=True))
    depends = np.repeat(np.repeat(study.depends, _sizes(study.outs), 0), _sizes(places), 1)
    largest = None if differences is None else float(np.nanmax(differences, initial=0.0))
    found = Sensitivity(
        *(study.shaped(y), _gradient(study, picked, J), mode, named(numbers, p), named(responses, y)),
        *(np.asarray(J), depends, differences, largest),
    )
    return _finite(found) if throw else found


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


@dataclasses.dataclass(frozen=True)
class _Place:
    """Stands for a leaf while `where` looks for it."""

    leaf: int
    name: str
    shape: tuple[int, ...]
    dtype: Any


def _pick(tree: Any, where: Any) -> Any:
    """What `where` picks, a `_Place` for each array of numbers."""
    paths, structure = jax.tree_util.tree_flatten_with_path(tree)
    dtype = lambda leaf: getattr(leaf, "dtype", np.dtype(object))
    places = [_Place(k, _label(tree, path), np.shape(a), dtype(a)) for k, (path, a) in enumerate(paths)]
    marked = jax.tree.unflatten(structure, places)
    if where is None:
        return jax.tree.map(lambda p: p if jnp.issubdtype(p.dtype, jnp.floating) else None, marked)
    if callable(where):
        try:
            picked = where(marked)
        except MechanismError:
            raise
        except Exception as error:
            advice = "it must pick numbers as they are, such as lambda m: (m['crank'].mass, m['crank'].com)"
            raise MechanismError(f"where fails: {type(error).__name__}: {error}; {advice}") from error
    else:
        known = {_label(tree, path[:n]): path[:n] for path, _ in paths for n in range(1, len(path) + 1)}
        picked = jax.tree.map(lambda name: _named(marked, known, name), where)
    found = jax.tree.leaves(picked, is_leaf=lambda x: x is None)
    for place in found:
        if not isinstance(place, _Place):
            raise MechanismError(f"where picks {place!r}, which is static: it has no derivative; pick numbers")
        if not jnp.issubdtype(place.dtype, jnp.floating):
            raise MechanismError(f"{place.name} is of type {place.dtype}, which has no derivative; pick other numbers")
        if found.count(place) > 1:
            raise MechanismError(f"where picks {place.name} twice; pick each number once")
    return picked


def _label(tree: Any, path: tuple, root: str = "number") -> str:
    """A leaf as a user would call it: the name of its part, and the field."""
    part = [_walk(tree, path[:2]).name] if isinstance(tree, Mechanism) and len(path) > 1 else []
    field = jax.tree_util.keystr(path[2:] if part else path, simple=True, separator=".")
    return ".".join([*part, *([field] if field else [])]) or root


def _walk(tree: Any, path: tuple) -> Any:
    for key in path:
        tree = getattr(tree, key.name) if hasattr(key, "name") else tree[key.idx if hasattr(key, "idx") else key.key]
    return tree


def _named(marked: Any, known: dict[str, tuple], name: Any) -> Any:
    """The number or the part of that name."""
    if name in known:
        return _walk(marked, known[name])
    part, _, field = str(name).rpartition(".")
    if part in known and hasattr(_walk(marked, known[part]), field):
        raise MechanismError(f"{name} is static: it has no derivative; pick numbers, such as 'crank.mass'")
    raise MechanismError(f"there is no number {name!r}; {nearest(name, list(known))}")


def _entries(shape: tuple[int, ...]) -> list[str]:
    return [f"[{','.join(map(str, i))}]" if i else "" for i in np.ndindex(*shape)]


def _sizes(arrays: Sequence[Any]) -> list[int]:
    return [int(np.prod(a.shape)) for a in arrays]


@dataclasses.dataclass(frozen=True, eq=False)
class _Study:
    """fn as programs of a vector of numbers and all the leaves: "evaluate" gives y, "forward" and "reverse" (y, J)."""

    run: dict[str, Callable]
    shaped: Callable  # a vector like y in the shape of what fn returns
    outs: list  # shapes of what fn returns
    structure: Any
    names: list[str]
    depends: np.ndarray  # (outs, places)


def _study(fn: Callable, structure: Any, leaves: list, picks: tuple) -> _Study:
    shapes = tuple((a.shape, a.dtype) if eqx.is_array(a) else None for a in leaves)
    key = (fn, structure, shapes, tuple(None if eqx.is_array(a) else a for a in leaves), picks)
    try:
        hash(key)
    except TypeError:  # a function that carries arrays, for example
        return _traced.__wrapped__(*key)
    return _traced(*key)


@lru_cache(maxsize=16)
def _traced(fn: Callable, structure: Any, shapes: tuple, static: tuple, picks: tuple) -> _Study:
    def call(x: list, leaves: list) -> Any:
        leaves = [own if a is None else a for own, a in zip(static, leaves, strict=True)]
        for leaf, value in zip(picks, x, strict=True):
            leaves[leaf] = value
        return jax.tree.map(jnp.asarray, fn(jax.tree.unflatten(structure, leaves)))

    arrays = [None if shape is None else jnp.zeros(*shape) for shape in shapes]
    x = [arrays[leaf] for leaf in picks]
    program, out = jax.make_jaxpr(call, return_shape=True)(x, arrays)
    found, out_structure = jax.tree_util.tree_flatten_with_path(out)
    outs, names = [leaf for _, leaf in found], [_label(out, path, "response") for path, _ in found]
    if not outs or not all(jnp.issubdtype(a.dtype, jnp.floating) for a in outs):
        kinds = ", ".join(f"{name} of type {a.dtype}" for name, a in zip(names, outs, strict=True)) or "nothing"
        raise MechanismError(f"fn returns {kinds}; return floating numbers, such as traj.q[-1, 0]")
    reached = _reach(program.jaxpr, [frozenset([k]) for k in range(len(program.jaxpr.invars))])
    depends = np.array([[k in inputs for k in range(len(x))] for inputs in reached])
    split, shaped = ravel_pytree(x)[1], ravel_pytree(jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), out))[1]

    def evaluate(p: Array, leaves: list) -> Array:
        y = jaxpr_as_fun(program)(*split(p), *(a for a in leaves if eqx.is_array(a)))
        return jnp.concatenate([jnp.ravel(a) for a in y])

    def forward(p: Array, leaves: list) -> tuple[Array, Array]:
        y, along = jax.linearize(lambda p: evaluate(p, leaves), p)
        return y, jax.vmap(along, out_axes=1)(jnp.eye(p.size, dtype=p.dtype))  # (2)

    def reverse(p: Array, leaves: list) -> tuple[Array, Array]:
        y, back = jax.vjp(lambda p: evaluate(p, leaves), p)
        return y, jax.vmap(lambda row: back(row)[0])(jnp.eye(y.size, dtype=y.dtype))  # (3)

    run = {f.__name__: eqx.filter_jit(f) for f in (evaluate, forward, reverse)}
    return _Study(run, shaped, outs, out_structure, names, depends)


def _response_names(study: _Study, names: str | Sequence[str] | None) -> list[str]:
    """A name for each number that fn returns."""
    names = study.names if names is None else [names] if isinstance(names, str) else list(names)
    if len(names) == len(study.outs):
        return [name + i for name, out in zip(names, study.outs, strict=True) for i in _entries(out.shape)]
    if len(names) != sum(_sizes(study.outs)) or len(set(names)) < len(names):
        raise MechanismError(f"names are {names}, but fn returns {sum(_sizes(study.outs))} numbers; name each of them")
    return names


def _gradient(study: _Study, picked: Any, J: Array) -> Any:
    """J in the shape of what fn returns, with the shape of what `where` picks in each place."""
    places, inner = jax.tree.flatten(picked)
    columns = jnp.split(J, np.cumsum(_sizes(places))[:-1], 1)
    for k, place in enumerate(places):
        outs = jax.vmap(study.shaped, -1, -1)(columns[k])
        columns[k] = jax.tree.map(lambda a: a.reshape(a.shape[:-1] + place.shape), outs)
    return jax.tree.transpose(inner, study.structure, jax.tree.unflatten(inner, columns))


def _differences(study: _Study, p: Array, leaves: list, places: list, y: Array, J: Array, step: float) -> np.ndarray:
    """(4): relative differences of each derivative, or of random mixtures of them if there are many; nan: fn fails."""
    scale = np.repeat([float(jnp.abs(leaves[place.leaf]).max()) or 1.0 for place in places], _sizes(places))
    ways, slopes = np.diag(scale), np.asarray(J) * scale
    if p.size > _EACH:  # without numbers of no influence: they may be those that cannot vary alone
        ways = np.random.default_rng(0).standard_normal((_MIXTURES, p.size)) * scale
        ways = ways * (np.abs(slopes).max(0) > 1e-9 * np.abs(slopes).max())
    step = max(step, float(np.finfo(p.dtype).eps) ** 0.4)

    def moved(way: np.ndarray) -> np.ndarray:
        try:
            return np.asarray(study.run["evaluate"](p + jnp.asarray(way, p.dtype), leaves))
        except eqx.EquinoxRuntimeError:
            return np.full(y.shape, np.nan)

    found = np.stack([(moved(step * way) - moved(-step * way)) / (2 * step) for way in ways], 1)
    exact = np.asarray(J) @ ways.T
    least = _WEAK * np.maximum(np.abs(slopes).max(1), np.abs(np.asarray(y)))[:, None]
    size = np.maximum(np.maximum(np.abs(exact), np.abs(found)), least)
    return np.abs(exact - found) / np.where(size == 0, 1.0, size)


_CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "custom_jvp_call": "call_jaxpr", "closed_call": "call_jaxpr"}


def _reach(jaxpr: Any, inputs: list[frozenset]) -> list[frozenset]:
    """What each result of a program depends on, when its arguments depend on `inputs`."""
    known = dict(zip(jaxpr.invars, inputs, strict=True))
    of = lambda v: frozenset() if isinstance(v, Literal) else known.get(v, frozenset())
    for eqn in jaxpr.eqns:
        into, params, kind = [of(v) for v in eqn.invars], eqn.params, eqn.primitive.name
        if kind in _CALLS:
            outs = _reach(params[_CALLS[kind]].jaxpr, into)
        elif kind == "batch_last":
            outs = _reach(_batch._program(params["fun"], [v.aval for v in eqn.invars]).jaxpr, into)
        elif kind == "while":
            first, start = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
            test = lambda carry: _reach(params["cond_jaxpr"].jaxpr, into[:first] + carry)
            outs = _reach_loop(params["body_jaxpr"].jaxpr, into[first:start], into[start:], [], test)
        elif kind == "scan":
            start, stop = params["num_consts"], params["num_consts"] + params["num_carry"]
            outs = _reach_loop(params["jaxpr"].jaxpr, into[:start], into[start:stop], into[stop:], lambda carry: [])
        else:
            outs = [frozenset().union(*into)] * len(eqn.outvars)
        known |= dict(zip(eqn.outvars, outs, strict=True))
    return [of(v) for v in jaxpr.outvars]


def _reach_loop(body: Any, fixed: list, carry: list, each: list, test: Callable) -> list[frozenset]:
    """Round after round until nothing is added; how often the loop runs is a dependence too."""
    while True:
        outs = _reach(body, [*fixed, *carry, *each])
        grown = [a.union(b, *test(carry)) for a, b in zip(carry, outs, strict=False)]
        if grown == carry:
            return grown + outs[len(carry) :]
        carry = grown
