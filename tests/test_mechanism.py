"""Mechanisms: names, access, what is refused at construction and at compilation, and staying one pytree."""

import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from diffmb._bodies._marker import Marker
from diffmb._bodies._rigid import RigidBody, massless, rod, sphere
from diffmb._errors import MechanismError
from diffmb._joints._hinge import Hinge
from diffmb._joints._revolute import Revolute
from diffmb._joints._spherical import Spherical
from diffmb._joints._universal import Universal
from diffmb._joints._weld import Weld
from diffmb._mechanism import Mechanism
from diffmb._topology import Topology, build_topology
from diffmb._validate import check_numbers, find_massless_leaves


def four_bar(l1=0.1, l2=0.3, l3=0.25, base=0.3):
    return Mechanism(
        bodies=[rod("crank", l1, mass=0.2), rod("coupler", l2, mass=0.5), rod("rocker", l3, mass=0.4)],
        joints=[
            Revolute("A", "world", "crank", axis="z"),
            Revolute("B", Marker("crank", (l1, 0, 0)), "coupler", axis="z"),
            Revolute("C", Marker("coupler", (l2, 0, 0)), Marker("rocker", (l3, 0, 0)), axis=(0, 0, 1)),
            Revolute("D", Marker("world", (base, 0, 0)), "rocker", axis="z"),
        ],
        gravity=(0, -9.81, 0),
    )


def topology_of(mechanism: Mechanism) -> Topology:
    return build_topology(
        tuple(body.name for body in mechanism.bodies),
        [(j.name, j.parent.body, j.child.body, j.nq, j.nv, j.cut) for j in mechanism.joints],
    )


# --- access -------------------------------------------------------------------------------------------------------


def test_parts_by_name():
    mechanism = four_bar()
    assert mechanism["crank"] is mechanism.bodies[0]
    assert mechanism["D"] is mechanism.joints[3]
    assert "crank" in mechanism and "A" in mechanism and "world" not in mechanism
    np.testing.assert_allclose(mechanism["B"].parent.position, [0.1, 0, 0])
    np.testing.assert_allclose(mechanism.gravity, [0, -9.81, 0])
    np.testing.assert_allclose(Mechanism([sphere("ball", 1.0, mass=1.0)]).gravity, [0, 0, -9.81])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cranck", "there is no part 'cranck' in the mechanism; did you mean 'crank'?"),
        ("xyz", "known names: 'crank', 'coupler', 'rocker', 'A', 'B', 'C', 'D'"),
        ("world", "'world' is the ground: joints may refer to it, but it has no numbers of its own"),
    ],
)
def test_unknown_names(name, message):
    with pytest.raises(MechanismError) as caught:
        four_bar()[name]
    assert message in str(caught.value)


def test_any_iterable_of_parts_will_do():
    mechanism = four_bar()
    same = Mechanism(iter(mechanism.bodies), tuple(mechanism.joints), gravity=mechanism.gravity)
    assert isinstance(same.bodies, tuple) and isinstance(same.joints, tuple)
    assert eqx.tree_equal(same, mechanism)


# --- repr ---------------------------------------------------------------------------------------------------------


def test_repr_is_a_table():
    assert repr(four_bar()) == "\n".join([
        "Mechanism: 3 bodies, 4 joints, gravity (0, -9.81, 0) m/s2",
        "  body     mass [kg]  centre of mass [m]",
        "  crank    0.2        (0.05, 0, 0)",
        "  coupler  0.5        (0.15, 0, 0)",
        "  rocker   0.4        (0.125, 0, 0)",
        "  joint  kind      parent -> child",
        "  A      Revolute  world -> crank",
        "  B      Revolute  crank -> coupler",
        "  C      Revolute  coupler -> rocker",
        "  D      Revolute  world -> rocker",
    ])  # fmt: skip


def test_repr_while_tracing_and_of_partial_trees():
    texts = []

    @jax.jit
    def trace(mechanism):
        texts.append(repr(mechanism))
        return mechanism.gravity

    trace(four_bar())
    assert "crank    float64[]  float64[3]" in texts[0] and "gravity float64[3] m/s2" in texts[0]
    assert "None" in repr(eqx.filter(four_bar(), lambda _: False))
    assert "float64[2,3]" in repr(jax.tree.map(lambda a: jnp.stack([a, a]), four_bar()))
    assert "float64[3]" in repr(jax.eval_shape(lambda: four_bar()))


def test_repr_of_a_long_mechanism_is_short():
    text = repr(Mechanism([sphere(f"ball{i}", 1.0, mass=1.0) for i in range(30)]))
    assert text.splitlines()[0].startswith("Mechanism: 30 bodies, 0 joints")
    assert text.splitlines()[-1] == "  ... 10 more" and len(text.splitlines()) == 23


# --- one pytree ---------------------------------------------------------------------------------------------------


def test_every_number_is_a_floating_array_leaf():
    leaves = jax.tree.leaves(four_bar())
    assert all(isinstance(leaf, jax.Array) and leaf.dtype == jnp.float64 for leaf in leaves)
    assert len(leaves) == 3 * 3 + 4 * (2 * 2 + 1) + 1


def test_changing_numbers_changes_no_structure():
    traces = []

    @jax.jit
    def total(mechanism):
        traces.append(None)
        return sum(body.mass for body in mechanism.bodies)

    mechanism = four_bar()
    total(mechanism)
    total(four_bar(l1=0.11, l2=1, base=np.float32(2.0)))
    heavier = eqx.tree_at(lambda m: m["crank"].mass, mechanism, jnp.asarray(3.0, dtype=float))
    np.testing.assert_allclose(total(heavier), 3.9)
    total(eqx.tree_at(lambda m: (m.gravity, m["B"].parent.position), mechanism, (jnp.zeros(3), jnp.ones(3))))
    total(jax.tree.map(lambda a: 2 * a, mechanism))
    assert len(traces) == 1
    assert jax.tree.structure(mechanism) == jax.tree.structure(heavier)
    assert jax.tree.structure(mechanism) != jax.tree.structure(
        Mechanism(mechanism.bodies, mechanism.joints[:3], gravity=mechanism.gravity)
    )


def test_building_inside_transformations():
    mass = lambda l: (lambda m: m["crank"].inertia[1, 1] + m["B"].parent.position[0])(four_bar(l1=l))
    np.testing.assert_allclose(jax.jit(jax.grad(mass))(0.1), 0.2 * 2 * 0.1 / 12 + 1, rtol=1e-14)
    np.testing.assert_allclose(jax.jit(jax.vmap(mass))(jnp.array([0.1, 0.2])), [mass(0.1), mass(0.2)], rtol=1e-14)


# --- refusals of names and kinds ----------------------------------------------------------------------------------

ball = sphere("ball", 1.0, mass=1.0)
pin = Revolute("pin", "world", "ball")

REFUSALS = {
    "no bodies": (lambda: Mechanism([]), "the mechanism has no bodies; give at least one, for example bodies=[rod("),
    "same body twice": (lambda: Mechanism([ball, ball]), "two bodies are named 'ball'; names must be unique"),
    "same joint twice": (lambda: Mechanism([ball], [pin, pin]), "two joints are named 'pin'; names must be unique"),
    "body and joint": (
        lambda: Mechanism([ball], [Revolute("ball", "world", "ball")]),
        "a body and a joint are both named 'ball'; names must be unique, rename one of them",
    ),
    "world": (
        lambda: Mechanism([sphere("world", 1.0, mass=1.0)]),
        "a body is named 'world', which is the name of the ground; choose another name",
    ),
    "empty name": (lambda: Mechanism([sphere("", 1.0, mass=1.0)]), "a body is named ''; a name must be a non-empty"),
    "unknown body": (
        lambda: Mechanism([ball], [Revolute("pin", "world", "bal")]),
        "joint 'pin': its child is on 'bal', which is not a body; did you mean 'ball'?",
    ),
    "unknown parent": (
        lambda: Mechanism([ball], [Revolute("pin", Marker("wrold"), "ball")]),
        "joint 'pin': its parent is on 'wrold', which is not a body; did you mean 'world'?",
    ),
    "self": (lambda: Mechanism([ball], [Revolute("pin", "ball", "ball")]), "joint 'pin' connects 'ball' with itself;"),
    "body among joints": (
        lambda: Mechanism([ball], [pin, ball]),
        "joints[1] is a RigidBody 'ball'; put it into bodies=[...]",
    ),
    "joint among bodies": (lambda: Mechanism([pin, ball]), "bodies[0] is a Revolute 'pin'; put it into joints=[...]"),
    "text": (lambda: Mechanism(["ball"]), "bodies[0] is a str 'ball'; bodies takes RigidBody objects"),
    "text joint": (lambda: Mechanism([ball], [3.0]), "joints[0] is a float 3.0; joints takes Joint objects"),
    "class": (lambda: Mechanism([ball], [Revolute]), "joints[0] is the class Revolute; joints takes Joint objects"),
    "no list": (lambda: Mechanism(ball), "bodies is a RigidBody 'ball'; give a list, bodies=[...]"),
    "no list of joints": (lambda: Mechanism([ball], pin), "joints is a Revolute 'pin'; give a list, joints=[...]"),
    "dict": (lambda: Mechanism({"ball": ball}), "bodies is a dict; give a list, bodies=[...]"),
    "none": (lambda: Mechanism([ball], None), "joints is a NoneType; give a list, joints=[...]"),
    "gravity": (lambda: Mechanism([ball], gravity=-9.81), "the mechanism: gravity has shape (); it must be (3,)"),
    "text gravity": (lambda: Mechanism([ball], gravity="down"), "the mechanism: gravity = 'down' is not numbers"),
}


@pytest.mark.parametrize(("make", "message"), REFUSALS.values(), ids=REFUSALS)
def test_refusals(make, message):
    with pytest.raises(MechanismError) as caught:
        make()
    assert message in str(caught.value)


# --- refusals of numbers ------------------------------------------------------------------------------------------


def wave(q, t, params):
    return jnp.eye(3), jnp.stack([params["amplitude"] * jnp.sin(q[0]), params["speed"] * t, q[0]])


def varied():
    """One of several kinds of part."""
    params = {"amplitude": 1.0, "speed": 2.0}
    return Mechanism(
        bodies=[ball, massless("frame"), rod("arm", 0.5, mass=1.0)],
        joints=[
            Universal("cross", "world", Marker("frame", (0, 1, 0), (1, 1, 0, 0)), axis1="x", axis2="y"),
            Spherical("socket", "frame", "ball"),
            Hinge("wave", "world", "arm", wave, size=1, params=params),
        ],
    )


def with_leaf(mechanism, index, value):
    leaves, structure = jax.tree.flatten(mechanism)
    leaves[index] = value(leaves[index])
    return jax.tree.unflatten(structure, leaves)


def test_good_numbers_pass():
    check_numbers(four_bar())
    check_numbers(varied())
    check_numbers(eqx.tree_at(lambda m: m["ball"].mass, varied(), 2.5))  # a plain number is no array, but no fault


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_nan_and_infinity_are_found_in_every_leaf(bad):
    mechanism = varied()
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(mechanism)]
    names = {"bodies": [b.name for b in mechanism.bodies], "joints": [j.name for j in mechanism.joints]}
    for index, path in enumerate(paths):
        group, *rest = (str(getattr(key, "name", getattr(key, "idx", getattr(key, "key", None)))) for key in path)
        broken = with_leaf(mechanism, index, lambda leaf: leaf.at[(0,) * leaf.ndim].set(bad))
        with pytest.raises(MechanismError) as caught:
            check_numbers(broken)
        if group == "gravity":
            start = f"the mechanism: gravity = [{bad}"
        else:
            kind = "body" if group == "bodies" else "joint"
            start = f"{kind} {names[group][int(rest[0])]!r}: {'.'.join(rest[1:])} = "
        assert str(caught.value).startswith(start) and f"{bad}" in str(caught.value)
        assert str(caught.value).endswith("is not finite; give real numbers")


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        (lambda m: m["ball"].mass, -1.0, "body 'ball': mass = -1 kg, but a mass must be positive"),
        (lambda m: m["frame"].mass, -1.0, "body 'frame': mass = -1 kg, but a mass must be positive"),
        (lambda m: m["frame"].inertia, np.eye(3), "body 'frame': mass = 0 kg, but a mass must be positive"),
        (lambda m: m["ball"].inertia, np.diag([1.0, 1.0, 3.0]), "body 'ball': inertia breaks the triangle inequality"),
        (lambda m: m["ball"].inertia, np.diag([-1.0, 1.0, 1.0]), "its principal moments are -1, 1, 1 kg m2"),
        (lambda m: m["ball"].inertia, np.diag([-1, 1, 1]), "its principal moments are -1, 1, 1 kg m2"),
        (
            lambda m: m["ball"].mass,
            np.ones(4),
            "body 'ball': mass has shape (4,) instead of (); for many mechanisms at",
        ),
        (
            lambda m: m["cross"].axis2,
            np.zeros(3),
            "joint 'cross': axis2 = [0.0, 0.0, 0.0] has no direction; give a vec",
        ),
        (
            lambda m: m["cross"].child.rotation,
            np.zeros(4),
            "joint 'cross': child.rotation = [0.0, 0.0, 0.0, 0.0] has no direction; the quaternion (1, 0, 0, 0) means",
        ),
        (lambda m: m["socket"].parent.position, np.zeros(2), "joint 'socket': parent.position has shape (2,) instead"),
        (lambda m: m.gravity, np.zeros(2), "the mechanism: gravity has shape (2,) instead of (3,)"),
    ],
)
def test_changed_numbers_are_checked_again(where, value, message):
    broken = eqx.tree_at(where, varied(), jnp.asarray(value))
    with pytest.raises(MechanismError) as caught:
        check_numbers(broken)
    assert message in str(caught.value)


def test_a_frame_may_be_given_mass_later():
    heavy = eqx.tree_at(lambda m: (m["frame"].mass, m["frame"].inertia), varied(), (jnp.ones(()), jnp.eye(3)))
    check_numbers(heavy)


def test_checks_let_tracers_pass():
    @jax.jit
    def look(mechanism):
        check_numbers(mechanism)
        find_massless_leaves(topology_of(mechanism), [body.mass for body in mechanism.bodies])
        return mechanism.gravity

    look(jax.tree.map(lambda a: jnp.nan * a, varied()))

    def partly(mass):  # the rest is still looked at
        check_numbers(eqx.tree_at(lambda m: m["ball"].mass, varied(), mass))
        return mass

    jax.grad(partly)(-1.0)


# --- massless tips ------------------------------------------------------------------------------------------------


def chain(*bodies, joint=Revolute, **kinds):
    """Bodies one behind the other on joints A, B, C, ..."""
    names = ["world", *(body.name for body in bodies)]
    joints = [
        kinds.get(letter, joint)(letter, inner, outer)
        for letter, inner, outer in zip("ABCDEF", names[:-1], names[1:], strict=False)
    ]
    return Mechanism(bodies, joints)


def look_for_massless_tips(mechanism):
    topology = topology_of(mechanism)
    find_massless_leaves(topology, [mechanism[name].mass for name in topology.bodies])


def test_massless_tip_is_named():
    with pytest.raises(MechanismError) as caught:
        look_for_massless_tips(chain(massless("frame1"), massless("frame2")))
    assert str(caught.value) == (
        "joint 'A' moves only massless bodies, so the mass matrix is singular: world -> A -> frame1 -> B -> frame2; "
        "give a body beyond it mass, or use a weld instead of the joint"
    )
    with pytest.raises(MechanismError, match=r"joint 'B' moves only .*: world -> A -> ball -> B -> tip;"):
        look_for_massless_tips(chain(ball, massless("tip")))
    with pytest.raises(MechanismError, match=r"the free joint of 'tip' moves .*: world -> \(free joint\) -> tip;"):
        look_for_massless_tips(Mechanism([massless("tip")]))


def test_massless_frames_between_masses_and_on_welds_are_fine():
    look_for_massless_tips(chain(massless("frame1"), massless("frame2"), ball))
    look_for_massless_tips(chain(ball, massless("tip"), B=Weld))
    look_for_massless_tips(chain(massless("base"), A=Weld))
    look_for_massless_tips(four_bar())


def test_massless_link_of_a_loop_names_the_cut():
    bodies = [rod("crank", 0.1, mass=0.2), massless("coupler"), rod("rocker", 0.25, mass=0.4)]
    loop = lambda cut: [
        Revolute(j.name, j.parent, j.child, cut=True if j.name == cut else None) for j in four_bar().joints
    ]
    look_for_massless_tips(Mechanism(bodies, loop("D")))
    with pytest.raises(MechanismError) as caught:
        look_for_massless_tips(Mechanism(bodies, loop("C")))
    assert "world -> A -> crank -> B -> coupler" in str(caught.value)
    assert "(the loop cut at 'C' could be opened at another joint with cut=True)" in str(caught.value)


# --- size ---------------------------------------------------------------------------------------------------------


def test_large_mechanisms_are_built_and_checked_quickly():
    start = time.process_time()
    bodies = [rod(f"b{i}", 1.0, mass=1.0) for i in range(300)]
    joints = [Revolute(f"j{i}", Marker(f"b{i - 1}", (1, 0, 0)) if i else "world", f"b{i}") for i in range(300)]
    mechanism = Mechanism(bodies, joints)
    built = time.process_time()
    check_numbers(mechanism)
    look_for_massless_tips(mechanism)
    # About 1 ms and 0.1 ms per body without the type checks of a test run; the limits catch another order of growth.
    assert built - start < 300 * 15e-3
    assert time.process_time() - built < 300 * 5e-3
    assert isinstance(mechanism["b299"], RigidBody)
