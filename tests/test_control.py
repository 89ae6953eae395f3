"""Optimal control: classical problems to their published costs, loops, restarts, derivatives against differences."""

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

    ys = np.asarray(run(jnp.asarray(x[: -1 : mesh.s]), ends[:-1], jnp.diff(ends) / fine))
    at = np.array(mesh.ends)[:-1, None] + mesh.h[:, None] * (np.arange(1, fine + 1) / fine)[None] * (1 - 1e-12)
    own = mesh.states_at(x, at.reshape(-1)).reshape(ys.shape)
    return (np.abs(ys - own) / (1 + np.abs(x).max(0))).max((1, 2))


def test_swing_up_reaches_the_published_cost(swing_up):
    coarse = control.collocation(swing_up, nodes=40)
    assert coarse.converged and abs(coarse.cost - 58.807667458) < 1e-3
    # the estimate follows the error interval by interval, over decades
    ratio = coarse.errors / local_errors(coarse)
    assert ratio.min() > 0.3 and ratio.max() < 5.0, ratio
    assert coarse.errors.max() > 30 * coarse.errors.min()
    fine = control.collocation(swing_up, nodes=40, accuracy=1e-6, guess=coarse)
    assert fine.converged and abs(fine.cost - 58.807667458) < 1e-5 and fine.errors.max() <= 1e-6
    assert fine.violation < 1e-8 and fine.optimality < 1e-8
    run = fine.trajectory()
    assert np.abs(run.q[-1] - fine.q[-1]).max() < 1e-3  # an unstable motion, open loop


# --- brachistochrone: a blade in a vertical plane ------------------------------------------------------------------


def test_brachistochrone_by_a_blade():
    """O3: a blade that cannot slip sideways, free to point anywhere, falls from (0, 10) to (10, 5) as fast as possible.

    The cycloid turns at a constant rate, so that the best the steering moment can do is nothing: the motion is free,
    and the direction and the turning at the start are what is found. So a cost of the moment moves no optimum, but
    makes it the only one: time alone does not say how to steer along a path that is the best already. The row is of
    velocity level (no phi), and the start is unknown.
    """
    model = mb.compile(
        mb.Mechanism(
            [mb.RigidBody("blade", 1.0, (0, 0, 0), np.full(3, 0.1))],
            [mb.Planar("plane", "world", "blade")],
            constraints=[mb.Skate("edge", "world", "blade")],
            gravity=(0, -9.80665, 0),
        )
    )
    at = lambda x, y: lambda t, q, v, z, p: q[:2] - jnp.array([x, y])
    problem = control.Problem(
        model, {"plane": ([0, 0, -1], [0, 0, 1])}, duration=control.Free(1.0, 4.0, 2.0),
        running=lambda t, q, v, z, u, p: 1.0 + 0.1 * u @ u,
        start={"residual": lambda t, q, v, z, p: jnp.append(q[:2] - jnp.array([0.0, 10.0]), v[:2])},
        end={"residual": at(10.0, 5.0)}, bounds={"plane": ([-1, 0, -2], [11, 11, 2])},
    )  # fmt: skip
    guess = control.Guess(2.0, fall, lambda f: np.zeros((len(f), 3)))
    found = control.collocation(problem, nodes=20, guess=guess)
    assert found.converged and abs(found.duration - 1.8016031224530813) < 2e-6
    radius = 2.585999608432747  # of the cycloid, P24_ocp.json
    np.testing.assert_allclose(found.v[:, 2], 0.5 * np.sqrt(9.80665 / radius), rtol=1e-3)


def fall(f):
    """A straight line that turns, (q, v)."""
    angle, speed = -1.4 + 1.7 * f, 8.0 * f
    columns = [10 * f, 10 - 5 * f, angle, speed * np.cos(angle), speed * np.sin(angle), 0.85 + 0 * f]
    return np.stack(columns, 1)


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
    found = control.collocation(problem, nodes=20, points=4)
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


# --- a loop ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def crank():
    """A crank mechanism, its prismatic joint cut: five rows, of which three are redundant."""
    model = mb.compile(
        mb.Mechanism(
            [
                mb.rod("crank", 0.2, mass=0.4),
                mb.rod("rod", 0.5, mass=0.6),
                mb.box("slider", (0.1, 0.06, 0.06), mass=0.8),
            ],
            [
                mb.Revolute("motor", "world", "crank"),
                mb.Revolute("knee", mb.Marker("crank", (0.2, 0, 0)), "rod"),
                mb.Revolute("pin", mb.Marker("rod", (0.5, 0, 0)), "slider"),
                mb.Prismatic("rail", "world", "slider", axis="x"),
            ],
            gravity=(0, -9.81, 0),
        )
    )
    return control.Problem(
        model, {"motor": (-4, 4)}, start=mb.assemble(model, {"motor": 0.3}, guess={"knee": -0.4}),
        end={"q": {"motor": 2.5}, "v": 0}, duration=control.Free(0.1, 2.0, 0.6), running=1.0,
    )  # fmt: skip


def program_of(problem, nodes, points=3):
    mesh = Mesh(tuple(np.linspace(0, 1, nodes + 1).tolist()), points)
    course = course_of(problem, None)
    system = choose_system(problem, course.T, course.states(mesh.fractions), mesh.fractions)
    return transcribe(system, mesh), unknowns(system, mesh, course).pack(), system


def test_derivatives_of_the_transcription(crank):
    """Gradient, Jacobian and Hessian of the whole sparse program against differences, off the manifold and off zero."""
    program, x, system = program_of(crank, 8)
    assert system.model.nc == 5 and len(system.rows) == 2
    rng = np.random.default_rng(0)
    x = x + 0.1 * rng.standard_normal(len(x))
    d, y = rng.standard_normal(len(x)), rng.standard_normal(program.rows)
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-7 * np.abs(b).max())
    gradient, J = program.firsts(x)
    cost, rows = central_difference(lambda x: program.values(x), x, d, h=1e-4)
    close(gradient @ d, cost)
    close(J @ d, rows)
    H = program.seconds(x, 0.7, y)
    assert abs(H - H.T).max() < 1e-10 * abs(H).max()
    slope = lambda x: (lambda g, J: 0.7 * g + J.T @ y)(*program.firsts(x))
    close(H @ d, central_difference(slope, x, d, h=1e-4))
    assert J.nnz < 0.12 * J.shape[0] * J.shape[1]  # sparse indeed


def test_fastest_turn_of_a_crank(crank):
    """One degree of freedom: along the loop the fastest motion is full push, then full brake, T by quadrature."""
    found = control.collocation(crank, nodes=16, accuracy=1e-4)
    m = crank.model
    assert found.converged and found.violation < 1e-8 and found.errors.max() <= 1e-4
    closed = jax.jit(jax.vmap(lambda q, v: (mb.constraint_residual(m, q), mb.constraint_rate(m, q, v))))
    assert max(np.abs(part).max() for part in closed(found.q, found.v)) < 1e-8  # redundant rows too
    u = found.input("motor")
    assert (np.abs(np.abs(u) - 4.0) < 1e-3).mean() > 0.85 and (np.diff(np.sign(u)) != 0).sum() <= 2
    run = found.trajectory()
    assert np.abs(run.q[-1] - found.q[-1]).max() < 2e-3
    assert abs(found.duration - push_and_brake(m, 4.0)) < 1e-4


def push_and_brake(m, torque):
    """The shortest time by energy: it grows by torque times angle until it meets the curve back from the end."""
    angles = np.linspace(0.3, 2.5, 4001)
    states = [mb.assemble(m, {"motor": 0.3}, guess={"knee": -0.4}).q]

    @jax.jit
    def follow(q, angle):
        def once(_, q):
            r = jnp.append(mb.constraint_residual(m, q), q[0] - angle)
            J = jnp.concatenate([mb.constraint_jacobian(m, q), jnp.eye(1, m.nv)])
            return q - jnp.linalg.lstsq(J, r)[0]

        q = jax.lax.fori_loop(0, 4, once, q)
        G = jnp.concatenate([mb.constraint_jacobian(m, q), jnp.eye(1, m.nv)])
        v = jnp.linalg.lstsq(G, jnp.zeros(len(G)).at[-1].set(1.0))[0]
        return q, (mb.kinetic_energy(m, q, v), mb.potential_energy(m, q))

    _, (inertia, height) = jax.lax.scan(follow, states[0], jnp.asarray(angles))
    inertia, height = np.asarray(inertia), np.asarray(height)
    forward = torque * (angles - angles[0]) - (height - height[0])
    back = torque * (angles[-1] - angles) - (height - height[-1])
    energy = np.minimum(forward, back)
    assert (energy[1:-1] > 0).all()
    # dt = dangle sqrt(inertia / energy), with the square root at both ends taken out by angle = a + (b - a) sin^2
    s = (np.arange(20000) + 0.5) / 20000 * np.pi / 2
    at = angles[0] + (angles[-1] - angles[0]) * np.sin(s) ** 2
    slow = np.interp(at, angles, inertia) / np.interp(at, angles, energy)
    return float((np.sqrt(slow) * (angles[-1] - angles[0]) * 2 * np.sin(s) * np.cos(s)).mean() * np.pi / 2)


# --- states of connections ------------------------------------------------------------------------------------------


def test_reach_with_activation():
    """Two muscles with a lag turn an arm to a point and stop it there; bounds on states and inputs hold."""
    pull = lambda name, side: mb.JointConnection(
        name, "shoulder", lambda t, q, v, z, u, p: side * p * z[0], params=10.0, states=1, inputs=1,
        state_rate=lambda t, q, v, z, u, p: (u - z) / 0.05,
    )  # fmt: skip
    mech = mb.Mechanism(
        [mb.rod("arm", 0.6, mass=3.0)],
        [mb.Revolute("shoulder", "world", "arm")],
        connections=[pull("flexor", 1.0), pull("extensor", -1.0)],
        gravity=NOWHERE,
    )
    model = mb.compile(mech)
    hand = lambda q: 0.6 * jnp.stack([jnp.cos(q[0]), jnp.sin(q[0])])
    target = hand(jnp.array([1.2]))
    slow = control.Path(lambda t, q, v, z, u, p: v[0], upper=4.0, name="speed")
    problem = control.Problem(
        model, {"flexor": (0, 1), "extensor": (0, 1)}, start={"q": 0, "v": 0}, duration=0.6, path=slow,
        end={"v": 0, "residual": lambda t, q, v, z, p: (hand(q) - p)[1:]}, params=target,
        running=lambda t, q, v, z, u, p: u @ u, bounds={"flexor": (0, 1), "extensor": (0, 1)},
    )  # fmt: skip
    found = control.collocation(problem, nodes=12)
    assert found.converged and found.violation < 1e-8
    assert found.z.min() > -1e-8 and found.u[1:].min() > -1e-8 and found.u[1:].max() < 1 + 1e-8
    assert found.v.max() < 4.0 + 1e-6
    run = found.trajectory()
    np.testing.assert_allclose(hand(run.q[-1])[1], target[1], atol=1e-4)
    np.testing.assert_allclose(run.state("flexor")[-1], found.state("flexor")[-1], atol=1e-3)
    # a guess from a simulation leads to the same optimum
    again = control.collocation(problem, nodes=12, guess=run)
    assert abs(again.cost - found.cost) < 1e-6 * found.cost


# --- another solver -------------------------------------------------------------------------------------------------


def test_pounce_finds_the_same_optimum(swing_up):
    """The extra `nlp`: the same program, its derivatives handed to another interior-point method."""
    pounce = pytest.importorskip("pounce")
    program, x, _ = program_of(swing_up, 40)
    own, _, reason = minimise(program, first_iterate(program, x))
    assert reason == "converged"
    rows, columns = np.ones((program.rows, program.size)).nonzero()
    low, high = np.tril_indices(program.size)

    class Functions:
        objective = staticmethod(lambda x: program.values(x)[0])
        constraints = staticmethod(lambda x: program.values(x)[1])
        gradient = staticmethod(lambda x: program.firsts(x)[0])
        jacobian = staticmethod(lambda x: program.firsts(x)[1].toarray()[rows, columns])
        jacobianstructure = staticmethod(lambda: (rows, columns))
        hessian = staticmethod(lambda x, y, factor: program.seconds(x, factor, y).toarray()[low, high])
        hessianstructure = staticmethod(lambda: (low, high))

    other = pounce.Problem(
        n=program.size, m=program.rows, problem_obj=Functions(), lb=program.lower, ub=program.upper,
        cl=program.row_lower, cu=program.row_upper,
    )  # fmt: skip
    other.add_option("print_level", 0)
    found, info = other.solve(x)
    assert abs(info["obj_val"] - program.values(own)[0]) < 1e-6
    np.testing.assert_allclose(found, own, atol=1e-5)
