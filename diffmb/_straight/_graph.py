"""Arithmetic on numbers as a graph: each number is a constant, an input, or one operation on numbers before it.

A number is known by its place in the graph, an int, so an array of numbers is an array of ints, and reshaping,
transposing and picking are numpy's. An operation that is there already is not made again, what is known is computed at
once, and 0 + x, 1 x, 0 x and their like are no operations: a product with a matrix of zeros and ones costs nothing.
0 x is 0 whatever x is. Where the zero says that x plays no part, something that is not a number stays with those that
it concerns.
"""

from collections.abc import Iterable
from itertools import zip_longest
from typing import Any, NamedTuple, no_type_check

import jax
import numpy as np
from jax import lax

Place = int | np.integer  # of a number in the graph


class TooLong(Exception):
    """The graph has more operations than are worth a kernel."""


class Number(NamedTuple):
    """One entry of the graph: a constant (`value`), an input (neither), or a primitive with its arguments."""

    dtype: Any
    value: Any = None
    primitive: Any = None
    args: tuple[int, ...] = ()


@no_type_check  # thousands of small calls, each of which the tests would check
class Graph:
    """The numbers so far, at most `most` operations."""

    def __init__(self, most: int):
        self.numbers: list[Number] = []
        self.known: dict[Any, int] = {}
        self.simple: dict[Place, int] = {}  # constants that are 0, 1 or -1
        self.room = most

    def _new(self, key: Any, number: Number) -> int:
        if key in self.known:
            return self.known[key]
        if number.primitive is not None:
            self.room -= 1
            if self.room < 0:
                raise TooLong
        self.numbers.append(number)
        self.known[key] = len(self.numbers) - 1
        return self.known[key]

    def inputs(self, shape: tuple[int, ...], dtype: Any, known: bytes | None = None) -> np.ndarray:
        """Numbers that come in; those that `known` says to be 0, 1 or -1 are constants."""
        start = len(self.numbers)
        count = int(np.prod(shape))
        self.numbers += [Number(np.dtype(dtype))] * count
        places = np.arange(start, start + count)
        for k, value in enumerate(np.frombuffer(known or b"", np.int8)):
            if abs(value) <= 1:
                places[k] = self.constant(value.astype(dtype))
        return places.reshape(shape)

    def arguments(self, avals: Iterable[Any], known: Iterable[bytes | None] = ()) -> list[np.ndarray]:
        """Numbers for all arguments of a program; of the first of them some may be known."""
        return [self.inputs(a.shape, a.dtype, own) for a, own in zip_longest(avals, known)]

    def constant(self, value: Any) -> int:
        value = np.asarray(value)[()]
        number = self._new((value.dtype, value.tobytes()), Number(value.dtype, value))
        if value in (0, 1, -1):
            self.simple[number] = int(value)
        return number

    def constants(self, values: Any) -> np.ndarray:
        values = np.asarray(values)
        if values.dtype == jax.dtypes.float0:  # what has no derivative: nobody looks at it
            values = np.zeros(values.shape, bool)
        known: dict[Any, int] = {}  # by their bytes: -0.0 is not 0.0
        size, whole = values.dtype.itemsize, values.tobytes()
        parts = [whole[k : k + size] for k in range(0, len(whole), size)]
        for part, value in zip(parts, values.ravel(), strict=True):
            if part not in known:
                known[part] = self.constant(value)
        return np.array([known[part] for part in parts], int).reshape(values.shape)

    def value(self, number: Place) -> Any:
        """What a number is if it is known, else None."""
        return self.numbers[number].value

    def do(self, primitive: Any, places: Iterable[Place], dtype: Any) -> int:
        """One operation; `dtype` is that of its result."""
        args = tuple(map(int, places))
        short = _SHORTER.get(primitive)
        if short is not None:
            found = short(self, args)
            if found is not None:
                return found
        if primitive in _SYMMETRIC and args[0] > args[1]:
            args = args[::-1]
        dtype = np.dtype(dtype)
        key = (primitive, dtype, args)
        if key in self.known:
            return self.known[key]
        values = [self.numbers[a].value for a in args]
        if all(v is not None for v in values):
            return self.constant(_computed(primitive, values, dtype))
        return self._new(key, Number(dtype, None, primitive, args))

    # the operations that linear algebra is made of

    def _binary(self, primitive: Any, a: Place, b: Place) -> int:
        return self.do(primitive, (a, b), self.numbers[a].dtype)

    def add(self, a: Place, b: Place) -> Any:
        if self.simple.get(a) == 0:
            return b
        return a if self.simple.get(b) == 0 else self._binary(lax.add_p, a, b)

    def sub(self, a: Place, b: Place) -> int:
        return self._binary(lax.sub_p, a, b)

    def mul(self, a: Place, b: Place) -> Any:
        if self.simple.get(a) == 0:  # as most are
            return a
        return b if self.simple.get(b) == 0 else self._binary(lax.mul_p, a, b)

    def div(self, a: Place, b: Place) -> int:
        return self._binary(lax.div_p, a, b)

    def negative(self, a: Place) -> int:
        return self.do(lax.neg_p, (a,), self.numbers[a].dtype)

    def opposite(self, a: Place) -> Any:
        """b if a is -b, else None."""
        number = self.numbers[a]
        return number.args[0] if number.primitive is lax.neg_p else None

    def total(self, parts: Iterable[Place], dtype: Any) -> int:
        found = self.constant(np.zeros((), dtype))
        for part in parts:
            found = self.add(found, part)
        return found

    def dot(self, a: Iterable[Place], b: Iterable[Place], dtype: Any) -> int:
        return self.total((self.mul(x, y) for x, y in zip(a, b, strict=True)), dtype)

    def needed(self, results: Iterable[int]) -> list[int]:
        """The numbers on which the results depend, each after those that it is made of."""
        marked, waiting = set(), list(results)
        while waiting:
            n = waiting.pop()
            if n not in marked:
                marked.add(n)
                waiting += self.numbers[n].args
        return sorted(marked)


def _computed(primitive: Any, values: list, dtype: Any) -> Any:
    if primitive not in _NUMPY:
        with jax.ensure_compile_time_eval():
            params = {"accuracy": None} if primitive in _ACCURATE else {}
            return np.asarray(primitive.bind(*map(np.asarray, values), **params), dtype)
    with np.errstate(all="ignore"):
        return np.asarray(_NUMPY[primitive](*values), dtype)


_NUMPY = {
    lax.add_p: np.add, lax.sub_p: np.subtract, lax.mul_p: np.multiply, lax.neg_p: np.negative, lax.max_p: np.maximum,
    lax.min_p: np.minimum, lax.eq_p: np.equal, lax.ne_p: np.not_equal, lax.lt_p: np.less, lax.le_p: np.less_equal,
    lax.gt_p: np.greater, lax.ge_p: np.greater_equal, lax.and_p: np.bitwise_and, lax.or_p: np.bitwise_or,
    lax.not_p: np.invert, lax.convert_element_type_p: lambda a: a, lax.sqrt_p: np.sqrt, lax.abs_p: np.abs,
}  # fmt: skip
_ACCURATE = {
    lax.sin_p, lax.cos_p, lax.tan_p, lax.tanh_p, lax.exp_p, lax.expm1_p, lax.log_p, lax.log1p_p, lax.logistic_p,
    lax.rsqrt_p, lax.cbrt_p,
}  # fmt: skip
_SYMMETRIC = {lax.add_p, lax.mul_p, lax.max_p, lax.min_p, lax.and_p, lax.or_p, lax.eq_p, lax.ne_p}


@no_type_check
def _shorter_add(graph: Graph, args: tuple[int, ...]) -> int | None:
    a, b = args
    if graph.simple.get(a) == 0:
        return b
    if graph.simple.get(b) == 0:
        return a
    if graph.opposite(b) is not None:
        return graph.sub(a, graph.opposite(b))
    return graph.sub(b, graph.opposite(a)) if graph.opposite(a) is not None else None


@no_type_check
def _shorter_sub(graph: Graph, args: tuple[int, ...]) -> int | None:
    a, b = args
    if graph.simple.get(b) == 0:
        return a
    if graph.opposite(b) is not None:
        return graph.add(a, graph.opposite(b))
    return graph.negative(b) if graph.simple.get(a) == 0 else None


@no_type_check
def _shorter_mul(graph: Graph, args: tuple[int, ...]) -> int | None:
    a, b = args
    if a not in graph.simple:
        a, b = b, a
    factor = graph.simple.get(a)
    if factor is not None:
        return a if factor == 0 else b if factor == 1 else graph.negative(b)
    if graph.opposite(a) is not None:
        return graph.negative(graph.mul(graph.opposite(a), b))
    return graph.negative(graph.mul(a, graph.opposite(b))) if graph.opposite(b) is not None else None


@no_type_check
def _shorter_div(graph: Graph, args: tuple[int, ...]) -> int | None:
    return args[0] if graph.simple.get(args[1]) == 1 else None


@no_type_check
def _shorter_neg(graph: Graph, args: tuple[int, ...]) -> int | None:
    return graph.opposite(args[0])


@no_type_check
def _shorter_select(graph: Graph, args: tuple[int, ...]) -> int | None:
    which = graph.value(args[0])
    if which is not None:
        return args[1 + int(which)]
    return args[1] if len(set(args[1:])) == 1 else None


_SHORTER = {
    lax.add_p: _shorter_add,
    lax.sub_p: _shorter_sub,
    lax.mul_p: _shorter_mul,
    lax.div_p: _shorter_div,
    lax.neg_p: _shorter_neg,
    lax.select_n_p: _shorter_select,
}
