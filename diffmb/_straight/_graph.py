"""Arithmetic on numbers as a graph: each number is a constant, an input, or one operation on numbers before it.

A number is known by its place in the graph, an int, so an array of numbers is an array of ints, and reshaping,
transposing and picking are numpy's. An operation that is there already is not made again, what is known is computed at
once, and 0 + x, 1 x, 0 x and their like are no operations: a product with a matrix of zeros and ones costs nothing.
0 x and 0 / x are 0 whatever x is, but for 0 / 0. Where the zero says that x plays no part, something that is not a
number stays with those that it concerns.
"""

from collections.abc import Iterable, Sequence
from itertools import repeat, zip_longest
from typing import Any, no_type_check

import jax
import numpy as np
from jax import lax

Place = int | np.integer  # of a number in the graph
_LARGE = 16  # entries from which a row is looked at as a whole
PLAIN, ZERO, SIGN, FIXED, TURNED = range(5)  # what is known of a number: nothing; 0; 1 or -1; it is constant; it is -x


class TooLong(Exception):
    """The graph has more operations than are worth a kernel."""


@no_type_check  # thousands of small calls, each of which the tests would check
class Graph:
    """The numbers so far, at most `most` operations.

    For each its dtype, its primitive (none if it is constant or comes in) and the numbers that it is made of, in lists
    side by side: there are too many for an object each, on which Python's collector would spend a third of the time.
    """

    def __init__(self, most: int):
        self.dtype: list[Any] = []
        self.primitive: list[Any] = []
        self.args: list[tuple[int, ...]] = []
        self.kind = bytearray()
        self.fixed: dict[Place, Any] = {}  # constants, with what they are
        self.turned: dict[Place, int] = {}  # x for each -x
        self.opposite: dict[Place, int] = {}  # -x for each x
        self.known: dict[Any, int] = {}  # operations that were made, with their results
        self.codes: dict[Any, int] = {}  # of operations, for the keys of `known`
        self.most = self.room = most

    def _new(self, dtype: Any, primitive: Any = None, args: tuple[int, ...] = (), kind: int = PLAIN) -> int:
        if primitive is not None:
            self.room -= 1
            if self.room < 0:
                raise TooLong
        self.dtype.append(dtype)
        self.primitive.append(primitive)
        self.args.append(args)
        self.kind.append(kind)
        return len(self.kind) - 1

    def inputs(self, shape: tuple[int, ...], dtype: Any, known: bytes | None = None) -> np.ndarray:
        """Numbers that come in; those that `known` says to be 0, 1 or -1 are constants."""
        start, count = len(self.kind), int(np.prod(shape))
        self.dtype += [np.dtype(dtype)] * count
        self.primitive += [None] * count
        self.args += [()] * count
        self.kind += bytes(count)
        places, seen = np.arange(start, start + count), np.frombuffer(known or b"", np.int8)
        for value in (0, 1, -1):
            if (seen == value).any():
                places[: len(seen)][seen == value] = self.constant(np.asarray(value, dtype))
        return places.reshape(shape)

    def arguments(self, avals: Iterable[Any], known: Iterable[bytes | None] = ()) -> list[np.ndarray]:
        """Numbers for all arguments of a program; of the first of them some may be known."""
        return [self.inputs(a.shape, a.dtype, own) for a, own in zip_longest(avals, known)]

    def constant(self, value: Any) -> int:
        value = np.asarray(value)[()]
        key = value.dtype, value.tobytes()
        found = self.known.get(key)
        if found is None:
            kind = ZERO if value == 0 else SIGN if value in (1, -1) else FIXED
            found = self.known[key] = self._new(key[0], kind=kind)
            self.fixed[found] = value
        return found

    def constants(self, values: Any) -> np.ndarray:
        values = np.asarray(values)
        if values.ndim == 0 and values.dtype != jax.dtypes.float0:
            return np.array(self.constant(values))
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

    def is_zero(self, number: Place) -> bool:
        return self.kind[number] == ZERO

    def zeros(self, places: np.ndarray) -> np.ndarray:
        """Which of them are zero."""
        return np.frombuffer(self.kind, np.uint8)[places] == ZERO

    def sign(self, number: Place) -> int | None:
        """0, 1 or -1 where a number is known to be that."""
        return int(self.fixed[number]) if self.kind[number] in (ZERO, SIGN) else None

    def do(self, primitive: Any, places: Sequence[Place], dtype: Any) -> int:
        """One operation; `dtype` is that of its result."""
        own = _OWN.get(primitive)
        return self._made(primitive, tuple(map(int, places)), dtype) if own is None else own(self, *places)

    def each(self, primitive: Any, rows: Sequence[np.ndarray], dtype: Any) -> np.ndarray:
        """One operation on each of many arguments, rows of numbers."""
        found = rows[0].copy()
        left = self._at_once(primitive, rows, found) if found.size >= _LARGE else np.arange(found.size)
        if left.size:
            found[left] = self._one_by_one(primitive, [row[left].tolist() for row in rows], dtype)
        return found

    def _one_by_one(self, primitive: Any, rows: Sequence[list[int]], dtype: Any) -> list[int]:
        own = _OWN.get(primitive)
        if own is not None:
            return list(map(own, repeat(self), *rows))
        dtype = np.dtype(dtype)
        code = self._code(primitive, dtype)
        return [self._coded(code, primitive, places, dtype) for places in zip(*rows, strict=True)]

    def _at_once(self, primitive: Any, rows: Sequence[np.ndarray], found: np.ndarray) -> np.ndarray:
        """Fills in what needs no operation, which of large arrays is the most; and says where there is more to do."""
        if primitive is lax.select_n_p and len(rows) == 3:
            kind = np.frombuffer(self.kind, np.uint8)[rows[0]]
            for known, case in zip((ZERO, SIGN), rows[1:], strict=True):
                found[kind == known] = case[kind == known]
            return np.flatnonzero((kind != ZERO) & (kind != SIGN))
        if primitive not in (lax.add_p, lax.sub_p, lax.mul_p):
            return np.arange(found.size)
        first, second = map(self.zeros, rows)
        if primitive is lax.sub_p:
            return np.flatnonzero(~second)
        other = second & ~first if primitive is lax.mul_p else first
        found[other] = rows[1][other]
        return np.flatnonzero(~(first | second))

    def _code(self, primitive: Any, dtype: Any) -> int:
        return self.codes.setdefault((primitive, dtype), len(self.codes))

    def _made(self, primitive: Any, args: tuple[Any, ...], dtype: Any) -> int:
        dtype = np.dtype(dtype)
        return self._coded(self._code(primitive, dtype), primitive, args, dtype)

    def _coded(self, code: int, primitive: Any, args: tuple[int, ...], dtype: Any) -> int:
        if primitive in _SYMMETRIC and args[0] > args[1]:
            args = args[::-1]
        key = (code, *args)
        found = self.known.get(key)
        if found is None:
            fixed = self.fixed
            if args[0] in fixed and all(a in fixed for a in args):
                found = self.constant(_computed(primitive, [fixed[a] for a in args], dtype))
            else:
                found = self._new(dtype, primitive, args)
            self.known[key] = found
        return found

    # the operations that linear algebra is made of

    def _pair(self, primitive: Any, code: int, a: Any, b: Any) -> int:
        """The same for two numbers of the dtype of the result."""
        key = (a << 28 | b) << 2 | code
        found = self.known.get(key)
        if found is None:
            if a in self.fixed and b in self.fixed:
                found = self.constant(_computed(primitive, [self.fixed[a], self.fixed[b]], self.dtype[a]))
            else:  # `_new`, without the call
                self.room -= 1
                if self.room < 0:
                    raise TooLong
                found = len(self.kind)
                self.dtype.append(self.dtype[a])
                self.primitive.append(primitive)
                self.args.append((a, b))
                self.kind.append(PLAIN)
            self.known[key] = found
        return found

    def add(self, a: Place, b: Place) -> Any:
        kind = self.kind
        if kind[a] == ZERO:
            return b
        if kind[b] == ZERO:
            return a
        if kind[b] == TURNED:
            return self.sub(a, self.turned[b])
        if kind[a] == TURNED:
            return self.sub(b, self.turned[a])
        return self._pair(lax.add_p, 0, a, b) if a < b else self._pair(lax.add_p, 0, b, a)

    def sub(self, a: Place, b: Place) -> Any:
        kind = self.kind
        if kind[b] == ZERO:
            return a
        if kind[b] == TURNED:
            return self.add(a, self.turned[b])
        return self.negative(b) if kind[a] == ZERO else self._pair(lax.sub_p, 1, a, b)

    def mul(self, a: Place, b: Place) -> Any:
        one, other = self.kind[a], self.kind[b]
        if one == ZERO:
            return a
        if other == ZERO:
            return b
        if one == SIGN:
            return b if self.fixed[a] == 1 else self.negative(b)
        if other == SIGN:
            return a if self.fixed[b] == 1 else self.negative(a)
        if one == TURNED:
            return self.negative(self.mul(self.turned[a], b))
        if other == TURNED:
            return self.negative(self.mul(a, self.turned[b]))
        return self._pair(lax.mul_p, 2, a, b) if a < b else self._pair(lax.mul_p, 2, b, a)

    def div(self, a: Place, b: Place) -> Any:
        nothing = self.kind[a] == ZERO and b not in self.fixed
        return a if nothing or self.sign(b) == 1 else self._pair(lax.div_p, 3, a, b)

    def negative(self, a: Place) -> Any:
        if self.kind[a] == TURNED:
            return self.turned[a]
        found = self.opposite.get(a)
        if found is None:
            a = int(a)
            if a in self.fixed:
                found = self.constant(_computed(lax.neg_p, [self.fixed[a]], self.dtype[a]))
            else:
                found = self._new(self.dtype[a], lax.neg_p, (a,), TURNED)
                self.turned[found] = a
            self.opposite[a] = found
        return found

    def select(self, which: Place, *cases: Place) -> Any:
        """`lax.select_n`."""
        if which in self.fixed:
            return cases[int(self.fixed[which])]
        if len(set(cases)) == 1:
            return cases[0]
        if self.dtype[which].kind != "b":  # from the last one: which < k ? the one before k : those after
            *before, found = cases
            for k in range(len(before), 0, -1):
                known = self.constant(np.asarray(k, self.dtype[which]))
                found = self.select(self.do(lax.lt_p, (which, known), bool), found, before[k - 1])
            return found
        return self._made(lax.select_n_p, (which, *cases), self.dtype[cases[0]])

    def total(self, parts: Iterable[Place], dtype: Any) -> Any:
        found = None
        for part in parts:
            found = part if found is None else self.add(found, part)
        return self.constant(np.zeros((), dtype)) if found is None else found

    def dot(self, a: Iterable[Place], b: Iterable[Place], dtype: Any) -> Any:
        kind = self.kind
        pairs = ((x, y) for x, y in zip(a, b, strict=True) if kind[x] != ZERO and kind[y] != ZERO)
        return self.total((self.mul(x, y) for x, y in pairs), dtype)

    def needed(self, results: Iterable[int]) -> list[int]:
        """The numbers on which the results depend, each after those that it is made of."""
        marked = bytearray(len(self.kind))
        for n in results:
            marked[n] = 1
        for n in range(len(marked) - 1, -1, -1):
            if marked[n]:
                for a in self.args[n]:
                    marked[a] = 1
        return [n for n, needed in enumerate(marked) if needed]


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
