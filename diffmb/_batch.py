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
from functools import lru_cache, wraps
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, Primitive, jaxpr_as_fun
from jax.interpreters import ad, batching, mlir

from ._tiles import TILE, seldom, storing, tile_of

Arrays = tuple[Array, ...]


@dataclasses.dataclass(frozen=True)
class Explicit:
    """y = f(x): flat arrays in, flat arrays out, each with a trailing batch axis of length 1 or B."""

    call: Callable[..., Arrays]
    seldom: bool = False


@dataclasses.dataclass(frozen=True)
class Implicit:
    """y with residual(x, y, a) = 0 at a = prepare(x, y), whose change does not change the residual.

    `solve(x, y, a, b)` is (dr/dy)^-1 b, `solve_transposed` the same with the transpose.
    """

    call: Callable[..., Arrays]
    prepare: Callable[[Arrays, Arrays], Any]
    residual: Callable[[Arrays, Arrays, Any], Arrays]
    solve: Callable[[Arrays, Arrays, Any, Arrays], Arrays]
    solve_transposed: Callable[[Arrays, Arrays, Any, Arrays], Arrays]
    seldom: bool = False


@dataclasses.dataclass(frozen=True)
class Tangent:
    """dx -> dy. Arguments: x, then (implicit) y, then dx where `mask` says there is one."""

    of: Any
    mask: tuple[bool, ...]

    @property
    def seldom(self) -> bool:
        return self.of.seldom

    def call(self, *args: Array) -> Arrays:
        x, y, dx = self._split(args)
        moving = [value for value, moves in zip(x, self.mask, strict=True) if moves]
        dx = tuple(_spread(d, max(d.shape[-1], value.shape[-1])) for d, value in zip(dx, moving, strict=True))
        ready = self.of.prepare(x, y) if isinstance(self.of, Implicit) else None
        partial, x_moving = self._partial(x, y, ready, dx)
        slope = jax.jvp(partial, x_moving, dx)[1]
        return tuple(-s for s in self.of.solve(x, y, ready, slope)) if isinstance(self.of, Implicit) else slope

    def transposed(self, *args: Array) -> Arrays:
        """x, y, ybar -> xbar where `mask` says; per sample, so every x is spread over the batch first."""
        x, y, ybar = self._split(args)
        ready = None
        if isinstance(self.of, Implicit):
            ready = self.of.prepare(x, y)
            ybar = tuple(-w for w in self.of.solve_transposed(x, y, ready, ybar))
        batch = _batch(args)
        spread = [_spread(value, batch) for value, moves in zip(x, self.mask, strict=True) if moves]
        partial, x_moving = self._partial(x, y, ready, spread)
        slope, pull = jax.vjp(partial, *x_moving)
        return pull(tuple(jnp.broadcast_to(w, s.shape) for w, s in zip(ybar, slope, strict=True)))

    def _split(self, args: Arrays) -> tuple[Arrays, Arrays, Arrays]:
        n = len(self.mask)
        m = len(_outputs(self.of, args[:n])) if isinstance(self.of, Implicit) else 0
        return args[:n], args[n : n + m], args[n + m :]

    def _partial(self, x: Arrays, y: Arrays, ready: Any, like: Any) -> tuple[Callable[..., Arrays], Arrays]:
        """The function (or residual) of the moving arguments alone, and their values shaped `like` their tangents."""
        moving = [k for k, moves in enumerate(self.mask) if moves]

        def partial(*x_moving: Array) -> Arrays:
            full = list(x)
            for k, value in zip(moving, x_moving, strict=True):
                full[k] = value
            implicit = isinstance(self.of, Implicit)
            return self.of.residual(tuple(full), y, ready) if implicit else _evaluate(self.of, *full)

        return partial, tuple(jnp.broadcast_to(x[k], dx.shape) for k, dx in zip(moving, like, strict=True))


@dataclasses.dataclass(frozen=True)
class Cotangent:
    """ybar -> xbar: the transpose of a `Tangent`. Arguments: x, (implicit) y, ybar."""

    of: Tangent

    @property
    def seldom(self) -> bool:
        return self.of.seldom

    def call(self, *args: Array) -> Arrays:
        return self.of.transposed(*args)


@dataclasses.dataclass(frozen=True)
class Tile:
    """A function of one tile of a batch on CPU, with its stages stored. Arguments: those of the function."""

    of: Explicit | Implicit | Tangent | Cotangent
    seldom: bool = False

    def call(self, *args: Array) -> Arrays:
        token = storing.set(True)
        try:
            return self.of.call(*args)
        finally:
            storing.reset(token)


Function = Explicit | Implicit | Tangent | Cotangent | Tile


def _batch(args: Any) -> int:
    return max((a.shape[-1] for a in args), default=1)


def _spread(x: Array, batch: int) -> Array:
    return jnp.broadcast_to(x, x.shape[:-1] + (batch,))


def _program(fun: Function, args: Any) -> ClosedJaxpr:
    """The function as a program; traced once for each set of shapes, whoever asks for it and how often."""
    shapes = tuple((a.shape, a.dtype) for a in args)
    return _traced(fun, shapes, storing.get(), jax.config.jax_enable_x64)  # pyright: ignore


@lru_cache(maxsize=4096)
def _traced(fun: Function, shapes: tuple, store: bool, x64: bool) -> ClosedJaxpr:
    def evaluate(*args: Array) -> Arrays:
        return tuple(_spread(y, _batch(args)) for y in fun.call(*args))

    token = storing.set(store)
    try:
        return jax.make_jaxpr(evaluate)(*(jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in shapes))
    finally:
        storing.reset(token)


def _evaluate(fun: Function, *args: Array) -> Arrays:
    return tuple(jaxpr_as_fun(_program(fun, args))(*args))


def _outputs(fun: Function, args: Any) -> Any:
    """Shapes of the results; of a long batch from the program of one tile, which is the one that CPU needs anyway."""
    batch = _batch(args)
    tile = tile_of(batch, fun.seldom)
    if tile == batch:
        return _program(fun, args).out_avals
    piece = [ShapedArray(a.shape[:-1] + (min(a.shape[-1], tile),), a.dtype) for a in args]
    return [ShapedArray(o.shape[:-1] + (batch,), o.dtype) for o in _program(_tile(fun, tile), piece).out_avals]


def _tile(fun: Any, size: int) -> Function:
    return Tile(fun) if size == TILE else fun


batch_last_p = Primitive("batch_last")
batch_last_p.multiple_results = True


def call(fun: Function, *args: Array, linear: int = 0) -> list[Array]:
    """Applies `fun` to arrays that have a trailing batch axis; the last `linear` arguments enter linearly."""
    return batch_last_p.bind(*args, fun=fun, linear=linear)


@lru_cache(maxsize=4096)
def _compiled(fun: Function, linear: int) -> Callable[..., list[Array]]:
    return jax.jit(lambda *args: call(fun, *args, linear=linear))


batch_last_p.def_impl(lambda *args, fun, linear: _compiled(fun, linear)(*args))


@batch_last_p.def_abstract_eval
def _abstract(*args, fun, linear):
    return _outputs(fun, args)


def _in_tiles(fun: Function, *args: Array) -> Arrays:
    """The batch cut into tiles, one after the other; the last one is filled up with copies of the last sample.

    Tiles are cut out beforehand, each contiguous: sliced in the loop, XLA lets the layout of the caller's arrays (batch
    axis first) into the loop, which then does not vectorise.
    """
    batch = _batch(args)
    size = tile_of(batch, fun.seldom)
    count = -(-batch // size)
    cut = [k for k, a in enumerate(args) if a.shape[-1] == batch]

    def tile(pieces: list[Array]) -> Arrays:
        whole = list(args)
        for k, piece in zip(cut, pieces, strict=True):
            whole[k] = piece
        return tuple(call(_tile(fun, size), *whole))

    def pieces(a: Array) -> Array:
        a = jnp.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, count * size - batch)], mode="edge")
        return jnp.moveaxis(a.reshape(*a.shape[:-1], count, size), -2, 0)

    def together(a: Array) -> Array:
        a = jnp.moveaxis(a, 0, -2)
        return a.reshape(*a.shape[:-2], count * size)[..., :batch]

    return tuple(together(a) for a in lax.map(tile, [pieces(args[k]) for k in cut]))


def _lower(ctx, *args, fun, linear):
    """The program as a function of the module, lowered once however often it is called."""
    return mlir.core_call_lowering(ctx, *args, name="batch_last", call_jaxpr=_program(fun, ctx.avals_in))


_lower_tiles = mlir.lower_fun(lambda *args, fun, linear: _in_tiles(fun, *args), multiple_results=True)


def _lower_on_cpu(ctx, *args, fun, linear):
    batch = _batch(ctx.avals_in)
    lower = _lower if tile_of(batch, fun.seldom) == batch else _lower_tiles
    return lower(ctx, *args, fun=fun, linear=linear)


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
    outs = [_spread(o, size * batch).reshape(o.shape[:-1] + (size, batch)) for o in outs]
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
    extra = outs if isinstance(fun, Implicit) else []
    return outs, call(Tangent(fun, moves), *primals, *extra, *moving, linear=len(moving))


ad.primitive_jvps[batch_last_p] = _jvp


def _transpose(cotangents, *args, fun, linear):
    fixed, unknown = args[: len(args) - linear], args[len(args) - linear :]
    if not isinstance(fun, Tangent):
        raise NotImplementedError("diffmb transposes tangent maps only; take the derivative with jax.vjp")
    mask = iter(ad.is_undefined_primal(a) for a in unknown)
    asked = Tangent(fun.of, tuple(moves and next(mask) for moves in fun.mask))
    ybar = [ad.instantiate_zeros(c) for c in cotangents]
    found = iter(call(Cotangent(asked), *fixed, *ybar, linear=len(ybar)))
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
    out: dict = dataclasses.field(default_factory=dict, compare=False, hash=False)

    def __call__(self, *leaves: Array) -> Arrays:
        flat, self.out["structure"] = jax.tree.flatten(self.fun(*jax.tree.unflatten(self.structure, leaves)))
        return tuple(flat)


@lru_cache(maxsize=1024)
def _flat(fun: Callable[..., Any], structure: Any) -> _Flat:
    return _Flat(fun, structure)


def apply(fun: Callable[..., Any], *args: Any) -> Any:
    """Applies a function written for batch-last pytrees to batch-last pytrees, as one primitive."""
    leaves, structure = jax.tree.flatten(args)
    flat = _flat(fun, structure)
    return _restore(flat, leaves, call(Explicit(flat, seldom.get()), *leaves))


def apply_implicit(fun: Callable[..., Any], rule: "ImplicitRule", *args: Any) -> Any:
    """The same for a function whose derivative follows from the equation that its result satisfies."""
    leaves, structure = jax.tree.flatten(args)
    flat = _flat(fun, structure)
    return _restore(flat, leaves, call(_implicit(flat, rule, seldom.get()), *leaves))


def _restore(flat: _Flat, leaves: list[Array], outs: list[Array]) -> Any:
    if "structure" not in flat.out:  # an equal function was traced before this one was made
        jax.eval_shape(flat, *leaves)
    return jax.tree.unflatten(flat.out["structure"], outs)


@dataclasses.dataclass(frozen=True)
class ImplicitRule:
    """residual(*args, y, a) = 0 and solve(*args, y, a, b) = (dr/dy)^-1 b, in pytrees; also transposed if unsymmetric.

    `prepare(*args, y)` gives them `a`: what both need, or what the residual may treat as constant to first order.
    """

    residual: Callable[..., Any]
    solve: Callable[..., Any]
    solve_transposed: Callable[..., Any] | None = None
    prepare: Callable[..., Any] = lambda *args: None


@lru_cache(maxsize=1024)
def _implicit(flat: _Flat, rule: ImplicitRule, rare: bool) -> Implicit:
    def arguments(x: Arrays, y: Arrays) -> list[Any]:
        return [*jax.tree.unflatten(flat.structure, x), jax.tree.unflatten(flat.out["structure"], y)]

    def residual(x: Arrays, y: Arrays, ready: Any) -> Arrays:
        return tuple(jax.tree.leaves(rule.residual(*arguments(x, y), ready)))

    def solver(fun: Callable[..., Any]) -> Callable[[Arrays, Arrays, Any, Arrays], Arrays]:
        def solve(x: Arrays, y: Arrays, ready: Any, b: Arrays) -> Arrays:
            right = jax.tree.unflatten(flat.out["structure"], b)
            return tuple(jax.tree.leaves(fun(*arguments(x, y), ready, right)))

        return solve

    prepare = lambda x, y: rule.prepare(*arguments(x, y))
    return Implicit(flat, prepare, residual, solver(rule.solve), solver(rule.solve_transposed or rule.solve), rare)


def batch_last(fun: Callable[..., Any]) -> Callable[..., Any]:
    """Makes the public function of a batch-last one: no batch axis in, none out, `jax.vmap` to have one."""

    @wraps(fun)
    def public(*args: Any) -> Any:
        return lift(lambda *lifted: apply(fun, *lifted), *args)

    return public


def lift(fun: Callable[..., Any], *args: Any) -> Any:
    """Calls a batch-last function on arguments without a batch axis."""
    out = fun(*jax.tree.map(lambda x: jnp.asarray(x)[..., None], args))
    return jax.tree.map(lambda x: x[..., 0], out)
