"""Optimisation: published optima, first-order conditions, bounds and limits that hold, runs that go on bit by bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import close

import diffmb as mb
from diffmb import _optimality, _parameters, _transforms

refused = lambda text: pytest.raises(mb.MechanismError, match=text)


def hs071(tree):
    """Hock and Schittkowski 1981, problem 71."""
    x = tree["x"]
    return x[0] * x[3] * (x[0] + x[1] + x[2]) + x[2], {"product": jnp.prod(x), "squares": (x**2).sum()}


HS071 = {
    "bounds": {"x": (1.0, 5.0)},
    "constraints": {"product": mb.Limit(lower=25.0), "squares": mb.Limit(lower=40.0, upper=40.0)},
}
START = {"x": jnp.array([1.0, 5.0, 5.0, 1.0])}


def valley(tree):
    """Rosenbrock's."""
    return (1 - tree["a"]) ** 2 + 100 * (tree["b"] - tree["a"] ** 2) ** 2


FAR = {"a": -1.2, "b": 1.0}


@pytest.mark.parametrize("method", [mb.SLSQP(), mb.TrustConstr()], ids=["SLSQP", "trust-constr"])
def test_published_optimum_and_multipliers(method):
    found = mb.optimise(hs071, START, method=method, **HS071)
    assert found.converged and found.optimality < 1e-5 and found.violation < 1e-8, found
    close(found.value, 17.0140173, 1e-7)
    close(found.mech["x"], [1.0, 4.742999, 3.821151, 1.379408], 1e-5)
    # multipliers of Hock and Schittkowski's solution: 0.55229366 and 0.16146857
    close(found.multipliers["product"], -0.55229366, 1e-4)
    close(found.multipliers["squares"], 0.16146857, 1e-4)
    # and they are slopes of the optimum with respect to the limit
    moved = HS071["constraints"] | {"product": mb.Limit(lower=25.1)}
    other = mb.optimise(hs071, START, method=method, bounds=HS071["bounds"], constraints=moved)
    close((other.value - found.value) / 0.1, -found.multipliers["product"], 5e-3)
    assert found.multipliers["x[0]"] < 0 and "x[1]" not in found.multipliers
    assert "first-order conditions hold" in found.reason and "product" in str(found)


@pytest.mark.parametrize(
    "method",
    [mb.SLSQP(), mb.LBFGSB(), mb.TrustConstr(), mb.NelderMead(), mb.Adam(0.1, iterations=1500, tolerance=1e-4)],
    ids=lambda m: type(m).__name__,
)
def test_all_methods_find_the_valley(method):
    found = mb.optimise(valley, {**FAR, "c": 3.0}, method=method, tolerance=1e-4)
    assert found.converged, found
    close([found.numbers["a"], found.numbers["b"]], [1.0, 1.0], 2e-2 if isinstance(method, mb.Optax) else 1e-4)
    assert found.independent == ("c",) and found.mech["c"] == 3.0 and "no dependence" in str(found)


def test_bounds_hold_at_every_question():
    bounds = {"a": (-2.0, 0.5), "b": (None, 2.0)}
    for method in (mb.SLSQP(), mb.LBFGSB(), mb.TrustConstr(), mb.Adam(0.05), mb.NelderMead()):
        found = mb.optimise(valley, FAR, bounds=bounds, method=method, tolerance=1e-4)
        asked = np.stack([record.x for record in found.evaluations.records])
        variables = _transforms.Variables(*_picked(FAR), bounds)
        assert (asked >= variables.lower - 0).all() and (asked <= variables.upper + 0).all()
        close(found.numbers["a"], 0.5, 1e-4)
        assert found.converged and found.multipliers["a"] == pytest.approx(1.0, abs=1e-2)  # -df/da = 2 (1 - a)


def _picked(tree):
    tree = jax.tree.map(jnp.asarray, tree)
    return tree, jax.tree.leaves(_parameters.pick(tree, None)), jax.tree.leaves(tree)


def test_differential_evolution_and_starts_find_the_lowest_of_many():
    waves = lambda t: (t["x"] ** 2).sum() + 3 * (1 - jnp.cos(2 * jnp.pi * t["x"])).sum()
    far, box = {"x": jnp.array([3.2, -2.7])}, {"x": (-4.0, 4.0)}
    evolved = mb.optimise(waves, far, bounds=box, method=mb.DifferentialEvolution(1, iterations=200), tolerance=1e-3)
    assert evolved.value < 1e-6 and evolved.converged
    one = mb.optimise(waves, far, bounds=box)
    assert one.converged and one.value > 1.0  # a valley, but not the lowest
    many = mb.optimise(waves, far, bounds=box, starts=20, seed=3)
    assert many.converged and many.value < one.value and len(many.starts) == 20 and many.best > 0
    again = mb.optimise(waves, far, bounds=box, starts=20, seed=3)
    assert again.value == many.value and [s.value for s in again.starts] == [s.value for s in many.starts]
    limited = mb.optimise(
        waves, far, bounds=box, constraints={"sum": mb.Limit(lambda t: t["x"].sum(), lower=1.0)},
        method=mb.DifferentialEvolution(0, iterations=150), tolerance=1e-2,
    )  # fmt: skip
    assert limited.violation < 1e-6 and limited.responses["sum"] >= 1.0 - 1e-6


def test_objectives_with_noise():
    noisy = lambda t, key: (t["a"] - 2.0) ** 2 + 0.3 * jax.random.normal(key) * t["a"]
    found = mb.optimise(noisy, {"a": -1.0}, method=mb.Adam(0.05, iterations=300, seed=7))
    close(found.numbers["a"], 2.0, 0.2)
    again = mb.optimise(noisy, {"a": -1.0}, method=mb.Adam(0.05, iterations=300, seed=7))
    assert again.numbers == found.numbers


def test_trials_that_are_not_finite_are_not_taken():
    edge = lambda t: (t["a"] - 1.99) ** 2 - 0.3 * jnp.sqrt(2.0 - t["a"])  # nan beyond 2
    for method in (mb.SLSQP(), mb.LBFGSB(), mb.TrustConstr()):
        found = mb.optimise(edge, {"a": -50.0}, method=method)
        assert found.converged and all(np.isfinite(i.value) for i in found.history), found
        close(found.numbers["a"], 1.815431, 1e-5)
        met = any(np.isnan(record.y).any() for record in found.evaluations.records)
        assert met or not isinstance(method, mb.SLSQP)  # SLSQP runs into it, and goes on from before
    assert mb.optimise(edge, {"a": -50.0}, method=mb.NelderMead()).numbers["a"] == pytest.approx(1.815431, abs=1e-5)
    steep = lambda t: (t["a"] + 1.0) ** 2 + t["b"] ** 2 + 0.1 * jnp.sqrt(t["a"])
    with refused(r"at the start the derivative of objective with respect to a = 0 is inf"):
        mb.optimise(steep, {"a": 0.0, "b": 1.0})
    with refused("at the start objective is not finite"):
        mb.optimise(lambda t: jnp.log(t["a"]), {"a": -1.0})
    wall = mb.optimise(lambda t: jnp.where(t["a"] < 1.0, jnp.nan, t["a"] ** 2), {"a": 2.0})
    assert not wall.converged and "not finite" in wall.reason and wall.value >= 1.0


def test_a_stopped_run_goes_on_bit_by_bit():
    for method in (mb.SLSQP(), mb.TrustConstr(iterations=30), mb.DifferentialEvolution(5, iterations=8)):
        whole = mb.optimise(hs071, START, method=method, **HS071)
        count = len(whole.evaluations)
        for cut in (1, count // 2, count):
            kept, seen = [], []
            earlier = [tuple(map(np.array, record)) for record in whole.evaluations.records[:cut]]
            log = mb.Evaluations(earlier, kept.append)
            again = mb.optimise(hs071, START, method=method, evaluations=log, callback=seen.append, **HS071)
            assert len(kept) == count - cut and len(log) == count
            assert again.value == whole.value and again.numbers == whole.numbers
            assert [i.value for i in again.history] == [i.value for i in whole.history]
            assert [i.replayed for i in seen].count(True) <= cut
            for a, b in zip(log.records, whole.evaluations.records, strict=True):
                assert a.y.tobytes() == b.y.tobytes() and a.J.tobytes() == b.J.tobytes()
    with refused("belongs to another run: this one asks for other numbers"):
        mb.optimise(hs071, {"x": jnp.array([1.0, 4.0, 5.0, 1.0])}, evaluations=whole.evaluations, **HS071)
    with refused("asks for derivatives"):
        mb.optimise(valley, FAR, evaluations=mb.optimise(valley, FAR, method=mb.NelderMead(3)).evaluations)
    stopped = mb.optimise(valley, FAR, callback=lambda i: i.number == 4)
    assert len(stopped.history) == 5 and "stopped by the callback" in stopped.reason and not stopped.converged


def test_bodies_stay_physical():
    """Where nothing holds it back, an inertia would leave what bodies can have; log-Cholesky numbers cannot."""
    body = mb.box("b", (0.3, 0.2, 0.1), mass=2.0)
    mech = mb.Mechanism([body], [mb.Revolute("A", "world", "b")])
    want = mb.box("w", (0.4, 0.2, 0.2), mass=3.0)

    def distance(m):
        b = m["b"]
        return ((b.inertia - want.inertia) ** 2).sum() * 1e4 + (b.mass - 3.0) ** 2 + ((b.com - 0.05) ** 2).sum()

    found = mb.optimise(distance, mech, "b", method=mb.SLSQP(500))
    close(found.mech["b"].inertia, want.inertia, 1e-5)
    close(found.mech["b"].mass, 3.0, 1e-5)
    away = lambda m: (m["b"].inertia[0, 0] + 1.0) ** 2 + ((m["b"].mass - 1.0) ** 2 + (m["b"].com ** 2).sum())
    pulled = mb.optimise(away, mech, "b", bounds={"b.mass": (1.5, 3.0), "b.com[1]": (-0.1, 0.1)}, method=mb.SLSQP(40))
    mb.compile(pulled.mech)  # refuses what no body has
    close(pulled.numbers["b.mass"], 1.5, 1e-6)
    lighter = mb.optimise(lambda m: m["b"].mass ** 2, mech, "b.mass", method=mb.LBFGSB(50))
    assert all(i.numbers["b.mass"] > 0 for i in lighter.history)
    with refused("picks b.inertia alone"):
        mb.optimise(away, mech, "b.inertia")
    with refused(r"b.inertia\[0,0\] is one of several entries that move together"):
        mb.optimise(away, mech, "b", bounds={"b.inertia[0,0]": (0.0, 1.0)})
    with refused("goes by its logarithm; start from a positive number"):
        mb.optimise(valley, FAR, transforms={"a": mb.Log()})
    close(mb.optimise(valley, {"a": 0.2, "b": 1.0}, transforms={"a": mb.Log()}).numbers["a"], 1.0, 1e-5)


def test_what_cannot_be_kept_is_refused():
    limit = {"stroke": mb.Limit(lambda t: t["a"], lower=0.0)}
    for method in (mb.LBFGSB(), mb.Adam(), mb.NelderMead()):
        with refused(r"keeps bounds but no constraints \(stroke\); take mb.SLSQP\(\)"):
            mb.optimise(valley, FAR, constraints=limit, method=method)
    with refused("a starts at -1.2, outside of its bounds 0 to 1"):
        mb.optimise(valley, FAR, bounds={"a": (0.0, 1.0)})
    with refused("a from 2 to 1: nothing lies between them"):
        mb.optimise(valley, FAR, bounds={"a": (2.0, 1.0)})
    with refused("a from 1 to 1: leave it out of where"):
        mb.optimise(valley, FAR, bounds={"a": (1.0, 1.0)})
    with refused("'aa' is not among the numbers picked; did you mean 'a'"):
        mb.optimise(valley, FAR, bounds={"aa": (0.0, 1.0)})
    with refused(r"a has 3.0; give \(lower, upper\)"):
        mb.optimise(valley, FAR, bounds={"a": 3.0})
    with refused("a is open on a side; give it bounds"):
        mb.optimise(valley, FAR, method=mb.DifferentialEvolution(0))
    with refused("method is 'SLSQP'; give an object"):
        mb.optimise(valley, FAR, method="SLSQP")
    with refused("mb.Limit without lower and upper"):
        mb.Limit(valley)
    with refused("objective returns no such response"):
        mb.optimise(hs071, START, constraints={"prodct": mb.Limit(lower=1.0)})
    with refused("neither the objective nor a limit depends on b"):
        mb.optimise(lambda t: t["a"] ** 2, FAR, "b")
    with refused("returns an array of shape"):
        mb.optimise(lambda t: t["x"], START)
    both = {"low": mb.Limit(lambda t: t["a"], upper=-1.0), "high": mb.Limit(lambda t: t["a"], lower=1.0)}
    impossible = mb.optimise(valley, FAR, constraints=both)
    assert not impossible.converged and impossible.violation > 0.1 and "is violated by" in impossible.reason


def test_first_order_conditions_by_hand():
    """min x^2 + y^2 with x + y >= 2, x >= 0: at (1, 1) lam = 2; elsewhere something is left."""
    region = _optimality.Region(np.array([0.0, -np.inf]), np.full(2, np.inf), np.array([2.0]), np.array([np.inf]))
    row = lambda x, y: (np.array([x + y]), np.ones((1, 2)))
    at = lambda x, y: _optimality.Point(np.array([x, y]), x * x + y * y, 2 * np.array([x, y]), *row(x, y))
    best = _optimality.conditions(at(1.0, 1.0), region)
    assert best.residual < 1e-12 and best.violation == 0.0 and best.rows[0] == pytest.approx(-2.0)
    assert _optimality.conditions(at(2.0, 0.0), region).residual == pytest.approx(2.0)
    wrong = _optimality.conditions(at(-1.0, -1.0), region._replace(lo=np.array([-2.0]), lower=np.full(2, -np.inf)))
    assert wrong.residual == pytest.approx(2.0)  # the limit would have to pull
    assert _optimality.conditions(at(0.5, 0.5), region).violation == pytest.approx(1.0)
