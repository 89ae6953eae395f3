"""What a user hands to a simulation: whatever is wrong is refused in words before anything is compiled."""

import io
import pickle
import re
import sys

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from closed import four_bar

import diffmb as mb

TS = np.array([0.0, 0.1])


def pendulum(mass=1.0):
    return mb.Mechanism([mb.rod("rod", 1.0, mass=mass)], [mb.Revolute("A", "world", "rod", axis="y")])


@pytest.fixture(scope="module")
def case():
    model = mb.compile(pendulum())
    return model, mb.assemble(model, {"A": 0.3}, {"A": 1.0})


@pytest.fixture(scope="module")
def loop():
    model = mb.compile(four_bar())
    return model, mb.assemble(model, {"A": 0.5}, {"A": 12.0})


def refused(case, words, **change):
    given = {"model": case[0], "state": case[1], "ts": TS} | change
    with pytest.raises(mb.MechanismError, match=words) as caught:
        mb.simulate(given.pop("model"), given.pop("state"), given.pop("ts"), **given)
    assert len(str(caught.value)) < 300 and "Tracer" not in str(caught.value)


# --- the model, the times, the start ------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [None, "pendulum", 3, mb.Mechanism])
def test_no_model(case, model):
    refused(case, r"model is .*; the first argument is what mb\.compile\(mechanism\) returns", model=model)


def test_other_models(case):
    model, state = case
    refused(case, "model is a Mechanism; compile it first", model=pendulum())
    refused(case, "model is a State; the first argument", model=state, state=model)
    several = jax.vmap(lambda m: mb.compile(pendulum(m)))(jnp.array([1.0, 2.0]))
    refused(case, r"model is a batch, its masses have shape \(2, 1\); use jax\.vmap", model=several)
    two = mb.compile(four_bar())
    refused(case, r"the state has 1 coordinates and 1 speeds, but the model has 3 and 3: it is of another", model=two)


@pytest.mark.parametrize(
    ("ts", "words"),
    [
        (1.0, r"ts has shape \(\); give the times as one list"),
        ([], "at least the first and the last"),
        ([0.0], "at least the first and the last"),
        ([[0.0, 0.1]], r"ts has shape \(1, 2\).*for a batch of times use jax\.vmap"),
        (["0", "1"], "ts is an array of strings, not of numbers; give increasing times in seconds"),
        ("0 1", "ts is '0 1'"),
        (None, "ts is None"),
        ([0.0, 0.1j], "complex numbers"),
        ([False, True], "booleans"),
        (np.array(["2020-01-01", "2020-01-02"], "datetime64[s]"), "dates"),
        ([0.0, None], "objects"),
        ({"a": 1}, "ts is a dict"),
        ([[0.0], [0.0, 1.0]], "ts is not an array of numbers"),
        ((t for t in TS), "ts is a generator"),
        (np.ma.masked_array([0.0, 0.1], [False, True]), "masked"),
        ([0.0, 1.0, 1.0], r"must increase, but ts\[2\] = 1 follows 1$"),
        ([0.1, 0.0], r"ts\[1\] = 0 follows 0\.1"),
        ([0.0, np.nan], r"not a finite number: ts\[1\] = nan"),
        ([0.0, np.inf], r"ts\[1\] = inf"),
        ([1.0, 2.0], "the state is at t = 0 s, but ts starts at 1; assemble it with t=1"),
    ],
)
def test_times(case, ts, words):
    refused(case, words, ts=ts)


def test_times_of_any_kind_of_numbers(case):
    found = [mb.simulate(*case, ts).q[-1] for ts in ([0, 1], range(2), np.array([0, 1], np.float32), (0.0, 1.0))]
    assert np.ptp(np.array(found)) == 0.0
    refused(case, r"must increase, but ts\[1\] = 0 follows 0", ts=jnp.array([0, 0]))


def test_times_inside_of_jit_are_checked_as_far_as_they_are_known(case):
    run = lambda t: mb.simulate(*case, [0.0, t]).q[-1, 0]
    assert float(jax.jit(run)(0.1)) == pytest.approx(float(run(0.1)), rel=1e-12)
    with pytest.raises(mb.MechanismError, match="must increase"):
        jax.jit(lambda t: t * mb.simulate(*case, [0.0, 0.0]).q[-1, 0])(1.0)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (None, r"state is None; give what mb\.assemble\(model, \.\.\.\) returns, or a pair \(q, v\)"),
        ({"A": 0.3}, "state is a dict"),
        (np.array([0.3]), r"state is an array of shape \(1,\)"),
        (([0.3],), "state has 1 parts"),
        (([0.3], [0.0], [0.0]), "state has 3 parts"),
        (([0.1, 0.2], [0.0]), r"q of the state has shape \(2,\), but the model has nq = 1"),
        (([0.1], [0.0, 1.0]), r"v of the state has shape \(2,\), but the model has nv = 1"),
        (([[0.1]], [0.0]), r"shape \(1, 1\).*for a batch use jax\.vmap"),
        (("a", "b"), "q of the state is 'a'"),
        (([0.3], None), "v of the state is None"),
        (([0.3j], [0.0]), "complex"),
        (([np.nan], [0.0]), "q of the state holds nan; it needs finite numbers"),
        (({"A": 0.3}, {}), r"assemble them first: mb\.assemble\(model, q, v\)"),
    ],
)
def test_states(case, state, words):
    refused(case, words, state=state)


def test_states_that_were_changed(case):
    model, state = case
    change = lambda **parts: eqx.tree_at(lambda s: [getattr(s, n) for n in parts], state, list(parts.values()))
    refused(case, r"v of the state holds inf", state=change(v=jnp.array([jnp.inf])))
    refused(case, "not assembled", state=change(ok=jnp.asarray(False)))
    refused(case, "something that is not an array", state=change(q=[0.3]))
    several = jax.tree.map(lambda a: jnp.stack([a, a]), state)
    refused(case, r"the state is a batch, its q has shape \(2, 1\); for a batch use jax\.vmap", state=several)
    np.testing.assert_array_equal(jax.vmap(lambda s: mb.simulate(model, s, TS, throw=False).q)(several)[0],
                                  jax.vmap(lambda s: mb.simulate(model, s, TS, throw=False).q)(several)[1])  # fmt: skip


def test_precisions_do_not_mix(case):
    with jax.enable_x64(False):
        single = mb.compile(pendulum())
        state = mb.assemble(single, {"A": 0.3}, t=0.1)
        mb.simulate(single, state, [0.1, 0.2])  # 0.1 is another number in single precision
        refused((single, state), r"ts\[2\] = 1 follows 1 in float32, the precision", ts=np.array([0.1, 1, 1 + 1e-9]))
    refused(case, r"the state is float32, but the model is float64; make both after jax\.config\.update", state=state)
    refused(case, "the state is float64, but the model is float32", model=single)
    mixed = mb.compile(pendulum(jnp.float32(1.0)))  # one number in single precision
    assert mixed.mass.dtype == jnp.float64
    mb.simulate(mixed, mb.assemble(mixed, {"A": 0.3}), TS)


@pytest.mark.parametrize(
    ("give", "words"),
    [
        ({"model": pendulum()}, r"model is a Mechanism; compile it first: model = mb\.compile\(mechanism\)"),
        ({"q": "a"}, "q is 'a'"),
        ({"q": {"A": "x"}}, "q of joint 'A' is 'x'; give a number"),
        ({"q": {"A": np.nan}}, "q of joint 'A' holds nan; it needs finite numbers"),
        ({"q": np.array([np.nan])}, "q holds nan"),
        ({"q": np.array([1j])}, "q is an array of complex numbers"),
        ({"v": {"A": [1.0, 2.0]}}, r"joint 'A' has 1 speeds, but v has shape \(2,\) for it"),
        ({"guess": 3}, "guess is 3; give a dict by joint name"),
        ({"weights": {"A": None}}, "weights of joint 'A' is None"),
        ({"t": "a"}, "t is 'a'; give a time in seconds"),
        ({"t": np.nan}, "t holds nan"),
    ],
)
def test_assembling(case, give, words):
    given = {"model": case[0]} | give
    with pytest.raises(mb.MechanismError, match=words):
        mb.assemble(given.pop("model"), **given)


def test_compiling_and_what_is_left(case):
    for words, call in {
        "mechanism is a compiled model already": lambda: mb.compile(case[0]),
        "mechanism is a NoneType; give mb.Mechanism": lambda: mb.compile(None),
        "an event is named 3": lambda: mb.Event(3, lambda s, p: s.q[0]),
        r"the condition of event 'e' is 3.0; give a function of \(instant, params\)": lambda: mb.Event("e", 3.0),
        "the action of event 'e' is 3": lambda: mb.Event("e", lambda s, p: s.q[0], 3),
        "ts is 'a'; give times in seconds": lambda: mb.simulate(*case, TS).resample("a"),
        "fn is None": lambda: mb.batch(None),
        "memory is '1GB'": lambda: mb.batch(len, memory="1GB"),
        "chunk=True": lambda: mb.batch(len, chunk=True),
        "devices is 'cpu'": lambda: mb.batch(len, devices="cpu"),
    }.items():
        with pytest.raises(mb.MechanismError, match=words):
            call()


# --- how to go ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("solver", "words"),
    [
        (mb.implicit, r"solver is mb\.implicit itself; call it: mb\.implicit\(\)"),
        (mb.Auto, r"call it: mb\.Auto\(\)"),
        (diffrax.Tsit5, r"the class Tsit5; make one: diffrax\.Tsit5\(\)"),
        ("implicit", r"the string 'implicit'; give mb\.implicit\(\)"),
        ("Radau", r"give mb\.implicit\(\)"),
        ("RK45", r"give mb\.explicit\(\)"),
        ("magic", r"give mb\.explicit\(\), mb\.implicit\(\), mb\.Auto\(\) or a Runge-Kutta method"),
        (5, "solver is 5; give"),
        (diffrax.Euler(), "Euler, which diffrax does not write as a Runge-Kutta method"),
        (diffrax.SRA1(), "SRA1, a method for stochastic equations"),
        (mb.FixedStep(0.1), "solver is a FixedStep"),
    ],
)
def test_solvers(case, solver, words):
    refused(case, words, solver=solver)


@pytest.mark.parametrize(
    ("controller", "words"),
    [
        (1e-6, r"the number 1e-06; give mb\.Tolerance\(1e-06\), or mb\.FixedStep\(1e-06\)"),
        (-1.0, r"controller is -1\.0; give mb\.Tolerance\(rtol\), mb\.FixedStep\(dt\)"),
        (True, "controller is True"),
        ("tight", "controller is 'tight'"),
        (mb.Tolerance, "the class Tolerance"),
        (diffrax.ConstantStepSize(), "ConstantStepSize of diffrax"),
        (diffrax.PIDController(rtol=-1, atol=1), "PIDController: rtol is -1"),
        (diffrax.PIDController(rtol=1e-6, atol=1e-6, dtmax=np.array([1.0])), "other than rtol and atol are plain"),
        (mb.Tolerance(1e-16), "below what float64 can keep"),
        (mb.Tolerance(1e-6, np.full(3, 1e-6)), r"atol of the controller has shape \(3,\); give one number, or 2"),
    ],
)
def test_controllers(case, controller, words):
    refused(case, words, controller=controller)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: mb.Tolerance(rtol=0), "Tolerance: rtol is 0; give a relative error for each step, such as 1e-8"),
        (lambda: mb.Tolerance(-1e-6), "rtol is -1e-06"),
        (lambda: mb.Tolerance(np.nan), "rtol is nan"),
        (lambda: mb.Tolerance(np.inf), "rtol is inf"),
        (lambda: mb.Tolerance("a"), "rtol is 'a'"),
        (lambda: mb.Tolerance(True), "rtol is True"),
        (lambda: mb.Tolerance([1e-6]), "rtol is a list"),
        (lambda: mb.Tolerance(2.0), "an error as large as the motion"),
        (lambda: mb.Tolerance(1e-6, 0.0), "atol is 0; give an absolute error"),
        (lambda: mb.Tolerance(1e-6, [1e-6, -1.0]), "atol is -1"),
        (lambda: mb.FixedStep(0.0), "FixedStep: dt is 0; give a step in seconds, finite and above zero"),
        (lambda: mb.FixedStep(-1), "dt is -1"),
        (lambda: mb.FixedStep(np.nan), "dt is nan"),
        (lambda: mb.FixedStep("a"), "dt is 'a'"),
        (lambda: mb.FixedStep([0.1]), "dt is a list"),
        (lambda: mb.Baumgarte(-1), "Baumgarte: rate is -1; give a rate in 1/s"),
        (lambda: mb.Baumgarte(np.nan), "rate is nan"),
        (lambda: mb.StoredSteps(0), r"StoredSteps\(steps=0\); give a whole number of steps above zero"),
        (lambda: mb.StoredSteps(1.5), r"steps=1\.5"),
        (lambda: mb.StoredSteps(True), "steps=True"),
        (lambda: mb.Auto(pilot="x"), "Auto.*whole number of attempts"),
        (lambda: mb.explicit("5"), "no explicit method of order '5' here; 3, 5 and 8 are"),
        (lambda: mb.implicit(2), "no implicit method of order 2 here"),
    ],
)
def test_settings_check_themselves(make, words):
    with pytest.raises(mb.MechanismError, match=words):
        make()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"project": "yes"}, r"project is 'yes'; give True, False or mb\.Baumgarte\(rate\)"),
        ({"project": None}, "project is None"),
        ({"project": mb.Baumgarte}, "project is the class Baumgarte"),
        ({"max_steps": 0}, "max_steps is 0; give a whole number above zero"),
        ({"max_steps": 1e6}, r"max_steps is 1000000\.0"),
        ({"max_steps": True}, "max_steps is True"),
        ({"max_steps": None}, "max_steps is None"),
        ({"max_steps": 2**70}, "the largest limit here is"),
        ({"max_events": -1}, "max_events is -1"),
        ({"max_events": 2.5}, r"max_events is 2\.5"),
        ({"off": 3}, "off is 3; give names"),
        ({"off": [3]}, "off holds 3"),
        ({"off": "Q"}, "'Q' cannot be switched"),
        ({"z": "a"}, "z is 'a'"),
        ({"z": np.zeros(3)}, r"z has shape \(3,\), but the model has nz = 0"),
        ({"adjoint": diffrax.RecursiveCheckpointAdjoint()}, r"of diffrax; .*mb\.StoredSteps\(4096\)"),
        ({"adjoint": 100}, r"adjoint is 100; give mb\.StoredSteps\(100\)"),
        ({"adjoint": mb.StoredSteps}, "the class StoredSteps"),
        ({"progress": "tqdm"}, r"progress is 'tqdm'; give True, or .* diffrax\.TqdmProgressMeter\(\)"),
        ({"progress": 1}, "progress is 1"),
        ({"progress": diffrax.TextProgressMeter}, "the class TextProgressMeter"),
        ({"events": 3}, r"events is 3; give a list of mb\.Event"),
        ({"events": "hit"}, "events is 'hit'"),
        ({"events": [3]}, "events holds 3"),
        ({"events": mb.Event}, "events is the class Event"),
        ({"events": [mb.Event("e", lambda s, p: s.q[0]), mb.Event("e", lambda s, p: s.v[0])]}, "two events .*'e'"),
        ({"events": mb.Event("e", lambda s, p: jnp.zeros(3))}, r"condition of event 'e' gives shape \(3,\); it is one"),
        ({"events": mb.Event("e", lambda s: 1.0)}, "condition of event 'e' fails: TypeError: .* takes 1 positional"),
        ({"events": mb.Event("e", lambda s, p: None)}, "condition of event 'e' fails: .*None is not a valid"),
        ({"dense": "yes"}, "dense is 'yes'; give True or False"),
        ({"throw": 0}, "throw is 0; give True or False"),
        ({"inputs": "A"}, r"inputs is 'A'; give a dict by name .*such as \{'A': 1\.5\}"),
        ({"inputs": [1.0]}, "inputs is a list"),
    ],
)
def test_the_rest(case, change, words):
    refused(case, words, **change)


def test_what_is_harmless_passes(case):
    plain = mb.simulate(*case, TS).q
    more = {"events": None, "off": None, "progress": None, "project": np.bool_(True), "max_steps": np.int64(1000)}
    np.testing.assert_array_equal(mb.simulate(*case, TS, **more, adjoint=mb.StoredSteps(np.int64(4096))).q, plain)
    limit = jax.jit(lambda n: mb.simulate(*case, TS, max_steps=n, throw=False).reached)  # traced
    assert int(limit(3)) == 1 and int(limit(1000)) == 2
    rate = lambda a: mb.simulate(*case, TS, project=mb.Baumgarte(a), controller=mb.FixedStep(0.1 * a)).q[-1, 0]
    assert np.isfinite(jax.jit(rate)(0.5))


# --- failures in words --------------------------------------------------------------------------------------------


def test_what_is_open_is_told_without_projection(loop):
    """The constraint error is that of the states; a run ends when they are open by more than 0.1 m or rad."""
    model, state = loop
    loose = mb.Tolerance(1e-4)
    for project in (False, mb.Baumgarte(5.0)):
        traj = mb.simulate(model, state, [0.0, 0.25, 0.5], project=project, controller=loose)
        left = np.abs(jax.vmap(lambda t, q: mb.constraint_residual(model, q, t))(traj.ts, traj.q)).max()
        assert 1e-8 < left <= float(traj.stats.constraint_error) * (1 + 1e-9) < 1e-2
    rough = {"project": False, "controller": mb.FixedStep(0.1), "solver": diffrax.Heun()}
    with pytest.raises(mb.MechanismError, match=r"opened by more than 0\.1 m or rad.*'D: .*were open before"):
        mb.simulate(model, state, np.linspace(0, 10, 101), **rough)
    traj = mb.simulate(model, state, np.linspace(0, 10, 101), **rough, throw=False)
    assert traj.result == mb.RESULTS.drift and 0 < float(traj.stats.constraint_error) <= 0.1
    assert float(traj.energy_change) > 0 and len(traj.ts) == int(traj.reached) < 101


def test_words_under_jit_and_vmap(case):
    run = lambda w, throw: mb.simulate(case[0], ([0.3], jnp.stack([w])), [0.0, 5.0], max_steps=5, throw=throw)
    words = r"pass throw=False and look at \.result \(under jax\.vmap each member.*: the step limit was reached"
    loud = lambda w: run(w, True).q
    for how, w in ((jax.jit(loud), 1.0), (jax.vmap(loud), jnp.array([1.0, 2.0]))):
        with pytest.raises(Exception, match=words):
            how(w)
    several = jax.vmap(lambda w: run(w, False))(jnp.array([1.0, 2.0]))
    assert repr(several) == "Trajectory: batch of 2, 2 times each, Tsit5; 2 max_steps"
    assert bool(jnp.isfinite(jax.vmap(lambda traj: traj.energy_change)(several)).all())


def test_nonfinite_names_what_is_about_to_fail(case):
    bad = {"A": lambda t: jnp.where(t > 0.05, jnp.nan, 0.0)}
    with pytest.raises(mb.MechanismError, match=r"at t = 0\.05 s .*a little later, in the rates of joint 'A' \(body"):
        mb.simulate(*case, TS, inputs=bad)
    with pytest.raises(mb.MechanismError, match=r"it is the first step$"):
        mb.simulate(*case, TS, inputs={"A": lambda t: jnp.nan * t})
    push = mb.JointConnection("push", ["A"], lambda t, q, v, z, u, p: p * v**3, 10.0)
    model = mb.compile(mb.Mechanism(pendulum().bodies, pendulum().joints, connections=[push]))
    with pytest.raises(mb.MechanismError, match=r"joint 'A' runs away, at .* rad/s"):
        mb.simulate(model, mb.assemble(model, {"A": 0.3}, {"A": 1.0}), [0.0, 1.0])


def test_results_in_short(case):
    traj = mb.simulate(*case, TS)
    words = r"Trajectory: 2 times from 0 to 0\.1 s, Tsit5, \d+ steps .*; successful; energy changes by .* J"
    assert re.fullmatch(words, str(traj))
    assert re.fullmatch(r"Statistics\(steps=\d+, rejected=0, .*solver='Tsit5'\)", repr(traj.stats))
    again = pickle.loads(pickle.dumps(traj))
    assert repr(again) == repr(traj) and again.result == mb.RESULTS.successful


def test_sensitivity_refuses_in_words():
    fn = lambda m: 2.0 * m["rod"].mass
    for words, give in {
        "fn is None; give a function": {"fn": None},
        "mech is a compiled model": {"mech": mb.compile(pendulum())},
        "mode is 'fwd'; did you mean 'forward'": {"mode": "fwd"},
        "check is 'yes'": {"check": "yes"},
        "step is 0; give a relative change": {"step": 0},
        "names is 3": {"names": 3},
        "throw is 1": {"throw": 1},
        r"fn looks at a number that is being traced, by float\(\)": {"fn": lambda m: float(m["rod"].mass)},
        "fn returns response of type int": {"fn": lambda m: 3},
    }.items():
        given = {"fn": fn, "mech": pendulum()} | give
        with pytest.raises(mb.MechanismError, match=words):
            mb.sensitivity(given.pop("fn"), given.pop("mech"), "rod.mass", **given)


# --- progress -----------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(monkeypatch, run, stream):
    monkeypatch.setattr(sys, "stderr", stream)
    jax.block_until_ready(run())
    jax.effects_barrier()
    monkeypatch.undo()
    return stream.getvalue()


def test_progress_is_one_line(case, monkeypatch):
    run = lambda t, **more: mb.simulate(*case, jnp.stack([0 * t, t]), progress=True, throw=False, **more)
    for given in (lambda: run(jnp.asarray(2.0)).q, lambda: jax.jit(lambda t: run(t).q)(2.0)):
        text = shown(monkeypatch, given, Terminal())
        assert text.count("\n") == 1 and text.endswith("\n") and text.count("\r") < 10
        last = text.rstrip().split("\r")[-1]
        assert re.fullmatch(r"simulate: done, t = 2 s, \d+ steps in [\d.]+ m?s", last), text
    text = shown(monkeypatch, lambda: run(jnp.asarray(20.0), max_steps=200).q, Terminal())
    assert re.search(r"stopped at t = \S+ of 20 s \(\d+ %\), \d+ steps in .*\n$", text) and text.count("\n") == 1
    assert re.search(r"\rsimulate: +\d+ %, t = \S+ of 20 s, \d+ steps", text)


def test_progress_without_a_terminal_of_batches_and_derivatives(case, monkeypatch):
    run = lambda t: mb.simulate(*case, jnp.stack([0 * t, t]), progress=True, throw=False).q[-1, 0]
    silent = lambda t: mb.simulate(*case, jnp.stack([0 * t, t]), throw=False).q[-1, 0]
    found = {}

    def keep(name, value):
        found[name] = value
        return value

    times = jnp.array([0.5, 2.0])
    for name, how in {"batch": jax.vmap(run), "gradient": jax.vmap(jax.grad(run))}.items():
        text = shown(monkeypatch, lambda name=name, how=how: keep(name, how(times)), io.StringIO())
        assert re.fullmatch(r"simulate: done, t = \S+ s, \d+ steps in \S+ m?s\n", text)
    np.testing.assert_array_equal(found["batch"], jax.vmap(silent)(times))
    np.testing.assert_allclose(found["gradient"], jax.vmap(jax.grad(silent))(times), rtol=1e-9)


def test_meters_of_diffrax(case, capsys):
    mb.simulate(*case, TS, progress=diffrax.TextProgressMeter(0.4))
    jax.effects_barrier()
    lines = capsys.readouterr().out.split()
    assert lines[0] == "0.00%" and lines[-1] == "100.00%" and len(lines) < 6


def test_a_run_without_progress_has_nothing_of_it(case):
    run = lambda t, **more: mb.simulate(*case, jnp.stack([0 * t, t]), throw=False, **more).q
    text = lambda **more: str(jax.make_jaxpr(lambda t: run(t, **more))(1.0))
    assert "callback" not in text() and "callback" in text(progress=True)


# --- the switches of JAX for who looks for a fault ----------------------------------------------------------------


def test_looking_for_nans_and_running_without_jit(case):
    stop = mb.Event("stop", lambda s, p: s.q[0] - 9.0)
    run = lambda w, **more: mb.simulate(case[0], ([0.3], jnp.stack([w])), TS, controller=mb.FixedStep(0.05), **more)
    plain = run(1.0)
    with jax.debug_nans(True):
        np.testing.assert_allclose(run(1.0, events=stop).q, plain.q, rtol=1e-12)
        assert np.isfinite(jax.grad(lambda w: run(w).q[-1, 0])(1.0))
        bad = {"A": lambda t: jnp.where(t > 0.05, jnp.nan, 0.0)}
        with pytest.raises(FloatingPointError, match="nan"):
            mb.simulate(*case, TS, inputs=bad)
    with jax.disable_jit():
        np.testing.assert_allclose(run(1.0).q, plain.q, rtol=1e-12)
