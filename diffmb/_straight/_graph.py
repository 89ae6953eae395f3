"""Arithmetic on numbers as a graph: each number is a constant, an input, or one operation on numbers before it.

A number is known by its place in the graph, an int, so an array of numbers is an array of ints, and reshaping,
transposing and picking are numpy's. An operation that is there already is not made again, what is known is computed at
once, and 0 + x, 1 x, 0 x and their like are no operations: a product with a matrix of zeros and ones costs nothing.
0 x and 0 / x are 0 whatever x is, but for 0 / 0. Where the zero says that x plays no part, something that is not a
number stays with those that it concerns.
"""

from collections.abc import Iterable, Sequence
from itertools import repeat, zip_longest
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
        self.fixed: dict[Place, Any] = {}  # constants, with what they are
        self.simple: dict[Place, int] = {}  # those that are 0, 1 or -1
        self.zeros: set[Place] = set()
        self.turned: dict[Place, int] = {}  # x for each -x
        self.room = most

    def _new(self, key: Any, number: Number) -> int:
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
        key = value.dtype, value.tobytes()
        if key in self.known:
            return self.known[key]
        number = self._new(key, Number(value.dtype, value))
        self.fixed[number] = value
        if value in (0, 1, -1):
            self.simple[number] = int(value)
        if value == 0:
            self.zeros.add(number)
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
        return self.fixed.get(number)

    def do(self, primitive: Any, places: Sequence[Place], dtype: Any) -> int:
        """One operation; `dtype` is that of its result."""
        own = _OWN.get(primitive)
        return self._made(primitive, places, dtype) if own is None else own(self, *places)

    def each(self, primitive: Any, rows: Sequence[Sequence[Place]], dtype: Any) -> list[int]:
        """One operation on each of many arguments."""
        own = _OWN.get(primitive)
        if own is not None:
            return list(map(own, repeat(self), *rows))
        return [self._made(primitive, places, dtype) for places in zip(*rows, strict=True)]

    def _made(self, primitive: Any, places: Sequence[Place], dtype: Any) -> int:
        args = tuple(map(int, places))
        if primitive in _SYMMETRIC and args[0] > args[1]:
            args = args[::-1]
        dtype = np.dtype(dtype)
        key = (primitive, dtype, args)
        found = self.known.get(key)
        if found is not None:
            return found
        values = [self.fixed[a] for a in args if a in self.fixed]
        if len(values) == len(args):
            self.known[key] = self.constant(_computed(primitive, values, dtype))
            return self.known[key]
        return self._new(key, Number(dtype, None, primitive, args))

    # the operations that linear algebra is made of

    def _binary(self, primitive: Any, a: Place, b: Place) -> int:
        return self._made(primitive, (a, b), self.numbers[a].dtype)

    def add(self, a: Place, b: Place) -> Any:
        if a in self.zeros:
            return b
        if b in self.zeros:
            return a
        if b in self.turned:
            return self.sub(a, self.turned[b])
        return self.sub(b, self.turned[a]) if a in self.turned else self._binary(lax.add_p, a, b)

    def sub(self, a: Place, b: Place) -> Any:
        if b in self.zeros:
            return a
        if b in self.turned:
            return self.add(a, self.turned[b])
        return self.negative(b) if a in self.zeros else self._binary(lax.sub_p, a, b)

    def mul(self, a: Place, b: Place) -> Any:
        if a not in self.simple:
            a, b = b, a
        if a in self.simple:
            factor = self.simple[a]
            return a if factor == 0 else b if factor == 1 else self.negative(b)
        if a in self.turned:
            return self.negative(self.mul(self.turned[a], b))
        return self.negative(self.mul(a, self.turned[b])) if b in self.turned else self._binary(lax.mul_p, a, b)

    def div(self, a: Place, b: Place) -> Any:
        nothing = a in self.zeros and b not in self.fixed
        return a if nothing or self.simple.get(b) == 1 else self._binary(lax.div_p, a, b)

    def negative(self, a: Place) -> int:
        if a in self.turned:
            return self.turned[a]
        found = self._made(lax.neg_p, (a,), self.numbers[a].dtype)
        if found not in self.fixed:
            self.turned[found] = int(a)
        return found

    def select(self, which: Place, *cases: Place) -> Any:
        """`lax.select_n`."""
        if which in self.fixed:
            return cases[int(self.fixed[which])]
        if len(set(cases)) == 1:
            return cases[0]
        return self._made(lax.select_n_p, (which, *cases), self.numbers[cases[0]].dtype)

    def total(self, parts: Iterable[Place], dtype: Any) -> int:
        found = self.constant(np.zeros((), dtype))
        for part in parts:
            found = self.add(found, part)
        return found

    def dot(self, a: Iterable[Place], b: Iterable[Place], dtype: Any) -> int:
        zeros = self.zeros
        pairs = ((x, y) for x, y in zip(a, b, strict=True) if x not in zeros and y not in zeros)
        return self.total((self.mul(x, y) for x, y in pairs), dtype)

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


_OWN = {
    lax.add_p: Graph.add,
    lax.sub_p: Graph.sub,
    lax.mul_p: Graph.mul,
    lax.div_p: Graph.div,
    lax.neg_p: Graph.negative,
    lax.select_n_p: Graph.select,
}
