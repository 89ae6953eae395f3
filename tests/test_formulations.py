"""All formulations give the motion of `mb.dynamics`: accelerations, multipliers, derivatives, reactions, in time."""

import dataclasses
from functools import cache

import closed
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import KINDS, close, random_body, random_marker, random_mechanism, random_states

import diffmb as mb
from diffmb import formulations as fm

# What a formulation does not describe, and must say so: (formulation, case).
REFUSED: set[tuple[str, str]] = set()
every = pytest.mark.parametrize("kind", fm.ALL, ids=lambda kind: kind.__name__)


@dataclasses.dataclass(frozen=True)
class House:
    """`mb.dynamics` with the face of a formulation."""

    model: mb.Model

    def dynamics(self, q, v, tau, t):
        return mb.dynamics(self.model, q, v, tau, t)


# --- mechanisms and states ----------------------------------------------------------------------------------------


def four_bar():
    """Planar in space, so its loop has three redundant rows; springs between bodies and about a joint. Beside it hangs
    a chain that starts stretched out and at rest."""
    spring = mb.SpringDamper("spring", mb.Marker("coupler", (0.15, 0.02, 0)), "world", k=50.0, c=2.0, length=0.2)
    loop = closed.four_bar(connections=[spring, mb.OnCoordinates("torsion", "A", mb.LinearLaw(0.3, 0.01))])
    beside = chain()
    parts = (*loop.bodies, *beside.bodies), (*loop.joints, *beside.joints)
    return mb.Mechanism(*parts, connections=loop.connections, gravity=loop.gravity)


def chain():
    rods = [mb.rod("upper", 0.4, mass=0.5), mb.rod("lower", 0.4, mass=0.6)]
    joints = [mb.Revolute("J0", "world", "upper"), mb.Revolute("J1", mb.Marker("upper", (0.4, 0, 0)), "lower")]
    return mb.Mechanism(rods, joints, gravity=(0, -9.81, 0))


def varied():
    """A spatial loop, a gear, a skate, a driven slide written from outside to inside, springs: no redundant rows."""
    rng = np.random.default_rng(7)
    marker = lambda body: random_marker(rng, body)
    joints = [
        mb.Revolute("R1", marker("world"), marker("b1"), axis=(0.3, -1.0, 0.5)),
        mb.Revolute("R2", marker("b1"), marker("b2")),
        mb.Spherical("ball", marker("b2"), marker("b3")),
        mb.Planar("ice", "world", marker("b4")),
        mb.Prismatic("slide", marker("b5"), marker("b4"), axis="y"),
    ]
    constraints = [
        mb.gear("gear", "R1", "R2", (20, 31), offset=0.3),
        mb.Distance("rod", marker("b3"), marker("b4"), 1.5),
        mb.Skate("blade", "world", marker("b4"), direction=(1.0, 0.2, 0.0)),
    ]
    return mb.Mechanism(
        [random_body(rng, f"b{k}") for k in range(1, 6)],
        joints,
        constraints=constraints,
        drives=[mb.PositionDrive("motor", "slide", lambda t, p: p * jnp.sin(3.0 * t), 0.2)],
        connections=[mb.SpringDamper("spring", marker("b2"), marker("b5"), k=20.0, c=1.5, length=0.4)],
        gravity=(0.5, -2.0, -9.0),
    )


CASES = {
    "tree of all kinds, first half": lambda: random_mechanism(1, list(KINDS)[:7]),
    "tree of all kinds, second half": lambda: random_mechanism(1, list(KINDS)[7:]),
    "small tree": lambda: random_mechanism(4, ["spherical", "cam"]),
    "straight chain": chain,
    "four-bar": four_bar,
    "varied": varied,
}


@cache
def model_of(case):
    return mb.compile(CASES[case]())


@cache
def states_of(case):
    """Stacked (q, v, tau, t), consistent; one of them at rest."""
    model = model_of(case)
    rng = np.random.default_rng(3)
    tau = jnp.asarray(rng.standard_normal((3, model.nv)))
    if not model.nc:
        q, v, _, t = random_states(model, 2, 3)  # the last two are neutral, and of these the last at rest
        return q, v, tau, t
    if case == "four-bar":
        found = [mb.assemble(model, {"A": a, "J1": a}, {"A": w}) for a, w in ((0.5, 1.3), (2.0, -2.0), (-1.0, 0.0))]
    else:
        draw = lambda: jnp.asarray(0.5 * rng.standard_normal(model.nv))
        start = model.neutral()
        found = [mb.assemble(model, mb.retract(model, start, draw()), draw(), t=0.4) for _ in range(3)]
    return jnp.stack([s.q for s in found]), jnp.stack([s.v for s in found]), tau, jnp.stack([s.t for s in found])


def formulation(kind, case):
    """Its class, where it describes the case; else it must say so."""
    if (kind.__name__, case) in REFUSED:
        with pytest.raises(mb.MechanismError):
            kind(model_of(case))
        pytest.skip("refused in words")
    return kind


# --- laws ---------------------------------------------------------------------------------------------------------


def found_by(kind, case):
    run = jax.jit(jax.vmap(lambda *state: kind(model_of(case)).dynamics(*state)))
    found = run(*states_of(case))
    return found.vd, found.lam


@cache
def expected(case):
    return found_by(House, case)


VALUES = ["tree of all kinds, first half", "tree of all kinds, second half", "varied"]


@pytest.mark.parametrize("case", VALUES)
@every
def test_accelerations_and_multipliers(kind, case):
    for a, b in zip(found_by(formulation(kind, case), case), expected(case), strict=True):
        close(a, b, 1e-8)


def outcome(kind, case, masses, lengths, q, v, tau, t):
    """(vd, lam) of the mechanism with its masses and its distances between joints changed by factors."""
    model = model_of(case)
    changed = (model.mass * masses, model.placement.translation * lengths[:, None])
    model = eqx.tree_at(lambda m: (m.mass, m.placement.translation), model, changed)
    found = kind(model).dynamics(q, v, tau, t)
    return found.vd, found.lam


def arguments(case):
    ones = jnp.ones(len(model_of(case).topology.bodies))
    return ones, ones, *(x[0] for x in states_of(case))


def directions(case):
    """Of the outcome and of the arguments."""
    rng = np.random.default_rng(5)
    draw = lambda x: jnp.asarray(rng.standard_normal(x.shape))
    model = model_of(case)
    return (draw(jnp.zeros(model.nv)), draw(jnp.zeros(model.nc))), tuple(draw(x) for x in arguments(case))


def pulled(kind, case):
    """Accelerations, multipliers, and the gradient of a weighted sum of them by all arguments."""

    def run(*args):
        value, pull = jax.vjp(lambda *args: outcome(kind, case, *args), *args)
        return value, pull(directions(case)[0])

    return jax.jit(run)(*arguments(case))


@cache
def expected_pull(case):
    return pulled(House, case)


@pytest.mark.parametrize("case", ["four-bar"])
@every
def test_reverse_derivatives(kind, case):
    (value, slopes), (value_0, slopes_0) = pulled(formulation(kind, case), case), expected_pull(case)
    for a, b in zip((*value, *slopes), (*value_0, *slopes_0), strict=True):
        close(a, b, 1e-8)


@pytest.mark.parametrize("case", ["small tree"])
@every
def test_forward_derivatives(kind, case):
    """The change along a direction against the gradient of the house."""
    formulation(kind, case)
    weights, direction = directions(case)
    push = jax.jit(lambda x, dx: jax.jvp(lambda *args: outcome(kind, case, *args), x, dx)[1])
    change = sum(w @ c for w, c in zip(weights, push(arguments(case), direction), strict=True))
    close(change, sum(jnp.vdot(s, d) for s, d in zip(expected_pull(case)[1], direction, strict=True)), 1e-8)


def test_reactions_are_the_multipliers_of_the_tree():
    model, (q, v, tau, t) = model_of("varied"), (x[0] for x in states_of("varied"))
    own = jax.jit(lambda *state: fm.Augmented(model).joint_wrenches(*state))(q, v, tau, t)
    house = jax.jit(lambda *state: mb.reactions(model, *state, frame="child"))(q, v, tau, t)
    for name, wrench, backward in zip(model.inboard, own, model.topology.reversed, strict=True):
        assert backward == (name == "slide")
        if not backward:  # there the user's child is the inner body
            close(wrench, house[name], 1e-8)


# --- simulations --------------------------------------------------------------------------------------------------

TS = np.linspace(0.0, 0.8, 5)


@cache
def moved():
    """A start, and where the house's simulation goes from it."""
    model = model_of("four-bar")
    state = mb.assemble(model, {"A": 0.5}, {"A": 3.0})
    return state, mb.simulate(model, state, TS, controller=mb.Tolerance(1e-11))


@every
def test_simulations(kind):
    formulation(kind, "four-bar")
    state, house = moved()
    run = jax.jit(lambda q, v: kind(model_of("four-bar")).simulate((q, v), TS, rtol=1e-10, atol=1e-10))
    found = run(state.q, state.v)
    close(found.q, house.q, 1e-7)
    close(found.v, house.v, 1e-7)
    assert np.ptp(np.asarray(house.q), axis=0).min() > 0.05  # every joint has moved


@every
def test_derivative_of_a_simulation(kind):
    """Forward, reverse, and differences."""
    q, push, h = jnp.zeros(2), jnp.array([0.3, -0.5]), 1e-3
    own = kind(model_of("straight chain"))
    end = lambda v: own.simulate((q, v), TS[:2], rtol=1e-10, atol=1e-10, max_steps=256).q[-1]
    forward = jax.jit(lambda v: jax.jvp(end, (v,), (push,)))
    change = forward(jnp.zeros(2))[1]
    close(change, (forward(h * push)[0] - forward(-h * push)[0]) / (2 * h), 1e-6)
    reverse = jax.jit(jax.grad(lambda v: end(v).sum()))(jnp.zeros(2))
    close(reverse @ push, change.sum(), 1e-9)


# --- words --------------------------------------------------------------------------------------------------------


@every
def test_refuses_states_of_connections(kind):
    motor = mb.OnCoordinates("motor", "J0", mb.DcMotor(k=0.2, resistance=1.0, inductance=0.1))
    described = chain()
    model = mb.compile(mb.Mechanism(described.bodies, described.joints, connections=[motor]))
    with pytest.raises(mb.MechanismError, match="'motor' has states"):
        kind(model)


@every
def test_unknowns(kind):
    coordinates, size = kind(model_of("four-bar")).unknowns
    assert coordinates >= model_of("four-bar").nq and size >= model_of("four-bar").nc
