"""Studies: curves over time against closed forms and differences, tornado, grids and draws with members that fail."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import close

import diffmb as mb

refused = lambda text: pytest.raises(mb.MechanismError, match=text)
TS = jnp.linspace(0.0, 1.0, 9)


def oscillator(mass=2.0, k=50.0):
    return mb.Mechanism(
        [mb.sphere("b", 0.1, mass=mass)],
        [mb.Prismatic("x", "world", "b", axis="x")],
        connections=[mb.SpringDamper("s", mb.Marker("world", (-1.0, 0.0, 0.0)), "b", k, 0.0, 1.0)],
        gravity=(0.0, 0.0, 0.0),
    )


def swing(mech):
    """Coordinate and speed over time from x = 0.1 at rest: 0.1 cos(w t), w^2 = k / m."""
    model = mb.compile(mech)
    traj = mb.simulate(model, mb.assemble(model, {"x": 0.1}, throw=False), TS, throw=False)
    return {"x": traj.coordinate("x"), "v": traj.speed("x")}


@pytest.fixture(scope="module")
def found():
    return mb.sensitivity(swing, oscillator(), ["s.k", "b.mass"], mode="forward", check=True, step=1e-4)


def test_curves_over_time(found):
    """dx/dk = -0.1 t sin(w t) dw/dk."""
    curves = found.over(TS)
    w, t = 5.0, np.asarray(TS)
    close(curves.values["x"], 0.1 * np.cos(w * t), 1e-6)
    close(curves.slopes["x"]["s.k"], -0.1 * t * np.sin(w * t) * w / 2 / 50.0, 1e-7)
    close(curves.slopes["x"]["b.mass"], 0.1 * t * np.sin(w * t) * w / 2 / 2.0, 1e-6)
    close(curves.slopes["v"]["s.k"], -0.1 * (np.sin(w * t) + w * t * np.cos(w * t)) * w / 2 / 50.0, 1e-6)
    assert found.difference < 1e-2 and curves.table[0][2] >= curves.table[-1][2]
    assert "9 times from 0 to 1 s" in str(curves) and "s.k" in str(curves)
    with refused(r"x has shape \(9,\), but there are 3 times|v has shape"):
        found.over([0.0, 0.5, 1.0])


def test_tornado():
    energy = lambda p: {"E": 0.5 * p["m"] * p["v"] ** 2, "m": p["m"]}
    found = mb.sensitivity(energy, {"m": 2.0, "v": 3.0})
    first = found.tornado(0.1).bars[0]
    assert (first.name, first.response) == ("v", "E")
    close([first.low, first.high, first.change], [9.0 - 1.8, 9.0 + 1.8, 0.3], 1e-12)
    own = found.tornado({"m": 0.5})
    assert [bar.name for bar in own.bars] == ["m", "m"]
    close(own.bars[0].high - own.bars[0].low, 4.5, 1e-12)
    assert "####" in str(own)
    with refused("no number 'mm'; did you mean 'm'"):
        found.tornado({"mm": 0.1})


def test_a_grid():
    """Every combination in its place, and the one that fails is named with its numbers."""
    frequency = lambda m: jnp.sqrt(m["s"].k / m["b"].mass)
    masses, stiffness = np.array([1.0, 2.0, 4.0]), np.array([-1.0, 4.0])
    found = mb.sweep(frequency, oscillator(), {"b.mass": masses, "s.k": stiffness})
    assert found.values.shape == (3, 2) and found.ok.tolist() == [[False, True]] * 3
    close(found.values[:, 1], 2.0 / np.sqrt(masses), 1e-12)
    assert [f.member for f in found.failed] == [(0, 0), (1, 0), (2, 0)]
    assert found.failed[1].numbers == {"b.mass": 2.0, "s.k": -1.0} and "not finite" in found.failed[1].reason
    assert "3 failed" in str(found) and "s.k = -1" in str(found)
    entry = mb.sweep(lambda m: m["s"].first.position.sum(), oscillator(), {"s.first.position[1]": [0.0, 3.0]})
    close(entry.values, [-1.0, 2.0], 1e-12)
    with refused("'b.com' holds 3 numbers; vary one, such as 'b.com\\[0\\]'"):
        mb.sweep(frequency, oscillator(), {"b.com": [0.1]})
    with refused("no number 's.kk'"):
        mb.sweep(frequency, oscillator(), {"s.kk": [0.1]})
    with refused("give finite numbers in one list"):
        mb.sweep(frequency, oscillator(), {"s.k": [0.1, np.inf]})


def test_draws():
    energy = lambda p: {"E": 0.5 * p["m"] * p["v"] ** 2}
    spreads = {"m": mb.Uniform(1.0, 3.0), "v": mb.Normal(3.0, 0.1)}
    found = mb.monte_carlo(energy, {"m": 2.0, "v": 3.0}, spreads, samples=2000, seed=4)
    own = found.statistics()["E"]
    close(own["mean"], 9.0, 0.02)  # E = m (v^2 + s^2) / 2
    close(own["deviation"], 4.5 / np.sqrt(3), 0.1)
    assert own["min"] < own["5 %"] < own["median"] < own["95 %"] < own["max"]
    assert found.correlations()["E"]["m"] > 0.95 > 0.3 > found.correlations()["E"]["v"] > 0
    again = mb.monte_carlo(energy, {"m": 2.0, "v": 3.0}, spreads, samples=500, seed=4)
    assert (again.numbers["m"] == found.numbers["m"][:500]).all()
    positive = mb.LogNormal(2.0, 0.3).draw(np.random.default_rng(0), 4000)
    close(np.median(positive), 2.0, 0.02)
    assert (positive > 0).all()
    with refused("m has 3.0; give mb.Normal"):
        mb.monte_carlo(energy, {"m": 2.0, "v": 3.0}, {"m": 3.0}, samples=5)
    with refused("give the lower one first"):
        mb.Uniform(2.0, 1.0)


def _bad(m):
    """A simulation that ends in nan for a negative stiffness: the load runs away."""
    model = mb.compile(m)
    traj = mb.simulate(model, mb.assemble(model, {"x": 0.1}, throw=False), [0.0, 1.0], max_steps=40, throw=False)
    return traj.coordinate("x")[-1], traj.result


def test_members_say_why_they_fail():
    found = mb.sweep(_bad, oscillator(), {"s.k": [50.0, 5e5, 20.0]}, chunk=3)
    assert found.ok.tolist() == [True, False, True] and "step limit" in found.failed[0].reason
    close(found.values[0][[0, 2]], 0.1 * np.cos(np.sqrt(np.array([25.0, 10.0]))), 1e-5)
    picky = lambda p: _raises(p["a"])
    one = mb.sweep(picky, {"a": 1.0}, {"a": [1.0, -1.0, 2.0]})
    assert one.ok.tolist() == [True, False, True] and one.values.tolist()[2] == 2.0


def _raises(a):
    return eqx.error_if(a, a < 0, "negative")
