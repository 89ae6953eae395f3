"""Simulation: order of every method, drift, manifold, inputs, choice of a solver, precision, and failures in words."""

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from closed import bricard, crank_slider, four_bar
from helpers import close

import diffmb as mb


def tight(tolerance):
    return diffrax.PIDController(rtol=tolerance, atol=tolerance)


def double_pendulum(length=1.0):
    return mb.Mechanism(
        [mb.rod("upper", length, mass=1.0), mb.rod("lower", 0.7, mass=0.5)],
        [
            mb.Revolute("A", "world", "upper", axis="y"),
            mb.Revolute("B", mb.Marker("upper", (length, 0, 0)), "lower", axis="y"),
        ],
    )


@pytest.fixture(scope="module")
def tree():
    model = mb.compile(double_pendulum())
    return model, mb.assemble(model, {"A": 0.3, "B": -0.8}, {"A": 0.5})


@pytest.fixture(scope="module")
def loop():
    model = mb.compile(four_bar())
    return model, mb.assemble(model, {"A": 0.5}, {"A": 12.0})


# --- accuracy -----------------------------------------------------------------------------------------------------


SPANS = {"tree": np.linspace(0.0, 0.8, 5), "loop": np.linspace(0.0, 0.2, 5)}


@pytest.fixture(scope="module")
def truths(tree, loop):
    run = lambda case, ts: mb.simulate(*case, ts, solver=mb.explicit(8), controller=tight(1e-13))
    return {"tree": run(tree, SPANS["tree"]), "loop": run(loop, SPANS["loop"])}


METHODS = [(mb.explicit, 3, 128), (mb.explicit, 5, 200), (mb.explicit, 8, 32)]
METHODS += [(mb.implicit, 3, 128), (mb.implicit, 4, 128), (mb.implicit, 5, 64)]


@pytest.mark.parametrize(("make", "order", "n"), METHODS)
@pytest.mark.parametrize(("name", "project"), [("tree", True), ("loop", True), ("loop", False)])
def test_observed_order(tree, loop, truths, name, project, make, order, n):
    """n and 2n fixed steps: the error falls by 2^order, on the manifold and off it."""
    case, ts, truth = {"tree": tree, "loop": loop}[name], SPANS[name], truths[name]

    def error(n):
        fixed = mb.FixedStep((ts[-1] - ts[0]) / n)
        traj = mb.simulate(*case, ts, solver=make(order), controller=fixed, project=project)
        assert int(traj.stats.steps) == n and int(traj.stats.rejected) == 0
        return max(np.abs(traj.q - truth.q).max(), 0.1 * np.abs(traj.v - truth.v).max())

    observed = np.log2(error(n) / error(2 * n))
    assert abs(observed - order) < 0.2, observed


def test_energy_drift_follows_the_tolerance(tree):
    """Over four decades of tolerance the drift falls in proportion (measured: by 4.7 decades)."""
    model, state = tree
    run = lambda tolerance: mb.simulate(model, state, [0.0, 5.0, 10.0], controller=tight(tolerance))
    drift = [float(run(10.0**-k).energy_change) for k in (5, 7, 9)]
    assert drift[0] > drift[1] > drift[2] and drift[2] < 1e-7
    assert 0.8 < np.log10(drift[0] / drift[2]) / 4 < 1.25, drift


def test_a_thousand_turns_of_a_four_bar(loop):
    """The crank turns a thousand times; what is open stays below 1e-10 m, measured 2e-13 (angles of 6000 rad)."""
    model = mb.compile(four_bar(drives=[mb.VelocityDrive("motor", "A", lambda t, w: w, 2 * np.pi)]))
    state = mb.assemble(model, {"A": 0.5})
    traj = mb.simulate(model, state, np.linspace(0, 1000, 3), controller=tight(1e-6))
    assert float(traj.stats.constraint_error) < 2e-12
    phi = jax.vmap(lambda t, q: mb.constraint_residual(model, q, t))(traj.ts, traj.q)
    rate = jax.vmap(lambda t, q, v: mb.constraint_rate(model, q, v, t))(traj.ts, traj.q, traj.v)
    assert float(jnp.abs(phi).max()) < 2e-12 and float(jnp.abs(rate).max()) < 1e-10
    close(traj.coordinate("A")[-1], 0.5 + 2000 * np.pi, 1e-6)
    close(traj.q[-1, 1:], traj.q[0, 1:] + np.round((traj.q[-1, 1:] - traj.q[0, 1:]) / (2 * np.pi)) * 2 * np.pi, 1e-5)


def test_overconstrained_linkage_moves():
    """Bricard's linkage: five rows of rank four on the manifold, of rank five a little off it. Energy is kept."""
    model = mb.compile(bricard())
    traj = mb.simulate(model, mb.assemble(model), [0.0, 0.5, 1.0], solver=mb.explicit(8))
    assert float(traj.energy_change) < 1e-6 and float(traj.stats.constraint_error) < 1e-13
    close(traj.q[:, 0], traj.q[:, 2], 1e-9)  # it keeps its symmetry


def test_quaternions_stay_unit():
    model = mb.compile(mb.Mechanism([mb.box("brick", (0.1, 0.2, 0.4), mass=1.0)], gravity=(0, 0, 0)))
    state = mb.assemble(model, None, jnp.array([0.1, 5.0, 0.2, 0, 0, 1.0]))
    traj = mb.simulate(model, state, np.linspace(0, 20, 5), controller=tight(1e-6))
    close(jnp.linalg.norm(traj.q[:, 3:], axis=1), np.ones(5), 1e-14)


def test_baumgarte_decays_and_projection_is_exact(loop):
    model, state = loop
    soft = mb.simulate(model, state, [0.0, 0.5], project=mb.Baumgarte(50.0), controller=tight(1e-7))
    bare = mb.simulate(model, state, [0.0, 0.5], project=False, controller=tight(1e-7))
    hard = mb.simulate(model, state, [0.0, 0.5])
    left = lambda traj: float(jnp.abs(mb.constraint_residual(model, traj.q[-1])).max())
    assert left(hard) < 1e-14 < left(soft) < left(bare) < 1e-4
    close(soft.q[-1], hard.q[-1], 1e-4)


def test_steps_meet_the_times_and_dense_keeps_all(loop):
    model, state = loop
    ts = np.array([0.0, 0.013, 0.0131, 0.2])
    traj = mb.simulate(model, state, ts)
    assert traj.q.shape == (4, 3) and bool((traj.ts == ts).all())
    whole = mb.simulate(model, state, [0.0, 0.2], dense=True)
    assert whole.ts.shape[0] == int(whole.stats.steps) + 1 and bool((jnp.diff(whole.ts) > 0).all())
    close(whole.q[-1], traj.q[-1], 1e-6)


# --- inputs, solvers, precision -----------------------------------------------------------------------------------


def test_inputs_are_functions_tables_arrays_and_numbers(tree):
    model, state = tree
    ts = np.linspace(0.0, 1.0, 41)
    load = lambda t: 2.0 * jnp.sin(3.0 * t)
    run = lambda value: mb.simulate(model, state, ts, inputs={"B": value}).q[-1]
    exact = run(load)
    fine = np.linspace(0.0, 1.0, 401)
    close(run(mb.Table(fine, load(fine), "cubic")), exact, 1e-5)
    close(run(mb.Table(fine, load(fine))), exact, 1e-4)
    close(run(load(ts)), run(mb.Table(ts, load(ts))), 1e-12)
    close(run(1.5), run(lambda t: 1.5), 1e-12)
    held = mb.Table([0.0, 0.5, 1.0], [1.0, -1.0, -1.0], "hold")
    first = mb.simulate(model, state, [0.0, 0.5], inputs={"B": 1.0})
    second = mb.simulate(model, mb.assemble(model, first.q[-1], first.v[-1], t=0.5), [0.5, 1.0], inputs={"B": -1.0})
    close(mb.simulate(model, state, [0.0, 1.0], inputs={"B": held}).q[-1], second.q[-1], 1e-6)


def stiff_slider(k=1e6, c=2e3):
    """A crank-slider whose slider is tied to the wall by a stiff spring and damper of its own time scale."""
    plain = crank_slider()
    tie = mb.JointConnection(
        "tie", ["B"], lambda t, q, v, z, u, p: -p["k"] * jnp.sin(q - p["q0"]) - p["c"] * v, {"k": k, "c": c, "q0": -0.9}
    )
    return mb.Mechanism(plain.bodies, plain.joints, connections=[tie], gravity=plain.gravity)


def test_stiff_spring(loop):
    """Explicit steps are limited by stability, implicit ones are not; both agree; Auto chooses and says so."""
    model = mb.compile(stiff_slider())
    state = mb.assemble(model, {"A": 0.4})
    run = lambda solver, **more: mb.simulate(model, state, [0.0, 0.5], solver=solver, controller=tight(1e-6), **more)
    implicit, explicit = run(mb.implicit()), run(mb.explicit())
    close(implicit.q[-1], explicit.q[-1], 1e-5)
    assert int(implicit.stats.steps) * 20 < int(explicit.stats.steps)
    assert run(mb.Auto()).stats.solver == "Kvaerno5"
    assert mb.simulate(*loop, [0.0, 0.2], solver=mb.Auto()).stats.solver == "Tsit5"
    with pytest.raises(mb.MechanismError, match=r"step limit .*the fastest mode decays at .* 1/s: it is stiff"):
        run(mb.explicit(), max_steps=500)


def test_other_methods_of_diffrax(loop, truths):
    for solver in (diffrax.KenCarp4(), diffrax.Heun()):
        traj = mb.simulate(*loop, [0.0, 0.2], solver=solver, controller=tight(1e-5))
        close(traj.q[-1], truths["loop"].q[-1], 1e-3)
        assert traj.stats.solver == type(solver).__name__


def test_single_precision():
    """Batches may run in float32: the default tolerance fits it, and what is open stays near its round-off."""
    with jax.enable_x64(False):
        model = mb.compile(four_bar())
        traj = mb.simulate(model, mb.assemble(model, {"A": 0.5}, {"A": 12.0}), [0.0, 0.1, 0.2])
        assert traj.q.dtype == jnp.float32 and float(traj.stats.constraint_error) < 1e-6
        with pytest.raises(mb.MechanismError, match='jax_enable_x64", True'):
            mb.simulate(model, mb.assemble(model, {"A": 0.5}), [0.0, 0.1], controller=tight(1e-9))
    double = mb.compile(four_bar())
    exact = mb.simulate(double, mb.assemble(double, {"A": 0.5}, {"A": 12.0}), [0.0, 0.1, 0.2])
    close(traj.q, exact.q, 2e-2)


# --- failures -----------------------------------------------------------------------------------------------------


def test_not_a_number_is_named(tree):
    model, state = tree
    bad = {"B": lambda t: jnp.where(t > 0.4, jnp.nan, 0.1)}
    with pytest.raises(mb.MechanismError, match=r"at t = 0\.[34].* not finite"):
        mb.simulate(model, state, np.linspace(0, 1, 11), inputs=bad)
    traj = mb.simulate(model, state, np.linspace(0, 1, 11), inputs=bad, throw=False)
    assert traj.result == mb.RESULTS.nonfinite and traj.q.shape == (5, 2) and bool(jnp.isfinite(traj.q).all())
    fixed = mb.simulate(model, state, np.linspace(0, 1, 11), inputs=bad, throw=False, controller=mb.FixedStep(0.01))
    assert fixed.result == mb.RESULTS.nonfinite and bool(jnp.isfinite(fixed.q).all())
    with pytest.raises(mb.MechanismError, match=r"rates of joint 'A' \(body 'upper'\)"):
        mb.simulate(model, state, [0.0, 1.0], inputs={"A": lambda t: jnp.nan * t})


def test_step_limit_keeps_what_there_is(tree):
    model, state = tree
    with pytest.raises(mb.MechanismError, match=r"at t = .* step limit .* 20 steps, the next of 0.01 s"):
        mb.simulate(model, state, [0.0, 100.0], max_steps=20, controller=mb.FixedStep(0.01))
    traj = mb.simulate(model, state, np.linspace(0, 1, 101), max_steps=20, throw=False, controller=mb.FixedStep(0.01))
    assert traj.result == mb.RESULTS.max_steps and traj.q.shape == (21, 2)

    def end(rate, throw):
        start = mb.assemble(model, {"A": 0.3}, {"A": rate})
        return mb.simulate(model, start, [0.0, 1.0], adjoint=mb.StoredSteps(5), throw=throw).q[-1, 0]

    assert np.isnan(jax.grad(end)(0.5, False))  # more steps than are kept: no derivative, and not a zero one
    with pytest.raises(Exception, match="a simulation fails"):
        jax.grad(end)(0.5, True)


def test_a_drive_that_cannot_be_followed():
    model = mb.compile(four_bar(l1=0.4, drives=[mb.PositionDrive("motor", "A", lambda t, p: 1.0 + 3.0 * t)]))
    state = mb.assemble(model)
    with pytest.raises(mb.MechanismError, match=r"t = 0\."):
        mb.simulate(model, state, [0.0, 1.0])
    traj = mb.simulate(model, state, np.linspace(0, 1, 11), throw=False)
    assert traj.result != mb.RESULTS.successful and bool(jnp.isfinite(traj.q).all())


def test_start_must_be_consistent(loop):
    model, state = loop
    off = eqx.tree_at(lambda s: s.q, state, state.q + jnp.array([0.1, 0, 0]))
    with pytest.raises(mb.MechanismError, match=r"the start does not satisfy the constraints.*'D: y' \(loop"):
        mb.simulate(model, off, [0.0, 1.0])
    pair = mb.simulate(model, (off.q, state.v), [0.0, 0.01])  # a pair is assembled
    assert float(pair.stats.constraint_error) < 1e-13


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ts": [0.0]}, "at least the first and the last"),
        ({"ts": [0.0, 1.0, 1.0]}, r"must increase, but ts\[2\] = 1 follows 1"),
        ({"ts": [0.0, np.nan]}, "not a finite number"),
        ({"ts": [1.0, 2.0]}, "the state is at t = 0 s, but ts starts at 1; assemble it with t=1"),
        ({"controller": mb.Tolerance(1e-16)}, "below what float64 can keep"),
        ({"inputs": {"Q": 1.0}}, "which is no joint or connection with inputs; known names: 'A', 'B'"),
        ({"inputs": {"A": lambda t: jnp.zeros(3)}}, r"the input of 'A' gives shape \(3,\); it has 1 number"),
        ({"inputs": {"A": lambda t: t.nothing}}, "the input of 'A' fails: AttributeError"),
        ({"off": "Q"}, "cannot be switched"),
        ({"z": jnp.zeros(3)}, "z has shape"),
    ],
)
def test_refusals(tree, change, words):
    model, state = tree
    with pytest.raises(mb.MechanismError, match=words):
        mb.simulate(model, state, **({"ts": [0.0, 1.0]} | change))


def test_auto_needs_numbers(tree):
    model, state = tree
    with pytest.raises(mb.MechanismError, match="decides by a trial run"):
        jax.jit(lambda t: mb.simulate(model, state, jnp.stack([0 * t, t]), solver=mb.Auto()).q)(1.0)


def test_inside_jit_a_failure_is_an_error_or_a_value(tree):
    model, state = tree
    run = lambda throw: jax.jit(
        lambda t: mb.simulate(model, state, jnp.stack([0 * t, t]), max_steps=5, throw=throw).q
    )(5.0)
    assert bool(jnp.isnan(run(False)[-1]).all())
    with pytest.raises(Exception, match=r"a simulation fails; run it outside of jax\.jit"):
        run(True)


def test_times_from_outside_of_a_jit():
    """They are known there, and compared with the time of the state."""
    model = mb.compile(four_bar())
    state, ts = mb.assemble(model, {"A": 0.4}), jnp.linspace(0.0, 0.02, 3)
    found = jax.jit(lambda k: k * mb.simulate(model, state, ts, throw=False).q[-1])(1.0)
    np.testing.assert_allclose(found, mb.simulate(model, state, ts).q[-1], rtol=1e-9)
