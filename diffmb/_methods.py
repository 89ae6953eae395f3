"""METHODS: the optimisers, each a small object.

    SLSQP              bounds, limits     few to some hundred numbers: the default (Kraft 1988, in SciPy)
    TrustConstr        bounds, limits     barrier and trust region, slower and patient (Byrd et al. 1999, in SciPy)
    LBFGSB             bounds             many numbers (Byrd et al. 1995, in SciPy)
    Optax, Adam        bounds             first order, by projection; objectives with noise (Kingma and Ba 2015)
    NelderMead         bounds             no derivatives, few numbers (Gao and Han 2012, in SciPy)
    DifferentialEvolution  bounds, limits no derivatives, the whole box, members side by side (Storn and Price 1997)

All but the last three get exact derivatives. None leaves the bounds, because questions outside are not asked; one that
cannot keep limits refuses them.
"""

import warnings
from abc import abstractmethod
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from ._errors import MechanismError
from ._problem import Failed, Problem

if TYPE_CHECKING:
    from typing import ClassVar as AbstractClassVar  # equinox's own is an instance variable to pyright
else:
    from equinox import AbstractClassVar

Observe = Callable[..., None]  # of the iterate, and of the number of its draw if the objective has noise


class AbstractMethod(eqx.Module):
    """How to look for an optimum.

    `limits`: whether it keeps constraints; `derivative`: whether it asks for derivatives; `stochastic`: the seed of the
    random keys of an objective with noise, None if it has none.
    """

    limits: AbstractClassVar[bool]
    derivative: AbstractClassVar[bool]

    @abstractmethod
    def run(self, problem: Problem, x: np.ndarray, lower: np.ndarray, upper: np.ndarray, observe: Observe) -> str:
        """Goes from x within the box, tells `observe` of each iterate, and says in words why it stops."""

    @property
    def stochastic(self) -> int | None:
        return None


def _scipy() -> Any:
    """Imported when it is needed: that takes a second."""
    return import_module("scipy.optimize")


def _rows(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """Which rows are equalities, and which are not."""
    same = problem.region.lo == problem.region.hi
    return np.flatnonzero(same), np.flatnonzero(~same)


class SLSQP(AbstractMethod):
    """Sequential quadratic programming with a line search. `tolerance`: change of the objective, relative to its start,
    at which it stops."""

    iterations: int = 200
    tolerance: float = 1e-12
    limits: ClassVar[bool] = True
    derivative: ClassVar[bool] = True

    def run(self, problem, x, lower, upper, observe):
        so = _scipy()
        lo, hi = problem.region.lo, problem.region.hi
        equal, between = _rows(problem)
        least, most = between[np.isfinite(lo[between])], between[np.isfinite(hi[between])]
        sides = [("eq", equal, 1.0, lo), ("ineq", least, 1.0, lo), ("ineq", most, -1.0, hi)]
        rows: Any = [
            {
                "type": kind,
                "fun": lambda x, i=index, s=sign, at=limit: s * (problem.point(x).c[i] - at[i]),
                "jac": lambda x, i=index, s=sign: s * problem.point(x).A[i],
            }
            for kind, index, sign, limit in sides
            if len(index)
        ]
        found = so.minimize(
            *(lambda x: problem.point(x).f, x),
            jac=lambda x: problem.point(x).g,
            method="SLSQP",
            bounds=so.Bounds(lower, upper),
            constraints=rows,
            callback=lambda x: observe(np.array(x)),
            options={"maxiter": self.iterations, "ftol": self.tolerance},
        )
        observe(np.array(found.x))
        return {
            0: "the objective no longer changes",
            4: "the limits contradict each other near here",
            8: "no step along the search direction gets lower",
            9: f"the limit of {self.iterations} iterations was reached",
        }.get(found.status, str(found.message))


class TrustConstr(AbstractMethod):
    """Trust region with a barrier for limits. `tolerance`: of the gradient of the Lagrangian and of the limits."""

    iterations: int = 1000
    tolerance: float = 1e-9
    limits: ClassVar[bool] = True
    derivative: ClassVar[bool] = True

    def run(self, problem, x, lower, upper, observe):
        so = _scipy()
        rows: Any = ()
        if len(problem.region.lo):
            c, A = (lambda x: problem.point(x).c), (lambda x: problem.point(x).A)
            rows = so.NonlinearConstraint(c, problem.region.lo, problem.region.hi, jac=A, hess=so.BFGS())
        finite = np.isfinite(lower).any() or np.isfinite(upper).any()
        tight = self.tolerance
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a gradient that does not change says that it is linear
            found = so.minimize(
                *(lambda x: problem.point(x).f, x),
                jac=lambda x: problem.point(x).g,
                hess=so.BFGS(),
                method="trust-constr",
                bounds=so.Bounds(lower, upper, keep_feasible=True) if finite else None,
                constraints=rows,
                callback=lambda x, state: observe(np.array(x)),
                options={"maxiter": self.iterations, "gtol": tight, "xtol": 1e-12, "barrier_tol": tight},
            )
        return {
            0: f"the limit of {self.iterations} iterations was reached",
            1: "the first-order conditions hold",
            2: "the trust region has shrunk to nothing",
        }.get(found.status, str(found.message))


class LBFGSB(AbstractMethod):
    """Quasi-Newton with limited memory within bounds. `tolerance`: of the projected gradient."""

    iterations: int = 1000
    tolerance: float = 1e-9
    limits: ClassVar[bool] = False
    derivative: ClassVar[bool] = True

    def run(self, problem, x, lower, upper, observe):
        so = _scipy()
        found = so.minimize(
            *(lambda x: problem.point(x).f, x),
            jac=lambda x: problem.point(x).g,
            method="L-BFGS-B",
            bounds=so.Bounds(lower, upper),
            callback=lambda x: observe(np.array(x)),
            options={"maxiter": self.iterations, "gtol": self.tolerance, "ftol": 1e-15, "maxfun": 10 * self.iterations},
        )
        observe(np.array(found.x))
        reached = f"the limit of {self.iterations} iterations was reached"
        return {0: "the gradient or the change is as small as asked", 1: reached}.get(found.status, str(found.message))


class Optax(AbstractMethod):
    """A gradient transformation of optax, projected on the bounds.

    **Arguments:**

    - `transformation`: such as `optax.adam(0.01)`; numbers are of size one for it.
    - `iterations`: how many steps.
    - `tolerance`: of the projected gradient, at which it stops early.
    - `seed`: if given, the objective has noise: it is called as objective(mech, key), each step with another key.
    """

    transformation: Any
    iterations: int = 1000
    tolerance: float = 1e-6
    seed: int | None = None
    limits: ClassVar[bool] = False
    derivative: ClassVar[bool] = True

    @property
    def stochastic(self) -> int | None:
        return self.seed

    def run(self, problem, x, lower, upper, observe):
        state, x, shorter, good = self.transformation.init(jnp.asarray(x)), np.array(x), 1.0, None
        step = eqx.filter_jit(self.transformation.update)
        for k in range(self.iterations):
            try:
                point = problem.point(x, draw=k)
            except Failed:
                if good is None or shorter < 1e-3:
                    raise
                shorter *= 0.5
                x = np.clip(good[0] + shorter * good[1], lower, upper)
                continue
            observe(point.x, k)
            slope = x - np.clip(x - point.g, lower, upper)
            if self.seed is None and np.abs(slope).max() <= self.tolerance:
                return "the projected gradient is as small as asked"
            update, state = step(jnp.asarray(point.g), state, jnp.asarray(x))
            good = (x, np.asarray(update, float))
            x = np.clip(x + shorter * good[1], lower, upper)
        return f"the limit of {self.iterations} iterations was reached"


def Adam(
    rate: float = 0.01, iterations: int = 1000, tolerance: float = 1e-6, seed: int | None = None
) -> Optax:
    """Adam with steps of about `rate`, where one is the size of a number; see `mb.Optax`."""
    import optax

    return Optax(optax.adam(rate), iterations, tolerance, seed)


class NelderMead(AbstractMethod):
    """The simplex of Nelder and Mead, without derivatives. `tolerance`: of numbers and of the objective."""

    iterations: int = 2000
    tolerance: float = 1e-8
    limits: ClassVar[bool] = False
    derivative: ClassVar[bool] = False

    def run(self, problem, x, lower, upper, observe):
        so = _scipy()
        def value(x: np.ndarray) -> float:
            y = float(problem.ask(x, derivative=False).y[0])
            return y / problem.F if np.isfinite(y) else np.inf

        limit = {"maxiter": self.iterations, "maxfev": 100 * self.iterations, "adaptive": True}
        found = so.minimize(
            *(value, x),
            method="Nelder-Mead",
            bounds=so.Bounds(lower, upper),
            callback=lambda x: observe(np.array(x)),
            options={**limit, "xatol": self.tolerance, "fatol": self.tolerance},
        )
        return {0: "the simplex is as small as asked"}.get(found.status, "the limit of evaluations was reached")


class DifferentialEvolution(AbstractMethod):
    """A population that fills the whole box, without derivatives; all of a generation run side by side.

    **Arguments:**

    - `seed`: of its random numbers.
    - `members`: of the population, per number; `iterations`: generations.
    - `tolerance`: spread of the objective in the population, relative to its mean, at which it stops.
    """

    seed: int
    members: int = 15
    iterations: int = 1000
    tolerance: float = 1e-8
    limits: ClassVar[bool] = True
    derivative: ClassVar[bool] = False

    def run(self, problem, x, lower, upper, observe):
        so = _scipy()
        open_sides = ~np.isfinite(np.stack([lower, upper])).all(0)
        if open_sides.any():
            column = int(open_sides.argmax())
            raise MechanismError(
                f"mb.DifferentialEvolution fills a box, but {problem.variables.name_of(column)} is open on a "
                "side; give it bounds, or take mb.SLSQP()"
            )
        lo, hi = problem.region.lo, problem.region.hi

        def asked(x: np.ndarray, which: int) -> Any:
            """x comes as (n, members), or as (n,) when a single one is asked for."""
            found = problem.values(np.atleast_2d(x.T))[which].T
            return found[..., 0] if x.ndim == 1 else found

        rows: Any = so.NonlinearConstraint(lambda x: asked(x, 1), lo, hi)
        found = so.differential_evolution(
            lambda x: asked(x, 0),
            list(zip(lower, upper, strict=True)),
            constraints=rows if len(lo) else (),
            maxiter=self.iterations,
            popsize=self.members,
            tol=self.tolerance,
            rng=np.random.default_rng(self.seed),
            polish=False,
            x0=x,
            vectorized=True,
            updating="deferred",
            callback=lambda x, convergence: observe(np.array(x)),
        )
        observe(np.array(found.x))
        return "the population agrees" if found.success else f"the limit of {self.iterations} generations was reached"
