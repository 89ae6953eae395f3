"""Crossings of events: none is lost, none is counted twice, gaps act only while they close, faults are said."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import close
from scipy.special import ellipk

import diffmb as mb

G = 9.81
HEIGHT = lambda s, p: s.coordinate("z")
FALLS = mb.Event("falls", HEIGHT, lambda s, p: s.replace(v=-s.v), -1)


@pytest.fixture(scope="module")
def ball():
    return mb.compile(mb.Mechanism([mb.sphere("ball", 0.1, mass=1.0)], [mb.Prismatic("z", "world", "ball", axis="z")]))


@pytest.fixture(scope="module")
def floating():
    ball, slide = mb.sphere("ball", 0.1, mass=1.0), mb.Prismatic("z", "world", "ball", axis="z")
    return mb.compile(mb.Mechanism([ball], [slide], gravity=(0, 0, 0)))


@pytest.fixture(scope="module")
def pair():
    """Two balls that know nothing of each other."""
    bodies = [mb.sphere(f"ball {n}", 0.1, mass=1.0) for n in "ab"]
    slides = [mb.Prismatic(n, "world", f"ball {n}", axis="z") for n in "ab"]
    return mb.compile(mb.Mechanism(bodies, slides))


def floors(*restitutions):
    return [mb.impact(n, lambda s, p, n=n: s.coordinate(n), e) for n, e in zip("ab", restitutions, strict=True)]


def go(model, z, v=0.0, ts=(0.0, 1.0), events=(), **more):
    rates = dict.fromkeys(model.inboard, v) if np.ndim(v) == 0 else dict(zip(model.inboard, v, strict=True))
    places = dict(zip(model.inboard, np.atleast_1d(z), strict=True)) if not isinstance(z, jax.Array) else {"z": z}
    more.setdefault("throw", True)
    start = mb.assemble(model, places, rates, throw=more["throw"])
    return mb.simulate(model, start, jnp.asarray(ts), events=events, **more)


def happened(traj):
    count = int((traj.event_numbers >= 0).sum())
    return [int(k) for k in traj.event_numbers[:count]], np.asarray(traj.event_times[:count])


# --- what is not a number -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_condition_that_is_not_a_number_ends_the_run(ball, value):
    late = mb.Event("late", lambda s, p: jnp.where(s.t > 0.4, value, 1.0))
    with pytest.raises(mb.MechanismError, match=r"at t = 0\.4 s .*event 'late'"):
        go(ball, 1.0, events=[FALLS, late])
    traj = go(ball, 1.0, events=[FALLS, late], throw=False, ts=(0.0, 0.3, 1.0))
    assert traj.result == mb.RESULTS.nonfinite and int(traj.reached) == 2
    with pytest.raises(mb.MechanismError, match=r"at t = 0 s .*event 'at once'"):
        go(ball, 1.0, events=[mb.Event("at once", lambda s, p: jnp.log(-s.coordinate("z")))])


def test_an_action_that_gives_no_number_ends_the_run(ball):
    broken = mb.Event("broken", HEIGHT, lambda s, p: s.replace(v=s.v / 0.0 * 0.0), -1)
    with pytest.raises(mb.MechanismError, match="not finite"):
        go(ball, 0.5, events=[broken])


# --- several at once ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("second", [1.0, 1.0 + 1e-15, 1.0 + 1e-9, 1.05])
def test_two_impacts_in_one_step(pair, second):
    """Both bounce as if they were alone, at the same instant too."""
    traj = go(pair, (1.0, second), events=floors(0.9, 0.7), solver=mb.explicit(8), controller=mb.FixedStep(0.6))
    fall = np.sqrt(2 * np.array([1.0, second]) / G)
    numbers, times = happened(traj)
    assert numbers == [0, 1]
    close(times, fall, 1e-13)
    left = 1.0 - fall
    close(traj.q[-1], np.array([0.9, 0.7]) * G * fall * left - G * left**2 / 2, 1e-12)


def test_all_that_cross_at_one_instant_act_in_the_order_of_the_list(floating):
    """Each on what the one before has left; an action may carry another condition across zero, or back."""
    add = lambda by, factor: lambda s, p: s.replace(v=factor * s.v + by)
    clock = lambda s, p: s.t - 0.5
    moved = lambda s, p: s.speed("z") - 2.5
    events = [
        mb.Event("one", clock, add(1.0, 1.0)),
        mb.Event("two", clock, add(0.0, 3.0)),
        mb.Event("three", moved, add(0.0, 10.0), 1),
        mb.Event("four", clock, add(1.0, 1.0)),
    ]
    traj = go(floating, 0.0, events=events, ts=(0.0, 0.5, 1.0))
    numbers, times = happened(traj)
    assert numbers == [0, 1, 2, 3]
    assert (times == 0.5).all()
    close(traj.v[:, 0], (0.0, 31.0, 31.0), 1e-14)  # a row at the time of events is after them
    close(traj.q[-1, 0], 15.5, 1e-14)


def test_a_wedge():
    """A point that flies into a corner of 60 degrees: an impact may press it onto the other wall again."""
    slides = [mb.Prismatic("x", "world", "slider", axis="x"), mb.Prismatic("y", "slider", "ball", axis="y")]
    bodies = [mb.massless("slider"), mb.sphere("ball", 0.1, mass=1.0)]
    model = mb.compile(mb.Mechanism(bodies, slides, gravity=(0, 0, 0)))
    normals = np.array([[0.0, 1.0], [np.sin(np.pi / 3), -np.cos(np.pi / 3)]])
    walls = [
        mb.impact(name, lambda s, p: p[0] * s.coordinate("x") + p[1] * s.coordinate("y"), 1.0, n)
        for name, n in zip(("floor", "slope"), normals, strict=True)
    ]
    away = np.array([np.cos(np.pi / 6), np.sin(np.pi / 6)])
    traj = go(model, 1.0 * away, -1.0 * away, events=walls, ts=(0.0, 2.0))
    assert len(happened(traj)[0]) >= 2
    close(happened(traj)[1], np.ones(len(happened(traj)[0])), 1e-14)
    close(np.linalg.norm(traj.v[-1]), 1.0, 1e-13)
    assert (normals @ np.asarray(traj.q[-1]) > 0.1).all()


def test_max_events_is_the_number_that_may_happen(ball):
    floor = mb.impact("floor", HEIGHT, 1.0)
    first = np.sqrt(2 / G)
    run = lambda most, **more: go(ball, 1.0, ts=(0.0, 3.5 * first), events=[floor], max_events=most, **more)
    assert len(happened(run(2))[0]) == 2
    with pytest.raises(mb.MechanismError, match="more events than max_events"):
        run(1)
    stopped = run(1, throw=False)
    close(happened(stopped)[1], [first], 1e-12)
    assert stopped.result == mb.RESULTS.max_events and int(stopped.reached) == 1


# --- within a step ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("direction", [-1, 0, 1])
def test_a_condition_that_turns_within_a_step(ball, direction):
    """Thrown up, it passes the height and comes back; the first step is longer than that."""
    speed, top = 5.0, 25.0 / (2 * G)
    pass_by = mb.Event("pass", lambda s, p: s.coordinate("z") - 0.999 * top, lambda s, p: s, direction)
    traj = go(ball, 0.0, speed, events=[pass_by], controller=mb.FixedStep(1.0))
    half = np.sqrt(2 * 0.001 * top / G)
    expected = {-1: [half], 0: [-half, half], 1: [-half]}[direction]
    close(happened(traj)[1], speed / G + np.array(expected), 1e-12)
    ceiling = mb.impact("ceiling", lambda s, p: 0.999 * top - s.coordinate("z"), 1.0)
    hit = go(ball, 0.0, speed, events=[ceiling], controller=mb.FixedStep(0.9), ts=(0.0, 0.9))
    close(happened(hit)[1], [speed / G - half], 1e-12)
    assert float(hit.v[-1, 0]) < -G * 0.4


@pytest.mark.parametrize("depth", [1e-2, 1e-6])
def test_a_pendulum_that_barely_passes(depth):
    """Every passage of an angle near the turning points, in the long steps of order 8."""
    model = mb.compile(mb.Mechanism([mb.rod("bar", 1.0, mass=1.0)], [mb.Revolute("A", "world", "bar", axis="y")]))
    event = mb.Event("pass", lambda s, p: s.coordinate("A") - p, lambda s, p: s, params=np.pi / 2 + 0.8 - depth)
    start = mb.assemble(model, {"A": np.pi / 2 + 0.8})
    period = 4 * ellipk(np.sin(0.4) ** 2) / np.sqrt(1.5 * G)
    long = mb.Tolerance(1e-7)
    traj = mb.simulate(model, start, [0.0, 4.5 * period], events=[event], solver=mb.explicit(8), controller=long)
    times = happened(traj)[1]
    half = np.sqrt(2 * depth / (1.5 * G * np.sin(0.8)))
    expected = np.concatenate([[half], *(n * period + half * np.array([-1, 1]) for n in range(1, 5))])
    assert len(times) == 9  # once at the start, and twice each period
    close(times, expected, 0.02 * half)  # the amplitude has an error too


def test_all_crossings_of_many_thresholds(floating):
    """z = cos 3t passes four heights, some of them just below its turning points, some the same."""
    rng = np.random.default_rng(0)
    heights = rng.uniform(-1, 1, (40, 4))
    heights[:20] = np.sign(heights[:20]) * (1 - 10 ** -rng.uniform(1, 6, (20, 4)))
    heights[20:30, 1] = heights[20:30, 3]
    directions = (-1, 0, 1, 0)

    def run(p):
        events = [
            mb.Event(f"{k}", lambda s, p: s.coordinate("z") - p, lambda s, p: s, d, params=p[k])
            for k, d in enumerate(directions)
        ]
        push = {"z": lambda t: -9.0 * jnp.cos(3.0 * t)}
        more = {"events": events, "inputs": push, "solver": mb.explicit(8), "max_steps": 500, "throw": False}
        return go(floating, 1.0, ts=(0.0, 6.0), **more)

    traj = jax.jit(jax.vmap(run))(jnp.asarray(heights))
    assert (np.asarray(traj.reached) == 2).all()
    for p, times, numbers in zip(heights, np.asarray(traj.event_times), np.asarray(traj.event_numbers), strict=True):
        expected = [
            (t, k)
            for k, d in enumerate(directions)
            for n in range(-1, 4)
            for t, way in (((2 * np.pi * n + np.arccos(p[k])) / 3, -1), ((2 * np.pi * n - np.arccos(p[k])) / 3, 1))
            if 0 < t < 6 and d in (0, way)
        ]
        assert sorted(k for _, k in expected) == sorted(numbers[numbers >= 0])
        close(times[numbers >= 0], sorted(t for t, _ in expected), 1e-6)


# --- gaps ---------------------------------------------------------------------------------------------------------


def test_a_gap_acts_only_while_it_closes(floating):
    """At rest on the surface, away from it, into it at once, and from below it."""
    floor = mb.impact("floor", HEIGHT, 0.5)
    ends = {(0.0, 0.0): 0.0, (0.0, 1.0): 1.0, (0.0, -1.0): 0.5, (-0.1, 1.0): 0.9, (-0.1, 0.0): -0.1, (-0.1, -1.0): 0.4}
    for (place, speed), end in ends.items():
        traj = go(floating, place, speed, events=[floor])
        close(traj.q[-1, 0], end, 1e-13)
        assert len(happened(traj)[0]) == (speed < 0)
    assert go(floating, 0.0, -1.0, events=[floor]).q[0, 0] == 0.0
    passes = go(floating, 0.0, -1.0, events=[FALLS])  # it does not cross: it was never above
    assert happened(passes)[0] == []


def test_sliding_along_a_surface():
    """The gap stays at zero, up to round-off, whatever the body does along it."""
    joint = mb.RotationTranslation("slide", "world", "block", axis=(0.48, 0.6, 0.64), slide=(0.6, 0.0, 0.8))
    model = mb.compile(mb.Mechanism([mb.sphere("block", 0.1, mass=1.0)], [joint], gravity=(3.0, 0.0, 1.0)))
    normal = jnp.array([0.8, 0.0, -0.6])
    floor = mb.impact("floor", lambda s, p: normal @ s["block"].pose.translation, 0.5)
    start = mb.assemble(model, None, jnp.array([0.3, 2.0])[: model.nv])
    traj = mb.simulate(model, start, np.linspace(0, 1, 5), events=[floor])
    assert happened(traj)[0] == []


def test_a_plastic_impact_is_held_by_an_event_after_it():
    """Without it the ball would fall through, or be hit for ever, which is said."""
    drive = mb.VelocityDrive("hold", "z", lambda t, p: 0.0 * t)
    ball, slide = mb.sphere("ball", 0.1, mass=1.0), mb.Prismatic("z", "world", "ball", axis="z")
    model = mb.compile(mb.Mechanism([ball], [slide], drives=[drive]))
    floor = mb.impact("floor", HEIGHT, 0.0)
    stay = mb.Event("stay", HEIGHT, lambda s, p: s.switch("hold", True), -1)

    def run(height, events):
        return go(model, height, events=events, off=["hold"], throw=False)

    with pytest.raises(mb.MechanismError, match="more events than max_events"):
        go(model, 1.0, events=[floor], off=["hold"], max_events=5)
    traj = run(1.0, [floor, stay])
    numbers, times = happened(traj)
    assert numbers == [0, 1] and traj.result == mb.RESULTS.successful
    close(times, np.full(2, np.sqrt(2 / G)), 1e-13)
    close((traj.q[-1, 0], traj.v[-1, 0]), (0.0, 0.0), 1e-13)
    slopes = jax.jit(jax.jacrev(lambda h: (run(h, [floor, stay]).event_times[:2], run(h, [floor, stay]).q[-1, 0])))
    of_times, of_end = slopes(jnp.asarray(1.0))
    close(of_times, np.full(2, np.sqrt(0.5 / G)), 1e-12)
    close(of_end, 0.0, 1e-12)


# --- again and again ----------------------------------------------------------------------------------------------


def test_what_stays_across_zero_is_found_again_when_it_crosses_again(ball):
    """The first action changes nothing of its condition, the second carries it away from zero, to either side."""
    seen = mb.Event("seen", lambda s, p: s.coordinate("z") - 0.3, lambda s, p: s, -1)
    first = np.sqrt(2 / G)
    traj = go(ball, 1.0, events=[seen, mb.impact("floor", HEIGHT, 1.0)], ts=(0.0, 5 * first))
    assert happened(traj)[0] == [0, 1, 0, 1, 0]
    lift = mb.Event("lift", HEIGHT, lambda s, p: s.replace(q=s.q + 1.0, v=0.0 * s.v), -1)
    numbers, times = happened(go(ball, 1.0, events=[lift], ts=(0.0, 3.5 * first)))
    assert numbers == [0, 0, 0]
    close(times, first * np.arange(1, 4), 1e-12)
    drop = mb.Event("drop", lambda s, p: s.coordinate("z") + 1.0, lambda s, p: s.replace(q=s.q - 1.0), -1)
    assert happened(go(ball, 0.0, events=[drop]))[0] == [0]


def test_a_lock_at_zero_is_no_crossing_again():
    """A drive stops the joint where the condition is zero: what is left of its rate is round-off."""
    mech = mb.Mechanism(
        [mb.rod("bar", 1.0, mass=1.0), mb.rod("next", 0.7, mass=1.0)],
        [
            mb.Revolute("A", "world", "bar", axis="y"),
            mb.Revolute("B", mb.Marker("bar", (1, 0, 0)), "next", axis="y"),
        ],
        drives=[mb.VelocityDrive("lock", "A", lambda t, p: 0.0 * t)],
    )
    model = mb.compile(mech)
    lock = mb.Event("lock", lambda s, p: s.coordinate("A") - 0.5, lambda s, p: s.switch("lock", True))
    traj = mb.simulate(model, mb.assemble(model, {}), np.linspace(0, 2, 5), events=[lock], off=["lock"])
    assert happened(traj)[0] == [0]
    close(traj.coordinate("A")[-1], 0.5, 1e-12)


# --- at requested times -------------------------------------------------------------------------------------------


def test_events_at_requested_times(floating):
    """In the middle, at the last time, not at the first, where nothing has crossed; rows hold the state after it."""
    kick = lambda at: mb.Event(f"kick {at}", lambda s, p: s.t - at, lambda s, p: s.replace(v=s.v + 1.0))
    traj = go(floating, 0.0, events=[kick(0.0), kick(0.5), kick(1.0)], ts=(0.0, 0.5, 1.0))
    assert happened(traj)[0] == [1, 2]
    assert (happened(traj)[1] == [0.5, 1.0]).all()
    close(traj.v[:, 0], (0.0, 1.0, 2.0), 1e-15)
    close(traj.q[:, 0], (0.0, 0.0, 0.5), 1e-15)


def test_a_stop_keeps_the_state_where_it_stops(ball):
    """At a requested time, at the last one, in between, after an impact at the same instant."""
    stop = lambda at: mb.Event("stop", lambda s, p: s.t - at)
    for at, reached in ((0.25, 1), (0.5, 2), (1.0, 3)):
        ts = (0.0, 0.25, 0.5, 1.0)[: reached + 1] + ((1.5,) if at < 1 else ())
        traj = go(ball, 0.0, ts=ts, events=[stop(at)])
        assert traj.result == mb.RESULTS.event and int(traj.reached) == reached
        close((traj.ts[-1], traj.q[-1, 0], traj.event_times[0]), (at, -G * at**2 / 2, at), 1e-14)
    floor = mb.impact("floor", HEIGHT, 0.5)
    halt = mb.Event("halt", HEIGHT, direction=-1)
    for events, factor in (([floor, halt], 0.5), ([halt, floor], -1.0)):
        traj = go(ball, 1.0, events=events)
        close(traj.v[-1, 0], factor * np.sqrt(2 * G), 1e-13)
        assert traj.result == mb.RESULTS.event


def test_a_batch_in_which_some_start_on_the_floor(ball):
    """Members that act at once, later, and never."""
    floor = mb.impact("floor", HEIGHT, 0.5)

    def run(z, v):
        start = mb.assemble(ball, {"z": z}, {"z": v}, throw=False)
        return mb.simulate(ball, start, [0.0, 0.2, 0.4], events=[floor], throw=False)

    z, v = jnp.array([0.0, 0.1, 5.0, 0.0]), jnp.array([-4.0, -1.0, 0.0, 4.0])
    batch = jax.jit(jax.vmap(run))(z, v)
    assert [int(n) for n in (batch.event_numbers >= 0).sum(1)] == [1, 4, 0, 0]
    for k in range(4):
        close(batch.q[k], run(z[k], v[k]).q, 1e-13)
    assert float(batch.event_times[0, 0]) == 0.0
    close(batch.q[0, :, 0], [2 * t - G * t * t / 2 for t in (0.0, 0.2, 0.4)], 1e-13)
