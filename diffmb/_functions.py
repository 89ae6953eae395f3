"""FUNCTIONS with a trailing batch axis, and what follows from them: tangents, cotangents, tiles; each as a program.

    explicit   y = f(x)               dy = (df/dx) dx
    implicit   r(x, y) = 0            dy = -(dr/dy)^-1 (dr/dx) dx        (implicit function theorem)
"""

import dataclasses
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.core import ShapedArray
from jax.extend.core import ClosedJaxpr, jaxpr_as_fun

from ._tiles import TILE, Pace, storing

Arrays = tuple[Array, ...]


@dataclasses.dataclass(frozen=True)
class Explicit:
    """y = f(x): flat arrays in, flat arrays out, each with a trailing batch axis of length 1 or B."""

    call: Callable[..., Arrays]
    pace: Pace = Pace.UNKNOWN
    like: Callable[..., Arrays] | None = None  # the same function, from which derivatives are to be taken


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
    again: Callable[..., Arrays] | None = None  # y from x, if derivatives are to compute it so
    pace: Pace = Pace.UNKNOWN


@dataclasses.dataclass(frozen=True)
class Tangent:
    """dx -> dy. Arguments: x, then y (if implicit, and not computed again), then dx where `mask` says there is one."""

    of: Any
    mask: tuple[bool, ...]

    @property
    def pace(self) -> Pace:
        return self.of.pace

    def call(self, *args: Array) -> Arrays:
        x, y, dx = self._split(args)
        moving = [value for value, moves in zip(x, self.mask, strict=True) if moves]
        dx = tuple(spread(d, max(d.shape[-1], value.shape[-1])) for d, value in zip(dx, moving, strict=True))
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
        batch = batch_of(args)
        moving = [spread(value, batch) for value, moves in zip(x, self.mask, strict=True) if moves]
        partial, x_moving = self._partial(x, y, ready, moving)
        slope, pull = jax.vjp(partial, *x_moving)
        return pull(tuple(jnp.broadcast_to(w, s.shape) for w, s in zip(ybar, slope, strict=True)))

    def _split(self, args: Arrays) -> tuple[Arrays, Arrays, Arrays]:
        n = len(self.mask)
        if not isinstance(self.of, Implicit):
            return args[:n], (), args[n:]
        if self.of.again is not None:
            return args[:n], self.of.again(*args[:n]), args[n:]
        m = len(outputs_of(self.of, args[:n]))
        return args[:n], args[n : n + m], args[n + m :]

    def _partial(self, x: Arrays, y: Arrays, ready: Any, like: Any) -> tuple[Callable[..., Arrays], Arrays]:
        """The function (or residual) of the moving arguments alone, and their values shaped `like` their tangents."""
        moving = [k for k, moves in enumerate(self.mask) if moves]

        def partial(*x_moving: Array) -> Arrays:
            full = list(x)
            for k, value in zip(moving, x_moving, strict=True):
                full[k] = value
            if isinstance(self.of, Implicit):
                return self.of.residual(tuple(full), y, ready)
            other = getattr(self.of, "like", None)
            return evaluated(self.of if other is None else Explicit(other), *full)

        return partial, tuple(jnp.broadcast_to(x[k], dx.shape) for k, dx in zip(moving, like, strict=True))


@dataclasses.dataclass(frozen=True)
class Cotangent:
    """ybar -> xbar: the transpose of a `Tangent`. Arguments: x, y (if implicit, and not computed again), ybar."""

    of: Tangent

    @property
    def pace(self) -> Pace:
        return self.of.pace

    def call(self, *args: Array) -> Arrays:
        return self.of.transposed(*args)


@dataclasses.dataclass(frozen=True)
class Tile:
    """A function of one tile of a batch on CPU, with its stages stored if it is a whole one. Arguments: those of the
    function. Its own pace is unknown: whatever runs for many samples is not left to the machine."""

    of: Explicit | Implicit | Tangent | Cotangent
    size: int
    pace: Pace = Pace.UNKNOWN

    def call(self, *args: Array) -> Arrays:
        token = storing.set(self.size == TILE)
        try:
            return self.of.call(*args)
        finally:
            storing.reset(token)


Function = Explicit | Implicit | Tangent | Cotangent | Tile


def bare(fun: Function) -> Explicit | Implicit | Tangent | Cotangent:
    return fun.of if isinstance(fun, Tile) else fun


def batch_of(args: Any) -> int:
    return max((a.shape[-1] for a in args), default=1)


def spread(x: Array, batch: int) -> Array:
    return jnp.broadcast_to(x, x.shape[:-1] + (batch,))


def program_of(fun: Function, args: Any) -> ClosedJaxpr:
    """The function as a program; traced once for each set of shapes, whoever asks for it and how often."""
    shapes = tuple((a.shape, a.dtype) for a in args)
    return traced(fun, shapes, storing.get(), jax.config.jax_enable_x64)  # pyright: ignore


def traced(fun: Function, shapes: tuple, store: bool, x64: bool) -> ClosedJaxpr:
    """The same by shapes; how often it will run makes no difference."""
    return _traced(Explicit(fun.call) if isinstance(fun, Explicit) else fun, shapes, store, x64)


@lru_cache(maxsize=4096)
def _traced(fun: Function, shapes: tuple, store: bool, x64: bool) -> ClosedJaxpr:
    def evaluate(*args: Array) -> Arrays:
        return tuple(spread(y, batch_of(args)) for y in fun.call(*args))

    token = storing.set(store)
    try:
        return jax.make_jaxpr(evaluate)(*(jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in shapes))
    finally:
        storing.reset(token)


def evaluated(fun: Function, *args: Array) -> Arrays:
    return tuple(jaxpr_as_fun(program_of(fun, args))(*args))


def outputs_of(fun: Function, args: Any) -> Any:
    """Shapes of the results: of derivatives like those of results or arguments, without a trace; else from the program
    of a single sample, which is the one that CPU needs if it becomes a kernel."""
    batch = batch_of(args)
    whole = lambda a: ShapedArray(a.shape[:-1] + (batch,), a.dtype)
    if isinstance(fun, Tangent):
        return [whole(y) for y in outputs_of(fun.of, args[: len(fun.mask)])]
    if isinstance(fun, Cotangent):
        return [whole(x) for x, moves in zip(args, fun.of.mask, strict=False) if moves]
    fun = bare(fun)
    single = [ShapedArray(a.shape[:-1] + (1,), a.dtype) for a in args]
    return [whole(y) for y in program_of(fun, single).out_avals]


def tile_function(fun: Any, size: int) -> Function:
    """The function as it is called for each tile; what runs once in a batch of many runs many times."""
    if isinstance(fun, Explicit | Implicit) and fun.pace is Pace.ONCE:
        fun = dataclasses.replace(fun, pace=Pace.SELDOM)
        return fun if size == 1 else Tile(fun, size)
    return Tile(fun, size)
