"""Bilinear products of short vectors, c_i = sum_jk T_ijk a_j b_k, as one JAX primitive.

The product is written out term by term when it is lowered, which vectorises along the batch; but for differentiation it
stays one operation, whose derivatives are products of the same kind with the indices of T exchanged,

    dc = T(da, b) + T(a, db)          abar_j = sum_ik T_ijk cbar_i b_k          bbar_k = sum_ij T_ijk cbar_i a_j

so that derivative programs stay short (differentiating the written-out form makes each component a padded vector:
several times more code to compile).
"""

import dataclasses
import math
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.core import ShapedArray
from jax.experimental.xla_metadata import set_xla_metadata
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from .._straight._graph import ZERO, Graph
from .._straight._unroll import RULES

WIDE = 32  # samples that fill the vector units: from there on, code written out along the batch pays
_MANY = 12  # bodies of a single run from which on a product by way of stored matrices pays

Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Sparse:
    """T as a list of terms (i, j, k, coefficient); `sizes` are the lengths of c, a and b."""

    sizes: tuple[int, int, int]
    terms: tuple[tuple[int, int, int, float], ...]

    @property
    def shapes(self) -> tuple[Shape, Shape, Shape]:
        return tuple((size,) for size in self.sizes)  # type: ignore[return-value]

    def __call__(self, a: Array, b: Array) -> Array:
        zero = jnp.zeros_like(a[0] * b[0])
        sums: list[Array | None] = [None] * self.sizes[0]
        for i, j, k, factor in self.terms:
            term = a[j] * b[k]
            so_far = sums[i]
            if so_far is None:
                sums[i] = term if factor == 1 else factor * term
            else:
                sums[i] = so_far + term if factor == 1 else so_far - term if factor == -1 else so_far + factor * term
        return jnp.stack([zero if s is None else s for s in sums])

    def tensor(self, dtype) -> np.ndarray:
        """T itself."""
        dense = np.zeros(self.sizes, dtype)
        for i, j, k, factor in self.terms:
            dense[i, j, k] += factor
        return dense

    def exchanged(self, order: tuple[int, int, int]) -> "Sparse":
        """The map whose (c, a, b) are the old ones in `order`."""
        terms = tuple((*(term[o] for o in order), term[3]) for term in self.terms)
        return Sparse(tuple(self.sizes[o] for o in order), terms)  # type: ignore[arg-type]


@dataclasses.dataclass(frozen=True)
class Contraction:
    """A matrix product by its indices, for example ("i", "ik", "k") for c = A b; one index is summed, or none.

    One that stands `apart` is a sum whose factors and result are stored on CPU, instead of being fused with what is
    around it.
    """

    names: tuple[str, str, str]
    lengths: tuple[tuple[str, int], ...]
    apart: bool = False

    @property
    def shapes(self) -> tuple[Shape, Shape, Shape]:
        lengths = dict(self.lengths)
        return tuple(tuple(lengths[n] for n in names) for names in self.names)  # type: ignore[return-value]

    def __call__(self, a: Array, b: Array) -> Array:
        out, *inner = self.names
        summed = sorted(set(inner[0] + inner[1]) - set(out))
        if not summed:
            return self._align(a, inner[0]) * self._align(b, inner[1])
        index, length = summed[0], dict(self.lengths)[summed[0]]
        total = None
        for k in range(length):
            first, second = (self._pick(x, names, index, k) for x, names in zip((a, b), inner, strict=True))
            term = first * second
            total = term if total is None else total + term
        return total  # type: ignore[return-value]

    def _pick(self, x: Array, names: str, index: str, k: int) -> Array:
        return self._align(x[(slice(None),) * names.index(index) + (k,)], names.replace(index, ""))

    def _align(self, x: Array, names: str) -> Array:
        """Puts axes of length one where the result has an index that this factor lacks."""
        order = [names.index(n) for n in self.names[0] if n in names]
        x = jnp.transpose(x, order + list(range(len(names), x.ndim)))
        for axis, n in enumerate(self.names[0]):
            if n not in names:
                x = jnp.expand_dims(x, axis)
        return x

    @property
    def terms(self) -> tuple[tuple[int, int, int, float], ...]:
        """(place in c, in a, in b, 1.0) of each product, in flattened axes."""
        return _terms_of(self.names, self.lengths)

    def exchanged(self, order: tuple[int, int, int]) -> "Contraction":
        return dataclasses.replace(self, names=tuple(self.names[o] for o in order))


@lru_cache(maxsize=1024)
def _terms_of(names: tuple[str, str, str], lengths: tuple[tuple[str, int], ...]) -> tuple:
    sizes = dict(lengths)
    at = dict(zip(sizes, np.indices(tuple(sizes.values())).reshape(len(sizes), -1), strict=True))
    flat = []
    for own in names:
        place = np.zeros(math.prod(sizes.values()), int)
        for n in own:
            place = place * sizes[n] + at[n]
        flat.append(place.tolist())
    return tuple((*places, 1.0) for places in zip(*flat, strict=True))


Kind = Sparse | Contraction

bilinear_p = Primitive("bilinear")


def bilinear(kind: Kind, a: Array, b: Array) -> Array:
    """c = T(a, b) for component axes in front; batch axes behind broadcast."""
    _, first, second = (len(shape) for shape in kind.shapes)
    behind = max(a.ndim - first, b.ndim - second)
    dtype = jnp.result_type(a, b)
    return bilinear_p.bind(_aligned(a, first, behind, dtype), _aligned(b, second, behind, dtype), kind=kind, lead=0)


def _aligned(x: Array, rank: int, behind: int, dtype: Any) -> Array:
    """With so many axes behind its `rank` first ones."""
    if x.ndim - rank < behind:
        x = lax.expand_dims(x, range(rank, rank + behind - (x.ndim - rank)))
    return x if x.dtype == dtype else x.astype(dtype)


@lru_cache(maxsize=1024)
def _written_out(kind: Kind, lead: int):
    fun = kind
    for _ in range(lead):
        fun = jax.vmap(fun)
    return fun


def _compute(a: Array, b: Array, *, kind: Kind, lead: int) -> Array:
    """Written out for a wide batch, which is fast to run; as one broadcast sum otherwise, which is quick to compile."""
    behind = max(math.prod(x.shape[lead + len(s) :]) for x, s in zip((a, b), kind.shapes[1:], strict=True))
    if behind < WIDE or (isinstance(kind, Contraction) and kind.apart):
        return _as_one_sum(kind, lead, a, b)
    front = jnp.broadcast_shapes(a.shape[:lead], b.shape[:lead])
    a = jnp.broadcast_to(a, front + a.shape[lead:])
    b = jnp.broadcast_to(b, front + b.shape[lead:])
    return _written_out(kind, lead)(a, b)


def _as_one_sum(kind: Kind, lead: int, a: Array, b: Array) -> Array:
    """c = sum over a dense T, or over the shared index, of broadcast products; few operations, so quick to compile."""
    out, first, second = ("i", "j", "k") if isinstance(kind, Sparse) else kind.names
    order = out + "".join(sorted(set(first + second) - set(out)))
    ahead = jnp.broadcast_shapes(a.shape[:lead], b.shape[:lead])
    behind = jnp.broadcast_shapes(a.shape[lead + len(first) :], b.shape[lead + len(second) :])
    lengths = dict(zip(out + first + second, [n for shape in kind.shapes for n in shape], strict=True))
    full = (*ahead, *(lengths[n] for n in order), *behind)

    def spread(x: Array, own: str) -> Array:
        axes = [*range(lead), *(lead + order.index(n) for n in own), *range(lead + len(order), len(full))]
        if axes != sorted(axes):
            x, axes = lax.transpose(x, np.argsort(axes)), sorted(axes)
        keep = [k for k, axis in enumerate(axes) if x.shape[k] == full[axis]]  # the others have length one
        return lax.broadcast_in_dim(lax.squeeze(x, [*{*range(x.ndim)} - {*keep}]), full, [axes[k] for k in keep])

    if isinstance(kind, Sparse) and math.prod(ahead) >= _MANY:
        return _by_matrices(kind, lead, a, b)
    product = spread(a, first) * spread(b, second)
    if isinstance(kind, Sparse):
        product = product * lax.broadcast_in_dim(kind.tensor(a.dtype), full, range(lead, lead + 3))
    summed = range(lead + len(out), lead + len(order))
    return lax.reduce(product, np.zeros((), a.dtype), lax.add, summed) if summed else product


def _by_matrices(kind: Sparse, lead: int, a: Array, b: Array) -> Array:
    """c = (T a) b. The matrices T a are stored: XLA would otherwise put whole factors into the sum, and compute them
    anew for each of its terms (inverse dynamics of 21 bodies: 14 instead of 480 us)."""
    behind = a.ndim - lead - 1
    matrices = lax.dot_general(a, kind.tensor(a.dtype), (((lead,), (1,)), ((), ())), precision="highest")
    order = [*range(lead), lead + behind, lead + behind + 1, *range(lead, lead + behind)]
    return (lax.transpose(matrices, order) * jnp.expand_dims(b, lead)).sum(lead + 1)


bilinear_p.def_impl(jax.jit(_compute, static_argnames=("kind", "lead")))
mlir.register_lowering(bilinear_p, mlir.lower_fun(_compute, multiple_results=False))


def _compute_on_cpu(a: Array, b: Array, *, kind: Kind, lead: int) -> Array:
    if not (isinstance(kind, Contraction) and kind.apart):
        return _compute(a, b, kind=kind, lead=lead)
    with set_xla_metadata(inlineable="false"):
        return jax.jit(_compute, static_argnames=("kind", "lead"))(a, b, kind=kind, lead=lead)


mlir.register_lowering(bilinear_p, mlir.lower_fun(_compute_on_cpu, multiple_results=False), "cpu")


def _straight(graph: Graph, p: dict, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The terms one by one, at each place of the other axes."""
    kind, lead = p["kind"], p["lead"]
    out, first, second = kind.shapes
    ahead = jnp.broadcast_shapes(a.shape[:lead], b.shape[:lead])
    behind = jnp.broadcast_shapes(a.shape[lead + len(first) :], b.shape[lead + len(second) :])
    found = []
    zero, known = graph.constant(np.zeros((), p["avals"][0].dtype)), graph.kind
    a, b, nothing = _rows(a, ahead, first, behind), _rows(b, ahead, second, behind), [zero] * math.prod(out)
    idle = np.logical_or(graph.zeros(a).all(1), graph.zeros(b).all(1))
    for x, y, is_idle in zip(a.tolist(), b.tolist(), idle.tolist(), strict=True):
        if is_idle:
            found.append(nothing)
            continue
        sums: dict[int, int] = {}
        for i, j, k, factor in kind.terms:
            if known[x[j]] == ZERO or known[y[k]] == ZERO:
                continue
            term = graph.mul(x[j], y[k])
            if abs(factor) != 1:
                term = graph.mul(graph.constant(np.asarray(abs(factor), graph.dtype[term])), term)
            if i in sums:
                sums[i] = graph.add(sums[i], term) if factor > 0 else graph.sub(sums[i], term)
            else:
                sums[i] = term if factor > 0 else graph.negative(term)
        found.append([sums.get(i, zero) for i in range(math.prod(out))])
    whole = np.array(found, int).reshape((*ahead, *behind, *out))
    back = [*range(len(ahead)), *range(len(ahead) + len(behind), whole.ndim)]
    return whole.transpose([*back, *range(len(ahead), len(ahead) + len(behind))])


def _rows(x: np.ndarray, ahead: Shape, own: Shape, behind: Shape) -> np.ndarray:
    """(places, components)."""
    x = np.broadcast_to(x, (*ahead, *own, *behind))
    x = np.moveaxis(x, range(len(ahead), len(ahead) + len(own)), range(x.ndim - len(own), x.ndim))
    return x.reshape(math.prod((*ahead, *behind)), math.prod(own))


RULES[bilinear_p] = _straight


@bilinear_p.def_abstract_eval
def _abstract(a, b, *, kind: Kind, lead: int):
    out, first, second = kind.shapes
    front = jnp.broadcast_shapes(a.shape[:lead], b.shape[:lead])
    behind = jnp.broadcast_shapes(a.shape[lead + len(first) :], b.shape[lead + len(second) :])
    return ShapedArray(front + out + behind, a.dtype)


def _transpose(order: tuple[int, int, int], place: int):
    """Rule for the operand at `place`, from the other one."""

    def rule(cbar, *operands, kind: Kind, lead: int):
        unknown, other = operands[place], operands[1 - place]
        bar = bilinear_p.bind(cbar, other, kind=kind.exchanged(order), lead=lead)
        shape = unknown.aval.shape
        extra = tuple(axis for axis, (n, m) in enumerate(zip(bar.shape, shape, strict=True)) if n != m)
        return bar.sum(extra, keepdims=True) if extra else bar

    return rule


ad.defbilinear(bilinear_p, _transpose((1, 0, 2), 0), _transpose((2, 0, 1), 1))


def _batch(operands, dims, *, kind: Kind, lead: int):
    """A mapped axis becomes one more leading axis."""
    front = lambda x, d: lax.expand_dims(x, (0,)) if d is None else x if d == 0 else jnp.moveaxis(x, d, 0)
    moved = [front(x, d) for x, d in zip(operands, dims, strict=True)]
    return bilinear_p.bind(*moved, kind=kind, lead=lead + 1), 0


batching.primitive_batchers[bilinear_p] = _batch
