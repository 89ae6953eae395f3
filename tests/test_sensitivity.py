"""Sensitivities by name: both modes, differences and closed forms agree; what has no derivative is said in words."""

from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from closed import four_bar
from helpers import close

import diffmb as mb
from diffmb import _program

TS = jnp.linspace(0.0, 0.6, 4)


def pendulum(length=1.0, mass=1.0):
    return mb.Mechanism(
        [mb.rod("bar", length, mass=mass)], [mb.Revolute("hinge", "world", "bar")], gravity=(0.0, -9.81, 0.0)
    )


def swing(mech):
    """Angle and speed after a small swing from rest near the lowest point."""
    model = mb.compile(mech)
    traj = mb.simulate(model, mb.assemble(model, {"hinge": -jnp.pi / 2 + 0.01}), TS)
    return jnp.array([traj.q[-1, 0] + jnp.pi / 2, traj.v[-1, 0]])


def rocker(mech):
    model = mb.compile(mech)
    start = mb.assemble(model, {"A": 0.5}, {"A": 2.0}, guess={"B": 0.2})
    traj = mb.simulate(model, start, jnp.linspace(0.0, 0.2, 3))
    return traj.q[-1, 0] + traj.q[-1, 1]


BAR = lambda m: {"mass": m["bar"].mass, "com": m["bar"].com, "inertia": m["bar"].inertia}


@pytest.fixture(scope="module")
def small():
    return {mode: mb.sensitivity(swing, pendulum(), BAR, mode=mode, check=True) for mode in ("forward", "reverse")}


def test_both_modes_differences_and_the_closed_form_agree(small):
    """A small swing: angle = a cos(w t), w^2 = m g c / (J + m c^2), so w is known in mass, centre and inertia."""

    def exact(mass, com, inertia):
        w = jnp.sqrt(mass * 9.81 * com[0] / (inertia[2, 2] + mass * com[0] ** 2))
        return 0.01 * jnp.array([jnp.cos(w * TS[-1]), -w * jnp.sin(w * TS[-1])])

    body = pendulum()["bar"]
    wanted = dict(zip(("mass", "com", "inertia"), jax.jacfwd(exact, (0, 1, 2))(body.mass, body.com, body.inertia)))
    forward, reverse = small["forward"], small["reverse"]
    assert forward.gradient["inertia"].shape == (2, 3, 3) and forward.gradient["mass"].shape == (2,)
    for name, slope in wanted.items():
        close(forward.gradient[name][:, ...], reverse.gradient[name], 1e-9)
        part = (slice(None), 2, 2) if name == "inertia" else (slice(None), 0) if name == "com" else ...
        close(forward.gradient[name][part], slope[part], 1e-4)
    assert forward.difference < 1e-4 and reverse.difference < 1e-4
    assert (forward.mode, reverse.mode) == ("forward", "reverse")


def test_the_table_is_sorted_and_says_what_matters(small):
    found = small["forward"]
    table = found.table
    assert len(table) == 2 * 13
    sizes = [abs(row.influence) for row in table]
    assert all(a >= b or a < 1e-9 for a, b in pairwise(sizes))
    first = next(row for row in table if row.name == "bar.mass" and row.response == "response[0]")
    close(first.influence, first.derivative * first.value / float(found.value[0]), 1e-12)
    assert {row.name for row in table} >= {"bar.mass", "bar.com[0]", "bar.inertia[2,2]"}
    assert not any(row.note for row in table) and all(row.difference < 1e-3 for row in table)
    text = str(found).splitlines()
    assert "forward mode; finite differences differ by" in text[0] and len({len(line) for line in text[1:3]}) <= 2
    assert text[1].split() == ["number", "value", "derivative", "%", "per", "%", "response"]
    assert table[0].name in text[2]


def test_lengths_and_masses_of_a_four_bar():
    """A loop through compile, assemble and simulate; out of the plane it cannot close, and the check says so."""
    names = ["B.parent.position", "C.parent.position", "coupler.mass"]
    found = mb.sensitivity(rocker, four_bar(), names, check=True, names="angle")
    assert found.mode == "reverse" and found.difference < 1e-3
    assert isinstance(found.gradient, list) and [g.shape for g in found.gradient] == [(3,), (3,), ()]
    forward = mb.sensitivity(rocker, four_bar(), names, mode="forward")
    for a, b in zip(found.gradient, forward.gradient, strict=True):
        close(a, b, 1e-8)
    notes = {row.name: row.note for row in found.table}
    assert notes["B.parent.position[2]"] == "cannot vary alone"
    assert notes["coupler.mass"] == notes["B.parent.position[0]"] == ""
    assert {row.response for row in found.table} == {"angle"}


def test_any_tree_of_numbers():
    """A function of lengths instead of a mechanism: names from keys, the derivative goes through the builder."""
    inertia = lambda x: mb.mass_matrix(mb.compile(pendulum(x["length"], x["mass"])), jnp.zeros(1))[0, 0]
    found = mb.sensitivity(inertia, {"length": 1.2, "mass": 2.0}, check=True)
    assert set(found.gradient) == set(found.numbers) == {"length", "mass"} and found.difference < 1e-8
    close(found.gradient["length"], 2 * 2.0 * 1.2 / 3, 1e-12)
    assert [row.name for row in found.table] == ["length", "mass"]
    close(found.table[0].influence, 2.0, 1e-12)


def test_all_numbers_of_a_loop():
    """110 of them, checked in mixtures; gravity does not enter where the loop closes."""
    closed = lambda mech: mb.assemble(mb.compile(mech), {"A": 0.5}, guess={"B": 0.2}).q[1]
    found = mb.sensitivity(closed, four_bar(), check=True)
    assert len(found.numbers) == 110 and found.difference < 1e-5
    assert found.independent == ("gravity[0]", "gravity[1]", "gravity[2]")
    assert found.table[-1].note == "no dependence" and found.gradient.gravity.shape == (3,)
    assert "more in .table" in str(found) and len(str(found).splitlines()) == 33


def test_no_dependence_is_not_a_zero():
    flat = lambda m: {"weight": m["bar"].mass * m.gravity[1], "zero": 0.0 * m["bar"].com.sum()}
    found = mb.sensitivity(flat, pendulum(), lambda m: (m["bar"].mass, m["bar"].com, m["hinge"].axis))
    notes = {(row.name, row.response): row.note for row in found.table}
    assert notes["bar.mass", "zero"] == "no dependence" and notes["bar.com[0]", "zero"] == ""
    assert found.independent == ("hinge.axis[0]", "hinge.axis[1]", "hinge.axis[2]")
    assert found.gradient["weight"][0] == -9.81 and "no dependence" in str(found)
    turn = lambda mass: lambda c, _: ((c[0] + mass, c[1], c[0]), c[1])
    loop = lambda m: jax.lax.scan(turn(m["bar"].mass), (0.0, m.gravity[1], 0.0), None, 3)
    picked = lambda m: (m["bar"].mass, m.gravity)
    assert mb.sensitivity(lambda m: loop(m)[0][2], pendulum(), picked).depends.tolist() == [[True, False, False, False]]
    assert mb.sensitivity(lambda m: loop(m)[1][0], pendulum(), picked).independent == ("bar.mass",)


def test_the_same_function_is_compiled_once():
    traces = []

    def weight(m):
        traces.append(1)
        return m["bar"].mass * m.gravity[1] ** 2

    for mass in (1.0, 2.0, 3.0):
        found = mb.sensitivity(weight, pendulum(mass=mass), "bar.mass", check=True)
        close(found.gradient, 9.81**2, 1e-9)
        close(found.value, mass * 9.81**2, 1e-12)
    assert len(traces) == 1
    heavier = eqx.tree_at(lambda m: m.bodies[0].mass, pendulum(), 2.5)  # a Python number as a leaf
    assert mb.sensitivity(weight, heavier, "bar.mass").numbers == {"bar.mass": 2.5}
    scaled = eqx.Partial(lambda a, m: a[0] * m["bar"].mass, jnp.ones(2))  # carries an array: traced each time
    assert mb.sensitivity(scaled, pendulum(), "bar").mode == "reverse"


def test_many_numbers_are_checked_in_mixtures():
    many = {"x": jnp.linspace(1.0, 2.0, 60)}
    right = mb.sensitivity(lambda t: (t["x"] ** 3).sum(), many, check=True)
    assert right.difference < 1e-6 and right.table[0].difference is None and right.table[0].name == "x[59]"

    @jax.custom_jvp
    def wrong(x):
        return x**2

    wrong.defjvp(lambda x, dx: (x[0] ** 2, 3 * x[0] * dx[0]))
    assert mb.sensitivity(lambda t: wrong(t["x"]).sum(), many, check=True).difference > 0.1
    one = mb.sensitivity(lambda t: wrong(t["x"]), {"x": 2.0, "y": 1.0}, check=True)
    assert {row.name: row.note for row in one.table} == {"x": "differences disagree", "y": "no dependence"}


@pytest.mark.parametrize(
    ("where", "text"),
    [
        ("bar.mas", r"no number 'bar.mas'; did you mean 'bar.mass'"),
        (["bar.mass", "hinge.parent.positon"], r"did you mean 'hinge.parent.position'"),
        ("bar.name", r"bar.name is static"),
        (lambda m: m["bar"].name, r"where picks 'bar', which is static"),
        (lambda m: m["bra"].mass, r"no part 'bra'"),
        (lambda m: m["bar"].mass * 2, r"where fails: TypeError.*pick numbers as they are"),
        (lambda m: (m["bar"].mass, m["bar"]), r"bar.mass twice"),
        (lambda m: (), r"picks no numbers"),
        ("count", r"there is no number 'count'"),
    ],
)
def test_what_has_no_derivative_is_refused_by_name(where, text):
    with pytest.raises(mb.MechanismError, match=text):
        mb.sensitivity(lambda m: m["bar"].mass, pendulum(), where)


def test_errors_name_the_culprit():
    x = {"a": 1.0, "n": jnp.array(3)}
    refused = lambda text: pytest.raises(mb.MechanismError, match=text)
    with refused(r"n is of type int.*no derivative"):
        mb.sensitivity(lambda x: x["a"], x, "n")
    assert mb.sensitivity(lambda x: x["a"] * x["n"], x).numbers == {"a": 1.0}
    with refused("mode is 'forwards'; did you mean 'forward'"):
        mb.sensitivity(lambda x: x["a"], x, mode="forwards")
    with refused(r"fn returns response of type int"):
        mb.sensitivity(lambda x: x["n"], x)
    with refused(r"but fn returns 2 numbers"):
        mb.sensitivity(lambda x: {"p": x["a"], "q": x["a"]}, x, names=["p", "q", "r"])
    with refused("inside of jax.jit"):
        jax.jit(lambda a: mb.sensitivity(lambda x: x["a"], {"a": a}).value)(1.0)
    with refused(r"response is nan for these numbers"):
        mb.sensitivity(lambda x: jnp.sqrt(x["a"]), {"a": -1.0})
    infinite = lambda x: jnp.sqrt(x["a"]) + x["b"]
    with refused(r"derivative of response with respect to a = 0 is inf; .*check=True, throw=False"):
        mb.sensitivity(infinite, {"a": 0.0, "b": 1.0})
    loose = mb.sensitivity(infinite, {"a": 0.0, "b": 1.0}, throw=False)
    assert loose.table[0].name == "a" and np.isinf(loose.table[0].derivative)
    with refused("the bar has no length"):  # in the words of what fails, not of the compiled program
        mb.sensitivity(_needs_length, {"a": 0.0})
    assert _program.traced.cache_info().maxsize == 16


def _needs_length(x):
    if not isinstance(x["a"], jax.core.Tracer) and not x["a"] > 0:
        raise mb.MechanismError("the bar has no length")
    return eqx.error_if(x["a"], ~(x["a"] > 0), "something fails")
