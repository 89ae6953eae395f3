"""Runs over time against trusted answers: the IFToMM problems, the stiff ones, and published sensitivities."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from andrews import andrews, in_order, out_of_order, reference
from helpers import close
from test_reference_loops import (
    FOLDER,
    car_axis,
    load,
    road,
    slider_crank,
    tight,
    windows,
    windows_acceleration,
    windows_state,
)

import diffmb as mb

pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="the reference problems are not here")


def test_simple_pendulum():
    """P01: ten seconds from the horizontal; and P13 B2: with this gravity the period is 2 s."""
    particle = mb.RigidBody("mass", 1.0, (1, 0, 0), (1e-12, 1e-12, 1e-12))
    mech = lambda g: mb.Mechanism([particle], [mb.Revolute("A", "world", "mass")], gravity=(0, -g, 0))

    def run(g, ts):
        model = mb.compile(mech(g))
        start = mb.assemble(model, {"A": np.pi})
        return mb.simulate(model, start, ts, solver=mb.explicit(8), controller=tight(1e-12))

    traj = run(9.81, [0.0, 10.0])
    tip = traj[mb.Marker("mass", (1, 0, 0))]
    close(tip.pose.translation[-1][:2], (-0.275087462576116860, -0.961419205099125064), 1e-9)
    close(tip.twist[-1][3:5], (4.17559810095172884, -1.19474905456047527), 1e-9)
    assert float(traj.energy_change) < 1e-9
    again = run(float(load("P13_basics.json")["B2"]["g"]), [0.0, 2.0, 4.0])
    close(again.q[:, 0], np.full(3, np.pi), 1e-9)


def test_torque_free_body():
    """P13 B1: attitude and spin after 10 s."""
    data = load("P13_basics.json")["B1"]
    model = mb.compile(mb.Mechanism([mb.RigidBody("body", 1.0, inertia=data["I"])], gravity=(0, 0, 0)))
    start = mb.assemble(model, None, jnp.array([*data["w0"], 0, 0, 0]))
    traj = mb.simulate(model, start, data["t"], controller=tight(1e-12), solver=mb.explicit(8))
    expected = np.array(data["y"])
    close(traj.v[:, :3], expected[:, :3], 1e-9)
    sign = np.sign((traj.q[:, 3:] * expected[:, 3:]).sum(1))[:, None]
    close(traj.q[:, 3:] * sign, expected[:, 3:], 1e-9)


def test_heavy_top():
    """P07: a fast top on a ball joint, 2 s."""
    data = load("P07_heavy_top.json")
    body = mb.RigidBody("top", 15.0, (0, 1, 0), (0.234375, 0.46875, 0.234375))
    model = mb.compile(mb.Mechanism([body], [mb.Spherical("O", "world", "top")], gravity=(0, 0, -9.81)))
    start = mb.assemble(model, None, jnp.array([0.0, 150.0, -4.61538]))
    traj = mb.simulate(model, start, data["t"], controller=tight(1e-11), solver=mb.explicit(8))
    close(traj[mb.Marker("top", (0, 1, 0))].pose.translation, data["com"], 1e-6)
    close(traj.v[:, 1], np.full(len(data["t"]), 150.0), 1e-10)


@pytest.mark.parametrize(("n", "end"), [(1, 10.0), (2, 10.0), (10, 10.0), (40, 10.0)])
def test_four_bars_turn_through_their_folds(n, end):
    """P02: ten seconds, through the singular attitude twice each turn; measured 4e-8, loops closed to 4e-15."""
    from scipy.integrate import solve_ivp

    model = mb.compile(windows(n))
    q, v = windows_state(model, np.pi / 2, -1.0)
    start = mb.assemble(model, jnp.asarray(q), jnp.asarray(v))
    traj = mb.simulate(model, start, [0.0, end], controller=tight(1e-9))
    factor = -9.81 * ((n + 1) / 2 + n) / ((n + 1) / 3 + n)
    truth = solve_ivp(
        lambda t, y: [y[1], factor * np.cos(y[0])], (0, end), [np.pi / 2, -1.0], "DOP853", rtol=1e-13, atol=1e-13
    )
    found = traj.coordinate("A0")[-1], traj.speed("A0")[-1]
    assert float(found[0]) < 0.0  # it is past the fold
    close(np.array(found) - truth.y[:, -1], np.zeros(2), 2e-7)
    if n == 2:
        tip = traj[mb.Marker("crank 0", (1, 0, 0))]
        expected = load("P02_A02_fourbar.json")["N2"][-1]
        close((*tip.pose.translation[-1][:2], *tip.twist[-1][3:5]), expected[:4], 1e-6)
    assert float(traj.stats.constraint_error) < 1e-13 and float(traj.energy_change) < 1e-6


@pytest.mark.parametrize("outputs", [2, 101])
def test_every_member_passes_the_folds(outputs):
    """P02 with slightly different starts, 128 side by side, each of which meets the folds in its own way: steps that
    end at a fold, as those to requested times may, would leave on the other branch, or get stuck there. None leaves on
    the other branch; where times are requested at most one in fifty gets stuck, and says so."""
    from scipy.integrate import solve_ivp

    model = mb.compile(windows(1))
    q, v = windows_state(model, np.pi / 2, 1.0)
    start = mb.assemble(model, jnp.asarray(q), jnp.asarray(v))
    rates = -1.0 + 0.05 * np.linspace(-1.0, 1.0, 128)

    def end(rate, rtol):
        state = eqx.tree_at(lambda s: s.v, start, rate * start.v)
        traj = mb.simulate(
            model, state, ts, solver=mb.explicit(8), controller=mb.Tolerance(rtol), throw=False, max_steps=300
        )
        return traj.coordinate("A0"), traj.result == mb.RESULTS.successful

    ts = np.linspace(0.0, 10.0, outputs)
    slope = lambda t, y: [*y[128:], *windows_acceleration(1, y[:128])]
    start_of = [*np.full(128, np.pi / 2), *rates]
    truth = solve_ivp(slope, (0, 10.0), start_of, "DOP853", ts, rtol=1e-12, atol=1e-12).y[:128]
    run = jax.jit(jax.vmap(end, (0, None)))
    for rtol, error in ((1e-7, 2e-4), (1e-8, 2e-5), (1e-9, 1e-6)):
        angle, fine = run(jnp.asarray(rates), rtol)
        fine = np.asarray(fine)
        assert fine.all() if outputs == 2 else fine.mean() > 0.98
        close(angle[fine], truth[fine], error)


def test_a_time_at_the_fold():
    """P02, and the very time of the first fold: what is asked for there is right, or the run says that it is lost."""
    from scipy.integrate import solve_ivp

    model = mb.compile(windows(1))
    start = mb.assemble(model, *map(jnp.asarray, windows_state(model, np.pi / 2, -1.0)))
    slope = lambda t, y: [y[1], windows_acceleration(1, y[0])]
    exact = {"method": "DOP853", "rtol": 1e-12, "atol": 1e-12}
    fold = solve_ivp(slope, (0, 3.0), [np.pi / 2, -1.0], events=lambda t, y: np.sin(y[0]), **exact).t_events[0][0]
    ts = np.array([0.0, 0.5, fold, 3.0])
    truth = solve_ivp(slope, (0, 3.0), [np.pi / 2, -1.0], t_eval=ts, **exact).y[0]
    for rtol in (1e-6, 1e-8):
        traj = mb.simulate(model, start, ts, controller=mb.Tolerance(rtol), throw=False)
        assert traj.result == mb.RESULTS.fork or traj.result == mb.RESULTS.successful
        reached = int(traj.reached)
        assert reached >= 2
        close(traj.coordinate("A0")[:reached], truth[:reached], 30 * rtol)


def test_a_batch_of_windows_is_a_batch_of_pendulums():
    """P02 with other starts, 33 side by side: 6 windows (13 speeds, 30 rows) take the ways of large matrices."""
    from scipy.integrate import solve_ivp

    model = mb.compile(windows(6))
    q, v = windows_state(model, np.pi / 2, 1.0)
    start = mb.assemble(model, jnp.asarray(q), jnp.asarray(v))
    rates = np.linspace(-2.0, -0.5, 33)

    def end(rate):
        state = eqx.tree_at(lambda s: s.v, start, rate * start.v)
        traj = mb.simulate(model, state, [0.0, 0.15], controller=tight(1e-8), throw=False)
        return traj.coordinate("A0")[-1], traj.speed("A0")[-1], traj.stats.constraint_error

    angle, speed, left = jax.jit(jax.vmap(end))(jnp.asarray(rates))
    slope = lambda t, y: [*y[33:], *windows_acceleration(6, y[:33])]
    truth = solve_ivp(slope, (0, 0.15), [*np.full(33, np.pi / 2), *rates], "DOP853", rtol=1e-12, atol=1e-12).y[:, -1]
    close(jnp.concatenate([angle, speed]), truth, 1e-7)
    assert float(left.max()) < 1e-13


def test_andrews_squeezer():
    """P03: 0.03 s with spring and motor; measured 6e-11 in the angles, 1e-9 relative in the rates."""
    data = reference()
    p, base = data["parameters"], andrews(data["parameters"])
    ends = mb.Marker("world", (p["xc"], p["yc"], 0)), mb.Marker("K3", (p["sd"], -p["sc"], 0))
    spring = mb.SpringDamper("spring", *ends, p["c0"], 0.0, p["l0"])
    model = mb.compile(mb.Mechanism(base.bodies, base.joints, connections=[spring], gravity=(0, 0, 0)))
    start = mb.assemble(model, in_order(model, data["initial"]["q"]), jnp.zeros(model.nv))
    traj = mb.simulate(
        model, start, [0.0, 0.03], inputs={"O": p["mom"]}, solver=mb.explicit(8), controller=tight(1e-10)
    )
    end = np.array(data["own_final"])
    close(out_of_order(model, traj.q[-1]) / end[:7], np.ones(7), 1e-8)
    close(out_of_order(model, traj.v[-1]) / end[7:14], np.ones(7), 1e-7)
    pins = np.concatenate([traj.reaction(name)[-1][3:5] for name in ("E3", "E4", "E6")])
    close(pins / end[21:], np.ones(6), 1e-5)


def test_car_axis_runs():
    """P14: stiff springs on a moving road, to t = 3; measured 1e-9."""
    data = load("P14_ivp_caraxis.json")
    p, base = data["parameters"], car_axis(data["parameters"])
    pull = lambda arm: (p["L0"] / jnp.sqrt(arm @ arm) - 1) * arm / p["eps"] ** 2
    left = lambda t, q, v, z, u, params: pull(q)
    right = lambda t, q, v, z, u, params: pull(q - jnp.stack(road(t, p)))
    springs = [
        mb.JointConnection("left spring", [("pl", 0), ("pl", 1)], left),
        mb.JointConnection("right spring", [("pr", 0), ("pr", 1)], right),
    ]
    model = mb.compile(
        mb.Mechanism(base.bodies, base.joints, constraints=base.constraints, connections=springs, gravity=base.gravity)
    )
    flat = np.array([model.speeds(j).start + k for j in ("pl", "pr") for k in range(2)])
    q, v = (jnp.zeros(model.nv).at[flat].set(jnp.array(x)) for x in (data["initial"][:4], data["initial"][4:8]))
    start = mb.assemble(model, q, v)
    end = np.array(data["own_final"])
    for solver, tolerance, bound in ((mb.explicit(8), 1e-11, 1e-7), (mb.implicit(), 1e-9, 1e-5)):
        traj = mb.simulate(model, start, [0.0, 3.0], solver=solver, controller=tight(tolerance))
        close(np.asarray(traj.q[-1])[flat], end[:4], bound)
        close(np.asarray(traj.v[-1])[flat], end[4:8], bound)


def test_slider_crank_sensitivities():
    """P26: G = int of kinetic energy over 10 s and q(10), their derivatives by all eight numbers, and a Hessian."""
    data = load("P26_sensitivity.json")["slider_crank"]
    p, names = data["parameters"], ("k", "c", "a", "J1", "J2", "m2", "l0", "F")

    def run(x):
        p = dict(zip(names, x, strict=True))
        base = slider_crank(p)
        half = jnp.array([0.5, 0.0, 0.0])
        tie = mb.SpringDamper(
            "tie", mb.Marker("crank", half * p["a"]), mb.Marker("rod", -half), p["k"], p["c"], p["l0"]
        )
        # the force on the tip stays along x: a wrench in the rod's axes that turns with it
        push = mb.Connection(
            "push",
            "world",
            mb.Marker("rod", (1, 0, 0)),
            lambda t, rel, twist, z, u, F: jnp.concatenate([jnp.zeros(3), F * rel.rotation[0]]),
            p["F"],
        )
        # the integral of the kinetic energy is a state beside the mechanism
        meter = mb.JointConnection(
            "meter",
            ["A", "B"],
            lambda t, q, v, z, u, p: jnp.zeros(2),
            {k: p[k] for k in ("a", "J1", "J2", "m2")},
            states=1,
            state_rate=lambda t, q, v, z, u, p: _kinetic(q, v, p)[None],
        )
        mech = mb.Mechanism(
            base.bodies, base.joints, constraints=base.constraints, connections=[tie, push, meter], gravity=base.gravity
        )
        model = mb.compile(mech)
        turn = -jnp.arcsin(p["a"])
        start = mb.assemble(model, {"A": np.pi / 2}, guess={"B": turn - np.pi / 2}, throw=False)
        traj = mb.simulate(
            model, start, [0.0, 10.0], controller=tight(1e-9), throw=False, adjoint=mb.StoredSteps(512)
        )
        return jnp.stack([traj.z[-1, 0], traj.coordinate("A")[-1]])

    at = jnp.array([p[name] for name in names])
    value, pull = jax.jit(lambda x: (run(x), jax.vjp(run, x)[1](jnp.array([1.0, 0.0]))[0]))(at)
    close(value, (data["G"], data["q10"]), 1e-7)
    close(pull, [data["dG"][name] for name in names], 1e-6)
    forward = jax.jit(jax.jacfwd(run))(at)
    close(forward[1], [data["dq10"][name] for name in names], 1e-6)
    close(forward[0], pull, 1e-9)
    two = lambda kc: run(at.at[:2].set(kc))[0]
    H, own = jax.jit(jax.hessian(two))(at[:2]), data["hessian_G"]
    close(H, [[own["kk"], own["kc"]], [own["ck"], own["cc"]]], 1e-5)


def _kinetic(q, v, p):
    """J1 qd^2 / 2 + m2 xd^2 / 2 + J2 pd^2 / 2 with x = cos p + a cos q, p the rod's angle."""
    turn, spin = q[0] + q[1], v[0] + v[1]
    xd = -jnp.sin(turn) * spin - p["a"] * jnp.sin(q[0]) * v[0]
    return 0.5 * (p["J1"] * v[0] ** 2 + p["m2"] * xd**2 + p["J2"] * spin**2)
