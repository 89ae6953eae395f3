"""Two curves that touch: one fixed in the x-y plane of the first marker, one in that of the second.

With p and R the place and the turn of the second marker in that plane, t_1 and t_2 the tangents, and n_1 to the left of
t_1, where the second body is,

    D = p + R c_2(s_2) - c_1(s_1)          t_1 . D = 0          n_1 . R t_2 = 0          where they are nearest      (1)
    n_1 . D = 0                                                 lam: the normal force                              (2)

Sol 1983, ch. 1 (the knee as a cam mechanism whose surfaces are polynomials; Wismans et al. 1980). The search for (1)
looks at pairs of samples, then runs Newton's method; the derivative is that of the equations (`_roots.py`). The curves
may also overlap: then (2) is how deep. Nothing is said about motion along z or about tilting: joints keep it in the
plane.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from .._errors import MechanismError
from .._joints._lift import as_params, lift
from .._roots import root
from .._spatial._pose import Pose
from .._spatial._vector import dot, stack, unit
from ._abstract import AbstractConstraint
from ._geometry import point_and_velocity
from ._numbers import check_sample, example


def _as_spans(spans: Any) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(float(end) for end in span) for span in spans)


class CurveContact(AbstractConstraint):
    """Keeps a curve of the second body on one of the first; it may slide.

    **Arguments:**

    - `curves`: two functions `c(s, params)` of a scalar s, each a point (2,), m, in the x-y plane of its own marker;
        three times differentiable. The second body is to the left of the first curve, as s grows.
    - `params`: a pair: the numbers that each of them uses, in any tree; differentiable.
    - `spans`: for each the first and the last s of the search, static.
    - `samples`: how many places in each span the search begins with.
    """

    curves: tuple[Callable, ...] = eqx.field(static=True, converter=tuple)
    params: Any = eqx.field(converter=as_params, default=(None, None))
    spans: tuple[tuple[float, ...], ...] = eqx.field(static=True, converter=_as_spans, default=((0.0, 1.0), (0.0, 1.0)))
    samples: int = eqx.field(static=True, default=24)
    nh: ClassVar[int] = 1
    nn: ClassVar[int] = 0

    def __check_init__(self):
        title = f"CurveContact {self.name!r}"
        if len(self.curves) != 2 or len(self.params) != 2:
            found = f"{len(self.curves)} curves and {len(self.params)} params"
            raise MechanismError(f"{title} has {found}; give two of each")
        for curve, params in zip(self.curves, self.params, strict=True):
            check_sample(title, curve, curve, (*example(()), params), (2,))
        spans = np.array(self.spans)
        if spans.shape != (2, 2) or not np.isfinite(spans).all() or not (spans[:, 0] < spans[:, 1]).all():
            raise MechanismError(f"{title} has spans={self.spans}; give the first s and a larger last s for each curve")
        if self.samples < 2:
            raise MechanismError(f"{title} has samples={self.samples}; give 2 or more")

    def _pair(self, s: Array, x: Pose, params: Any) -> tuple[Array, Array, Array]:
        """D, t_1 and R t_2 of (1) at s = (s_1, s_2)."""
        (c_1, d_1), (c_2, d_2) = (point_and_velocity(c, a, p) for c, a, p in zip(self.curves, s, params, strict=True))
        R = x.rotation[:2, :2]
        return x.translation[:2] + R @ c_2 - c_1, unit(d_1), R @ unit(d_2)

    def _open(self, s: Array, x: Pose, params: Any) -> Array:
        D, t_1, t_2 = self._pair(s, x, params)
        return stack([dot(t_1, D), t_1[0] * t_2[1] - t_1[1] * t_2[0]])

    def contact(self, x: Pose, params: Any) -> Array:
        """(s_1, s_2) of (1)."""
        ends = [jnp.linspace(a, b, self.samples, dtype=x.translation.dtype) for a, b in self.spans]
        pairs = jnp.stack(jnp.meshgrid(*ends, indexing="ij"), -1).reshape(-1, 2)
        D = jax.vmap(lambda s: self._pair(s, x, params)[0])(pairs)
        turned = jax.vmap(lambda s: self._open(s, x, params)[1])(pairs)
        size = jnp.abs(D - D[0]).max()
        best = pairs[jnp.argmin((D * D).sum(1) + (size * turned) ** 2)]  # near each other, and parallel
        return root(lambda s: self._open(s, x, params), lax.stop_gradient(best))

    def _sample(self, x: Pose, params: Any) -> Array:
        D, t_1, _ = self._pair(self.contact(x, params), x, params)
        return (t_1[0] * D[1] - t_1[1] * D[0])[None]

    def phi(self, t: Array, x: Pose) -> Array:
        return lift(self._sample, x.translation.ndim - 1, x, self.params)

    def row_names(self) -> tuple[str, ...]:
        return ("contact",)
