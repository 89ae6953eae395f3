"""Connections in a mechanism: action = reaction, power, derivatives, closed forms, switches, what is refused."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from andrews import andrews, andrews_loads, in_order, reference
from closed import four_bar
from examples_written import PARAMS, USER, bushing, torsion, wound
from helpers import central_difference, close, random_body, random_marker

import diffmb as mb

# --- in a mechanism


def pair():
    """Two free bodies, a spring, and two connections of one kind."""
    rng = np.random.default_rng(2)
    ends = lambda: (random_marker(rng, "a"), random_marker(rng, "b"))
    other = {"k": 3.0, "c": 0.2, "gain": (1.0, 0.5)}
    return mb.Mechanism(
        [random_body(rng, "a"), random_body(rng, "b")],
        connections=[
            mb.Connection("w1", *ends(), bushing, PARAMS, **USER, start=0.3),
            mb.SpringDamper("s", *ends(), k=30.0, c=2.0, length=0.4),
            mb.Connection("w2", *ends(), bushing, other, **USER, start=[-0.2]),
        ],
        gravity=(0, 0, 0),
    )


def test_action_is_reaction_and_layout():
    model = mb.compile(pair())
    assert (model.nz, model.nu, len(model.connections)) == (2, 4, 2)
    assert model.switches == ("w1", "w2", "s") == model.connection_names and model.switch("s") == 2
    assert (model.states("w2"), model.input("w2"), model.states("s")) == (slice(1, 2), slice(2, 4), slice(2, 2))
    close(model.start_states(), (0.3, -0.2), 0.0)
    rng = np.random.default_rng(5)
    batch = lambda size: jnp.asarray(rng.normal(size=(3, size)))
    q = jax.vmap(lambda step: mb.retract(model, model.neutral(), step))(batch(12))
    v, z, u = batch(12), batch(2), batch(4)

    def run(q, v, z, u):
        vd = mb.forward_dynamics(model, q, v, t=0.4, z=z, u=u)
        change = jax.jvp(lambda q, v: mb.momentum(model, q, v), (q, v), (mb.qdot(model, q, v), vd))[1]
        return vd, change

    vd, change = jax.jit(jax.vmap(run))(q, v, z, u)
    assert float(jnp.abs(vd).max()) > 10.0
    close(change / jnp.abs(vd).max(), jnp.zeros_like(change), 1e-13)
    close(jax.jit(run)(q[1], v[1], z[1], u[1])[0], vd[1], 1e-11)  # a batch is a loop


def slides(k=40.0, c=1.5, length=0.5, first=(0.0, 0.0, 0.0), **more):
    """Two masses on the x axis."""
    spring = mb.SpringDamper("s", mb.Marker("a", first), "b", k=k, c=c, length=length)
    return mb.Mechanism(
        [mb.sphere("a", 0.1, mass=2.0), mb.sphere("b", 0.1, mass=3.0)],
        [mb.Prismatic("A", "world", "a", axis="x"), mb.Prismatic("B", "world", "b", axis="x")],
        **({"connections": [spring]} | more),
    )


def test_two_masses_and_a_spring():
    model = mb.compile(slides())
    run = jax.jit(lambda q, v: mb.forward_dynamics(model, q, v))
    for q, v in (((0.1, 0.9), (0.3, -0.4)), ((0.9, 0.1), (0.0, 0.0))):
        side = np.sign(q[1] - q[0])
        tension = 40.0 * (abs(q[1] - q[0]) - 0.5) + 1.5 * side * (v[1] - v[0])
        close(run(jnp.array(q), jnp.array(v)), (side * tension / 2.0, -side * tension / 3.0), 1e-13)


def test_where_the_origins_meet():
    """Finite everywhere; exact where the spring has no length of its own."""
    run = lambda length: lambda q, v: mb.forward_dynamics(mb.compile(slides(length=length)), q, v)
    here, still = jnp.array([0.2, 0.2]), jnp.zeros(2)
    force, slope = jax.jit(lambda q: (run(0.0)(q, still), jax.jacfwd(run(0.0))(q, still)))(here)
    close(force, (0, 0), 0.0)
    close(slope, 40.0 * np.array([[-1 / 2, 1 / 2], [1 / 3, -1 / 3]]), 1e-13)
    hessian = jax.jit(jax.hessian(lambda q: mb.potential_energy(mb.compile(slides(length=0.0)), q)))(here)
    close(hessian, 40.0 * np.array([[1, -1], [-1, 1]]), 1e-13)
    gradient = jax.grad(lambda x: (run(x[0])(x[1], x[2]) ** 2).sum() + run(x[0])(x[1], x[2])[0])
    for leaf in jax.jit(gradient)((jnp.asarray(0.5), here, jnp.array([1.0, -1.0]))):
        assert bool(jnp.isfinite(leaf).all())


def test_user_functions_are_the_same_spring():
    """A spring whose damper force is a state that has come to rest, and whose free length is an input."""

    def load(t, rel, twist, z, u, p):
        r = jnp.sqrt(rel.translation @ rel.translation)
        return jnp.concatenate([jnp.zeros(3), -(p * (r - u[0]) + z[0]) * (rel.rotation.T @ rel.translation / r)])

    decay = lambda t, rel, twist, z, u, p: -z
    own = mb.Connection("s", "a", "b", load, 40.0, states=1, inputs=1, state_rate=decay, start=2.0)
    model = mb.compile(slides(connections=[own]))
    q, v = jnp.array([0.1, 0.9]), jnp.array([0.3, -0.4])
    run = jax.jit(lambda **more: mb.forward_dynamics(model, q, v, **more))
    close(run(z=jnp.array([1.5 * -0.7]), u=jnp.array([0.5])), mb.forward_dynamics(mb.compile(slides()), q, v), 1e-13)
    tension = 40.0 * 0.8 + 2.0  # from the start, without input
    close(run(), (tension / 2.0, -tension / 3.0), 1e-13)


def loaded(numbers):
    """A four-bar with a spring across it and a torsion spring at the crank; both are in the loop."""
    k, c, length, place, (winding, friction) = numbers
    spring = mb.SpringDamper("s", mb.Marker("coupler", place), mb.Marker("world", (0.1, -0.2, 0.03)), k, c, length)
    twist = mb.JointConnection("twist", "A", torsion, (winding, friction), energy=wound)
    return four_bar(connections=[spring, twist])


NUMBERS = jax.tree.map(jnp.asarray, (50.0, 2.0, 0.2, np.array([0.15, 0.02, 0.01]), (3.0, 0.1)))


@pytest.fixture(scope="module")
def moving():
    model = mb.compile(loaded(NUMBERS))
    state = mb.assemble(model, {"A": 0.5}, {"A": 3.0}, guess={"B": 0.2, "C": 0.8})
    return model, state.q, state.v


def test_joint_springs_keep_their_joint_in_the_tree(moving):
    model, _, _ = moving
    others = ("B", "C", "D")
    assert "A" in model.inboard
    keep = [mb.JointConnection(f"t{j}", j, torsion, (1.0, 0.0)) for j in others]
    assert mb.compile(four_bar(connections=keep)).topology.cuts == (0,)


def test_derivatives(moving):
    """jvp = vjp = difference, of vd and lam, by the numbers of the connections and by the motion."""
    _, q, v = moving

    def run(x):
        numbers, q, v, tau = x
        d = mb.dynamics(mb.compile(loaded(numbers)), q, v, tau)
        return d.vd, d.lam

    x = (NUMBERS, q, v, jnp.ones(3))
    rng = np.random.default_rng(7)
    vary = lambda a: jnp.asarray(rng.normal(size=a.shape)) * jnp.maximum(jnp.abs(a), 0.1)
    along = jax.tree.map(vary, x)
    along = (along[0], mb.qdot(moving[0], q, v), *along[2:])  # off the manifold redundant rows have another rank
    weight = (jnp.array([1.0, -0.5, 0.3]), jnp.asarray(rng.normal(size=moving[0].nc)))
    inner = lambda a, b: sum(jnp.vdot(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))
    both = lambda x: (jax.jvp(run, (x,), (along,))[1], jax.vjp(run, x)[1](weight)[0])
    pushed, pulled = jax.jit(both)(x)
    close(inner(weight, pushed), inner(pulled, along), 1e-11)
    rest = jax.jit(run)(x)
    difference = central_difference(jax.jit(run), x, along, 1e-4)
    scale = float(jnp.abs(jnp.concatenate(rest)).max())
    for a, b in zip(pushed, difference, strict=True):
        close(a / scale, b / scale, 1e-7)
    still = (NUMBERS, q, 0.0 * v, jnp.zeros(3))
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(jax.jit(both)(still)))


def test_power_balance_of_a_loop(moving):
    model, q, v = moving

    @jax.jit
    def run(q, v):
        energy = lambda q, v: mb.kinetic_energy(model, q, v) + mb.potential_energy(model, q)
        qd, vd = mb.qdot(model, q, v), mb.forward_dynamics(model, q, v)
        pin = lambda q: mb.kinematics(model, q)[mb.Marker("coupler", NUMBERS[3])].pose.translation
        length = lambda q: jnp.linalg.norm(pin(q) - jnp.array([0.1, -0.2, 0.03]))
        return jax.jvp(energy, (q, v), (qd, vd))[1], jax.jvp(length, (q,), (qd,))[1]

    change, rate = run(q, v)
    close(change, -2.0 * rate**2 - 0.1 * v[model.speeds("A")][0] ** 2, 1e-10)
    assert abs(float(change)) > 0.5


@pytest.mark.parametrize("n", [2, 3])  # by speeds, by rows
def test_switched_off_is_left_out(n):
    """A pendulum of n rods with a rod to the ground, a drive and two springs; each of them off, then all."""
    bodies = [mb.rod(f"b{i}", 0.5, mass=1.0) for i in range(n)]
    before = ["world", *(mb.Marker(f"b{i}", (0.5, 0, 0)) for i in range(n - 1))]
    joints = [mb.Revolute(f"J{i}", before[i], f"b{i}") for i in range(n)]
    tip = mb.Marker(f"b{n - 1}", (0.5, 0, 0))
    parts = {
        "constraints": [mb.Distance("rod", mb.Marker("world", (1, 1, 0)), tip, 0.8)],
        "drives": [mb.PositionDrive("motor", "J0", lambda t, w: w * jnp.sin(t), 2.0)],
        "connections": [
            mb.SpringDamper("s", mb.Marker("world", (1, 0, 0)), tip, 20.0),
            mb.JointConnection("twist", "J1", torsion, (3.0, 0.1)),
        ],
    }
    model = mb.compile(mb.Mechanism(bodies, joints, **parts, gravity=(0, -9.81, 0)))
    assert model.switches == ("rod", "motor", "s", "twist") and list(model.row_switch) == [0, 1]
    rng = np.random.default_rng(n)
    q, v = jnp.asarray(rng.normal(size=(2, n)))
    run = jax.jit(lambda on: mb.dynamics(model, q, v, t=0.3, on=on))
    close(run(jnp.ones(4)).vd, mb.forward_dynamics(model, q, v, t=0.3), 1e-12)
    for off in (("rod", "s"), ("motor", "twist"), model.switches):
        on = jnp.ones(4).at[np.array([model.switch(name) for name in off])].set(0.0)
        rest = {home: [p for p in group if p.name not in off] for home, group in parts.items()}
        found = run(on)
        expected = mb.dynamics(mb.compile(mb.Mechanism(bodies, joints, **rest, gravity=(0, -9.81, 0))), q, v, t=0.3)
        close(found.vd, expected.vd, 1e-10)
        for name in ("rod", "motor"):
            lam = jnp.zeros(1) if name in off else expected.multipliers(name)
            close(found.multipliers(name), lam, 1e-10)
    if n == 2:  # nothing is left: what the joints transmit is that of the pendulum
        bare = mb.reactions(mb.compile(mb.Mechanism(bodies, joints, gravity=(0, -9.81, 0))), q, v, t=0.3)
        found = mb.reactions(model, q, v, t=0.3, on=jnp.zeros(4))
        close(found.wrenches, jnp.concatenate([bare.wrenches, jnp.zeros((4, 6))]), 1e-12)
        assert bool(found.determined.all())
    on = jnp.ones(4).at[0].set(0.0)
    slope = jax.jit(lambda on, q: jax.jvp(lambda q: mb.forward_dynamics(model, q, v, t=0.3, on=on), (q,), (v,))[1])
    along = lambda q: mb.forward_dynamics(model, q, v, t=0.3, on=on)
    close(slope(on, q), central_difference(jax.jit(along), q, v, 1e-4), 1e-8)


def test_a_driven_constraint_has_one_switch_and_two_names():
    rod = mb.Distance("rod", "a", "b", 1.0)
    model = mb.compile(slides(constraints=[rod], drives=[mb.PositionDrive("motor", "rod", lambda t, a: a * t, 1.0)]))
    assert model.switches == ("rod", "s") and model.switch("rod") == model.switch("motor") == 0


def test_reactions_balance_every_body():
    """A four-bar held by a drive, at rest: on each body the wrenches of all that touches it and its weight vanish."""
    mechanism = loaded(NUMBERS)
    hold = mb.PositionDrive("hold", "A", lambda t, a: a, 0.5)
    mechanism = four_bar(connections=mechanism.connections, drives=[hold])
    model = mb.compile(mechanism)
    q = mb.assemble(model, guess={"A": 0.5, "B": 0.2, "C": 0.8}).q
    found = mb.reactions(model, q, jnp.zeros(3))
    motion = mb.kinematics(model, q)
    pose = lambda marker: marker.pose if marker.body == "world" else motion[marker].pose
    sums = {body.name: np.zeros(6) for body in mechanism.bodies}
    between = [(j.name, j.parent, j.child) for j in mechanism.joints]
    for name, first, second in [*between, ("s", mechanism["s"].first, mechanism["s"].second)]:
        point, wrench = pose(second).translation, found[name]
        about = np.concatenate([wrench[:3] + np.cross(point, wrench[3:]), wrench[3:]])
        for marker, sign in ((first, -1.0), (second, 1.0)):
            if marker.body != "world":
                sums[marker.body] += sign * about
    for body in mechanism.bodies:
        weight = float(body.mass) * np.array([0, -9.81, 0])
        place = motion[body.name].pose.apply(body.com)
        close(sums[body.name] + np.concatenate([np.cross(place, weight), weight]), np.zeros(6), 1e-12)
    arm = pose(mechanism["s"].second).translation - pose(mechanism["s"].first).translation
    r = np.linalg.norm(arm)
    close(found["s"][3:], -50.0 * (r - 0.2) * arm / r, 1e-13)  # on the second marker
    close(found["twist"], (0, 0, -3.0 * 0.5, 0, 0, 0), 1e-12)
    close(found["A"][2], found["hold"][2] + found["twist"][2], 1e-12)
    assert bool(found.unique("s").all() and found.unique("twist").all())


def test_spring_of_the_squeezing_mechanism():
    """Andrews' mechanism: the spring as a connection and as a wrench that its authors write down."""
    p = reference()["parameters"]
    plain_one = andrews(p)
    point = mb.Marker("K3", (p["sd"], -p["sc"], 0))
    spring = mb.SpringDamper("spring", mb.Marker("world", (p["xc"], p["yc"], 0)), point, p["c0"], length=p["l0"])
    parts = {field: getattr(plain_one, field) for field in ("bodies", "joints", "gravity")}
    ours, theirs = mb.compile(mb.Mechanism(**parts, connections=[spring])), mb.compile(plain_one)
    q = in_order(theirs, reference()["initial"]["q"])
    loads = andrews_loads(theirs, q, p)
    expected = mb.dynamics(theirs, q, jnp.zeros(7), **loads)
    found = mb.dynamics(ours, q, jnp.zeros(7), loads["tau"])
    close(found.vd, expected.vd, 1e-12)
    close(found.lam, expected.lam, 1e-12)


# --- what is refused, and how it is said

wrong = lambda *args: jnp.zeros(3)
REFUSED = {
    "negative k": (lambda: mb.SpringDamper("s", "a", "b", k=-5.0), r"k of SpringDamper 's' is -5 N/m.*zero or more"),
    "negative c": (lambda: mb.SpringDamper("s", "a", "b", 1.0, -2.0), r"c of SpringDamper 's' is -2 N s/m"),
    "length": (lambda: mb.SpringDamper("s", "a", "b", 1.0, length=np.nan), r"length of SpringDamper 's' is nan m"),
    "two numbers": (lambda: mb.SpringDamper("s", "a", "b", (1.0, 2.0)), r"k of SpringDamper 's' has shape \(2,\)"),
    "shape": (lambda: mb.Connection("w", "a", "b", wrong), r"'w' \(function\) returns shape \(3,\); expected \(6,\)"),
    "fails": (lambda: mb.Connection("w", "a", "b", lambda t: t), r"Connection 'w' \(function\) fails: TypeError"),
    "rate": (
        lambda: mb.Connection("w", "a", "b", bushing, PARAMS, states=2, inputs=2, state_rate=wrong),
        r"Connection 'w' \(state_rate\) returns shape \(3,\); expected \(2,\)",
    ),
    "energy": (
        lambda: mb.JointConnection("w", "A", torsion, (1.0, 0.0), energy=lambda t, q, z, p: q),
        r"JointConnection 'w' \(energy\) returns shape \(1,\); expected one number",
    ),
    "no rate": (lambda: mb.Connection("w", "a", "b", bushing, PARAMS, states=1), "states=1 and no state_rate"),
    "start": (
        lambda: mb.Connection("w", "a", "b", bushing, PARAMS, **USER, start=(1, 2)),
        r"start of Connection 'w' has shape \(2,\)",
    ),
    "joint shape": (
        lambda: mb.JointConnection("w", ["A", "B"], lambda *args: 1.0),
        r"JointConnection 'w' \(function\) returns shape \(\); expected \(2,\)",
    ),
    "terms": (lambda: mb.JointConnection("w", [("A", -1)], torsion), r"JointConnection 'w' names \('A', -1\); give a"),
    "unknown body": (lambda: slides(connections=[mb.SpringDamper("s", "a", "c", 1.0)]), "'s': its second is on 'c'"),
    "itself": (lambda: slides(connections=[mb.SpringDamper("s", "a", "a", 1.0)]), "connects 'a' with itself"),
    "taken": (lambda: slides(connections=[mb.SpringDamper("A", "a", "b", 1.0)]), "a joint and a connection are both"),
    "home": (lambda: slides(constraints=[mb.SpringDamper("s", "a", "b", 1.0)]), r"put it into connections=\[...\]"),
    "unknown joint": (
        lambda: mb.compile(slides(connections=[mb.JointConnection("w", "X", torsion, (1.0, 0.0))])),
        "connection 'w' names 'X', which is no joint",
    ),
    "cut": (
        lambda: mb.compile(four_bar(cut="C", connections=[mb.JointConnection("w", "C", torsion, (1.0, 0.0))])),
        "connection 'w' needs the coordinate of joint 'C', but that joint is cut",
    ),
    "quaternion": (
        lambda: mb.compile(
            mb.Mechanism([mb.sphere("a", 1, mass=1)], connections=[mb.JointConnection("w", "a", torsion, (1.0, 0.0))])
        ),
        "connection 'w' needs the position of joint 'a', whose coordinates are a quaternion; use a Connection",
    ),
    "changed": (
        lambda: mb.compile(eqx.tree_at(lambda m: m["s"].k, slides(), jnp.asarray(jnp.inf))),
        "connection 's': k = inf is not finite",
    ),
    "z": (
        lambda: mb.dynamics(mb.compile(slides()), jnp.zeros(2), jnp.zeros(2), z=jnp.zeros(3)),
        r"z has shape \(3,\), but the model has nz = 0 states",
    ),
    "u": (
        lambda: mb.dynamics(mb.compile(slides()), jnp.zeros(2), jnp.zeros(2), u=jnp.zeros(3)),
        r"u has shape \(3,\), but the model has nu = 0 inputs",
    ),
    "on": (
        lambda: mb.dynamics(mb.compile(slides()), jnp.zeros(2), jnp.zeros(2), on=jnp.zeros(3)),
        r"on has shape \(3,\), but the model has len\(model.switches\) = 1",
    ),
    "switch": (lambda: mb.compile(slides()).switch("S"), "'S' cannot be switched; .*'s'"),
    "states": (lambda: mb.compile(slides()).states("springs"), "there is no connection 'springs'"),
}


@pytest.mark.parametrize("make, message", REFUSED.values(), ids=REFUSED.keys())
def test_refused_in_words(make, message):
    with pytest.raises(mb.MechanismError, match=f"(?s){message}"):
        make()


def test_a_class_that_gives_the_wrong_shape_is_named():
    class Crooked(mb.AbstractConnection):
        def load(self, t, x, xd, z, u):
            return xd[:3]

    with pytest.raises(mb.MechanismError, match=r"Crooked 'c' \(load\) returns shape \(3,\); expected \(6,\)"):
        mb.compile(slides(connections=[Crooked("c", "a", "b")]))


def test_the_mechanism_shows_its_connections():
    mechanism = slides()
    assert mechanism["s"].k == 40.0 and mechanism.parts[-1].name == "s"
    assert "1 connections" in repr(mechanism) and "s           SpringDamper  a -> b" in repr(mechanism)
    assert "1 connections" in repr(mb.compile(mechanism))
