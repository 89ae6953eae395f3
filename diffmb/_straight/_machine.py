"""Arithmetic on numbers by a machine: one short kernel that reads from a table what to do.

    r[4 n : 4 n + 4] = op(r[a], r[b], r[c])          (op, a, b, c) = table[n],          n = 0, 1, 2, ...

A kernel of its own takes 0.3 ms to compile for each operation, and 0.5 ns to run it. The machine takes 5 ns to run it
and is compiled in 0.2 s, whatever the program: the better way for long programs that do not run often. All registers
are floating numbers of one kind; what is true is 1, what is false 0, whole numbers stand for themselves.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.experimental.xla_metadata import set_xla_metadata

from ._graph import Graph
from ._kernel import Straight
from ._schedule import NOTHING, ONE, SUM, SUMS, WIDTH, schedule

Operation = Callable[[Array, Array, Array], Array]


def _one(function: Callable[[Array], Array]) -> Operation:
    return lambda a, b, c: function(a)


def _two(function: Callable[[Array, Array], Array]) -> Operation:
    return lambda a, b, c: function(a, b)


def _test(function: Callable[[Array, Array], Array]) -> Operation:
    return lambda a, b, c: function(a, b).astype(a.dtype)


_ALWAYS: dict[Any, Operation] = {
    lax.max_p: _two(lax.max), lax.min_p: _two(lax.min), lax.abs_p: _one(lax.abs), lax.sign_p: _one(lax.sign),
    lax.eq_p: _test(lax.eq), lax.ne_p: _test(lax.ne), lax.lt_p: _test(lax.lt), lax.le_p: _test(lax.le),
    lax.gt_p: _test(lax.gt), lax.ge_p: _test(lax.ge), lax.select_n_p: lambda a, b, c: jnp.where(a != 0, c, b),
}  # fmt: skip
_FLOATING: dict[Any, Operation] = {
    lax.div_p: _two(lax.div), lax.rem_p: _two(lax.rem), lax.atan2_p: _two(lax.atan2), lax.floor_p: _one(lax.floor),
    lax.ceil_p: _one(lax.ceil), lax.sqrt_p: _one(lax.sqrt), lax.rsqrt_p: _one(lax.rsqrt), lax.cbrt_p: _one(lax.cbrt),
    lax.sin_p: _one(lax.sin), lax.cos_p: _one(lax.cos), lax.tan_p: _one(lax.tan), lax.tanh_p: _one(lax.tanh),
    lax.exp_p: _one(lax.exp), lax.expm1_p: _one(lax.expm1), lax.log_p: _one(lax.log), lax.log1p_p: _one(lax.log1p),
    lax.logistic_p: _one(lax.logistic), lax.is_finite_p: lambda a, b, c: lax.is_finite(a).astype(a.dtype),
}  # fmt: skip
_LOGICAL: dict[Any, Operation] = {
    lax.and_p: _two(lax.mul), lax.or_p: _two(lax.max), lax.xor_p: _test(lax.ne), lax.not_p: _one(lambda a: 1.0 - a),
}  # fmt: skip
_OPERATIONS = _ALWAYS | _FLOATING | _LOGICAL


def _can(graph: Graph, n: int) -> bool:
    """Whether floating numbers can stand for a number and what it is made of."""
    primitive, own, arg = graph.primitive[n], graph.dtype[n].kind, graph.dtype[graph.args[n][0]].kind
    if primitive is lax.convert_element_type_p:
        return own == "f" or (arg != "f" and own != "b")
    if primitive in _FLOATING:
        return arg == "f"
    return arg == "b" if primitive in _LOGICAL else primitive in SUMS or primitive in _ALWAYS


def by_machine(program: Straight) -> Callable[..., list[Array]] | None:
    """The program as a function of arrays of a single sample; None if it has more than one kind of floating numbers, or
    operations on others that floating ones cannot stand for."""
    graph, made = program.graph, program.made
    dtypes = {graph.dtype[n] for n in [*program.given, *made]}
    floats = {dtype for dtype in dtypes if dtype.kind == "f"}
    can = all(dtype.kind in "fib" for dtype in dtypes) and all(_can(graph, n) for n in made)
    if len(floats) != 1 or not can or not made or not program.used:
        return None
    (dtype,) = floats
    plan = schedule(graph, made, program.results)
    inputs = [n for k in program.used for n in program.inputs[k].ravel().tolist()]
    used = np.unique([*plan.of.ravel().tolist(), *program.results])
    known = [n for n in used.tolist() if n in graph.fixed]
    start = np.array([1.0, -0.0, *(graph.fixed[n] for n in known)], dtype)  # -0 first would be an iota to XLA, and 0
    place = np.zeros(len(graph.kind) + 2, np.uint32)
    place[inputs] = len(start) + np.arange(len(inputs))
    place[known] = 2 + np.arange(len(known))
    place[plan.made.ravel()] = len(start) + len(inputs) + np.arange(plan.made.size)
    place[[ONE, NOTHING]] = 0, 1
    results = [place[out.ravel()] for out in program.outputs]
    codes = np.concatenate([plan.kind[:, None], place[plan.of].reshape(len(plan.kind), -1)], 1)
    tables = codes, plan.signs.astype(dtype)

    def call(*args: Array) -> list[Array]:
        given = [args[k].astype(dtype).ravel() for k in program.used]
        rows = lax.optimization_barrier((jnp.concatenate([start, *given]), *map(jnp.asarray, tables)))
        with set_xla_metadata(inlineable="false", xla_cpu_small_call="true"):
            registers = jax.jit(lambda *rows: _run(plan.kinds, *rows))(*rows)
        pairs = zip(results, program.avals, strict=True)
        of = lambda where: registers.at[where].get(mode="promise_in_bounds")
        return [of(where).reshape(aval.shape).astype(aval.dtype) for where, aval in pairs]

    return call


def _run(kinds: list[Any], start: Array, codes: Array, signs: Array) -> Array:
    """All registers. Each is read by itself: XLA makes good code of that, and poor code of a gather.

    There is always a branch that looks at the signs: XLA ends the process where an argument of a kernel is not used."""
    first, count, zero = start.shape[0], codes.shape[0], jnp.uint32(0)

    def turn(n: Array, registers: Array) -> Array:
        own = lambda table: lax.dynamic_slice(table, (n, *[zero] * (table.ndim - 1)), (1, *table.shape[1:]))[0]
        read = lambda place: lax.dynamic_slice(registers, (place,), (1,))
        code = own(codes)
        numbers = [jnp.concatenate([read(place) for place in row]) for row in code[1:].reshape(3, WIDTH)]
        each = [partial(_sum, own(signs)) if kind is SUM else _OPERATIONS[kind] for kind in kinds]
        made = lax.switch(code[0].astype(int), each, *numbers)
        return lax.dynamic_update_slice(registers, made, (first + n * WIDTH,))

    registers = jnp.concatenate([start, jnp.zeros(count * WIDTH, start.dtype)])
    return lax.fori_loop(zero, jnp.uint32(count), turn, registers)


def _sum(signs: Array, a: Array, b: Array, c: Array) -> Array:
    return a * b * signs[0] + c * signs[1]
