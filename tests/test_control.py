"""Optimal control: classical problems to their published costs, loops, restarts, and derivatives against differences."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import central_difference

import diffmb as mb
from diffmb import control
from diffmb._control._guess import course_of, unknowns
from diffmb._control._interior_point import first_iterate, minimise
from diffmb._control._shooting import rk4
from diffmb._control._system import choose_system
from diffmb._control._transcription import Mesh, transcribe

NOWHERE = (0, 0, 0)


def effort_and_time(t, q, v, z, u, p):
    return p[0] * u @ u + p[1]


@pytest.fixture(scope="module")
def block():
    slide = mb.Prismatic("x", "world", "block", axis="x")
    return mb.compile(mb.Mechanism([mb.box("block", (1, 1, 1), mass=1.0)], [slide], gravity=NOWHERE))


def block_move(block, duration, effort=0.0, time=1.0, limit=1.0):
    return control.Problem(
        block, {"x": (-limit, limit)}, start={"q": 0, "v": 0}, end={"q": 1, "v": 0}, duration=duration,
        running=effort_and_time, params=jnp.array([effort, time]),
    )  # fmt: skip


# --- one block ----------------------------------------------------------------------------------------------------


def test_block_move_has_its_closed_form(block):
    """O1: J = 12 and u = 6 - 12 t; the collocation of cubics is exact here, and so is shooting with linear inputs."""
    problem = block_move(block, 1.0, effort=1.0, time=0.0, limit=100.0)
    found = control.collocation(problem, nodes=8)
    assert found.converged and abs(found.cost - 12.0) < 1e-7 and found.violation < 1e-8 and found.optimality < 1e-8
    np.testing.assert_allclose(found.input("x"), 6 - 12 * found.ts, atol=1e-5)
    shot = control.shooting(problem, nodes=8, steps=2)
    assert shot.converged and abs(shot.cost - 12.0) < 1e-7
    np.testing.assert_allclose(shot.signals()["x"](jnp.asarray(0.3)), 6 - 12 * 0.3, atol=1e-5)


def test_shortest_time_bangs(block):
    """O2: T = 2, full push and full brake; an odd mesh must be refined where the push turns."""
    found = control.collocation(block_move(block, control.Free(0.5, 5)), nodes=7, accuracy=1e-6)
    assert found.converged and abs(found.duration - 2.0) < 1e-6
    u, away = found.input("x"), np.abs(found.ts - 1.0) > 0.15
    np.testing.assert_allclose(u[away], np.where(found.ts < 1.0, 1.0, -1.0)[away], atol=1e-4)
    assert len(found.mesh.ends) > 8 and found.errors.max() <= 1e-6


def test_what_cannot_be_is_said_in_words(block):
    found = control.collocation(block_move(block, 1.5), nodes=8, throw=False)
    assert not found.converged and found.violation > 0.01
    assert "no point nearby" in found.reason and "joint 'x'" in found.reason and "misses by 0." in found.reason
    with pytest.raises(mb.MechanismError, match="misses by"):
        control.collocation(block_move(block, 1.5), nodes=8)


def test_a_search_goes_on_bitwise(block, tmp_path):
    problem = block_move(block, control.Free(0.5, 5))
    seen = []
    whole = control.collocation(problem, nodes=8, callback=seen.append)
    cut = control.collocation(problem, nodes=8, callback=lambda p: int(p.iterate.count) == 4)
    assert cut.reason.startswith("stopped") and len(seen) == whole.iterations
    leaves, shape = jax.tree.flatten(cut.progress)
    np.savez(tmp_path / "state.npz", *leaves)
    with np.load(tmp_path / "state.npz") as stored:
        progress = jax.tree.unflatten(shape, [stored[k] for k in stored.files])
    again = control.collocation(problem, nodes=8, resume=progress)
    assert again.iterations == whole.iterations
    for a, b in zip(jax.tree.leaves(again.progress), jax.tree.leaves(whole.progress), strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(mb.MechanismError, match="resume holds"):
        control.collocation(problem, nodes=8, points=2, resume=progress)


def test_mistakes_are_named(block):
    ends = {"start": {"q": 0, "v": 0}, "end": {"q": 1}, "duration": 1.0}
    for message, inputs, more in [
        ("did you mean 'x'", {"xx": None}, {"running": 1.0}),
        ("nothing is minimised", {"x": None}, {}),
        ("the lower is above", {"x": (1, -1)}, {"running": 1.0}),
        ("outside of its bounds", {"x": None}, {"running": 1.0, "bounds": {"x": (0, 0.5)}}),
        ("no joint or connection", {"x": None}, {"running": 1.0, "bounds": {"y": (0, 0.5)}}),
        ("running gives shape", {"x": None}, {"running": lambda t, q, v, z, u, p: u}),
        ("running fails", {"x": None}, {"running": lambda t, q: 1.0}),
    ]:
        with pytest.raises(mb.MechanismError, match=message):
            control.Problem(block, inputs, **(ends | more))
    with pytest.raises(mb.MechanismError, match="give a lower duration above zero"):
        control.Free(0.0, 1.0)
    with pytest.raises(mb.MechanismError, match="no conditions at the end"):
        control.ilqr(control.Problem(block, {"x": None}, running=1.0, **ends))
    with pytest.raises(mb.MechanismError, match="guess is str"):
        control.collocation(control.Problem(block, {"x": None}, running=1.0, **ends), guess="zero")


# --- cart-pole ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def swing_up():
    """O4 (Kelly 2017)."""
    model = mb.compile(
        mb.Mechanism(
            [mb.box("cart", (0.1, 0.1, 0.1), mass=1.0), mb.RigidBody("bob", 0.3, (0, -0.5, 0), np.full(3, 1e-14))],
            [mb.Prismatic("x", "world", "cart", axis="x"), mb.Revolute("pole", "cart", "bob", axis="z")],
            gravity=(0, -9.81, 0),
        )
    )
    return control.Problem(
        model, {"x": (-20, 20)}, start={"q": 0, "v": 0}, end={"q": {"x": 1.0, "pole": np.pi}, "v": 0}, duration=2.0,
        running=effort_and_time, params=jnp.array([1.0, 0.0]), bounds={"x": (-2, 2)},
    )  # fmt: skip


def local_errors(found):
    """What a fine integration of each interval, from its first state, differs from its polynomials; as estimated."""
    problem, mesh = found.problem, found.mesh
    m, ends = problem.model, jnp.asarray(mesh.ends) * found.duration
    x = np.concatenate([found.q, found.v], 1)
    signal, fine = found.signals()["x"], 40
    load = lambda t: jnp.zeros(m.nv).at[0].set(signal(t)[0])
    rate = lambda t, y: jnp.concatenate([y[2:], mb.forward_dynamics(m, y[:2], y[2:], load(t))])

    @jax.jit
    @jax.vmap
    def run(y, t, dt):
        step = lambda y, k: (rk4(rate, t + k * dt * (1 - 1e-12), y, dt * (1 - 1e-12)),) * 2
        return jax.lax.scan(step, y, jnp.arange(fine))[1]

    ys = np.asarray(run(jnp.asarray(x[:-1 : mesh.s]), ends[:-1], jnp.diff(ends) / fine))
    at = np.array(mesh.ends)[:-1, None] + mesh.h[:, None] * (np.arange(1, fine + 1) / fine)[None] * (1 - 1e-12)
    own = mesh.states_at(x, at.reshape(-1)).reshape(ys.shape)
    return (np.abs(ys - own) / (1 + np.abs(x).max(0))).max((1, 2))


def test_swing_up_reaches_the_published_cost(swing_up):
    coarse = control.collocation(swing_up, nodes=40)
    assert coarse.converged and abs(coarse.cost - 58.807667458) < 1e-3
    # the estimate follows the error interval by interval, over decades
    ratio = coarse.errors / local_errors(coarse)
    assert 0.3 < ratio.min() and ratio.max() < 5.0, ratio
    assert coarse.errors.max() > 30 * coarse.errors.min()
    fine = control.collocation(swing_up, nodes=40, accuracy=2e-6, guess=coarse)
    assert fine.converged and abs(fine.cost - 58.807667458) < 1e-5 and fine.errors.max() <= 2e-6
    assert fine.violation < 1e-8 and fine.optimality < 1e-8
    run = fine.trajectory()
    assert np.abs(run.q[-1] - fine.q[-1]).max() < 1e-3  # an unstable motion, open loop


# --- brachistochrone: a blade in a vertical plane --------------------------------------------------------------------


def test_brachistochrone_by_a_blade():
    """O3. A blade that cannot slip sideways, steered by a moment, falls from (0, 10) to (10, 5) in the shortest time."""
    blade = mb.Mechanism(
        [mb.RigidBody("blade", 1.0, (0, 0, 0), np.full(3, 0.1))],
        [mb.Planar("plane", "world", "blade")],
        constraints=[mb.Skate("edge", "world", "blade")],
        gravity=(0, -9.80665, 0),
    )
    model = mb.compile(blade)
    start = np.zeros(model.nq)
    problem = control.Problem(
        model, {"plane": ([0, 0, -5], [0, 0, 5])}, start={"v": {"plane": [0, 0, 0]}},
        duration=control.Free(0.5, 4), running=1.0,
    )  # fmt: skip
    assert start.shape == (3,) and problem.nu == 3


# --- the regulator -------------------------------------------------------------------------------------------------

S = jnp.array([[7.326719427807217, 2.059128471008907], [2.059128471008907, 0.6795775851231279]])
K = np.array([20.591284710089067, 6.795775851231279])
REGULATED = 0.21749941412316376


def regulator(limits=None):
    """O7: x'' = 9.81 x + u."""
    away = mb.JointConnection("away", "x", lambda t, q, v, z, u, p: p * q, params=9.81)
    slide = mb.Prismatic("x", "world", "block", axis="x")
    mech = mb.Mechanism([mb.box("block", (1, 1, 1), mass=1.0)], [slide], connections=[away], gravity=NOWHERE)
    end = lambda t, q, v, z, p: jnp.append(q, v) @ p @ jnp.append(q, v)
    cost = lambda t, q, v, z, u, p: 2 * q @ q + 0.5 * v @ v + 0.1 * u @ u
    start = {"q": 0.2, "v": -0.1}
    return control.Problem(
        mb.compile(mech), {"x": limits}, start=start, duration=2.0, running=cost, terminal=end, params=S
    )


def test_regulator():
    problem = regulator()
    found = control.collocation(problem, nodes=10)
    assert abs(found.cost - REGULATED) < 1e-8
    np.testing.assert_allclose(found.u[0], -K @ [0.2, -0.1], rtol=1e-4)
    track = control.ilqr(problem, steps=200)
    assert track.converged and int(track.progress.count) <= 2  # linear: one step is enough
    assert 0 <= track.cost - REGULATED < 2e-5  # inputs that stay for 0.01 s cost a little more
    np.testing.assert_allclose(track.gains[0, 0], -K, rtol=0.03)
    assert np.abs(track.trajectory().q - track.q).max() < 1e-6
    limited = control.ilqr(with_limits(problem, (-3.0, 3.0)), steps=200)
    assert limited.converged and limited.u.min() == -3.0 and limited.cost > track.cost
    again = control.ilqr(problem, steps=200, resume=track.progress)
    np.testing.assert_array_equal(again.u, track.u)


def with_limits(problem, pair):
    return eqx.tree_at(lambda p: p.limits["u"], problem, np.array(pair)[:, None])
