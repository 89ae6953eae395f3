"""APART: the part of a loop that works on small numbers alone, as a call of its own.

On CPU a sequence of kernels runs one after the other if it is short, or if none of its arrays is longer than half a
kilobyte; else XLA looks for those that could run side by side, which takes longer than they do: a turn of a pendulum's
loop 2.6 instead of 1.1 us. So what a turn computes is one call, and what it reads from and writes to long arrays are a
few single rows; and numbers that go round are joined, that they are not handed on one by one.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.extend.core import ClosedJaxpr, Primitive, jaxpr_as_fun
from jax.extend.mlir import ir
from jax.interpreters import ad, batching, mlir

apart_p = Primitive("apart")
apart_p.multiple_results = True
apart_p.def_impl(lambda *args, program: jaxpr_as_fun(program)(*args))
apart_p.def_abstract_eval(lambda *args, program: program.out_avals)


def apart(fun: Callable[..., Any], *args: Any) -> Any:
    """fun(*args); everything that it depends on is among its arguments."""
    leaves, structure = jax.tree.flatten(args)
    leaves, out = [jnp.asarray(x) for x in leaves], []

    def flat(*leaves: Array) -> list[Array]:
        found, shape = jax.tree.flatten(fun(*jax.tree.unflatten(structure, leaves)))
        out.append(shape)
        return found

    program = jax.make_jaxpr(flat)(*leaves)
    return jax.tree.unflatten(out[0], apart_p.bind(*leaves, program=program))


def _lower(ctx: Any, *args: Any, program: ClosedJaxpr) -> Any:
    return mlir.core_call_lowering(ctx, *args, name="apart", call_jaxpr=program)


def _lower_on_cpu(ctx: Any, *args: Any, program: ClosedJaxpr) -> Any:
    outs = _lower(ctx, *args, program=program)
    first = outs[0][0] if isinstance(outs[0], list | tuple) else outs[0]
    own = ir.DictAttr.get({"inlineable": ir.StringAttr.get("false")})
    first.owner.attributes["mhlo.frontend_attributes"] = own
    return outs


mlir.register_lowering(apart_p, _lower)
mlir.register_lowering(apart_p, _lower_on_cpu, "cpu")


def _batch(args: Any, dims: Any, *, program: ClosedJaxpr) -> Any:
    mapped = [a if d is None else jnp.moveaxis(a, d, 0) for a, d in zip(args, dims, strict=True)]
    along = jax.vmap(jaxpr_as_fun(program), [None if d is None else 0 for d in dims])
    outs = apart_p.bind(*mapped, program=jax.make_jaxpr(along)(*mapped))
    return outs, [0] * len(outs)


batching.primitive_batchers[apart_p] = _batch


def _jvp(primals: Any, tangents: Any, *, program: ClosedJaxpr) -> Any:
    moving = [k for k, d in enumerate(tangents) if not isinstance(d, ad.Zero)]
    floating = [jnp.issubdtype(aval.dtype, jnp.floating) for aval in program.out_avals]

    def slope(primals: list, dots: list) -> list:
        def along(*moved: Array) -> list:
            full = list(primals)
            for k, value in zip(moving, moved, strict=True):
                full[k] = value
            outs = jaxpr_as_fun(program)(*full)
            return [o for o, f in zip(outs, floating, strict=True) if f]

        return jax.jvp(along, [primals[k] for k in moving], dots)[1]

    own = list(primals), [tangents[k] for k in moving]
    outs = apart_p.bind(*primals, program=program)  # by itself: it is not batched where its tangents are
    dots = iter(apart_p.bind(*own[0], *own[1], program=jax.make_jaxpr(slope)(*own)))
    still = [ad.Zero(aval.to_tangent_aval()) for aval in program.out_avals]
    return outs, [next(dots) if f else zero for f, zero in zip(floating, still, strict=True)]


ad.primitive_jvps[apart_p] = _jvp


class Joined:
    """How the arrays of a tree like this one are joined, those of each dtype in one."""

    def __init__(self, like: Any):
        leaves, self.structure = jax.tree.flatten(like)
        self.shapes = [jnp.shape(x) for x in leaves]
        self.dtypes = [jnp.result_type(x) for x in leaves]
        self.kinds = list(dict.fromkeys(self.dtypes))

    def join(self, tree: Any) -> list[Array]:
        leaves = [jnp.ravel(x) for x in jax.tree.leaves(tree)]
        own = lambda kind: [x for x, dtype in zip(leaves, self.dtypes, strict=True) if dtype == kind]
        return [jnp.concatenate(own(kind)).astype(kind) for kind in self.kinds]

    def part(self, vectors: list[Array]) -> Any:
        given = dict(zip(self.kinds, vectors, strict=True))
        return self._cut([given[dtype] for dtype in self.dtypes], self.dtypes)

    def row(self, tree: Any, dtype: Any) -> Array:
        """All in one row of this dtype, whole numbers and truth values too."""
        return jnp.concatenate([jnp.ravel(x).astype(dtype) for x in jax.tree.leaves(tree)])

    def table(self, tree: Any, dtype: Any) -> Array:
        """Many such rows, from a tree whose arrays have one more axis in front."""
        return jnp.concatenate([x.reshape(x.shape[0], -1).astype(dtype) for x in jax.tree.leaves(tree)], 1)

    def rows(self, table: Array) -> Any:
        """From a table of such rows: the tree, with one more axis in front."""
        return self._cut([table] * len(self.shapes), [table.dtype] * len(self.shapes))

    def _cut(self, given: list[Array], kinds: list[Any]) -> Any:
        start, found = dict.fromkeys(kinds, 0), []
        for x, kind, shape, dtype in zip(given, kinds, self.shapes, self.dtypes, strict=True):
            size = int(np.prod(shape))
            piece = x[..., start[kind] : start[kind] + size].reshape(*x.shape[:-1], *shape)
            found.append(piece.astype(dtype))
            start[kind] += size
        return jax.tree.unflatten(self.structure, found)
