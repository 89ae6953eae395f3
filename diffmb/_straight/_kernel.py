"""Arithmetic on numbers as one kernel of XLA on CPU.

A program of small arrays is some hundred kernels to XLA, each of which takes 0.1 us to start, whatever it does, and 20
ms to compile. There is one operation whose inner program XLA compiles as it stands, number by number, without asking
what should be fused with what: the combination (a, x) -> a' of a reduction. Here it ignores a and is the whole program,

    reduce over two equal rows x, x:        f(f(0, x), x) = f(x)

so it runs twice (over a single row XLA takes the reduction for the identity), and still takes a fifth of the time:
about 0.5 ns for each operation all in all, and 0.3 ms to compile it. Numbers may also go in by the start of the
reduction, if they are handed on unchanged, which halves the number of its operands.

The reduction stands in a call that bears the mark by which XLA makes one kernel of a small loop. Without it XLA cuts a
combination of some thousand operations into functions that compute each other's results anew: 6000 take minutes. The
mark is not for everything: XLA ends the process where an argument of such a call is a constant. So the arguments are
joined into one array, behind a barrier that keeps XLA from joining constants before it compiles the call.
"""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.core import ShapedArray
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.core import ClosedJaxpr, Primitive
from jax.extend.mlir import ir
from jax.extend.mlir.dialects import stablehlo as hlo
from jax.interpreters import mlir

from ._graph import Graph, TooLong
from ._moves import Places, Unknown
from ._operations import OPERATIONS
from ._unroll import unroll

Known = Sequence[bytes | None]
TRIED = ("0.10.",)  # versions of jax with which it was seen to be one kernel, and right


class Straight:
    """A program as a graph: its inputs, its results, and the numbers that lie between.

    `known` has for the first inputs, or None, which of their numbers are 0, 1 or -1: one signed byte each."""

    def __init__(self, program: ClosedJaxpr, most: int, known: Known = ()):
        self.graph = Graph(most)
        pairs = zip_longest(program.in_avals, known)
        self.inputs = [self.graph.inputs(a.shape, a.dtype, own) for a, own in pairs]
        self.outputs = [np.asarray(out) for out in unroll(self.graph, program, self.inputs)]
        self.avals = [ShapedArray(a.shape, a.dtype) for a in program.out_avals]
        self.graph.known.clear()  # it is complete
        numbers = self.graph.numbers
        self.results = dict.fromkeys(n for out in self.outputs for n in out.ravel().tolist())
        needed = self.graph.needed(self.results)
        self.made = [n for n in needed if numbers[n].primitive is not None]
        self.kept = [n for n in self.results if numbers[n].primitive is not None]
        self.given = {n for n in needed if numbers[n].primitive is None and numbers[n].value is None}
        self.used = [k for k, places in enumerate(self.inputs) if self.given.intersection(places.ravel().tolist())]
        self.rows: dict[Any, list[int]] = {}  # the numbers of the inputs that are used
        for k in self.used:
            self.rows.setdefault(program.in_avals[k].dtype, []).extend(self.inputs[k].ravel().tolist())
        if not self.kept or not self.used:
            raise Unknown("nothing to compute")

    def __call__(self, *args: Array) -> list[Array]:
        """The results, from arrays of the shapes of the inputs."""
        with set_xla_metadata(inlineable="false", xla_cpu_small_call="true"):
            made = jax.jit(lambda *rows: straight_p.bind(*rows, kernel=self))(*self._joined(args))
        rows = zip(made, self.by_dtype().values(), strict=True)
        where = {n: (row, k) for row, own in rows for k, n in enumerate(own)}
        for places, array in zip(self.inputs, args, strict=True):
            handed_on = [(k, n) for k, n in enumerate(places.ravel().tolist()) if n in self.results]
            flat = array.ravel() if handed_on else array
            where |= {n: (flat, k) for k, n in handed_on}
        return [self._array(out, aval, where) for out, aval in zip(self.outputs, self.avals, strict=True)]

    def _joined(self, args: tuple[Array, ...]) -> list[Array]:
        """The arrays that are used, one row for each dtype; never a row that XLA could know to be a constant."""
        own = lax.optimization_barrier(tuple(args[k].ravel() for k in self.used))
        return [jnp.concatenate([*(a for a in own if a.dtype == dtype), jnp.zeros(1, dtype)]) for dtype in self.rows]

    def by_dtype(self) -> dict[Any, list[int]]:
        """The numbers that come out of the kernel: one array for each dtype."""
        dtypes = dict.fromkeys(self.graph.numbers[n].dtype for n in self.kept)
        return {dtype: [n for n in self.kept if self.graph.numbers[n].dtype == dtype] for dtype in dtypes}

    def _array(self, places: Places, aval: ShapedArray, where: dict[int, tuple[Array, int]]) -> Array:
        """One result. Mostly its numbers stand in a row; some may be known, or be inputs as they are."""
        numbers = places.ravel().tolist()
        found = [where.get(n) for n in numbers]
        rows = [f for f in found if f is not None]
        if len(rows) == len(found) and all(r is rows[0][0] and k == rows[0][1] + i for i, (r, k) in enumerate(rows)):
            start = rows[0][1] if rows else 0
            flat = lax.slice(rows[0][0], (start,), (start + len(rows),)) if rows else jnp.zeros(0, aval.dtype)
        else:
            flat = jnp.stack([self.graph.value(n) if f is None else f[0][f[1]]
                              for n, f in zip(numbers, found, strict=True)])  # fmt: skip
        return flat.astype(aval.dtype).reshape(aval.shape)

    def lower(self, *args: ir.Value) -> list[ir.Value]:
        """The kernel in StableHLO, from the rows of `_joined`."""
        values: dict[int, ir.Value] = {}
        for row, numbers in zip(args, self.rows.values(), strict=True):
            values |= {n: _sliced(row, k) for k, n in enumerate(numbers) if n in self.given}
        values |= _reduced(self.graph, self.made, self.kept, values)
        parts = [[values[n] for n in own] for own in self.by_dtype().values()]
        return [hlo.ConcatenateOp(own, mlir.i64_attr(0)).result for own in parts]


class Slot(NamedTuple):
    """An operand of the reduction: a number that goes in by its rows; one that goes in as its start and is handed on
    unchanged, or instead of that one that comes out; all of one dtype."""

    row: int | None
    start: int | None
    out: int | None
    dtype: Any


def _slots(graph: Graph, given: list[int], kept: list[int]) -> list[Slot]:
    slots = []
    for dtype in dict.fromkeys(graph.numbers[n].dtype for n in [*given, *kept]):
        into, outs = ([n for n in some if graph.numbers[n].dtype == dtype] for some in (given, kept))
        rows, rest = into[: len(outs)], into[len(outs) :]
        slots += [Slot(row, None, out, dtype) for row, out in zip_longest(rows, outs)]
        slots += [Slot(*pair, None, dtype) for pair in zip_longest(rest[::2], rest[1::2])]
    return slots


def _reduced(graph: Graph, made: list[int], kept: list[int], values: dict[int, ir.Value]) -> dict[int, ir.Value]:
    """The numbers `kept` of those that are made from given ones, all as arrays of one."""
    numbers = graph.numbers
    into = dict.fromkeys(a for n in made for a in numbers[n].args if numbers[a].primitive is None)
    slots = _slots(graph, [n for n in into if numbers[n].value is None], kept)
    zero = {slot.dtype: mlir.ir_constant(np.zeros((1,), slot.dtype)) for slot in slots}
    of = lambda n, slot: zero[slot.dtype] if n is None else values[n]
    rows = [hlo.BroadcastInDimOp(_type((2,), slot.dtype), of(slot.row, slot), mlir.dense_int_array([0])).result
            for slot in slots]  # fmt: skip
    starts = [_reshaped(of(slot.start, slot), ()) for slot in slots]
    types = [_type((), slot.dtype) for slot in slots]
    reduction = hlo.ReduceOp(types, rows, starts, mlir.dense_int_array([0]))
    block = reduction.regions[0].blocks.append(*types, *types)
    with ir.InsertionPoint(block):
        before, now = block.arguments[: len(slots)], block.arguments[len(slots) :]
        found: dict[Any, ir.Value] = {slot.row: x for slot, x in zip(slots, now, strict=True)}
        found |= {slot.start: x for slot, x in zip(slots, before, strict=True)}
        found |= {n: mlir.ir_constant(np.asarray(numbers[n].value)) for n in into if numbers[n].value is not None}
        for n in made:
            own = numbers[n]
            found[n] = OPERATIONS[own.primitive](_type((), own.dtype), *(found[a] for a in own.args))
        ends = [x if slot.out is None else found[slot.out] for slot, x in zip(slots, before, strict=True)]
        hlo.return_(ends)
    # the barrier uses all results: XLA takes forever to find out what else it need not compute
    outs = hlo.OptimizationBarrierOp(reduction.results).results
    return {slot.out: _reshaped(x, (1,)) for slot, x in zip(slots, outs, strict=True) if slot.out is not None}


def _type(shape: tuple[int, ...], dtype: Any) -> ir.Type:
    return ir.RankedTensorType.get(shape, mlir.dtype_to_ir_type(np.dtype(dtype)))


def _reshaped(x: ir.Value, shape: tuple[int, ...]) -> ir.Value:
    kind = ir.RankedTensorType(x.type)
    if tuple(kind.shape) == shape:
        return x
    return hlo.ReshapeOp(ir.RankedTensorType.get(shape, kind.element_type), x).result


def _sliced(flat: ir.Value, k: int) -> ir.Value:
    return hlo.SliceOp(flat, *(mlir.dense_int_array([n]) for n in (k, k + 1, 1))).result


straight_p = Primitive("straight")
straight_p.multiple_results = True
straight_p.def_abstract_eval(
    lambda *args, kernel: [ShapedArray((len(own),), dtype) for dtype, own in kernel.by_dtype().items()]
)
mlir.register_lowering(straight_p, lambda ctx, *args, kernel: kernel.lower(*args))


def straight(program: ClosedJaxpr, most: int, known: Known = ()) -> ClosedJaxpr:
    """The program as one kernel, if it has a rule for all that it does and not too many operations; else itself."""
    if not jax.__version__.startswith(TRIED) or not program.out_avals:
        return program
    try:
        kernel = Straight(program, most, known)
    except (Unknown, TooLong):
        return program
    shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in program.in_avals]
    return jax.make_jaxpr(kernel)(*shapes)
