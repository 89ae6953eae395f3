"""Trajectories: everything by name, between the rows, as a dataset, in files; and files that are refused."""

import errno
import hashlib
import io
import json
import os
import sys
from importlib.util import find_spec

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from closed import four_bar
from helpers import central_difference, close

import diffmb as mb
from diffmb._io._description import sealed
from diffmb._io._npz import to_npz

ENDINGS = [
    pytest.param(".nc", marks=pytest.mark.skipif(not find_spec("h5py"), reason='pip install "diffmb[io]"')),
    ".npz",
]


def start(model):
    return mb.assemble(model, {"A": 0.5}, {"A": 4.0, "P": 1.0}, guess={"B": 0.2, "C": 0.8, "P": -1.0})


@pytest.fixture(scope="module")
def model():
    """A driven four-bar, and a bob that swings on its coupler."""
    bar, drive = four_bar(), mb.VelocityDrive("drive", "A", lambda t, w: w + jnp.sin(3.0 * t), 4.0)
    bob = mb.Revolute("P", mb.Marker("coupler", (0.3, 0.1, 0.0)), "bob")
    bodies = [*bar.bodies, mb.rod("bob", 0.2, mass=0.3)]
    return mb.compile(mb.Mechanism(bodies, [*bar.joints, bob], drives=[drive], gravity=(0, -9.81, 0)))


TIGHT = {"controller": mb.Tolerance(1e-10), "dense": True, "throw": False, "adjoint": mb.StoredSteps(256)}
INPUTS = {"P": lambda t: 0.02 * jnp.sin(5.0 * t)}


@pytest.fixture(scope="module")
def bar(model):
    times = np.sort(np.random.default_rng(1).uniform(0.0, 0.4, 50))
    return mb.simulate(model, start(model), np.concatenate([[0.0], times]), inputs=INPUTS)


@pytest.fixture(scope="module")
def steps(model):
    """The same motion, every step."""
    return mb.simulate(model, start(model), [0.0, 0.4], inputs=INPUTS, dense=True)


def wind(t, rel, twist, z, u, p):
    return jnp.concatenate([p[0] * z - p[1] * twist[:3], u - p[1] * twist[3:]])


def gust(t, rel, twist, z, u, p):
    return p[2] * (jnp.tanh(twist[3:]) - z)


@pytest.fixture(scope="module")
def ball():
    """A free body on a rope that is let go on the way up, in the wind, until it has fallen."""
    body = mb.RigidBody("ball", 1.3, (0.02, -0.01, 0.03), np.array([0.02, 0.03, 0.04]))
    rope = mb.SpringDamper("rope", "world", mb.Marker("ball", (0.1, 0.0, 0.0)), k=20.0, c=0.1, length=0.2)
    air = mb.Connection("air", "world", "ball", wind, (0.05, 0.02, 3.0), states=3, inputs=3, state_rate=gust)
    model = mb.compile(mb.Mechanism([body], connections=[rope, air], gravity=(0, 0, -9.81)))
    height = lambda instant, level: instant["ball"].pose.translation[2] - level
    let_go = mb.Event("let go", height, lambda instant, _: instant.switch("rope", False), 1, params=0.2)
    fallen = mb.Event("fallen", height, None, -1, params=0.1)
    state = (model.neutral(), jnp.array([3.0, -4.0, 2.0, 0.3, 0.1, 4.0]))
    inputs = {"air": lambda t: jnp.array([jnp.sin(4.0 * t), 0.5, t]), "ball": lambda t: 0.1 * jnp.cos(t) * jnp.ones(6)}
    return mb.simulate(model, state, jnp.linspace(0.0, 1.6, 129), inputs=inputs, events=[let_go, fallen], max_events=4)


@pytest.fixture(scope="module")
def few(ball):
    return some(ball, slice(0, 75, 15))


PARTS = lambda traj: [x for x in (traj.ts, traj.q, traj.v, traj.z, traj.on) if x is not None]


def some(traj, rows):
    """Some of the rows."""
    return eqx.tree_at(PARTS, traj, [x[rows] for x in PARTS(traj)])


def of_trajectory(traj, frame, joint, axes):
    motion = traj[frame]
    found = [motion.pose, motion.twist, motion.acceleration, traj.vd, traj.reaction(joint, axes)]
    found += [traj.kinetic_energy(), traj.potential_energy()]
    return found if joint == "ball" else [*found, traj.multipliers("D"), traj.load("drive")]


def of_row(traj, k, frame, joint, axes):
    model, t, q, v, z = traj.model, traj.ts[k], traj.q[k], traj.v[k], traj.z[k]
    tau, u = traj.inputs(t)
    more = {"z": z, "u": u, "on": None if traj.on is None else traj.on[k]}
    d = mb.dynamics(model, q, v, tau, t, **more)
    motion = mb.kinematics(model, q, v, d.vd, t)[frame]
    found = [motion.pose, motion.twist, motion.acceleration, d.vd]
    found += [mb.reactions(model, q, v, tau, t, frame=axes, **more)[joint]]
    found += [mb.kinetic_energy(model, q, v, t), mb.potential_energy(model, q, t, z=z)]
    return found if joint == "ball" else [*found, d.multipliers("D"), d.load("drive")]


@pytest.mark.parametrize("which", ["bar", "few"])
def test_everything_by_name_is_the_function_in_a_loop(which, request):
    """Under jit for the one, outside of it for the other."""
    traj = some(request.getfixturevalue(which), slice(0, 75, 15))
    body, joint, axes = {"bar": ("coupler", "B", "world"), "few": ("ball", "ball", "ball")}[which]
    ask = mb.Marker(body, (0.1, 0.2, 0.0)), joint, axes
    whole = (eqx.filter_jit(of_trajectory) if which == "bar" else of_trajectory)(traj, *ask)
    one = eqx.filter_jit(of_row)
    for k in range(len(traj.ts)):
        jax.tree.map(lambda a, b: close(a[k], b, 1e-10), whole, one(traj, jnp.asarray(k), *ask))
    close(traj.energy(), whole[5] + whole[6], 1e-12)


def test_names(bar, few):
    column = lambda a: a[:, 0] if a.shape[1] == 1 else a
    for traj, joint in ((bar, "B"), (few, "ball")):
        assert (traj.coordinate(joint) == column(traj.q[:, traj.model.coordinates(joint)])).all()
        assert (traj.speed(joint) == column(traj.v[:, traj.model.speeds(joint)])).all()
    assert (few.state("air") == few.z).all()
    close(bar.speed("A"), 4.0 + np.sin(3.0 * bar.ts), 1e-9)  # what the drive says
    assert "constraint error" in repr(bar)
    assert str(bar) == f"{bar!r}; energy changes by {float(bar.energy_change):.2g} J"
    for ask, text in (
        (lambda: bar.coordinate("Q"), "no joint 'Q'"),
        (lambda: bar.coordinate("D"), "closes a loop"),
        (lambda: bar.state("air"), "no connection 'air'"),
        (lambda: few.reaction("robe"), "did you mean 'rope'"),
        (lambda: few["bull"], "did you mean 'ball'"),
    ):
        with pytest.raises(mb.MechanismError, match=text):
            ask()


# --- between the rows ---------------------------------------------------------------------------------------------


def test_dense_rows_resample_to_the_accuracy_of_the_steps(steps, bar):
    """At rtol 1e-8 the run that ends a step at each time is as far from the truth as from the resampled one."""
    times = np.sort(np.concatenate([bar.ts[1:], steps.ts[7:9]]))
    found, at = steps.resample(times), np.isin(times, steps.ts)
    close(found.q[~at], bar.q[1:], 3e-7)
    close(found.v[~at], bar.v[1:], 3e-6)
    close(found.q[at], steps.q[7:9], 1e-14)  # a row is itself
    assert int(found.reached) == 52
    open_by = lambda t, q, v: (mb.constraint_residual(bar.model, q, t), mb.constraint_rate(bar.model, q, v, t))
    phi, rate = jax.jit(jax.vmap(open_by))(found.ts, found.q, found.v)
    assert np.abs(phi).max() < 1e-14 and np.abs(rate).max() < 1e-13  # m and rad


def test_derivative_of_resampling(steps):
    """With respect to the rows, the times and the numbers of the model: as finite differences say."""
    rng = np.random.default_rng(2)
    moving = lambda t: (t.q, t.v, t.ts, t.model.mass, t.model.placement.translation)
    x = (moving(steps), jnp.linspace(0.013, 0.38, 4))
    weight = jnp.asarray(rng.standard_normal((2, 4, 4)))

    def loss(x):
        found = eqx.tree_at(moving, steps, x[0]).resample(x[1])
        return (weight[0] * jnp.sin(found.q)).sum() + (weight[1] * found.v).sum()

    both = jax.jit(jax.value_and_grad(loss))
    direction = jax.tree.map(lambda a: jnp.asarray(rng.standard_normal(a.shape)), x)
    slope = sum(jax.tree.leaves(jax.tree.map(lambda a, b: (a * b).sum(), both(x)[1], direction)))
    expected = central_difference(lambda x: both(x)[0], x, direction, 1e-5)
    close(slope, expected, 1e-7)


def test_order_of_resampling(ball):
    """Half the distance: 1/64 of the error of q (quaternions too), 1/32 of that of v, 1/16 of that of z; by vmap."""
    flight = some(ball, slice(-34, -1))  # the rope is off, and the last row is an event
    resample, errors = jax.jit(jax.vmap(lambda t, ts: t.resample(ts))), []
    for n in (8, 4):
        rows, truth = some(flight, slice(0, 4 * n + 1, n)), some(flight, slice(0, 4 * n + 1, n // 4))
        found = resample(jax.tree.map(lambda a: jnp.stack([a, a]), rows), jnp.stack([truth.ts, truth.ts]))
        found = jax.tree.map(lambda a: a[1], found)
        errors.append([np.abs(a - b).max() for a, b in zip(PARTS(found)[1:4], PARTS(truth)[1:4])])
        close((found.q[:, -4:] ** 2).sum(1), np.ones(17), 1e-14)
        assert (found.on == truth.on).all()
    q, v, z = np.array(errors[0]) / errors[1]
    assert q > 40 and v > 20 and z > 10


def test_times_outside_are_refused(ball):
    for times, text in (
        ([0.1, 9.0], "no motion at t = 9 s; the rows go from 0"),
        ([-0.1, 0.1], "no motion at t = -0.1 s"),
        ([0.1, np.nan], "no motion at t = nan"),
        ([0.2, 0.1], "must increase, but 0.1 follows 0.2"),
        (0.1, "one list"),
    ):
        with pytest.raises(mb.MechanismError, match=text):
            ball.resample(times)
    with pytest.raises(mb.MechanismError, match="two rows"):
        some(ball, slice(1)).resample([0.0])


# --- derivatives and batches of what is asked for by name ---------------------------------------------------------


def hanging(x):
    """A pendulum with mass, length, start speed and a load of its own; asked at its third time and between rows."""
    mass, length, rate, load, t = x
    rod = mb.Mechanism([mb.rod("rod", length, mass=mass)], [mb.Revolute("A", "world", "rod", axis="y")])
    drag = mb.JointConnection("drag", ["A"], lambda t, q, v, z, u, p: -p * v, load)
    model = mb.compile(mb.Mechanism(rod.bodies, rod.joints, connections=[drag], gravity=rod.gravity))
    state = mb.assemble(model, {"A": 0.3}, {"A": rate}, throw=False)
    ts = jnp.stack([0.0, 0.1, t, 0.5])
    inputs = {"A": lambda t: load * jnp.cos(8.0 * t)}
    return mb.simulate(model, state, ts, inputs=inputs, **TIGHT | {"dense": False})


def asked(traj):
    tip = traj[mb.Marker("rod", (0.4, 0.0, 0.1))]
    found = [traj.reaction("A"), traj.reaction("drag", "rod"), tip.pose.translation, tip.twist, tip.acceleration]
    found += [traj.energy(), traj.supply(), traj.dissipation(), tip.angle, traj.vd, traj.coordinate("A")]
    return found


AT = [1.3, 0.8, 2.0, 0.4, 0.25]


def test_derivatives_of_what_is_asked_for():
    """By numbers of the mechanism and by the time at which it is asked: reactions, accelerations, energies, powers."""

    def run(x):
        traj = hanging(x)
        rows = [a[2].ravel() for a in asked(traj)]
        between = traj.resample(jnp.stack([0.6 * x[4], 0.45]))
        return jnp.concatenate([*rows, between.reaction("A").ravel(), between.v.ravel()])

    x = jnp.array(AT)
    values, slope = jax.jit(run), jax.jit(jax.jacfwd(run))(x)
    for column, unit in zip(slope.T, np.eye(5), strict=True):
        close(column, central_difference(values, x, jnp.asarray(unit), 1e-3), 1e-7)
    weight = jnp.cos(jnp.arange(len(slope)))
    close(jax.jit(jax.grad(lambda x: weight @ run(x)))(x), weight @ slope, 1e-11)


def test_batches_by_name():
    """After jax.vmap everything has the batch axis in front."""
    xs = jnp.array([AT, [1.0, 0.7, -1.0, 0.1, 0.3]])
    both = jax.jit(jax.vmap(hanging))(xs)
    found, change = asked(both), both.energy_change
    times = np.array([0.05, 0.2])
    between = both.resample(times)
    for k in range(2):
        one = jax.tree.map(lambda a: a[k], both)
        jax.tree.map(lambda a, b: close(a[k], b, 1e-13), found, asked(one))
        close(between.q[k], one.resample(times).q, 1e-13)
        close(change[k], one.energy_change, 1e-13)
    with pytest.raises(mb.MechanismError, match="did you mean 'rod'"):
        both["rood"]


# --- across jumps -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def weight():
    """A weight that falls along z on a floor at -0.2, and a wire that lets go of it on the way."""
    wire = mb.SpringDamper("wire", "world", "ball", k=30.0, c=0.1, length=0.1)
    ball = mb.RigidBody("ball", 1.0, (0, 0, 0), np.ones(3))
    joint = mb.Prismatic("z", "world", "ball", axis="z")
    return mb.compile(mb.Mechanism([ball], [joint], connections=[wire], gravity=(0, 0, -9.81)))


def bounces(model, x, dense=True):
    """With e, start speed, and the height at which the wire lets go; both stand in the motion."""
    hit = mb.impact("hit", lambda i, _: i.coordinate("z") + 0.5, restitution=x[0])
    free = mb.Event("free", lambda i, p: i.coordinate("z") - p, lambda i, _: i.switch("wire", False), -1, params=x[2])
    state = mb.assemble(model, {"z": -0.12}, jnp.stack([x[1]]), throw=False)
    return mb.simulate(model, state, [0.0, 0.6], events=[hit, free], max_events=6, **TIGHT | {"dense": dense})


def test_dense_rows_are_on_both_sides_of_an_event(weight):
    """Speeds jump from one row to the next, at one time; between rows the motion is that of the steps."""
    x = jnp.array([0.7, 0.3, -0.35])
    traj = bounces(weight, x)
    free, hit = np.asarray(traj.event_times[:2])
    assert traj.event_numbers.tolist()[:3] == [1, 0, -1] and np.isnan(traj.event_times[-1])
    k = int(np.flatnonzero(traj.ts == hit)[0])
    assert traj.ts[k + 1] == hit and float(traj.v[k + 1, 0]) == pytest.approx(-0.7 * float(traj.v[k, 0]), 1e-12)
    j = int(np.flatnonzero(traj.ts == free)[0])
    assert traj.on[j : j + 2, 0].tolist() == [1, 0] and (traj.q[j] == traj.q[j + 1]).all()
    assert float(traj.vd[j, 0]) > -9.0 and float(traj.vd[j + 1, 0]) == pytest.approx(-9.81)
    found = traj.resample(np.linspace(free, hit, 9))
    after = found.ts - free
    close(found.q[:, 0], traj.q[j, 0] + traj.v[j, 0] * after - 4.905 * after**2, 1e-9)
    later = traj.resample(hit + np.array([0.0, 1e-6, 0.01, 0.02]))
    fall = traj.v[k + 1, 0] - 9.81 * np.array([1e-6, 0.01, 0.02])
    close(later.v[:, 0], [float(traj.v[k, 0]), *fall], 1e-9)  # at the time of an event: before it
    assert traj.ts.shape[0] == int(traj.stats.steps) + 1 + int(jnp.isfinite(traj.event_times).sum())


def test_derivative_of_resampling_across_events(weight):
    """With respect to what the events and the state depend on, and to the times."""
    at = jnp.array([0.1, 0.2, 0.28, 0.31, 0.45, 0.6])

    def run(x):
        found = bounces(weight, x[:3]).resample(x[3:])
        return jnp.concatenate([found.q[:, 0], found.v[:, 0]])

    x = jnp.concatenate([jnp.array([0.7, 0.3, -0.35]), at])
    ran, slope = jax.jit(run), jax.jit(jax.jacfwd(run))(x)
    for k, unit in enumerate(np.eye(9)[:8]):
        close(slope[:, k], central_difference(ran, x, jnp.asarray(unit), 1e-4), 1e-6)


def test_resampling_across_steps_of_an_input(weight):
    """Accelerations jump there: an interval ends with what is before, and begins with what comes after."""
    load = mb.Table([0.05, 0.11, 0.2, 0.33], [0.0, 50.0, -80.0, 0.0], "hold")
    run = lambda ts, dense: mb.simulate(weight, mb.assemble(weight, {"z": -0.12}), ts, inputs={"z": load}, dense=dense)
    at = np.sort(np.concatenate([np.linspace(0.0, 0.4, 60), [0.11, 0.2]]))
    found, truth = run([0.0, 0.4], True).resample(at), run(at, False)
    close(found.q, truth.q, 1e-8)
    close(found.v, truth.v, 1e-7)
    close(found.vd, truth.vd, 1e-6)  # of what comes after, for rows at a knot


def test_a_failed_dense_run_ends_in_nan(weight):
    broken = {"z": lambda t: jnp.where(t > 0.1, jnp.nan, 0.0)}
    start, times = mb.assemble(weight, {"z": -0.12}), np.linspace(0.0, 0.2, 21)
    run = lambda: mb.simulate(weight, start, [0.0, 0.2], inputs=broken, dense=True, throw=False)
    outside, inside = run().resample(times), jax.jit(lambda: run().resample(times))()
    for found in (outside, inside):
        assert found.result == mb.RESULTS.nonfinite and int(found.reached) in (10, 11)
        q, n = np.asarray(found.q), int(found.reached)
        assert np.isfinite(q[:n]).all() and np.isnan(q[n:]).all()
    with pytest.raises(mb.MechanismError, match=r"no motion at t = -0.1 s"):
        run().resample([-0.1, 0.1])


# --- as a dataset -------------------------------------------------------------------------------------------------


def test_dataset(few):
    data = few.to_xarray()
    sizes = {"time": 5, "coordinate": 7, "speed": 6, "state": 3, "input": 3, "switch": 2, "event": 4}
    assert dict(data.sizes) == sizes
    assert data.coordinate.values.tolist() == [f"ball[{k}]" for k in range(7)]
    assert data.switch.values.tolist() == ["rope", "air"]
    expected = {"time": few.ts, "q": few.q, "v": few.v, "z": few.z, "on": few.on, "event_time": few.event_times}
    for name, value in expected.items():
        np.testing.assert_array_equal(data[name].values, value)
    close(data.vd, few.vd, 1e-13)
    close(data.kinetic_energy + data.potential_energy, few.energy(), 1e-13)
    assert data.time.units == "s" and data.kinetic_energy.units == "J" and data.tau.units == "N m or N"
    told = data.attrs
    assert told["schema_version"] == 2 and told["solver"] == "Tsit5" and told["jax_version"] == jax.__version__
    assert told["result"] == "the simulation was stopped by an event" and told["event_names"] == ["let go", "fallen"]
    assert told["steps"] == int(few.stats.steps) and told["reached"] == int(few.reached)


def test_dataset_of_a_batch(few):
    later = eqx.tree_at(lambda t: t.ts, few, few.ts + 0.1)
    both = jax.tree.map(lambda a, b: jnp.stack([a, b]), few, later)
    same, other = jax.tree.map(lambda a: jnp.stack([a, a]), few).to_xarray(), both.to_xarray()
    assert same.q.dims == ("batch_0", "time", "coordinate") and (same.time == few.ts).all()
    assert other.t.dims == ("batch_0", "time") and (other.t[1] == later.ts).all()
    assert same.result.dims == ("batch_0",) and same.steps.values.tolist() == [int(few.stats.steps)] * 2
    close(same.vd[1], few.vd, 1e-12)


# --- in files -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("which", ["bar", "few"])
def test_a_file_gives_back_the_trajectory(which, ending, request, tmp_path):
    traj = some(request.getfixturevalue(which), slice(0, 75, 15) if which == "bar" else slice(None))
    path = tmp_path / f"run{ending}"
    mb.save(traj, path)
    mb.save(traj, path)  # over itself
    assert {p.name for p in tmp_path.iterdir()} == {path.name} | ({"run.json"} if ending == ".npz" else set())
    back = mb.load(str(path), traj.model)
    without = lambda t: eqx.tree_at(lambda t: (t.inputs, t.event_times), t, (None, jnp.nan_to_num(t.event_times)))
    assert eqx.tree_equal(without(back), without(traj), typematch=True)
    assert repr(back) == repr(traj)
    for a, b in zip(jax.vmap(back.inputs)(traj.ts), jax.vmap(traj.inputs)(traj.ts), strict=True):
        close(a, b, 1e-15)
    if which == "few":
        close(back.reaction("ball", "ball"), traj.reaction("ball", "ball"), 1e-12)


def same(back, traj, but_inputs=True):
    """Equal bit by bit, nan included, also in kind of numbers."""
    own = [eqx.tree_at(lambda t: t.inputs, t, None) if but_inputs else t for t in (back, traj)]
    assert jax.tree.structure(own[0]) == jax.tree.structure(own[1])
    for a, b in zip(*map(jax.tree.leaves, own), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def test_any_run_comes_back(weight, tmp_path):
    """Dense with events and switches, failed, and batches of such, whose times differ."""

    def save(traj):
        for ending in (".npz", ".nc") if find_spec("h5py") else (".npz",):
            mb.save(traj, tmp_path / f"run{ending}")
            back = mb.load(tmp_path / f"run{ending}", weight)
            same(back, traj)
        return back

    dense = bounces(weight, jnp.array([0.7, 0.3, -0.35]))
    back = save(dense)
    at = np.linspace(0.0, 0.6, 30)
    close(back.resample(at).q, dense.resample(at).q, 1e-12)
    broken = {"z": lambda t: jnp.where(t > 0.1, jnp.nan, t)}
    start, ts = mb.assemble(weight, {"z": -0.12}), np.linspace(0.0, 0.2, 5)
    failed = mb.simulate(weight, start, ts, inputs=broken, throw=False)
    save(failed)
    xs = jnp.array([[0.7, 0.3, -0.35], [0.5, -0.2, -0.3]])
    both = jax.jit(jax.vmap(lambda x: bounces(weight, x)))(xs)
    back = save(both)
    assert str(back) == str(both) and back.coordinate("z").shape == both.ts.shape
    close(back.reaction("z"), both.reaction("z"), 1e-12)
    many = jax.jit(jax.vmap(lambda t: mb.simulate(weight, start, t * ts, inputs={"z": jnp.sin}, throw=False)))
    loaded = save(many(jnp.array([1.0, 3.0, 1e9])))  # the last one is never reached
    assert loaded.result._value.shape == (3,)
    close(jax.vmap(lambda one: jax.vmap(one.inputs)(one.ts)[0])(loaded)[:2, :, 0], jnp.sin(loaded.ts[:2]), 1e-12)


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_kinematic_simulation_comes_back(ending, few, tmp_path):
    """And a batch of them; a file knows which it is, and of whom."""
    model = mb.compile(four_bar(drives=[mb.PositionDrive("motor", "A", lambda t, p: 0.5 + p * t, 6.0)]))
    q, ts = model.pack({"A": 0.5, "B": 0.2, "C": 0.8}), np.linspace(0.0, 1.0, 7)
    one = mb.simulate_kinematics(model, q, ts)
    path = tmp_path / f"run{ending}"
    mb.save(one, path)
    same(mb.load(path, model), one, but_inputs=False)
    both = jax.tree.map(lambda a: jnp.stack([a, a]), one)
    mb.save(both, path)
    back = mb.load(path, model)
    same(back, both, but_inputs=False)
    close(back["rocker"].pose.translation[1], one["rocker"].pose.translation, 1e-13)
    with pytest.raises(mb.MechanismError, match="the file has the joint 'A', which the model does not"):
        mb.load(path, few.model)
    for wrong, words in ((3, "not a int"), (model, "not a Model")):
        with pytest.raises(mb.MechanismError, match=words):
            mb.save(wrong, path)
    with pytest.raises(mb.MechanismError, match="needs the model"):
        mb.load(path, "four-bar")


def test_files_of_no_ordinary_size_or_kind(few, saved):
    """A hole of a petabyte takes no place on the disk, and a pipe never ends."""
    with open(saved / "run.npz", "r+b") as file:
        try:
            file.truncate(2**43)
        except OSError:
            pytest.skip("the file system is too small for the hole")
    with pytest.raises(mb.MechanismError, match=r"run.npz' has 8796093022208 bytes, more than"):
        mb.load(saved / "run.npz", few.model)
    (saved / "run.npz").unlink()
    os.mkfifo(saved / "run.npz")
    with pytest.raises(mb.MechanismError, match=r"run.npz' is no ordinary file"):
        mb.load(saved / "run.npz", few.model)


def test_forged_files_are_refused(few, saved):
    """Bytes of arrays that are wrong though their hashes agree."""
    rng, whole = np.random.default_rng(3), (saved / "run.npz").read_bytes()
    about = (saved / "run.json").read_text()
    for place in rng.integers(0, len(whole), 60):
        (saved / "run.json").write_text(about)
        flipped = bytearray(whole)
        flipped[place] ^= 1 << rng.integers(0, 8)
        forge(saved, bytes(flipped))
        try:
            mb.load(saved / "run.npz", few.model)  # another number is another motion
        except mb.MechanismError as error:
            assert "run.npz" in str(error)


def test_files_are_for_everyone(few, saved):
    """The same bytes each time, and numbers, names and units without diffmb."""
    mb.save(few, saved / "again.npz")
    assert (saved / "again.npz").read_bytes() == (saved / "run.npz").read_bytes()
    arrays, about = np.load(saved / "run.npz"), json.loads((saved / "run.json").read_text())
    assert (arrays["q"] == few.q).all()
    assert about["names"]["speed"] == [f"ball[{k}]" for k in range(6)] and about["arrays"]["q"]["dims"][0] == "time"
    assert about["result"] == "event" and about["statistics"]["steps"] == int(few.stats.steps)
    if find_spec("h5py"):
        import xarray

        with xarray.open_dataset(saved / "run.nc") as data:
            assert (data.q.values == few.q).all() and data.q.units == "rad or m; 1 for quaternions"
            assert data.speed.values.tolist() == about["names"]["speed"] and data.attrs["solver"] == "Tsit5"


@pytest.fixture
def saved(few, tmp_path):
    """A folder with a small file of each kind."""
    for ending in (".npz", ".nc") if find_spec("h5py") else (".npz",):
        mb.save(few, tmp_path / f"run{ending}")
    return tmp_path


def forge(folder, data=None, **changes):
    """Other bytes or another description, with hashes that agree."""
    data = (folder / "run.npz").read_bytes() if data is None else data
    about = json.loads((folder / "run.json").read_text()) | {"sha256": hashlib.sha256(data).hexdigest()} | changes
    del about["sha256_of_the_above"]
    (folder / "run.npz").write_bytes(data)
    (folder / "run.json").write_text(sealed(about))


def edited(folder, **changes):
    return to_npz(dict(np.load(folder / "run.npz")) | changes)


def objects():
    file = io.BytesIO()
    np.savez(file, q=np.array([{"a": 1}], object))
    return file.getvalue()


def packed(folder):
    file = io.BytesIO()
    np.savez_compressed(file, **np.load(folder / "run.npz"))
    return file.getvalue()


BROKEN = {
    "cut": (lambda f: (f / "run.npz").write_bytes((f / "run.npz").read_bytes()[:-9]), "run.npz' .*its hash differs"),
    "empty": (lambda f: (f / "run.npz").write_bytes(b""), "run.npz' is empty"),
    "missing": (lambda f: (f / "run.npz").unlink(), "run.npz' does not exist"),
    "a folder": (lambda f: (f / "run.npz").unlink() or (f / "run.npz").mkdir(), "run.npz' is a folder"),
    "no sidecar": (lambda f: (f / "run.json").unlink(), "sidecar .*run.json' does not exist"),
    "empty sidecar": (lambda f: (f / "run.json").write_text(""), "sidecar .*run.json' is empty"),
    "not JSON": (lambda f: (f / "run.json").write_text('{"a": '), "run.json' is not JSON"),
    "deep": (lambda f: (f / "run.json").write_text("[" * 10**6), "run.json' is not JSON"),
    "other JSON": (lambda f: (f / "run.json").write_text("[1]"), "does not describe a trajectory"),
    "newer": (lambda f: forge(f, schema_version=3), "schema_version 3, .* pip install --upgrade diffmb"),
    "no version": (lambda f: forge(f, schema_version="x"), "schema_version 'x'"),
    "objects": (lambda f: forge(f, objects()), "an array of object, not of numbers"),
    "compressed": (lambda f: forge(f, packed(f)), "is compressed"),
    "no archive": (lambda f: forge(f, b"nothing"), "not an npz archive"),
    "less arrays": (lambda f: forge(f, to_npz({"time": np.zeros(5)})), "the array 'q' is missing"),
    "other shape": (lambda f: forge(f, edited(f, q=np.zeros((5, 6)))), r"'q' has shape \[5, 6\] of <f8, but \[5, 7\]"),
    "other result": (lambda f: forge(f, result="fine"), "the result 'fine' is not known"),
    "other kind": (lambda f: forge(f, statistics=[]), "no trajectory of schema_version 2: TypeError"),
    "joint": (lambda f: forge(f, joints=[["cube", 7, 6]]), "file has the joint 'cube', which the model does not"),
    "sizes": (
        lambda f: forge(f, connections=[["rope", 0, 1], ["air", 3, 2]]),
        "the connection 'rope' has 1 inputs in the file, but 0 in the model",
    ),
    "fewer": (lambda f: forge(f, connections=[["air", 3, 3]]), "model has the connection 'rope', which the file"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_file_is_refused(what, few, saved):
    damage, text = BROKEN[what]
    damage(saved)
    with pytest.raises(mb.MechanismError, match=text) as caught:
        mb.load(saved / "run.npz", few.model)
    assert str(saved) in str(caught.value)


@pytest.mark.parametrize("ending", ENDINGS)
def test_another_model_is_refused(ending, saved, model):
    with pytest.raises(
        mb.MechanismError, match=f"run{ending}': the file has the joint 'ball', which the model does not"
    ):
        mb.load(saved / f"run{ending}", model)


@pytest.mark.parametrize("ending", ENDINGS)
def test_damage_anywhere_is_refused(ending, few, saved):
    """Cut and flipped bytes, of every file in turn: the answer is always one of ours."""
    rng = np.random.default_rng(8)
    for name in ["run.nc"] if ending == ".nc" else ["run.npz", "run.json"]:
        whole = (saved / name).read_bytes()
        for place in rng.integers(0, len(whole), 20):
            flipped = bytearray(whole)
            flipped[place] ^= 1 << rng.integers(0, 8)
            for damaged in (bytes(flipped), whole[:place]):
                (saved / name).write_bytes(damaged)
                with pytest.raises(mb.MechanismError, match=name):
                    mb.load(saved / f"run{ending}", few.model)
        (saved / name).write_bytes(whole)
    mb.load(saved / f"run{ending}", few.model)


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_failed_write_leaves_what_was_there(ending, few, saved, monkeypatch):
    before = {p.name: p.read_bytes() for p in saved.iterdir()}

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    for function in ("replace", "fsync"):
        with monkeypatch.context() as patch:
            patch.setattr(os, function, full)
            with pytest.raises(mb.MechanismError, match=f"run{ending}' cannot be written: No space left"):
                mb.save(few, saved / f"run{ending}")
    assert {p.name: p.read_bytes() for p in saved.iterdir()} == before


def test_places_that_cannot_be_written(few, tmp_path):
    (tmp_path / "taken.json").mkdir()
    (tmp_path / "file").write_text("")
    for name, text in (
        ("run.csv", "ends in '.csv'; give a name that ends in .nc or .npz"),
        ("none/run.npz", "no folder .*none'; make it first"),
        ("file/run.npz", "no folder"),
        ("taken.npz", "taken.json' cannot be written: it is a folder"),
    ):
        with pytest.raises(mb.MechanismError, match=text):
            mb.save(few, tmp_path / name)
    with pytest.raises(mb.MechanismError, match="outside"):
        jax.jit(lambda traj: mb.save(traj, tmp_path / "run.npz"))(few)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("package", ["xarray", "h5netcdf", "h5py"])
def test_a_missing_package_is_named(package, few, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    told = rf'needs {package}, which is not here: pip install "diffmb\[io\]"'
    for write in (lambda: mb.save(few, tmp_path / "run.nc"), few.to_xarray)[: 2 if package == "xarray" else 1]:
        with pytest.raises(mb.MechanismError, match=told):
            write()
    assert not list(tmp_path.iterdir())
