"""Events: found where they are, jumps with the right derivative, locks, switches, stops."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from closed import four_bar
from helpers import central_difference, close
from scipy.special import ellipj, ellipk

import diffmb as mb

G = 9.81


@pytest.fixture(scope="module")
def ball():
    mech = mb.Mechanism([mb.sphere("ball", 0.1, mass=2.0)], [mb.Prismatic("z", "world", "ball", axis="z")])
    return mb.compile(mech)


def bounces(height, e, t):
    """Height, speed and the times of impact of a ball dropped from `height`."""
    first = np.sqrt(2 * height / G)
    times, speed = [first], e * G * first
    while times[-1] + 2 * speed / G < t:
        times.append(times[-1] + 2 * speed / G)
        speed *= e
    s = t - times[-1]
    return speed * s - G * s * s / 2, speed - G * s, np.array(times)


FLOOR = mb.impact("floor", lambda instant, p: instant.coordinate("z"), 0.8)


def drop(model, height, e, ts=(0.0, 1.0, 2.0)):
    floor = eqx.tree_at(lambda event: event.params, FLOOR, (jnp.asarray(e), None), is_leaf=lambda x: x is None)
    return mb.simulate(model, mb.assemble(model, {"z": height}), jnp.asarray(ts), events=[floor])


def test_bouncing_ball(ball):
    traj = drop(ball, 1.0, 0.8)
    z, v, times = bounces(1.0, 0.8, 2.0)
    close((traj.q[-1, 0], traj.v[-1, 0]), (z, v), 1e-12)
    close(traj.event_times[:3], times, 1e-13)
    assert [int(k) for k in traj.event_numbers[:4]] == [0, 0, 0, -1] and traj.event_names == ("floor",)


def test_gradient_across_impacts(ball):
    """Closed form differentiated by differences; forward and reverse; the times of the impacts too."""
    end = lambda x: drop(ball, x[0], x[1]).q[-1, 0]
    at = jnp.array([1.0, 0.8])
    exact = [central_difference(lambda x: bounces(*x, 2.0)[0], np.array([1.0, 0.8]), unit, 1e-5) for unit in np.eye(2)]
    close(jax.jit(jax.grad(end))(at), exact, 1e-8)
    close(jax.jit(jax.jacfwd(end))(at), exact, 1e-8)
    times = jax.jit(jax.jacrev(lambda x: drop(ball, x[0], x[1]).event_times[:3]))(at)
    for k, unit in enumerate(np.eye(2)):
        slope = central_difference(lambda x: bounces(*x, 2.0)[2], np.array([1.0, 0.8]), unit, 1e-5)
        close(times[:, k], slope, 1e-8)


SECOND = {
    "forwards twice": lambda f: jax.jacfwd(jax.jacfwd(f)),
    "forwards over backwards": lambda f: jax.jacfwd(jax.jacrev(f)),
}


@pytest.mark.parametrize("way", SECOND)
def test_second_derivatives_across_impacts(ball, way):
    """By height, restitution, gravity and the last time: the end, and the times of the impacts."""

    def exact(x):
        height, e, g, end = x
        first = jnp.sqrt(2 * height / g)
        times = jnp.stack([first, first * (1 + 2 * e), first * (1 + 2 * e + 2 * e * e)])
        left = end - times[2]
        return jnp.append(times, e**3 * g * first * left - g * left * left / 2)

    def found(x):
        height, e, g, end = x
        model = eqx.tree_at(lambda m: m.gravity, ball, jnp.array([0.0, 0.0, -1.0]) * g)
        traj = drop(model, height, e, jnp.array([0.0, 0.5, 1.0]) * end)
        return jnp.append(traj.event_times[:3], traj.q[-1, 0])

    at = jnp.array([1.0, 0.8, G, 2.0])
    close(found(at), exact(at), 1e-12)
    close(jax.jit(SECOND[way](found))(at), SECOND[way](exact)(at), 1e-12)


def test_backwards_twice_is_refused_in_words(ball):
    with pytest.raises(mb.MechanismError, match=r"write jax\.hessian"):
        jax.grad(jax.grad(lambda h: drop(ball, h, 0.8).q[-1, 0]))(1.0)


def test_second_derivatives_at_a_stop(ball):
    """The state where an event stops the run, the time of it, and a dense run up to it and across impacts."""
    stop = mb.Event("stop", lambda s, p: s.coordinate("z") - p, direction=-1)

    def halted(x):
        event = eqx.tree_at(lambda e: e.params, stop, x[1], is_leaf=lambda p: p is None)
        traj = mb.simulate(ball, mb.assemble(ball, {"z": x[0]}, throw=False), [0.0, 2.0], events=[event], throw=False)
        return jnp.stack([traj.ts[-1], traj.q[-1, 0], traj.v[-1, 0]])

    def exact(x):
        t = jnp.sqrt(2 * (x[0] - x[1]) / G)
        return jnp.stack([t, x[1], -G * t])

    at = jnp.array([1.0, 0.3])
    close(jax.jit(jax.hessian(halted))(at), jax.hessian(exact)(at), 1e-12)


def test_start_on_the_floor(ball):
    """Derivatives are those of a start that is a little higher."""

    def found(x):
        floor = eqx.tree_at(lambda e: e.params, FLOOR, (x[2], None), is_leaf=lambda p: p is None)
        start = mb.assemble(ball, {"z": x[0]}, {"z": x[1]}, throw=False)
        return mb.simulate(ball, start, [0.0, 0.3], events=[floor], throw=False).q[-1, 0]

    def exact(x):
        speed = jnp.sqrt(x[1] ** 2 + 2 * G * x[0])
        left = 0.3 - (x[1] + speed) / G
        return x[2] * speed * left - G * left * left / 2

    at = jnp.array([0.0, -3.0, 0.7])
    close(found(at), exact(at), 1e-13)
    close(jax.jit(jax.grad(found))(at), jax.grad(exact)(at), 1e-12)
    close(jax.jit(jax.hessian(found))(at), jax.hessian(exact)(at), 1e-12)


def test_derivatives_of_two_impacts_at_one_instant():
    """Two balls that know nothing of each other have derivatives that know nothing of each other."""
    bodies = [mb.sphere(f"ball {n}", 0.1, mass=1.0) for n in "ab"]
    model = mb.compile(mb.Mechanism(bodies, [mb.Prismatic(n, "world", f"ball {n}", axis="z") for n in "ab"]))

    def found(x):
        floors = [mb.impact(n, lambda s, p, n=n: s.coordinate(n), x[2]) for n in "ab"]
        start = mb.assemble(model, {"a": x[0], "b": x[1]}, throw=False)
        return mb.simulate(model, start, [0.0, 0.6], events=floors, throw=False).q[-1]

    def exact(x):
        fall = jnp.sqrt(2 * x[:2] / G)
        left = 0.6 - fall
        return x[2] * G * fall * left - G * left * left / 2

    at = jnp.array([1.0, 1.0, 0.8])
    close(jax.jit(jax.jacrev(found))(at), jax.jacrev(exact)(at), 1e-12)
    close(jax.jit(jax.jacfwd(jax.jacrev(found)))(at), jax.hessian(exact)(at), 1e-12)


def test_bouncing_pendulum():
    """A pendulum that hits a wall at the bottom: the rebound is e times the speed, from the energy."""
    model = mb.compile(mb.Mechanism([mb.rod("bar", 1.0, mass=1.0)], [mb.Revolute("A", "world", "bar", axis="y")]))
    wall = mb.impact("wall", lambda s, p: s.coordinate("A") + p, 0.5, -np.pi / 2)  # the bar hangs at A = pi / 2

    def top(x):
        """The coordinate at 0.9 s, after the impact."""
        start = mb.assemble(model, {"A": np.pi / 2 + x[0]})
        hit = eqx.tree_at(lambda e: e.params, wall, (x[1], jnp.asarray(-np.pi / 2)))
        return mb.simulate(model, start, [0.0, 0.9], events=[hit]).q[-1, 0] - np.pi / 2

    def exact(x):
        """The same by Jacobi's functions: a quarter of a period down, and k = sin(amplitude / 2) becomes e k."""
        rate, k = np.sqrt(1.5 * G), np.sin(x[0] / 2)
        fallen = ellipk(k**2) / rate
        return 2 * np.arcsin(x[1] * k * ellipj(rate * (0.9 - fallen), (x[1] * k) ** 2)[0])

    at = jnp.array([0.8, 0.5])
    close(top(at), exact(np.asarray(at)), 1e-8)
    slope = lambda x: np.array([central_difference(exact, x, unit, 2e-3) for unit in np.eye(2)])
    close(jax.jit(jax.grad(top))(at), slope(np.asarray(at)), 1e-6)
    bent = [central_difference(slope, np.asarray(at), unit, 2e-3) for unit in np.eye(2)]
    close(jax.jit(jax.hessian(top))(at), bent, 1e-6)


def test_second_derivatives_where_the_field_knows_the_time(ball):
    """A load that goes with the time, a floor that moves, a clock; the first derivative by differences."""
    floor = lambda s, p: s.coordinate("z") - p * jnp.sin(3.0 * s.t)

    def found(x):
        hit = mb.impact("hit", floor, x[0], x[1])
        tick = mb.Event("tick", lambda s, p: s.t - p, lambda s, p: s.replace(v=0.9 * s.v), params=x[2])
        start, push = mb.assemble(ball, {"z": x[3]}, throw=False), {"z": lambda t: 9.0 * jnp.sin(5.0 * t * x[0])}
        traj = mb.simulate(ball, start, [0.0, 1.4], events=[hit, tick], inputs=push, throw=False)
        return traj.q[-1, 0] + traj.event_times[2]

    at, along = jnp.array([0.7, 0.2, 0.6, 1.0]), jnp.array([1.0, -0.5, 0.7, 0.4])
    slopes = jax.jit(jax.grad(found))
    bent = jax.jit(lambda x: jax.jvp(jax.grad(found), (x,), (along,))[1])(at)
    close(bent, central_difference(slopes, at, along, 1e-3), 1e-6)


def test_stop(ball):
    """The last row is the state at the event; its time has a derivative; under jit the rows repeat it."""
    stop = mb.Event("floor", lambda s, p: s["ball"].pose.translation[2], direction=-1)
    run = lambda height, ts=(0.0, 0.25, 1.0): mb.simulate(
        ball, mb.assemble(ball, {"z": height}), jnp.asarray(ts), events=[stop]
    )
    traj = run(1.0)
    first = np.sqrt(2 / G)
    assert traj.result == mb.RESULTS.event and traj.q.shape == (3, 1)
    close(traj.ts, (0.0, 0.25, first), 1e-13)
    close((traj.q[-1, 0], traj.v[-1, 0]), (0.0, -G * first), 1e-12)
    close(jax.grad(lambda h: run(h).ts[-1])(1.0), 0.5 * first, 1e-12)
    close(jax.grad(lambda h: run(h).v[-1, 0])(1.0), -0.5 * G * first, 1e-12)
    rows = jax.jit(lambda h: (run(h).ts, run(h).q))(1.0)
    close(rows[0], (0.0, 0.25, first), 1e-13)
    up = mb.Event("up", stop.condition, direction=1)
    rising = mb.simulate(ball, mb.assemble(ball, {"z": 1.0}), [0.0, 1.0], events=up)
    assert rising.result == mb.RESULTS.successful and float(rising.q[-1, 0]) < 0


def test_ball_at_rest_is_refused(ball):
    with pytest.raises(mb.MechanismError, match="more events than max_events"):
        floor = mb.impact("floor", lambda s, p: s.coordinate("z"), 0.5)
        mb.simulate(ball, mb.assemble(ball, {"z": 1.0}), [0.0, 5.0], events=[floor], max_events=20)


def test_a_drive_locks_and_lets_go():
    """The second joint locks (a plastic impact: momentum about the first is kept), then is free again."""
    mech = mb.Mechanism(
        [mb.rod("upper", 1.0, mass=1.0), mb.rod("lower", 1.0, mass=1.0)],
        [
            mb.Revolute("A", "world", "upper", axis="y"),
            mb.Revolute("B", mb.Marker("upper", (1, 0, 0)), "lower", axis="y"),
        ],
        drives=[mb.VelocityDrive("lock", "B", lambda t, p: 0.0 * t)],
        gravity=(0, 0, 0),
    )
    model = mb.compile(mech)
    clock = lambda at: lambda s, p: s.t - at
    events = [
        mb.Event("lock it", clock(0.3), lambda s, p: s.switch("lock", True)),
        mb.Event("let go", clock(0.6), lambda s, p: s.switch("lock", False)),
    ]
    free = mb.compile(mb.Mechanism(mech.bodies, mech.joints, gravity=(0, 0, 0)))
    state = mb.assemble(free, {"B": 0.7}, jnp.array([1.0, 2.0]))
    traj = mb.simulate(model, state, np.linspace(0, 1, 11), events=events, off=["lock"])

    def about_A(q, v):
        momentum = mb.momentum(model, q, v)
        return (momentum[:3] + jnp.cross(mb.center_of_mass(model, q), momentum[3:]))[1]

    spin = jax.vmap(about_A)(traj.q, traj.v)
    close(spin, np.full(11, spin[0]), 1e-9)  # nothing external acts about A, locked or not
    bent = np.asarray(traj.coordinate("B"))
    close(bent[4:7], np.full(3, bent[4]), 1e-9)
    close(traj.speed("B")[4:6], np.zeros(2), 1e-12)
    assert abs(bent[10] - bent[6]) > 0.1  # and then it opens
    energy = np.asarray(traj.kinetic_energy())
    close(energy[:3], np.full(3, energy[0]), 1e-8)
    assert energy[4] < energy[0] - 1e-3

    def end(rate):
        start = mb.assemble(free, {"B": 0.7}, jnp.stack([rate, 2.0]))
        return mb.simulate(model, start, [0.0, 1.0], events=events, off=["lock"]).q[-1]

    at = jnp.asarray(1.0)
    close(jax.jit(jax.jacfwd(end))(at), central_difference(jax.jit(end), at, jnp.asarray(1.0), 1e-3), 1e-7)


def test_a_connection_is_switched_off():
    """A rope that breaks when its force passes a limit."""
    rope = mb.SpringDamper("rope", "world", "ball", 50.0, 0.0, 0.5)
    slide = mb.Prismatic("z", "world", "ball", axis="z")
    model = mb.compile(mb.Mechanism([mb.sphere("ball", 0.1, mass=1.0)], [slide], connections=[rope]))
    breaks = mb.Event("breaks", lambda s, p: -s.coordinate("z") - p, lambda s, p: s.switch("rope", False), 1, 0.7)
    traj = mb.simulate(model, mb.assemble(model, {"z": -0.5}), np.linspace(0, 0.6, 7), events=[breaks])
    late = np.asarray(traj.speed("z"))[np.asarray(traj.ts) > float(traj.event_times[0])]
    close(np.diff(late), np.full(len(late) - 1, -G * 0.1), 1e-9)  # free fall


def test_impact_in_a_loop_and_in_a_batch():
    """The crank of a four-bar hits a stop; the loop stays closed; each member of a batch has its own times."""
    model = mb.compile(four_bar(gravity=(0, 0, 0)))
    stop = mb.impact("stop", lambda s, p: p - s.coordinate("A"), 0.7, 0.9)

    def run(rate):
        state = mb.assemble(model, {"A": 0.5}, {"A": rate}, throw=False)
        return mb.simulate(model, state, [0.0, 0.05, 0.2], events=[stop], throw=False)

    one = run(jnp.asarray(6.0))
    assert float(one.stats.constraint_error) < 1e-13
    hit = float(one.event_times[0])
    assert 0.05 < hit < 0.1 and float(one.speed("A")[-1]) < 0
    rates = jnp.array([6.0, 7.0, 0.5])
    all_of_them = jax.jit(jax.vmap(run))
    batch = all_of_them(rates)
    assert [int(n) for n in (batch.event_numbers >= 0).sum(1)] == [1, 1, 0]
    close(batch.q[0], one.q, 1e-9)
    close(batch.q[1], run(rates[1]).q, 1e-9)
    slope = jax.jit(jax.vmap(jax.grad(lambda rate: run(rate).q[-1, 0])))(rates)
    close(slope, central_difference(lambda r: all_of_them(r).q[:, -1, 0], rates, jnp.ones(3), 1e-3), 1e-6)


def test_refusals(ball):
    state = mb.assemble(ball, {"z": 1.0})
    run = lambda event: mb.simulate(ball, state, [0.0, 1.0], events=[event])
    with pytest.raises(mb.MechanismError, match="direction 2; give -1, 0 or 1"):
        mb.Event("x", lambda s, p: s.t, direction=2)
    with pytest.raises(mb.MechanismError, match="the action of event 'x' returns int, not an Instant"):
        run(mb.Event("x", lambda s, p: s.t - 0.5, lambda s, p: 3))
    with pytest.raises(mb.MechanismError, match=r"the new v of an event has shape \(3,\), not \(1,\)"):
        run(mb.Event("x", lambda s, p: s.t - 0.5, lambda s, p: s.replace(v=jnp.zeros(3))))
    with pytest.raises(mb.MechanismError, match="'lok' cannot be switched"):
        run(mb.Event("x", lambda s, p: s.t - 0.5, lambda s, p: s.switch("lok", True)))
