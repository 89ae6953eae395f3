"""The tree: numbering, cuts, free joints, Sol's matrices, and what is said about graphs that cannot be."""

import pickle
import random
import time

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from diffmb._errors import MechanismError
from diffmb._topology import Topology, build_topology

SCHOENMAKERS = [0, 1, 2, 3, 4, 4, 6, 1, 8, 9, 9, 11]
KAMMAN = [0, 1, 2, 1, 2, 1, 1, 7]


def revolute(name, parent, child, cut=None):
    return (name, parent, child, 1, 1, cut)


def names_of(count):
    return tuple(f"b{i}" for i in range(1, count + 1))


def tree_from(array):
    """Body i of a connection array is called b<i>, its joint j<i>."""
    bodies = names_of(len(array))
    joints = [revolute(f"j{i}", f"b{p}" if p else "world", f"b{i}") for i, p in enumerate(array, 1)]
    return bodies, joints


def random_graph(rng, size=None):
    """Any graph: several parts, loops, double joints, either direction, all kinds of freedom."""
    count = size or rng.randint(1, 12)
    bodies = list(names_of(count))
    joints = []
    for k in range(rng.randint(0, 2 * count)):
        parent, child = rng.sample(["world", *bodies], 2)
        nv = rng.randint(0, 6)
        joints.append((f"j{k}", parent, child, nv + (nv == 6), nv, rng.choice([None, None, None, True])))
    return tuple(bodies), joints


def parts_of(bodies, joints):
    """Number of connected parts, world included."""
    label = {name: name for name in ("world", *bodies)}
    for joint in joints:
        old, new = label[joint[1]], label[joint[2]]
        label = {name: new if value == old else value for name, value in label.items()}
    return len(set(label.values()))


@pytest.mark.parametrize("array", [SCHOENMAKERS, KAMMAN], ids=["schoenmakers", "kamman"])
def test_connection_arrays_of_the_literature(array):
    bodies, joints = tree_from(array)
    topology = build_topology(bodies, joints)
    assert topology.connection_array == array
    assert topology.bodies == bodies
    assert topology.joint == tuple(range(len(array)))
    assert not any(topology.reversed) and topology.cuts == ()
    assert topology.nq == topology.nv == len(array)


@pytest.mark.parametrize("array", [SCHOENMAKERS, KAMMAN], ids=["schoenmakers", "kamman"])
@pytest.mark.parametrize("seed", range(5))
def test_shuffled_bodies_and_joints_give_the_same_tree(array, seed):
    bodies, joints = tree_from(array)
    rng = random.Random(seed)
    shuffled, reordered = rng.sample(bodies, len(bodies)), rng.sample(joints, len(joints))
    topology = build_topology(tuple(shuffled), reordered)
    found = {
        body: (topology.bodies[p - 1] if p else "world", reordered[k][0])
        for body, p, k in zip(topology.bodies, topology.parent, topology.joint, strict=True)
    }
    assert found == {child: (parent, name) for name, parent, child, *_ in joints}


def test_numbering_keeps_the_users_order_where_it_can():
    joints = [revolute("P", "world", "trunk"), revolute("Q", "trunk", "leaf"), revolute("R", "world", "other")]
    assert build_topology(("trunk", "leaf", "other"), joints).bodies == ("trunk", "leaf", "other")
    assert build_topology(("other", "trunk", "leaf"), joints).bodies == ("other", "trunk", "leaf")
    assert build_topology(("leaf", "other", "trunk"), joints).bodies == ("other", "trunk", "leaf")  # leaf must wait


def test_starts_depths_and_paths():
    joints = [
        ("base", "world", "a", 7, 6, None),
        ("weld", "a", "b", 0, 0, None),
        ("ball", "b", "c", 4, 3, None),
        ("pin", "a", "d", 1, 1, None),
    ]
    topology = build_topology(("a", "b", "c", "d"), joints)
    assert topology.nqs == (7, 0, 4, 1) and topology.nvs == (6, 0, 3, 1)
    assert topology.q_start == (0, 7, 7, 11) and topology.v_start == (0, 6, 6, 9)
    assert (topology.nq, topology.nv) == (12, 10)
    assert topology.depth == (1, 2, 3, 2)
    assert topology.path(3) == ["world", "base", "a", "weld", "b", "ball", "c"]
    assert topology.path(0) == ["world"]


def test_a_joint_may_be_walked_backwards():
    topology = build_topology(("a", "b"), [revolute("P", "a", "world"), revolute("Q", "a", "b")])
    assert topology.parent == (0, 1)
    assert topology.reversed == (True, False)


# --- loops --------------------------------------------------------------------------------------------------------

FOUR_BAR_BODIES = ("crank", "coupler", "rocker")


def four_bar(**changes):
    """Joints A, B, C, D round the loop; a change is the nv of a joint, or its `cut`."""
    ends = {"A": ("world", "crank"), "B": ("crank", "coupler"), "C": ("coupler", "rocker"), "D": ("world", "rocker")}
    joints = []
    for name, (parent, child) in ends.items():
        change = changes.get(name)
        nv, cut = (1, change) if change is None or isinstance(change, bool) else (change, None)
        joints.append((name, parent, child, nv, nv, cut))
    return joints


def test_four_bar_cuts_the_last_of_equal_joints():
    topology = build_topology(FOUR_BAR_BODIES, four_bar())
    assert topology.cuts == (3,)
    assert topology.bodies == FOUR_BAR_BODIES and topology.parent == (0, 1, 2)


@pytest.mark.parametrize("name", "ABCD")
def test_the_joint_with_the_most_freedom_is_cut(name):
    assert build_topology(FOUR_BAR_BODIES, four_bar(**{name: 3})).cuts == ("ABCD".index(name),)


@pytest.mark.parametrize("name", "ABCD")
def test_cut_true_decides(name):
    topology = build_topology(FOUR_BAR_BODIES, four_bar(**{name: True, "B" if name == "A" else "A": 5}))
    assert topology.cuts == ("ABCD".index(name),)


def test_cut_false_keeps_a_joint_that_would_be_cut():
    assert build_topology(FOUR_BAR_BODIES, four_bar(D=False)).cuts == (2,)
    assert build_topology(FOUR_BAR_BODIES, four_bar(A=False, C=False, D=False)).cuts == (1,)


def test_cut_in_front_of_the_loop_walks_the_rest_backwards():
    topology = build_topology(FOUR_BAR_BODIES, four_bar(A=True))
    assert topology.bodies == ("rocker", "coupler", "crank")
    assert topology.reversed == (False, True, True)
    assert topology.connection_array == [0, 1, 2]


def test_cut_false_all_round_names_the_loop():
    joints = [*four_bar(A=False, B=False, C=False, D=False), revolute("E", "world", "other")]
    with pytest.raises(MechanismError) as caught:
        build_topology((*FOUR_BAR_BODIES, "other"), joints)
    assert str(caught.value) == (
        "every joint of the loop world -> D -> rocker -> C -> coupler -> B -> crank -> A -> world has cut=False, but a "
        "loop must be opened at one of its joints; remove cut=False from the one to cut"
    )


def test_two_joints_between_the_same_bodies_are_a_loop():
    topology = build_topology(("a",), [("P", "world", "a", 2, 2, None), ("Q", "a", "world", 1, 1, None)])
    assert topology.cuts == (0,) and topology.reversed == (True,)


# --- parts that do not reach the world ----------------------------------------------------------------------------


def test_unattached_body_gets_a_free_joint():
    topology = build_topology(("a", "ball"), [revolute("P", "world", "a")])
    assert topology.joint == (0, -1) and topology.parent == (0, 0)
    assert topology.nqs == (1, 7) and topology.nvs == (1, 6)
    assert topology.joint_names == ("P",)
    assert topology.path(2) == ["world", "(free joint)", "ball"]


def test_isolated_part_hangs_on_the_body_that_is_no_joints_child():
    joints = [
        revolute("left", "chassis", "wheel1"),
        revolute("right", "chassis", "wheel2"),
        revolute("P", "world", "arm"),
    ]
    topology = build_topology(("wheel1", "wheel2", "arm", "chassis"), joints)
    assert topology.bodies == ("arm", "chassis", "wheel1", "wheel2")
    assert topology.parent == (0, 0, 2, 2) and topology.joint == (2, -1, 0, 1)
    assert not any(topology.reversed)


def test_isolated_loop():
    joints = [revolute("P", "a", "b"), revolute("Q", "b", "c"), revolute("R", "c", "a")]
    topology = build_topology(("a", "b", "c"), joints)
    assert topology.cuts == (2,) and topology.joint == (-1, 0, 1) and topology.parent == (0, 1, 2)


def test_cut_that_separates_a_body_leaves_it_free():
    topology = build_topology(("a", "b"), [revolute("P", "world", "a"), revolute("Q", "a", "b", True)])
    assert topology.cuts == (1,) and topology.joint == (0, -1) and topology.nv == 7


# --- laws on random graphs ----------------------------------------------------------------------------------------


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 2**32))
def test_laws_of_any_graph(seed):
    bodies, joints = random_graph(random.Random(seed))
    topology = build_topology(bodies, joints)
    n = len(bodies)
    used = [k for k in topology.joint if k >= 0]

    assert sorted(topology.bodies) == sorted(bodies)
    assert all(0 <= parent <= i for i, parent in enumerate(topology.parent))
    assert sorted([*used, *topology.cuts]) == list(range(len(joints)))
    kept = [j for j in joints if j[5] is not True]
    parts = parts_of(bodies, kept)
    assert topology.joint.count(-1) == parts - 1
    forced = len(joints) - len(kept)
    assert len(topology.cuts) == len(kept) - (n + 1) + parts + forced  # edges - vertices + components

    for i, k in enumerate(topology.joint):
        ends = ("world", *topology.bodies)
        inner, outer = ends[topology.parent[i]], ends[i + 1]
        if k >= 0:
            assert joints[k][1:3] == ((outer, inner) if topology.reversed[i] else (inner, outer))
        else:
            assert inner == "world" and not topology.reversed[i]

    # Stable: each number goes to the first body in the user's order whose parent has one.
    user = {name: i for i, name in enumerate(bodies)}
    parent_of = {b: ("world", *topology.bodies)[p] for b, p in zip(topology.bodies, topology.parent, strict=True)}
    done = {"world"}
    for name in topology.bodies:
        ready = [b for b in bodies if b not in done and parent_of[b] in done]
        assert user[name] == min(user[b] for b in ready)
        done.add(name)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32))
def test_tree_keeps_the_most_rows(seed):
    """No cut joint has fewer speeds than a joint on the tree path between its ends."""
    bodies, joints = random_graph(random.Random(seed))
    joints = [(*j[:5], None) for j in joints]
    topology = build_topology(bodies, joints)
    number = {name: i for i, name in enumerate(("world", *topology.bodies))}
    for k in topology.cuts:
        ways = [set(topology.path(number[end])[1::2]) for end in joints[k][1:3]]
        loop = [j for j in joints if j[0] in ways[0] ^ ways[1]]
        assert loop and all(j[4] <= joints[k][4] for j in loop)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32))
def test_location_and_tree_matrices(seed):
    topology = build_topology(*random_graph(random.Random(seed)))
    S, T = topology.location_matrix(), topology.tree_matrix()
    n = len(topology.bodies)
    assert (np.eye(n) == S.T @ T.T).all()
    assert (np.tril(S, -1) == 0).all() and (np.tril(T, -1) == 0).all()
    assert (T.sum(0) == topology.depth).all()
    assert (np.diag(S) == 1).all() and ((S == 0) | (S == -1) | np.eye(n, dtype=bool)).all()


def test_matrices_of_sols_example():
    """Sol 1983, figure 4.6 and (4.3.4), (4.3.7): location column 0, 1, 2, 1, 0."""
    topology = build_topology(*tree_from([0, 1, 2, 1, 0]))
    assert topology.location_matrix().tolist() == [
        [1, -1, 0, -1, 0],
        [0, 1, -1, 0, 0],
        [0, 0, 1, 0, 0],
        [0, 0, 0, 1, 0],
        [0, 0, 0, 0, 1],
    ]
    assert topology.tree_matrix().tolist() == [
        [1, 1, 1, 1, 0],
        [0, 1, 1, 0, 0],
        [0, 0, 1, 0, 0],
        [0, 0, 0, 1, 0],
        [0, 0, 0, 0, 1],
    ]


# --- a value ------------------------------------------------------------------------------------------------------


def test_topology_is_a_value():
    one, two = (build_topology(*tree_from(KAMMAN)) for _ in range(2))
    assert one == two and hash(one) == hash(two) and one is not two
    assert one != build_topology(*tree_from(SCHOENMAKERS))
    renamed = build_topology(tuple(f"x{name}" for name in one.bodies), [])
    assert one != renamed
    with pytest.raises(AttributeError):
        one.parent = ()
    assert pickle.loads(pickle.dumps(one)) == one


def test_a_parent_above_its_child_is_refused():
    with pytest.raises(MechanismError, match="body 1 has parent 1"):
        Topology(("a",), (1,), (0,), (False,), (1,), (1,), (), ("P",))


def test_a_thousand_bodies_are_quick():
    bodies, joints = tree_from(range(1000))
    best = np.inf
    for _ in range(3):
        start = time.process_time()
        topology = build_topology(bodies, joints)
        hash(topology)
        best = min(best, time.process_time() - start)
    assert topology.connection_array == list(range(1000))
    assert best < 0.5


def test_no_joints_and_no_bodies():
    assert build_topology((), []).nv == 0
    assert build_topology(("a", "b"), []).parent == (0, 0)


# --- errors -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bodies", "joints", "message"),
    [
        (("a", "a"), [], "two bodies are named 'a'; names must be unique, rename one of them"),
        (
            ("a",),
            [revolute("a", "world", "a")],
            "a body and a joint are both named 'a'; names must be unique",
        ),
        (
            ("a",),
            [revolute("P", "world", "a"), revolute("P", "a", "world")],
            "two joints are named 'P'; names must be unique, rename one of them",
        ),
        (("world",), [], "a body is named 'world', which is the name of the ground; choose another name"),
        (("a",), [revolute("world", "world", "a")], "a joint is named 'world', which is the name of the ground"),
        (("",), [], "a body is named ''; a name must be a non-empty string"),
        (
            ("crank", "coupler"),
            [revolute("P", "world", "cranck")],
            "joint 'P': its child is on 'cranck', which is not a body; did you mean 'crank'?",
        ),
        (
            ("crank",),
            [revolute("P", "xyz", "crank")],
            "joint 'P': its parent is on 'xyz', which is not a body; known names: 'world', 'crank'",
        ),
        (
            ("a",),
            [revolute("P", "a", "a")],
            "joint 'P' connects 'a' with itself; its parent and child must be different bodies",
        ),
        (("a",), [revolute("P", "world", "world")], "joint 'P' connects 'world' with itself"),
    ],
)
def test_errors_name_the_culprit_and_the_fix(bodies, joints, message):
    with pytest.raises(MechanismError) as caught:
        build_topology(bodies, joints)
    assert message in str(caught.value)
