"""Tables as inputs: derivatives by values and times of knots, steps that end at knots, what is refused."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import central_difference, close

import diffmb as mb

TIGHT = {"controller": mb.Tolerance(1e-11), "throw": False, "adjoint": mb.StoredSteps(600)}
KINDS = ["hold", "linear", "cubic"]
TIMES, VALUES = [0.2, 0.4, 0.7, 0.9], [1.0, -1.0, 2.0, 0.5]


@pytest.fixture(scope="module")
def bar():
    """A pendulum."""
    model = mb.compile(mb.Mechanism([mb.rod("bar", 1.0, mass=1.0)], [mb.Revolute("A", "world", "bar", axis="y")]))
    return model, mb.assemble(model, {"A": 0.3})


@pytest.fixture(scope="module")
def pair():
    """A double pendulum."""
    rods = [mb.rod("upper", 1.0, mass=1.0), mb.rod("lower", 0.7, mass=0.5)]
    tip = mb.Marker("upper", (1.0, 0, 0))
    joints = [mb.Revolute("A", "world", "upper", axis="y"), mb.Revolute("B", tip, "lower", axis="y")]
    model = mb.compile(mb.Mechanism(rods, joints))
    return model, mb.assemble(model, {"A": 0.3, "B": 0.2})


def flat(traj, rows=slice(1, None)):
    return jnp.concatenate([traj.q[rows].ravel(), traj.v[rows].ravel()])


def jacobian_by_differences(f, x, h=1e-3):
    return np.stack([central_difference(f, x, jnp.asarray(e), h) for e in np.eye(len(x))], -1)


# --- derivatives --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_derivatives_by_times_and_values(kind, bar):
    """First and second, forward and reverse; also those of a step in time, which come from its jump alone."""

    def run(x):
        table = mb.Table(x[:4], x[4:], kind)
        return flat(mb.simulate(*bar, [0.0, 0.5, 1.0], inputs={"A": table}, **TIGHT))

    x = jnp.array(TIMES + VALUES)
    first = jax.jit(jax.jacfwd(run))(x)
    close(first, jacobian_by_differences(jax.jit(run), x), 1e-8)
    weight = jnp.cos(jnp.arange(4.0))
    slope = jax.jit(jax.grad(lambda x: weight @ run(x)))
    close(slope(x), weight @ first, 1e-12)
    second = jax.jit(jax.hessian(lambda x: weight @ run(x)))(x)
    close(second, jacobian_by_differences(slope, x), 1e-7)


def test_knots_of_several_tables_at_one_time(pair):
    """Each moves by itself; and all of them with one list of times."""
    model, state = pair

    def run(x):
        tables = {"A": mb.Table(x[0], [1.0, -2.0, 0.5], "hold"), "B": mb.Table(x[1], [0.3, 0.8, -1.0], "hold")}
        return flat(mb.simulate(model, state, [0.0, 0.8], inputs=tables, **TIGHT))

    times = jnp.array([0.1, 0.35, 0.6])
    both = jnp.stack([times, times]).ravel()
    values = jax.jit(lambda x: run(x.reshape(2, 3)))
    found = jax.jit(jax.jacfwd(lambda x: run(x.reshape(2, 3))))(both)
    expected = [(values(both + 1e-5 * e) - values(both - 1e-5 * e)) / 2e-5 for e in np.eye(6)]
    close(found, np.stack(expected, 1), 1e-5)  # the second derivative jumps here
    close(found.sum(1), central_difference(values, both, jnp.ones(6), 2.5e-4), 1e-8)


def test_rows_at_knots_by_all_times_together(bar):
    """Times of rows and of knots are one list: it moves as a whole."""

    def run(ts):
        load = mb.Table(ts, jnp.array([1.0, -1.0, 2.0, 0.0]), "hold")
        return flat(mb.simulate(*bar, ts, inputs={"A": load}, **TIGHT))

    ts = jnp.array([0.0, 0.25, 0.5, 0.8])
    slope = jax.jit(jax.jacrev(run))(ts)
    close(slope[:, 1:], jacobian_by_differences(jax.jit(run), ts)[:, 1:], 1e-8)


def test_knots_between_events():
    """Steps in time before and after an impact, to second order; the time of the impact moves with them."""
    ball = mb.RigidBody("ball", 1.0, (0, 0, 0), np.ones(3))
    model = mb.compile(mb.Mechanism([ball], [mb.Prismatic("z", "world", "ball", axis="z")], gravity=(0, 0, -9.81)))
    state = mb.assemble(model, {"z": 0.3})
    weight = jnp.cos(jnp.arange(5.0))

    def run(x):
        hit = mb.impact("hit", lambda instant, _: instant.coordinate("z"), restitution=x[0])
        load = {"z": mb.Table(x[1:], [1.0, 20.0, -5.0, 3.0], "hold")}
        traj = mb.simulate(model, state, [0.0, 0.25, 0.6], events=hit, inputs=load, **TIGHT)
        return weight @ jnp.concatenate([flat(traj), traj.event_times[:1]])

    x, both = jnp.array([0.7, 0.1, 0.18, 0.4, 0.57]), jax.jit(jax.value_and_grad(run))
    close(both(x)[1], jacobian_by_differences(lambda x: both(x)[0], x, 1e-4), 1e-8)
    second = jax.jit(jax.hessian(run))(x)
    close(second, jacobian_by_differences(lambda x: both(x)[1], x, 1e-4), 1e-7)


@pytest.mark.parametrize("solver", [None, mb.implicit()])
def test_dense_rows_move_with_knots(solver, bar):
    """So that what is resampled on either side of a step in time has the derivative by its time."""
    at = np.array([0.1, 0.35, 0.38, 0.42, 0.6, 0.75, 0.99])

    def run(times):
        load = mb.Table(times, [1.0, -9.0, 12.0], "hold")
        tight = TIGHT | {"controller": mb.Tolerance(1e-9), "solver": solver}
        return flat(mb.simulate(*bar, [0.0, 1.0], inputs={"A": load}, dense=True, **tight).resample(at), slice(None))

    times = jnp.array([0.1, 0.4, 0.7])
    slope = jax.jit(jax.jacfwd(run))(times)
    values = jax.jit(run)
    expected = [central_difference(values, times, jnp.asarray(e), 1e-3) for e in np.eye(3)[1:]]
    close(slope[:, 1:], np.stack(expected, 1), 2e-5)


# --- steps --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("solver", [mb.explicit(), mb.implicit()], ids=["Tsit5", "Kvaerno5"])
def test_order_is_kept(solver, kind, bar):
    """Half the step, 1/32 of the error: no stage sees what comes after a knot (Kvaerno5 looks 1.23 steps ahead)."""
    load = mb.Table([0.2, 0.43, 0.71, 0.9], VALUES, kind)
    run = lambda step: mb.simulate(*bar, [0.0, 1.0], inputs={"A": load}, solver=solver, controller=step).q[-1, 0]
    exact = run(mb.Tolerance(1e-12 if solver is not mb.implicit() else 1e-9))
    coarse, fine = (abs(float(run(mb.FixedStep(h)) - exact)) for h in (0.05, 0.025))
    assert coarse > 18 * fine and fine < 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_knots_anywhere(kind, bar):
    """At requested times, one unit of round-off from them, at both ends, outside of the run, beside each other."""
    model, state = bar
    grid = np.linspace(0.0, 1.0, 11)
    run = lambda load: mb.simulate(model, state, grid, inputs={"A": load}, controller=mb.Tolerance(1e-10))
    shape = lambda times: mb.Table(times, np.cos(3.0 * np.arange(len(times))), kind)
    truth = run(shape(grid))
    for times in (np.arange(11) * 0.1, grid + 1e-13, np.nextafter(grid, 2.0)):
        found = run(shape(times))
        close(found.q, truth.q, 1e-9)
        assert int(found.stats.rejected) < 40
    outer = np.linspace(-1.0, 2.0, 31)
    wide = mb.Table(outer, np.concatenate([np.zeros(10), np.cos(3.0 * np.arange(11)), np.ones(10)]), kind)
    close(run(wide).q[:8], truth.q[:8], 1e-9 if kind != "cubic" else 1e-2)


def test_two_tables_with_knots_side_by_side(pair):
    model, state = pair
    run = lambda apart: mb.simulate(
        model,
        state,
        [0.0, 0.8],
        inputs={"A": mb.Table([0.1, 0.3], [1.0, 3.0], "hold"), "B": mb.Table([0.1 + apart, 0.3 - apart], [0.1, 0.5])},
    )
    truth = run(0.0)
    for apart in (1e-17, 2e-17, 1e-12):
        found = run(apart)
        close(found.q, truth.q, 1e-10)
        assert int(found.stats.steps) <= int(truth.stats.steps) + 2


@pytest.mark.parametrize("kind", KINDS)
def test_many_knots(kind, bar):
    times = np.linspace(-0.1, 1.1, 1001)
    run = lambda load: mb.simulate(*bar, [0.0, 1.0], inputs={"A": load})
    found = run(mb.Table(times, np.sin(5.0 * times), kind))
    close(found.q[-1], run(lambda t: jnp.sin(5.0 * t)).q[-1], 3e-3 if kind == "hold" else 1e-5)
    assert int(found.stats.steps) < 900 and int(found.stats.rejected) < 20


@pytest.mark.parametrize("solver", [mb.implicit(), mb.implicit(3), diffrax.KenCarp4(), mb.Auto()], ids=str)
def test_implicit_methods_take_tables(solver, bar):
    load = {"A": mb.Table(TIMES, VALUES, "hold")}
    truth = mb.simulate(*bar, [0.0, 1.0], inputs=load)
    found = mb.simulate(*bar, [0.0, 1.0], inputs=load, solver=solver, controller=mb.Tolerance(1e-7))
    close(found.q, truth.q, 1e-5)


def test_tables_within_functions(bar):
    """Of the user's modules and lambdas: their knots are seen too, where they are asked at the time itself."""

    class Doubled(eqx.Module):
        table: mb.Table

        def __call__(self, t):
            return 2.0 * self.table(t)

    table, whole = mb.Table(TIMES, VALUES, "hold"), mb.Table(TIMES, 2.0 * np.array(VALUES), "hold")
    run = lambda load, **more: mb.simulate(*bar, [0.0, 1.0], inputs={"A": load}, **more)
    b = run(whole)
    for load in (Doubled(table), lambda t: 2.0 * table(t)):
        a = run(load)
        close(a.q, b.q, 1e-14)
        assert int(a.stats.steps) == int(b.stats.steps) < 50
    late = mb.Table(np.array(TIMES) + 0.15, VALUES)
    shifted = run(lambda t: late(t + 0.15), solver=mb.implicit(), controller=mb.Tolerance(1e-8))
    close(shifted.q, run(mb.Table(TIMES, VALUES)).q, 1e-6)


def test_runs_without_tables_have_nothing_of_them(bar):
    """Not one operation: the knots of a table are asked for where there is one."""
    model, state = bar
    run = lambda load: str(
        jax.make_jaxpr(lambda s: mb.simulate(model, s, [0.0, 1.0], inputs={"A": load}, throw=False).q)(state)
    )
    assert "nextafter" not in run(lambda t: jnp.sin(t)) and "nextafter" in run(mb.Table(TIMES, VALUES))


# --- functions ----------------------------------------------------------------------------------------------------

GAIN = 1.0


class Calls:
    count = 0


def of_gain(t):
    Calls.count += 1
    return GAIN * jnp.sin(t)


def test_functions_that_differ_in_numbers_share_a_program(bar):
    """Numbers around a function are arguments: of enclosing functions, defaults, the module; changes are seen."""
    run = lambda load: mb.simulate(*bar, [0.0, 1.0], inputs={"A": load}).q[-1, 0]
    fine = np.linspace(0.0, 1.0, 300)
    truth = {k: run(mb.Table(fine, k * np.sin(fine), "cubic")) for k in (1, 3)}

    def closed(a):
        def load(t):
            Calls.count += 1
            return a * jnp.sin(t)

        return load

    def defaulted(a):
        def load(t, own={"a": a}, *, n=1):  # noqa: B006
            Calls.count += 1
            return own["a"] * jnp.sin(n * t)

        return load

    def from_module(a):
        global GAIN
        GAIN = a
        return of_gain

    for make in (closed, defaulted, from_module):
        for k, most in ((1, 10**6), (3, 3)):
            Calls.count = 0
            close(run(make(float(k))), truth[k], 1e-7)
            assert Calls.count <= most
    close(run(closed(3)), truth[3], 1e-7)  # whole numbers are part of the program


def test_functions_that_ask_their_numbers(bar):
    """`if a > 0` is answered by the number itself; numbers that are traced have derivatives."""
    run = lambda load: mb.simulate(*bar, [0.0, 1.0], inputs={"A": load}, throw=False).q[-1, 0]
    choose = lambda a: run(lambda t: jnp.sin(t) if a > 0 else -jnp.sin(t))
    close(choose(-1.0), run(lambda t: -jnp.sin(t)), 1e-14)
    of = lambda p: run(lambda t, w=[2.0, "rad/s"]: p["a"] * jnp.sin(w[0] * t))
    slope = jax.grad(of)({"a": 0.7})["a"]
    close(slope, (of({"a": 0.7 + 1e-4}) - of({"a": 0.7 - 1e-4})) / 2e-4, 1e-6)


# --- what is handed over ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (lambda: mb.Table([0, 1], [0, 1], "step"), "a table of kind 'step'; known names: 'linear', 'hold', 'cubic'"),
        (lambda: mb.Table([0, 1], [0, 1], "holds"), "did you mean 'hold'"),
        (lambda: mb.Table([0, 1, 2], [0, 1]), r"times of shape \(3,\) and values of shape \(2,\); .*one value or"),
        (lambda: mb.Table([0], [0]), "at least two times"),
        (lambda: mb.Table(0, [0]), "at least two times"),
        (lambda: mb.Table([0, 1], np.zeros((2, 1, 1))), "one row of values for each"),
        (lambda: mb.Table([0, 2, 1], [0, 1, 2]), r"must increase, but times\[2\] = 1 follows 2"),
        (lambda: mb.Table([0, 1, 1], [0, 1, 2]), r"must increase, but times\[2\] = 1 follows 1"),
        (lambda: mb.Table([0, np.nan], [0, 1]), r"the times of a table: not a finite number at \[1\]"),
        (lambda: mb.Table([0, 1], [[0, 1], [np.inf, 2]]), r"the values of a table: not a finite number at \[1, 0\]"),
        (lambda: mb.Table([0, 1], [[0, 1], [2]]), "the values of a table: no array of numbers; .*different lengths"),
        (lambda: mb.Table([0, 1], [1j, 0]), "the values of a table: .* of complex128; give real numbers"),
        (lambda: mb.Table([0, 1], jnp.array([True, False])), "of bool; give real numbers"),
        (lambda: mb.Table(["a", "b"], [0, 1]), "the times of a table: .*; give real numbers"),
        (lambda: mb.Table([0, 1], None), "the values of a table: None of object; give real numbers"),
    ],
)
def test_tables_that_are_refused(table, words):
    with pytest.raises(mb.MechanismError, match=words):
        table()


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (np.zeros(3), r"input of 'ball' has shape \(3,\); give 6 numbers that stay, or at the 9 times ts .*\(9, 6\)"),
        (np.zeros((6, 9)), "yours is transposed"),
        (np.zeros((9, 5)), r"has shape \(9, 5\)"),
        (np.zeros((9, 6, 1)), r"has shape \(9, 6, 1\)"),
        (np.full(6, np.nan), r"input of 'ball': not a finite number at \[0\]"),
        ("1.0", "input of 'ball': .*; give real numbers"),
        ([[1, 2], [3]], "input of 'ball': no array"),
        (lambda t: 1j * t, "input of 'ball' gives complex numbers; it has 6 numbers, which are real"),
        (mb.Table([0, 1], np.zeros((2, 5))), r"input of 'ball' gives shape \(5,\); it has 6 numbers"),
    ],
)
def test_inputs_that_are_refused(value, words):
    model = mb.compile(mb.Mechanism([mb.RigidBody("ball", 1.0, (0, 0, 0), np.ones(3))]))
    with pytest.raises(mb.MechanismError, match=words):
        mb.simulate(model, mb.assemble(model), np.linspace(0, 1, 9), inputs={"ball": value})


def test_a_list_as_long_as_the_input_stays():
    model = mb.compile(mb.Mechanism([mb.RigidBody("ball", 1.0, (0, 0, 0), np.ones(3))], gravity=(0, 0, 0)))
    load = np.array([0, 0, 0, 1.0, 2.0, 3.0])
    ts = np.linspace(0.0, 1.0, 6)
    run = lambda load: mb.simulate(model, mb.assemble(model), ts, inputs={"ball": load}).v[-1]
    close(run(load), load, 1e-9)
    close(run(np.tile(load, (6, 1))), load, 1e-9)
