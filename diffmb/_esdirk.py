"""ESDIRK: implicit Runge-Kutta steps with one Jacobian for all stages, as a solver of diffrax.

    k_i = h f(t0 + c_i h, Y_i)         Y_i = y0 + sum_{j<i} a_ij k_j + g k_i         g: the same on every stage      (1)
    (1 - h g f_y) dk = h f(t_i, Y_i) - k_i          f_y at the start of the step                                    (2)
    rate = |dk| / |dk before|      done when |dk| rate / (1 - rate) is small, given up when rate > 1                 (3)

diffrax solves each stage with a Jacobian of its own; that of a mechanism costs as much as fifteen evaluations of the
field, so it is evaluated once for each step here and (2) is repeated until (3) (Hairer and Wanner 1996, IV.8). A step
whose stages do not converge counts as one with infinite error, and is tried again with a fifth of its length. The
coefficients are those of the diffrax method that it stands for.
"""

from typing import Any, ClassVar

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

_ITERATIONS = 12
_PART = 0.02  # of the tolerance of the step that a stage may be off


class Esdirk(diffrax.AbstractAdaptiveSolver):
    """`method`: the class of diffrax that it stands for; its implicit stages have one and the same diagonal."""

    method: Any = eqx.field(static=True)
    term_structure: ClassVar = diffrax.AbstractTerm
    interpolation_cls: ClassVar = diffrax.LocalLinearInterpolation

    @property
    def tableau(self) -> Any:
        own = self.method.tableau
        return own.tableaus[-1] if isinstance(own, diffrax.MultiButcherTableau) else own

    def order(self, terms: Any) -> int:
        return self.method().order(terms)

    def error_order(self, terms: Any) -> int:
        return self.order(terms)

    def func(self, terms: Any, t0: Any, y0: Any, args: Any) -> Any:
        return terms.vf(t0, y0, args)

    def init(self, terms: Any, t0: Any, t1: Any, y0: Any, args: Any) -> None:
        return None

    def step(self, terms: Any, t0: Any, t1: Any, y0: Any, args: Any, solver_state: Any, made_jump: Any):
        a, diagonal, c = butcher(self.tableau)
        h, f = t1 - t0, lambda t, y: terms.vf(t, y, args)
        small = _PART * _tolerance(args, y0)
        J = jax.jacfwd(lambda y: f(t0, y))(y0)
        inverse = jnp.linalg.inv(jnp.eye(y0.shape[0], dtype=y0.dtype) - h * diagonal.max() * J)
        number = lambda x: jnp.asarray(x, y0.dtype)

        def stage(carry, row):
            k, last, failed = carry
            i, a_i, a_ii, c_i = row
            known = y0 + a_i @ k
            t = jnp.where(c_i == 1.0, t1, t0 + c_i * h)

            def iterate(carry):
                k, before, _, count, _ = carry
                rest = h * f(t, known + a_ii * k) - k
                dk = jnp.where(a_ii == 0.0, rest, inverse @ rest)
                size = jnp.abs(dk / small).max()
                rate = size / before
                done = (a_ii == 0.0) | (size < 1e-3) | ((count > 0) & (rate < 1.0) & (size * rate < 1.0 - rate))
                lost = ~jnp.isfinite(size) | ((count > 0) & (rate >= 1.0) & ~done) | (count + 1 >= _ITERATIONS)
                return k + dk, size, done, count + 1, lost & ~done

            go_on = lambda carry: ~carry[2] & ~carry[4]
            start = (last, jnp.asarray(jnp.inf, y0.dtype), jnp.asarray(False), jnp.asarray(0), jnp.asarray(False))
            own, _, _, _, lost = lax.while_loop(go_on, iterate, start)
            return (k.at[i].set(own), own, failed | lost), None

        none = jnp.zeros((len(c), y0.shape[0]), y0.dtype)
        rows = (jnp.arange(len(c)), number(a), number(diagonal), number(c))
        (k, _, failed), _ = lax.scan(stage, (none, none[0], jnp.asarray(False)), rows)
        y1 = y0 + number(self.tableau.b_sol) @ k
        error = jnp.where(failed, jnp.inf, number(self.tableau.b_error) @ k)
        results: Any = diffrax.RESULTS
        result = results.where(failed, results.nonlinear_divergence, results.successful)
        return y1, error, {"y0": y0, "y1": y1, "k": k}, None, result


def _tolerance(args: Any, y: Array) -> Array:
    """Of the step, by component; for fixed steps what the precision can do."""
    control = args[0].control
    if len(control) == 1:
        return np.finfo(y.dtype).eps ** 0.6 * (1.0 + jnp.abs(y))
    return control[1] + control[0] * jnp.abs(y)


def butcher(tableau: diffrax.ButcherTableau) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """a below the diagonal, the diagonal, c."""
    n = tableau.num_stages
    a = np.zeros((n, n))
    for i, row in enumerate(tableau.a_lower):
        a[i + 1, : i + 1] = row
    diagonal = np.zeros(n) if tableau.a_diagonal is None else np.asarray(tableau.a_diagonal)
    return a, diagonal, np.concatenate([[diagonal[0]], np.asarray(tableau.c)])
