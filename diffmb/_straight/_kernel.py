"""Arithmetic on numbers as one kernel of XLA on CPU.

A program of small arrays is some hundred kernels to XLA, each of which takes 0.1 us to start, whatever it does, and 20
ms to compile. There is one operation whose inner program XLA compiles as it stands, number by number, without asking
what should be fused with what: the combination (a, x) -> a' of a reduction. Here it ignores a and is the whole program,

    reduce over two equal rows x, x:        f(f(0, x), x) = f(x)

so it runs twice (over a single row XLA takes the reduction for the identity), and still takes a fifth of the time:
about 0.5 ns for each operation all in all, and 0.3 ms to compile it. Numbers may also go in by the start of the
reduction, if they are handed on unchanged, which halves the number of its operands. Samples of a batch are one more
axis of the rows, which stays: XLA walks it in a loop that LLVM turns into vector operations (a quarter of the time for
each sample); numbers that all samples share go in by the start.

The reduction stands in a call that bears the mark by which XLA makes one kernel of a small loop. Without it XLA cuts a
combination of some thousand operations into functions that compute each other's results anew: 6000 take minutes. The
mark is not for everything: XLA ends the process where an argument of such a call is a constant. So the arguments are
joined into one array, behind a barrier that keeps XLA from joining constants before it compiles the call.
"""

from collections.abc import Callable, Sequence
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
from ._moves import Unknown
from ._operations import OPERATIONS
from ._unroll import unroll

Known = Sequence[bytes | None]
_ARRAY = 128_000  # bytes; XLA shares the work on an array of 256 kB among threads, which it cannot do within a kernel
UNUSED = 2  # operations that may come up for each one that is needed
TRIED = ("0.10.",)  # versions of jax with which it was seen to be one kernel, and right


class Row(NamedTuple):
    """Inputs that are joined."""

    wide: bool
    dtype: Any
    inputs: tuple[int, ...]


class Piece(NamedTuple):
    """Results that come out in one array."""

    dtype: Any
    results: list[int]


class Straight:
    """A program of single samples as a graph: its inputs, its results, and the numbers that lie between.

    `known` has for the first inputs, or None, which of their numbers are 0, 1 or -1: one signed byte each."""

    def __init__(self, program: ClosedJaxpr, most: int, known: Known = ()):
        self.graph = Graph(UNUSED * most)
        self.inputs = self.graph.arguments(program.in_avals, known)
        self.outputs = [np.asarray(out) for out in unroll(self.graph, program, self.inputs)]
        self.avals = [ShapedArray(a.shape, a.dtype) for a in program.out_avals]
        self.graph.known.clear()  # it is complete
        primitive = self.graph.primitive
        self.results = [n for out in self.outputs for n in out.ravel().tolist()]
        needed = self.graph.needed(self.results)
        self.made = [n for n in needed if primitive[n] is not None]
        if len(self.made) > most:
            raise TooLong
        self.kept = [n for n in dict.fromkeys(self.results) if primitive[n] is not None]
        self.given = {n for n in needed if primitive[n] is None and n not in self.graph.fixed}
        self.used = [k for k, places in enumerate(self.inputs) if self.given.intersection(places.ravel().tolist())]

    def over(self, batch: int) -> Callable[..., list[Array]]:
        """The kernel as a function of arrays. Those with a last axis of the length `batch` are walked along it."""

        def call(*args: Array) -> list[Array]:
            wide = tuple(batch > 1 and a.shape[-1] == batch for a in args)
            rows = [self._joined(own, args) for own in self.rows(wide)]
            with set_xla_metadata(inlineable="false", xla_cpu_small_call="true"):
                run = jax.jit(lambda *rows: straight_p.bind(*rows, kernel=self, wide=wide, batch=batch))
                pieces = run(*rows) if self.used else [self._constants(own, batch) for own in self.pieces(batch)]
            made = {dtype: jnp.concatenate([x for x in pieces if x.dtype == dtype]) for dtype in self.by_dtype()}
            start, found = dict.fromkeys(made, 0), []
            for places, aval in zip(self.outputs, self.avals, strict=True):
                first, shape = start.get(aval.dtype, 0), (*aval.shape[:-1], batch) if batch > 1 else aval.shape
                part = made[aval.dtype][first : first + places.size] if places.size else jnp.zeros(0, aval.dtype)
                start[aval.dtype] = first + places.size
                found.append(part.reshape(shape))
            return found

        return call

    def rows(self, wide: tuple[bool, ...]) -> list[Row]:
        """How the inputs that are used are joined: by dtype, and those that all samples share by themselves."""
        kinds = dict.fromkeys((wide[k], self._dtype(k)) for k in self.used)
        return [Row(*kind, tuple(k for k in self.used if (wide[k], self._dtype(k)) == kind)) for kind in kinds]

    def _dtype(self, k: int) -> Any:
        return self.graph.dtype[next(n for n in self.inputs[k].ravel().tolist() if n in self.given)]

    def _joined(self, row: Row, args: tuple[Array, ...]) -> Array:
        """(numbers, samples); never a row that XLA could know to be a constant."""
        own = lax.optimization_barrier(tuple(args[k].reshape(self.inputs[k].size, -1) for k in row.inputs))
        return jnp.concatenate([*own, jnp.zeros((1, own[0].shape[-1]), row.dtype)])

    def by_dtype(self) -> dict[Any, list[int]]:
        """All results, number by number."""
        found: dict[Any, list[int]] = {}
        for places, aval in zip(self.outputs, self.avals, strict=True):
            if places.size:
                found.setdefault(aval.dtype, []).extend(places.ravel().tolist())
        return found

    def pieces(self, batch: int) -> list[Piece]:
        """The arrays that come out of the kernel: results of one dtype, as many as may be in one array."""
        found = []
        for dtype, own in self.by_dtype().items():
            most = max(_ARRAY // (batch * dtype.itemsize), 1)
            found += [Piece(dtype, own[k : k + most]) for k in range(0, len(own), most)]
        return found

    def _constants(self, piece: Piece, batch: int) -> Array:
        """Results that are known."""
        numbers = np.array([self.graph.value(n) for n in piece.results], piece.dtype)
        return jnp.broadcast_to(numbers[:, None], (len(numbers), batch))

    def lower(self, *args: ir.Value, wide: tuple[bool, ...], batch: int) -> list[ir.Value]:
        """The kernel in StableHLO, from the rows of `_joined`."""
        values: dict[int, ir.Value] = {}
        shared = set()
        for row, array in zip(self.rows(wide), args, strict=True):
            numbers = [n for k in row.inputs for n in self.inputs[k].ravel().tolist()]
            values |= {n: _sliced(array, k) for k, n in enumerate(numbers) if n in self.given}
            shared |= set() if row.wide else set(numbers)
        if self.kept:
            values |= _reduced(self.graph, self.made, self.kept, values, shared, batch)
        whole = lambda n: _spread(values[n] if n in values else _constant(self.graph.value(n)), 1, batch)
        full = {n: whole(n) for n in dict.fromkeys(self.results)}
        parts = [[full[n] for n in piece.results] for piece in self.pieces(batch)]
        return [hlo.ConcatenateOp(own, mlir.i64_attr(0)).result for own in parts]


class Slot(NamedTuple):
    """An operand of the reduction: a number that goes in by its rows; one that goes in as its start and is handed on
    unchanged, or instead of that one that comes out; all of one dtype."""

    row: int | None
    start: int | None
    out: int | None
    dtype: Any


def _slots(graph: Graph, given: list[int], kept: list[int], shared: set[int]) -> list[Slot]:
    """Numbers that differ between samples go in by rows; those that are shared by starts, or where there is room."""
    slots = []
    for dtype in dict.fromkeys(graph.dtype[n] for n in [*given, *kept]):
        into, outs = ([n for n in some if graph.dtype[n] == dtype] for some in (given, kept))
        rows, starts = [n for n in into if n not in shared], [n for n in into if n in shared]
        while len(rows) < len(outs) + len(starts) and starts:
            rows.append(starts.pop())
        slots += [Slot(row, None, out, dtype) for row, out in zip_longest(rows[: len(outs)], outs)]
        slots += [Slot(*pair, None, dtype) for pair in zip_longest(rows[len(outs) :], starts)]
    return slots


def _reduced(
    graph: Graph, made: list[int], kept: list[int], values: dict[int, ir.Value], shared: set[int], batch: int
) -> dict[int, ir.Value]:
    """The numbers `kept` of those that are made from given ones, as arrays (1, batch); given ones are (1, batch) or,
    if they are `shared`, (1, 1)."""
    into = dict.fromkeys(a for n in made for a in graph.args[n] if graph.primitive[a] is None)
    slots = _slots(graph, [n for n in into if n not in graph.fixed], kept, shared)
    zero = {slot.dtype: _constant(np.zeros((), slot.dtype)) for slot in slots}
    of = lambda n, slot: zero[slot.dtype] if n is None else values[n]
    rows = [_spread(of(slot.row, slot), 2, batch) for slot in slots]
    starts = [_reshaped(of(slot.start, slot), ()) for slot in slots]
    types = [_type((), slot.dtype) for slot in slots]
    reduction = hlo.ReduceOp([_type((batch,), slot.dtype) for slot in slots], rows, starts, mlir.dense_int_array([0]))
    block = reduction.regions[0].blocks.append(*types, *types)
    with ir.InsertionPoint(block):
        before, now = block.arguments[: len(slots)], block.arguments[len(slots) :]
        found: dict[Any, ir.Value] = {slot.row: x for slot, x in zip(slots, now, strict=True)}
        found |= {slot.start: x for slot, x in zip(slots, before, strict=True)}
        found |= {n: mlir.ir_constant(np.asarray(graph.fixed[n])) for n in into if n in graph.fixed}
        for n in made:
            found[n] = OPERATIONS[graph.primitive[n]](_type((), graph.dtype[n]), *(found[a] for a in graph.args[n]))
        ends = [x if slot.out is None else found[slot.out] for slot, x in zip(slots, before, strict=True)]
        hlo.return_(ends)
    # the barrier uses all results: XLA takes forever to find out what else it need not compute
    outs = hlo.OptimizationBarrierOp(reduction.results).results
    return {slot.out: _reshaped(x, (1, batch)) for slot, x in zip(slots, outs, strict=True) if slot.out is not None}


def _constant(value: Any) -> ir.Value:
    return mlir.ir_constant(np.reshape(value, (1, 1)))


def _spread(x: ir.Value, rows: int, batch: int) -> ir.Value:
    """(1, batch) or (1, 1) -> (rows, batch)."""
    kind = ir.RankedTensorType(x.type)
    if tuple(kind.shape) == (rows, batch):
        return x
    wide = ir.RankedTensorType.get((rows, batch), kind.element_type)
    return hlo.BroadcastInDimOp(wide, x, mlir.dense_int_array([0, 1])).result


def _type(shape: tuple[int, ...], dtype: Any) -> ir.Type:
    return ir.RankedTensorType.get(shape, mlir.dtype_to_ir_type(np.dtype(dtype)))


def _reshaped(x: ir.Value, shape: tuple[int, ...]) -> ir.Value:
    kind = ir.RankedTensorType(x.type)
    if tuple(kind.shape) == shape:
        return x
    return hlo.ReshapeOp(ir.RankedTensorType.get(shape, kind.element_type), x).result


def _sliced(array: ir.Value, k: int) -> ir.Value:
    """Row k, (1, samples)."""
    width = ir.RankedTensorType(array.type).shape[1]
    return hlo.SliceOp(array, *(mlir.dense_int_array(n) for n in ([k, 0], [k + 1, width], [1, 1]))).result


straight_p = Primitive("straight")
straight_p.multiple_results = True
straight_p.def_abstract_eval(
    lambda *args, kernel, wide, batch: [
        ShapedArray((len(piece.results), batch), piece.dtype) for piece in kernel.pieces(batch)
    ]
)
mlir.register_lowering(
    straight_p, lambda ctx, *args, kernel, wide, batch: kernel.lower(*args, wide=wide, batch=batch)
)


def straight(program: ClosedJaxpr, most: int, known: Known = ()) -> Straight | None:
    """The program of a single sample as a kernel, if it has a rule for all that it does and not too many operations."""
    if not jax.__version__.startswith(TRIED) or not program.out_avals:
        return None
    try:
        return Straight(program, most, known)
    except (Unknown, TooLong):
        return None
