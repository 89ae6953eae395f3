"""A linear map with a transpose of its own: how loops of unknown length go backwards.

    y = A(r) x            forward(r, x)
    x = A(r)^T y          backward(r, y)            r: what the map depends on, not linearly

JAX can run a while loop but not transpose it; the two directions are written as two loops and tied together here. Under
`vmap` both are batched, and the derivative with respect to r is that of the loops themselves: forward mode, so that
Hessians come as `jax.hessian`, forward over reverse; who asks for reverse over something is told so. Or it is that of
another way to the same map, `like`, which JAX can transpose and which is not computed without it.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from ._errors import MechanismError

Arrays = tuple[Array, ...]


@dataclasses.dataclass(frozen=True)
class _Map:
    """Both directions on flat arrays, `forward(*r, *x)` and `backward(*r, *y)`, and the shapes of y and x; `like` them,
    the two from which derivatives by r are taken.

    The shapes are given, so that a direction that nobody asks for is never traced.
    """

    forward: Callable[..., Arrays]
    backward: Callable[..., Arrays]
    y: tuple
    x: tuple
    like: tuple[Callable[..., Arrays], ...] | None = None

    @property
    def turned(self) -> "_Map":
        return _Map(self.backward, self.forward, self.x, self.y, None if self.like is None else self.like[::-1])


@dataclasses.dataclass(frozen=True)
class _Batched:
    """A direction under vmap: r batched where `mapped` says, the linear arguments and the results always."""

    fun: Callable[..., Arrays]
    mapped: tuple[bool, ...]

    def __call__(self, *args: Any) -> Arrays:
        axes = [0 if m else None for m in self.mapped] + [0] * (len(args) - len(self.mapped))
        return tuple(jax.vmap(self.fun, axes)(*args))


linear_p = Primitive("linear")
linear_p.multiple_results = True
linear_p.def_impl(lambda *args, map, fixed: map.forward(*args))


@linear_p.def_abstract_eval
def _abstract(*args, map, fixed):
    return list(map.y)


mlir.register_lowering(linear_p, mlir.lower_fun(lambda *args, map, fixed: map.forward(*args), multiple_results=True))


def _jvp(primals, tangents, *, map, fixed):
    outs = linear_p.bind(*primals, map=map, fixed=fixed)
    dx = [ad.instantiate_zeros(t) for t in tangents[fixed:]]
    slope = linear_p.bind(*primals[:fixed], *dx, map=map, fixed=fixed)
    moving = [k for k, t in enumerate(tangents[:fixed]) if not isinstance(t, ad.Zero)]
    if moving:

        def along(*moved: Array) -> Arrays:
            args = list(primals)
            for k, value in zip(moving, moved, strict=True):
                args[k] = value
            return tuple((map.like or (map.forward,))[0](*args))

        more = jax.jvp(along, tuple(primals[k] for k in moving), tuple(tangents[k] for k in moving))[1]
        more = more if map.like is not None else tuple(forwards_p.bind(*more))
        slope = [a + b for a, b in zip(slope, more, strict=True)]
    return outs, slope


ad.primitive_jvps[linear_p] = _jvp


def _transpose(cotangents, *args, map, fixed):
    ybar = [ad.instantiate_zeros(c) for c in cotangents]
    return [*[None] * fixed, *linear_p.bind(*args[:fixed], *ybar, map=map.turned, fixed=fixed)]


ad.primitive_transposes[linear_p] = _transpose


def _batch(args, dims, *, map, fixed):
    size = next(a.shape[d] for a, d in zip(args, dims, strict=True) if d is not None)
    mapped = tuple(d is not None for d in dims[:fixed])
    moved = [a if d is None else jnp.moveaxis(a, d, 0) for a, d in zip(args, dims, strict=True)]
    linear = [
        jnp.broadcast_to(a, (size, *a.shape)) if d is None else a
        for a, d in zip(moved[fixed:], dims[fixed:], strict=True)
    ]
    y, x = (tuple(ShapedArray((size, *a.shape), a.dtype) for a in side) for side in (map.y, map.x))
    like = None if map.like is None else tuple(_Batched(fun, mapped) for fun in map.like)
    both = _Map(_Batched(map.forward, mapped), _Batched(map.backward, mapped), y, x, like)
    outs = linear_p.bind(*moved[:fixed], *linear, map=both, fixed=fixed)
    return outs, [0] * len(outs)


batching.primitive_batchers[linear_p] = _batch


forwards_p = Primitive("forwards")
forwards_p.multiple_results = True
forwards_p.def_impl(lambda *args: list(args))
forwards_p.def_abstract_eval(lambda *args: list(args))
mlir.register_lowering(forwards_p, lambda ctx, *args: args)
ad.primitive_jvps[forwards_p] = lambda args, dots: (
    forwards_p.bind(*args),
    forwards_p.bind(*(ad.instantiate_zeros(d) for d in dots)),
)
batching.primitive_batchers[forwards_p] = lambda args, dims: (forwards_p.bind(*args), dims)


def _backwards(cotangents, *args):
    raise MechanismError(
        "second derivatives of a simulation go forwards over the first ones: write jax.hessian(f), which is "
        "jax.jacfwd(jax.jacrev(f)), or a jax.jvp of jax.grad(f), instead of jax.grad or jax.jacrev of a derivative"
    )


ad.primitive_transposes[forwards_p] = _backwards


def linear(
    forward: Callable[[Any, Any], Any],
    backward: Callable[[Any, Any], Any],
    r: Any,
    x: Any,
    y: Any,
    like: tuple[Callable[[Any, Any], Any], ...] | None = None,
) -> Any:
    """`forward(r, x)`, linear in the pytree x, whose transpose is `backward(r, y)`; `y` is shaped like the result.

    `like`: the same two, of which the derivatives with respect to r are those of the result."""
    fixed, r_structure = jax.tree.flatten(r)
    moving, x_structure = jax.tree.flatten(x)
    wanted, y_structure = jax.tree.flatten(y)

    def flat(fun: Callable[[Any, Any], Any], structure: Any) -> Callable[..., Arrays]:
        def call(*args: Any) -> Arrays:
            args = tuple(map(jnp.asarray, args))  # constants of programs are no arrays
            r = jax.tree.unflatten(r_structure, args[: len(fixed)])
            return tuple(jax.tree.leaves(fun(r, jax.tree.unflatten(structure, args[len(fixed) :]))))

        return call

    y_shapes, x_shapes = (tuple(ShapedArray(a.shape, a.dtype) for a in side) for side in (wanted, moving))
    structures = x_structure, y_structure
    other = None if like is None else tuple(flat(*pair) for pair in zip(like, structures, strict=True))
    both = _Map(flat(forward, x_structure), flat(backward, y_structure), y_shapes, x_shapes, other)
    return jax.tree.unflatten(y_structure, linear_p.bind(*fixed, *moving, map=both, fixed=len(fixed)))
