"""PROGRAM: a function of a mechanism as compiled programs of the vector of its picked numbers.

    y = fn(mechanism)         J = dy/dp, p the numbers that are picked
    forward                   one column J e_k for each number                                                     (1)
    reverse                   one row e_i^T J for each response                                                    (2)

All columns, or all rows, go side by side over the steps of one simulation. Measured on a four-bar, in simulations: 1,
4, 16, 64, 110 columns cost 2, 10, 14, 16, 25, and 1, 4, 16 rows cost 3, 9, 16; but a program of rows takes more than
twice as long to compile. So it is forward if there are no more than four numbers for each response, else reverse.

Traced once for each function, shape and pattern of zeros: other numbers are not compiled again. Whether a response
depends on a number at all is read off the program of `fn`, not off a derivative that is zero.
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import Literal, jaxpr_as_fun
from jax.flatten_util import ravel_pytree

from . import _functions
from ._errors import MechanismError
from ._parameters import Place, label, put
from ._spatial._seen import note, seen

FAILURES = (eqx.EquinoxRuntimeError, jax.errors.JaxRuntimeError)  # of a simulation or an assembly inside of jit


def _entries(shape: tuple[int, ...]) -> list[str]:
    return [f"[{','.join(map(str, i))}]" if i else "" for i in np.ndindex(*shape)]


def cheaper(numbers: int, responses: int) -> str:
    """The way to all derivatives."""
    return "forward" if numbers <= 4 * responses else "reverse"


def sizes(arrays: Sequence[Any]) -> list[int]:
    return [int(np.prod(a.shape)) for a in arrays]


@dataclasses.dataclass(frozen=True, eq=False)
class Program:
    """fn as programs of a vector of numbers and all the leaves: "evaluate" gives y, "many" those of many vectors,
    "forward" and "reverse" (y, J)."""

    run: dict[str, Callable]
    shaped: Callable  # a vector like y in the shape of what fn returns
    outs: list  # shapes of what fn returns
    structure: Any
    names: list[str]
    depends: np.ndarray  # (outs, places)

    @property
    def size(self) -> int:
        """How many numbers fn returns."""
        return sum(sizes(self.outs))

    def response_names(self, names: str | Sequence[str] | None = None) -> list[str]:
        """A name for each number that fn returns."""
        names = self.names if names is None else [names] if isinstance(names, str) else list(names)
        if len(names) == len(self.outs):
            return [name + i for name, out in zip(names, self.outs, strict=True) for i in _entries(out.shape)]
        if len(names) != self.size or len(set(names)) < len(names):
            raise MechanismError(f"names are {names}, but fn returns {self.size} numbers; name each of them")
        return names


def trace(fn: Callable, structure: Any, leaves: Sequence[Any], places: Sequence[Place]) -> Program:
    """The programs of fn, as functions of the numbers at `places`; those of the same function and shapes are kept."""
    shapes = tuple((a.shape, a.dtype) if eqx.is_array(a) else None for a in leaves)
    static = tuple(None if eqx.is_array(a) else a for a in leaves)
    entries = [seen(a) if eqx.is_array(a) else None for a in leaves]
    known = tuple(None if own is None else own.tobytes() for own in entries)
    key = (fn, structure, shapes, static, tuple(place.pick for place in places), known)
    try:
        hash(key)
    except TypeError:  # a function that carries arrays, for example
        return traced.__wrapped__(*key)
    return traced(*key)


@lru_cache(maxsize=16)
def traced(fn: Callable, structure: Any, shapes: tuple, static: tuple, picks: tuple, known: tuple) -> Program:
    def call(x: list, leaves: list) -> Any:
        pairs = zip(leaves, known, strict=True)
        leaves = [a if own is None else note(a, np.frombuffer(own, np.int8)) for a, own in pairs]
        leaves = [own if a is None else a for own, a in zip(static, leaves, strict=True)]
        return jax.tree.map(jnp.asarray, fn(jax.tree.unflatten(structure, put(leaves, picks, x))))

    arrays = [None if shape is None else jnp.zeros(*shape) for shape in shapes]
    x = [arrays[leaf] if flat is None else jnp.zeros(len(flat), arrays[leaf].dtype) for leaf, flat in picks]
    try:
        program, out = jax.make_jaxpr(call, return_shape=True)(x, arrays)
    except (jax.errors.ConcretizationTypeError, jax.errors.TracerArrayConversionError) as error:
        raise MechanismError(
            "fn looks at a number that is being traced, by float(), if, while or numpy: leave float() out, choose with "
            f"jnp.where, compute with jax.numpy ({str(error).splitlines()[0]})"
        ) from error
    found, out_structure = jax.tree_util.tree_flatten_with_path(out)
    outs, names = [leaf for _, leaf in found], [label(out, path, "response") for path, _ in found]
    if not outs or not all(jnp.issubdtype(a.dtype, jnp.floating) for a in outs):
        pairs = [(n, a.dtype) for n, a in zip(names, outs, strict=True) if not jnp.issubdtype(a.dtype, jnp.floating)]
        kinds = ", ".join(f"{name} of type {dtype}" for name, dtype in pairs[:3]) or "nothing"
        raise MechanismError(f"fn returns {kinds}; return floating numbers, such as traj.q[-1, 0]")
    reached = _reach(program.jaxpr, [frozenset([k]) for k in range(len(program.jaxpr.invars))])
    depends = np.array([[k in inputs for k in range(len(x))] for inputs in reached])
    split, shaped = ravel_pytree(x)[1], ravel_pytree(jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), out))[1]

    def evaluate(p: Array, leaves: list) -> Array:
        y = jaxpr_as_fun(program)(*split(p), *(a for a in leaves if eqx.is_array(a)))
        return jnp.concatenate([jnp.ravel(a) for a in y])

    def forward(p: Array, leaves: list) -> tuple[Array, Array]:
        y, along = jax.linearize(lambda p: evaluate(p, leaves), p)
        return y, jax.vmap(along, out_axes=1)(jnp.eye(p.size, dtype=p.dtype))  # (1)

    def reverse(p: Array, leaves: list) -> tuple[Array, Array]:
        y, back = jax.vjp(lambda p: evaluate(p, leaves), p)
        return y, jax.vmap(lambda row: back(row)[0])(jnp.eye(y.size, dtype=y.dtype))  # (2)

    def many(ps: Array, leaves: list) -> Array:
        return jax.vmap(lambda p: evaluate(p, leaves))(ps)

    programs: tuple[Any, ...] = (evaluate, forward, reverse, many)
    run = {f.__name__: eqx.filter_jit(f) for f in programs}
    return Program(run, shaped, outs, out_structure, names, depends)


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
            outs = _reach(_functions.program_of(params["fun"], [v.aval for v in eqn.invars]).jaxpr, into)
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
