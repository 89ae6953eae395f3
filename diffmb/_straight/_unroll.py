"""A program of arrays (a jaxpr) as arithmetic on numbers: loops are written out, products are sums of products.

    y_ij = sum_k a_ik b_kj              A = L L^T,  L x = b,  row by row             select(known, a, b) = a or b

What has no rule here raises `Unknown`, and the program stays one of arrays. Primitives of diffmb register theirs in
`RULES` where they are defined; a rule also finds the shapes and dtypes of its arguments in its parameters, as `avals`.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Literal

from ._graph import Graph, TooLong
from ._moves import MOVES, Places, Rule, Unknown, values
from ._operations import OPERATIONS

RULES: dict[Any, Rule] = dict(MOVES)

_HOPELESS = 4  # times the room that is left: what a loop would need if all its turns were like the first
_EACH = {*OPERATIONS, lax.integer_pow_p, lax.square_p, lax.clamp_p}


def unroll(graph: Graph, program: ClosedJaxpr, args: Sequence[Places]) -> list[Places]:
    """The results of a program as numbers of the graph."""
    jaxpr = program.jaxpr
    known: dict[Any, Places] = {}
    known |= zip(jaxpr.constvars, map(graph.constants, program.consts), strict=True)
    known |= zip(jaxpr.invars, args, strict=True)
    typed = lambda v: np.asarray(v.val, v.aval.dtype)
    read = lambda v: graph.constants(typed(v)) if isinstance(v, Literal) else known[v]
    for eqn in jaxpr.eqns:
        into = [read(v) for v in eqn.invars]
        if eqn.primitive in _EACH:
            outs = _each(graph, eqn, into)
        elif eqn.primitive in RULES:
            outs = RULES[eqn.primitive](graph, eqn.params | {"avals": [v.aval for v in eqn.invars]}, *into)
        else:
            outs = _named(graph, eqn, into)
        known |= zip(eqn.outvars, map(np.asarray, outs if isinstance(outs, list) else [outs]), strict=True)
    return [read(v) for v in jaxpr.outvars]


def _each(graph: Graph, eqn: Any, into: list[Places]) -> Places:
    """An operation on the entries of arrays of one shape (or on numbers beside them)."""
    out, primitive = eqn.outvars[0].aval, eqn.primitive
    if primitive is lax.convert_element_type_p and eqn.invars[0].aval.dtype == out.dtype:
        return into[0]
    rows = [(a if a.shape == out.shape else np.broadcast_to(a, out.shape)).ravel() for a in into]
    if primitive in _WRITTEN:
        found = [_WRITTEN[primitive](graph, eqn.params, *one) for one in zip(*(a.tolist() for a in rows), strict=True)]
        return np.array(found, int).reshape(out.shape)
    return graph.each(primitive, rows, out.dtype).reshape(out.shape)


def _power(graph: Graph, p: dict, a: int) -> int:
    """a^y by squaring."""
    one = graph.constant(np.ones((), graph.dtype[a]))
    found, square, y = one, a, abs(p["y"])
    while y:
        found, square, y = graph.mul(found, square) if y % 2 else found, graph.mul(square, square), y // 2
    return graph.div(one, found) if p["y"] < 0 else found


def _clamped(graph: Graph, p: dict, low: int, a: int, high: int) -> int:
    dtype = graph.dtype[a]
    return graph.do(lax.min_p, (graph.do(lax.max_p, (a, low), dtype), high), dtype)


_WRITTEN: dict[Any, Callable[..., int]] = {
    lax.integer_pow_p: _power,
    lax.square_p: lambda graph, p, a: graph.mul(a, a),
    lax.clamp_p: _clamped,
}


# --- sums and products --------------------------------------------------------------------------------------------


def _fold(primitive: Any) -> Rule:
    """A reduction over axes."""

    def rule(graph: Graph, p: dict, x: Places) -> Places:
        axes = tuple(p["axes"])
        kept = [k for k in range(x.ndim) if k not in axes]
        shape = tuple(x.shape[k] for k in kept)
        rows = x.transpose([*kept, *axes]).reshape(*shape, -1)
        if not rows.shape[-1]:
            raise Unknown("a reduction of nothing")
        out, dtype = np.zeros(shape, int), p["avals"][0].dtype
        filled = ~graph.zeros(rows) if primitive is lax.add_p else np.ones(rows.shape, bool)
        for place in np.ndindex(*shape):
            own = rows[place][filled[place]].tolist()
            out[place] = reduce(lambda a, b: graph.do(primitive, (a, b), dtype), own) if own else rows[place][0]
        return out

    return rule


def _first(better: Any) -> Rule:
    """Where the largest or smallest entry along an axis is, the first of equals."""

    def rule(graph: Graph, p: dict, x: Places) -> Places:
        rows, dtype = np.moveaxis(x, p["axes"][0], -1), np.dtype(p["index_dtype"])
        out = np.zeros(rows.shape[:-1], int)
        for place in np.ndindex(*out.shape):
            best, where = int(rows[place][0]), graph.constant(np.zeros((), dtype))
            for k, n in enumerate(rows[place].tolist()[1:], 1):
                found = graph.do(better, (n, best), bool)
                where = graph.do(lax.select_n_p, (found, where, graph.constant(np.asarray(k, dtype))), dtype)
                best = graph.do(lax.select_n_p, (found, best, n), graph.dtype[best])
            out[place] = where
        return out

    return rule


def _dot_general(graph: Graph, p: dict, a: Places, b: Places) -> Places:
    (sum_a, sum_b), (batch_a, batch_b) = p["dimension_numbers"]
    free_a = [k for k in range(a.ndim) if k not in (*sum_a, *batch_a)]
    free_b = [k for k in range(b.ndim) if k not in (*sum_b, *batch_b)]
    lengths = [a.shape[k] for k in batch_a], [a.shape[k] for k in free_a], [b.shape[k] for k in free_b]
    count = [int(np.prod(n)) for n in lengths]
    left = a.transpose([*batch_a, *free_a, *sum_a]).reshape(count[0], count[1], -1)
    right = b.transpose([*batch_b, *free_b, *sum_b]).reshape(count[0], count[2], -1)
    dtype = p["preferred_element_type"] or (graph.dtype[int(left.flat[0])] if left.size else float)
    filled = lambda rows: [[{k: x for k, x in enumerate(row) if not graph.is_zero(x)} for row in own] for own in rows]
    pairs = zip(filled(left.tolist()), filled(right.tolist()), strict=True)
    out = [_dot(graph, a, b, dtype) for own, other in pairs for a in own for b in other]
    return np.array(out, int).reshape([*lengths[0], *lengths[1], *lengths[2]])


def _dot(graph: Graph, a: dict[int, int], b: dict[int, int], dtype: Any) -> int:
    """Of two rows of which the zeros are left out."""
    return graph.total([graph.mul(x, b[k]) for k, x in a.items() if k in b], dtype)


def _reduce(graph: Graph, p: dict, x: Places, start: Places) -> Places:
    """`lax.reduce` by addition."""
    body = p["jaxpr"].jaxpr.eqns
    if len(body) != 1 or body[0].primitive is not lax.add_p or graph.value(int(start)) != 0:
        raise Unknown("a reduction that is not a sum")
    return RULES[lax.reduce_sum_p](graph, p | {"axes": p["dimensions"]}, x)


def _cholesky(graph: Graph, p: dict, A: Places) -> Places:
    """L with A = L L^T, from the lower half of A."""
    if not A.size:
        return A
    m, dtype = A.shape[-1], graph.dtype[int(A.flat[0])]
    out = np.broadcast_to(graph.constants(np.zeros((), dtype)), A.shape).copy()
    one = graph.constant(np.ones((), dtype))
    for place in np.ndindex(*A.shape[:-2]):
        L, own = out[place].tolist(), A[place].tolist()
        for j in range(m):
            rest = graph.sub(own[j][j], graph.dot(L[j][:j], L[j][:j], dtype))
            L[j][j] = graph.do(lax.sqrt_p, (rest,), dtype)
            inverse = graph.div(one, L[j][j])
            for i in range(j + 1, m):
                rest = graph.sub(own[i][j], graph.dot(L[i][:j], L[j][:j], dtype))
                L[i][j] = graph.mul(rest, inverse)
        out[place] = L
    return out


def _triangular_solve(graph: Graph, p: dict, T: Places, B: Places) -> Places:
    """T x = b, T^T x = b, or x T = b; forwards or backwards."""
    if not B.size:
        return B
    turn = bool(p["transpose_a"]) != (not p["left_side"])
    T, B = (np.swapaxes(T, -1, -2) if turn else T), (B if p["left_side"] else np.swapaxes(B, -1, -2))
    m, dtype = T.shape[-1], graph.dtype[int(T.flat[0])]
    lower, one = bool(p["lower"]) != turn, graph.constant(np.ones((), dtype))
    order = list(range(m)) if lower else list(range(m))[::-1]
    out = np.zeros(B.shape, int)
    for *front, k in np.ndindex(*B.shape[:-2], B.shape[-1]):
        A, b, x = T[tuple(front)].tolist(), B[tuple(front)][:, k].tolist(), out[tuple(front)][:, k].tolist()
        for n, i in enumerate(order):
            done = order[:n]
            rest = graph.sub(b[i], graph.dot([A[i][j] for j in done], [x[j] for j in done], dtype))
            x[i] = rest if p["unit_diagonal"] else graph.mul(rest, graph.div(one, A[i][i]))
        out[tuple(front)][:, k] = x
    return out if p["left_side"] else np.swapaxes(out, -1, -2)


RULES |= {
    lax.reduce_sum_p: _fold(lax.add_p),
    lax.reduce_max_p: _fold(lax.max_p),
    lax.reduce_min_p: _fold(lax.min_p),
    lax.reduce_and_p: _fold(lax.and_p),
    lax.reduce_or_p: _fold(lax.or_p),
    lax.reduce_prod_p: _fold(lax.mul_p),
    lax.argmax_p: _first(lax.gt_p),
    lax.argmin_p: _first(lax.lt_p),
    lax.reduce_p: _reduce,
    lax.dot_general_p: _dot_general,
    lax.linalg.cholesky_p: _cholesky,
    lax.linalg.triangular_solve_p: _triangular_solve,
}


# --- programs within programs -------------------------------------------------------------------------------------


_CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "custom_jvp_call": "call_jaxpr",
          "custom_vjp_call": "call_jaxpr", "remat2": "jaxpr", "checkpoint": "jaxpr"}  # fmt: skip


def _named(graph: Graph, eqn: Any, into: list[Places]) -> list[Places] | Places:
    """Calls, and primitives that have no name in `jax.lax` with some versions."""
    name, p = eqn.primitive.name, eqn.params
    if name in _CALLS:
        inner = p[_CALLS[name]]
        return unroll(graph, inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, ()), into)
    if name == "add_any":
        return graph.each(lax.add_p, [a.ravel() for a in into], None).reshape(into[0].shape)
    if name in ("stop_gradient", "reshard"):  # the second where a program is made within `jax.shard_map`
        return into
    if name == "stack":
        return np.stack(into, p["axis"])
    if name == "unstack":
        return [np.take(into[0], k, p["axis"]) for k in range(into[0].shape[p["axis"]])]
    if name == "tile":
        return np.tile(into[0], p["reps"])
    raise Unknown(name)


def _scan(graph: Graph, p: dict, *into: Places) -> list[Places]:
    first, second = p["num_consts"], p["num_consts"] + p["num_carry"]
    fixed, carry, along = list(into[:first]), list(into[first:second]), into[second:]
    turns, room = range(p["length"]), graph.room
    rows = {}
    for k in reversed(turns) if p["reverse"] else turns:
        if len(rows) == 1 and (room - graph.room) * (len(turns) - 1) > _HOPELESS * graph.room:
            raise TooLong
        outs = unroll(graph, p["jaxpr"], [*fixed, *carry, *(np.asarray(a[k]) for a in along)])
        carry, rows[k] = outs[: len(carry)], outs[len(carry) :]
    if not turns:
        raise Unknown("a loop without turns")
    return [*carry, *(np.stack(parts) for parts in zip(*(rows[k] for k in turns), strict=True))]


def _cond(graph: Graph, p: dict, which: Places, *into: Places) -> list[Places]:
    """The branch, if it is known beforehand; else one of two whose results are both computed."""
    branches = p["branches"]
    if graph.value(int(which)) is not None:
        known = min(max(int(values(graph, which)), 0), len(branches) - 1)
        return unroll(graph, branches[known], into)
    if len(branches) > 2:
        raise Unknown("a choice among many that is not known beforehand")
    test = graph.do(lax.ne_p, (int(which), graph.constant(np.zeros((), graph.dtype[int(which)]))), bool)
    no, yes = (unroll(graph, branch, into) for branch in branches)
    return [_selected(graph, test, *pair) for pair in zip(no, yes, strict=True)]


def _selected(graph: Graph, test: int, no: Places, yes: Places) -> Places:
    pairs = zip(np.ravel(no).tolist(), np.ravel(yes).tolist(), strict=True)
    return np.array([graph.select(test, *pair) for pair in pairs], int).reshape(np.shape(no))


RULES |= {lax.scan_p: _scan, lax.cond_p: _cond}
