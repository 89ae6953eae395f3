"""The batch axis, kept last: how `jax.vmap` of a diffmb function runs fast and differentiates exactly.

Inside diffmb every array has its batch axis last and contiguous (length 1 where a number is shared), because that is
what vectorises on CPU (a `vmap` puts it first, in front of axes of length 3 and 6). One JAX primitive makes the
change: its batching rule folds the axis that `vmap` adds into the last axis, so vmap of vmap is one longer batch; on
CPU its lowering walks the batch in tiles that stay in cache. Derivatives are again functions of the same kind,

    explicit   y = f(x)               dy = (df/dx) dx
    implicit   r(x, y) = 0            dy = -(dr/dy)^-1 (dr/dx) dx        (implicit function theorem)

evaluated from x (and y) when they are needed, so that jvp, vjp, their batches and their derivatives all come back here.
"""

import dataclasses
from collections.abc import Callable
from functools import lru_cache, partial, wraps
from typing import Any
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from ._functions import (
    Arrays,
    Cotangent,
    Explicit,
    Function,
    Implicit,
    Tangent,
    bare,
    batch_of,
    evaluated,
    outputs_of,
    program_of,
    spread,
    tile_function,
    traced,
)
from ._known import known_leaves, with_known
from ._model import Model
from ._spatial._seen import results_of
from ._straight._graph import TooLong
from ._straight._kernel import UNUSED, Straight, straight
from ._straight._machine import by_machine
from ._straight._unroll import RULES, unroll
from ._tiles import Pace, by_table, longest, pace, tile_of

batch_last_p = Primitive("batch_last")
batch_last_p.multiple_results = True


def call(fun: Function, *args: Array, linear: int = 0) -> list[Array]:
    """Applies `fun` to arrays that have a trailing batch axis; the last `linear` arguments enter linearly."""
    return batch_last_p.bind(*args, fun=fun, linear=linear)


@lru_cache(maxsize=4096)
def _compiled(fun: Function, linear: int) -> Callable[..., list[Array]]:
    return jax.jit(lambda *args: call(fun, *args, linear=linear))


def _straight(graph: Any, params: dict, *into: Any) -> list[Any]:
    program, room = program_of(params["fun"], params["avals"]), graph.room
    try:
        return unroll(graph, program, into)
    except TooLong:
        if room > 0.9 * graph.most:  # too long by itself as well
            _TOO_LONG[program] = graph.most // UNUSED
        raise


_TOO_LONG: WeakKeyDictionary = WeakKeyDictionary()  # programs, with numbers of operations that did not do


RULES[batch_last_p] = _straight


@batch_last_p.def_impl
def _run(*args: Array, fun: Function, linear: int) -> list[Array]:
    with jax.disable_jit(False):  # `jax.disable_jit` is for what a user writes
        return _compiled(fun, linear)(*args)



@batch_last_p.def_abstract_eval
def _abstract(*args, fun, linear):
    return outputs_of(fun, args)


def _in_tiles(fun: Function, size: int, *args: Array) -> Arrays:
    """The batch cut into tiles, one after the other; the last one is filled up with copies of the last sample.

    Tiles are cut out beforehand, each contiguous: sliced in the loop, XLA lets the layout of the caller's arrays (batch
    axis first) into the loop, which then does not vectorise.
    """
    batch = batch_of(args)
    count = -(-batch // size)
    cut = [k for k, a in enumerate(args) if a.shape[-1] == batch]

    def tile(pieces: list[Array]) -> Arrays:
        whole = list(args)
        for k, piece in zip(cut, pieces, strict=True):
            whole[k] = piece
        return tuple(call(tile_function(fun, size), *whole))

    def pieces(a: Array) -> Array:
        a = jnp.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, count * size - batch)], mode="edge")
        return jnp.moveaxis(a.reshape(*a.shape[:-1], count, size), -2, 0)

    def together(a: Array) -> Array:
        a = jnp.moveaxis(a, 0, -2)
        return a.reshape(*a.shape[:-2], count * size)[..., :batch]

    return tuple(together(a) for a in lax.map(tile, [pieces(args[k]) for k in cut]))


def _lower(ctx, *args, fun, linear):
    """The program as a function of the module, lowered once however often it is called."""
    return mlir.core_call_lowering(ctx, *args, name="batch_last", call_jaxpr=program_of(fun, ctx.avals_in))


@lru_cache(maxsize=32)  # some megabytes each
def _written_out(fun: Function, shapes: tuple, x64: bool, most: int) -> Straight | None:
    """The program of a single sample, written out, if it is short enough."""
    program = traced(fun, shapes, False, x64)
    return None if _TOO_LONG.get(program, -1) >= most else straight(program, most, _known(fun))


def _is_derivative(fun: Function) -> bool:
    return isinstance(fun, Tangent | Cotangent)


def _program(fun: Function, avals: Any) -> Straight | None:
    """The same; how short it must be depends on how often it runs."""
    own = bare(fun)
    single = tuple(((*a.shape[:-1], 1), a.dtype) for a in avals)
    pace = Pace.SELDOM if own.pace is Pace.ONCE and batch_of(avals) > 1 else own.pace  # as each tile
    return _written_out(own, single, jax.config.jax_enable_x64, longest(pace, _is_derivative(own)))  # pyright: ignore


def _kernel(program: Straight, fun: Function, batch: int) -> Callable[..., list[Array]] | None:
    """The program of samples side by side as one kernel: its own, or that of the machine if a sample is alone; None if
    arrays are better."""
    derivative, length = _is_derivative(bare(fun)), len(program.made)
    if batch > 1 or not by_table(fun.pace, derivative, length):
        return program.over(batch)
    short = fun.pace is not Pace.ONCE or length <= longest(Pace.UNKNOWN, derivative)
    return by_machine(program) or (program.over(batch) if short else None)


def _known(fun: Any) -> tuple[bytes | None, ...]:
    """What is known of the first arguments."""
    while not isinstance(fun, Explicit | Implicit):
        fun = fun.of
    return getattr(fun.call, "known", ())


def _lower_side_by_side(ctx, *args, fun, linear):
    """Samples of one tile, or a single one: by one kernel, or as arrays."""
    program = _program(fun, ctx.avals_in)
    kernel = None if program is None else _kernel(program, fun, batch_of(ctx.avals_in))
    if kernel is None:
        return _lower(ctx, *args, fun=fun, linear=linear)
    like = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in ctx.avals_in]
    return mlir.core_call_lowering(ctx, *args, name="batch_last", call_jaxpr=jax.make_jaxpr(kernel)(*like))


def _lower_on_cpu(ctx, *args, fun, linear):
    batch = batch_of(ctx.avals_in)
    program = None if batch == 1 else _program(fun, ctx.avals_in)
    size = tile_of(batch, fun.pace, None if program is None else len(program.made))
    if size == batch:
        return _lower_side_by_side(ctx, *args, fun=fun, linear=linear)
    return mlir.lower_fun(partial(_in_tiles, fun, size), multiple_results=True)(ctx, *args)


mlir.register_lowering(batch_last_p, _lower)
mlir.register_lowering(batch_last_p, _lower_on_cpu, "cpu")


def _fold(args, dims, *, fun, linear):
    size = next(a.shape[d] for a, d in zip(args, dims, strict=True) if d is not None)
    batch = max(a.shape[-1] if d is None else jnp.moveaxis(a, d, 0).shape[-1] for a, d in zip(args, dims, strict=True))
    folded = []
    for a, d in zip(args, dims, strict=True):
        if d is None and a.shape[-1] == 1:
            folded.append(a)
            continue
        a = a[..., None, :] if d is None else jnp.moveaxis(a, d, -2)
        a = jnp.broadcast_to(a, a.shape[:-2] + (size, batch))
        folded.append(a.reshape(a.shape[:-2] + (size * batch,)))
    outs = call(fun, *folded, linear=linear)
    outs = [spread(o, size * batch).reshape(o.shape[:-1] + (size, batch)) for o in outs]
    return outs, [o.ndim - 2 for o in outs]


batching.primitive_batchers[batch_last_p] = _fold


def _jvp(primals, tangents, *, fun, linear):
    moves = tuple(not isinstance(t, ad.Zero) for t in tangents)
    moving = [t for t in tangents if not isinstance(t, ad.Zero)]
    outs = call(fun, *primals, linear=linear)
    fixed = len(primals) - linear
    if linear and not any(moves[:fixed]):
        dx = [ad.instantiate_zeros(t) for t in tangents[fixed:]]
        return outs, call(fun, *primals[:fixed], *dx, linear=linear)
    extra = outs if isinstance(fun, Implicit) and fun.again is None else []
    return outs, call(Tangent(fun, moves), *primals, *extra, *moving, linear=len(moving))


ad.primitive_jvps[batch_last_p] = _jvp


def _transpose(cotangents, *args, fun, linear):
    fixed, unknown = args[: len(args) - linear], args[len(args) - linear :]
    given = [ad.instantiate_zeros(c) for c in cotangents]
    if isinstance(fun, Cotangent):
        outs = call(fun.of, *fixed, *given, linear=len(given))
        found = iter([out for out, a in zip(outs, unknown, strict=True) if ad.is_undefined_primal(a)])
    elif isinstance(fun, Tangent):
        mask = iter(ad.is_undefined_primal(a) for a in unknown)
        asked = Tangent(fun.of, tuple(moves and next(mask) for moves in fun.mask))
        found = iter(call(Cotangent(asked), *fixed, *given, linear=len(given)))
    else:
        raise NotImplementedError("diffmb transposes tangent maps and their transposes")
    xbar = []
    for a in unknown:
        if not ad.is_undefined_primal(a):
            xbar.append(None)
            continue
        x = next(found)
        xbar.append(x.sum(-1, keepdims=True) if a.aval.shape[-1] == 1 < x.shape[-1] else x)
    return [None] * len(fixed) + xbar


ad.primitive_transposes[batch_last_p] = _transpose


@dataclasses.dataclass(frozen=True)
class _Flat:
    """A function of pytrees as one of flat arrays; remembers the structure of what it returns."""

    fun: Callable[..., Any]
    structure: Any
    known: tuple[bytes | None, ...]
    out: dict = dataclasses.field(default_factory=dict, compare=False, hash=False)

    def __call__(self, *leaves: Array) -> Arrays:
        flat, self.out["structure"] = jax.tree.flatten(self.fun(*jax.tree.unflatten(self.structure, leaves)))
        return tuple(flat)


@lru_cache(maxsize=1024)
def _flat(fun: Callable[..., Any], structure: Any) -> _Flat:
    return _Flat(fun, structure, tuple(known_leaves(jax.tree.unflatten(structure, range(structure.num_leaves)))))


def apply(fun: Callable[..., Any], *args: Any, like: Callable[..., Any] | None = None) -> Any:
    """Applies a function written for batch-last pytrees to batch-last pytrees, as one primitive.

    Its derivatives are those of `like`: another way to the same result, which need not be computed without them."""
    leaves, structure = jax.tree.flatten(args)
    flat = _flat(fun, structure)
    other = None if like is None else _flat(like, structure)
    return _restore(flat, leaves, call(Explicit(flat, pace.get(), other), *leaves))


def apply_implicit(fun: Callable[..., Any], rule: "ImplicitRule", *args: Any) -> Any:
    """The same for a function whose derivative follows from the equation that its result satisfies."""
    leaves, structure = jax.tree.flatten(args)
    flat = _flat(fun, structure)
    return _restore(flat, leaves, call(_implicit(flat, rule, pace.get()), *leaves))


@lru_cache(maxsize=256)
def entries_of(fun: Callable[..., Any], structure: Any, shapes: tuple) -> list[np.ndarray | None]:
    """What is seen of the results of a batch-last function for single arguments of this tree, shapes and dtypes."""
    flat, lifted = _flat(fun, structure), tuple(((*shape, 1), dtype) for shape, dtype in shapes)
    program = traced(Explicit(flat), lifted, False, jax.config.jax_enable_x64)  # pyright: ignore
    return [None if own is None else own[..., 0] for own in results_of(program, flat.known)]


def _restore(flat: _Flat, leaves: list[Array], outs: list[Array]) -> Any:
    if "structure" not in flat.out:  # an equal function was traced before this one was made
        jax.eval_shape(flat, *leaves)
    return jax.tree.unflatten(flat.out["structure"], outs)


@dataclasses.dataclass(frozen=True)
class ImplicitRule:
    """residual(*args, y, a) = 0 and solve(*args, y, a, b) = (dr/dy)^-1 b, in pytrees; also transposed if unsymmetric.

    `prepare(*args, y)` gives them `a`: what both need, or what the residual may treat as constant to first order. A
    `direct` function is no iteration: its derivatives compute y anew, since most of what that takes they need anyway.
    """

    residual: Callable[..., Any]
    solve: Callable[..., Any]
    solve_transposed: Callable[..., Any] | None = None
    prepare: Callable[..., Any] = lambda *args: None
    direct: bool = False


@lru_cache(maxsize=1024)
def _implicit(flat: _Flat, rule: ImplicitRule, own: Pace) -> Implicit:
    def arguments(x: Arrays, y: Arrays) -> list[Any]:
        return [*jax.tree.unflatten(flat.structure, x), jax.tree.unflatten(flat.out["structure"], y)]

    def residual(x: Arrays, y: Arrays, ready: Any) -> Arrays:
        return tuple(jax.tree.leaves(rule.residual(*arguments(x, y), ready)))

    def solver(fun: Callable[..., Any]) -> Callable[[Arrays, Arrays, Any, Arrays], Arrays]:
        def solve(x: Arrays, y: Arrays, ready: Any, b: Arrays) -> Arrays:
            right = jax.tree.unflatten(flat.out["structure"], b)
            return tuple(jax.tree.leaves(fun(*arguments(x, y), ready, right)))

        return solve

    @jax.custom_jvp
    def again(*x: Array) -> Arrays:
        return evaluated(found, *x)

    @again.defjvp
    def _(x: Arrays, dx: Arrays) -> tuple[Arrays, Arrays]:
        return jax.jvp(lambda *x: tuple(call(found, *x)), x, dx)

    prepare = lambda x, y: rule.prepare(*arguments(x, y))
    solvers = solver(rule.solve), solver(rule.solve_transposed or rule.solve)
    found = Implicit(flat, prepare, residual, *solvers, again if rule.direct else None, own)
    return found


def batch_last(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Makes the public function of a batch-last one: no batch axis in, none out, `jax.vmap` to have one."""

    @wraps(fun)
    def public(*args: Any) -> Any:
        return lift(lambda *lifted: apply(fun, *lifted), *args)

    return public


def lift(fun: Callable[..., Any], *args: Any) -> Any:
    """Calls a batch-last function on arguments without a batch axis."""
    looked_at = [with_known(x) if isinstance(x, Model) else x for x in args]
    out = fun(*jax.tree.map(lambda x: lax.expand_dims(jnp.asarray(x), (np.ndim(x),)), looked_at))
    return jax.tree.map(lambda x: lax.squeeze(x, (x.ndim - 1,)), out)
