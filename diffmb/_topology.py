"""Topology: from the graph of bodies and joints to a tree, its regular numbering and the joints cut out of it.

Bodies are vertices, joints are arcs; body 0 is the world. The tree is a maximum spanning forest: a joint of nv speeds
keeps 6 - nv rows of constraint out of the closure, so joints with few speeds stay in the tree and each loop is opened
at its joint with the most (Sol 1983, ch. 4). A part of the graph that does not reach the world hangs on a free joint.

Regular numbering: a parent has a lower number than its children, and arc k, directed outwards, ends in body k. With

    S[i, k] = +1 if arc k ends in body i,  -1 if it starts there,  else 0        (Sol 4.3.1, without the world's row)
    T[k, i] = +1 if arc k is on the path from the world to body i,  else 0       (Sol 4.3.6)

both are unit upper triangular and S^T T^T = I: y = T^T x adds x up along each path from the world, and x = S^T y takes
the differences again. No jax inside: all of this is static.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import accumulate
from typing import NamedTuple, NoReturn

import numpy as np

from ._errors import MechanismError
from ._names import WORLD, check_names

FREE_NQ, FREE_NV = 7, 6


class Arc(NamedTuple):
    """A joint as the topology sees it.

    `cut`: `True` opens a loop here, `False` never does, `None`: as it comes, but rather elsewhere if its coordinates
    are `wanted` by a drive or a coupling.
    """

    name: str
    parent: str
    child: str
    nq: int
    nv: int
    cut: bool | None = None
    wanted: bool = False


@dataclass(frozen=True)
class Topology:
    """A regularly numbered forest; body i + 1 is `bodies[i]`, and index i of every tuple belongs to it.

    - `bodies`: names in the new order, which is the user's wherever a parent comes before its children.
    - `parent`: number of the inboard body, 0 (world) to i.
    - `joint`: index of the inboard joint in the user's list, or -1 for an added free joint.
    - `reversed`: whether the tree walks that joint from its child to its parent.
    - `nqs`, `nvs`: coordinates and speeds of the inboard joint.

    And for the graph as a whole:

    - `cuts`: indices in the user's list of the joints that close loops.
    - `joint_names`: the names in that list.
    """

    bodies: tuple[str, ...]
    parent: tuple[int, ...]
    joint: tuple[int, ...]
    reversed: tuple[bool, ...]
    nqs: tuple[int, ...]
    nvs: tuple[int, ...]
    cuts: tuple[int, ...]
    joint_names: tuple[str, ...]

    def __post_init__(self):
        for i, parent in enumerate(self.parent):
            if not 0 <= parent <= i:
                raise MechanismError(f"body {i + 1} has parent {parent}: a parent must have a lower number")

    @cached_property
    def _hash(self) -> int:
        # Numbers only: the hash of a string differs from process to process, and this one travels with a pickle.
        return hash((self.parent, self.joint, self.reversed, self.nqs, self.nvs, self.cuts))

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def q_start(self) -> tuple[int, ...]:
        return tuple(accumulate(self.nqs, initial=0))[:-1]

    @cached_property
    def v_start(self) -> tuple[int, ...]:
        return tuple(accumulate(self.nvs, initial=0))[:-1]

    @cached_property
    def nq(self) -> int:
        return sum(self.nqs)

    @cached_property
    def nv(self) -> int:
        return sum(self.nvs)

    @cached_property
    def depth(self) -> tuple[int, ...]:
        """Number of joints between the world and the body, so 1 for a body on the world."""
        depth = [0]
        for parent in self.parent:
            depth.append(depth[parent] + 1)
        return tuple(depth[1:])

    @property
    def connection_array(self) -> list[int]:
        """Schoenmakers' body connection array: the parent of each body (Sol's location column, 4.3.5)."""
        return list(self.parent)

    def path(self, body: int) -> list[str]:
        """Names from the world to body number `body`: world, joint, body, ..., body."""
        names = []
        while body:
            k = self.joint[body - 1]
            names += [self.bodies[body - 1], self.joint_names[k] if k >= 0 else "(free joint)"]
            body = self.parent[body - 1]
        return [WORLD, *reversed(names)]

    def location_matrix(self) -> np.ndarray:
        """S, (n, n)."""
        S = np.eye(len(self.parent), dtype=int)
        for k, parent in enumerate(self.parent):
            if parent:
                S[parent - 1, k] = -1
        return S

    def tree_matrix(self) -> np.ndarray:
        """T, (n, n)."""
        T = np.eye(len(self.parent), dtype=int)
        for i, parent in enumerate(self.parent):
            if parent:
                T[:, i] += T[:, parent - 1]
        return T


def build_topology(body_names: Sequence[str], joints: Sequence[tuple]) -> Topology:
    """The tree of the graph. `joints` are (name, parent body, child body, nq, nv, cut, wanted); see `Arc`."""
    arcs = [Arc(*joint) for joint in joints]
    check_names(body_names, [arc[:3] for arc in arcs])
    names = (WORLD, *body_names)
    vertex = {name: i for i, name in enumerate(names)}
    ends = [(vertex[arc.parent], vertex[arc.child]) for arc in arcs]
    tree, group = _spanning_forest(names, arcs, ends)
    cuts = sorted(set(range(len(arcs))) - set(tree))

    number = {0: 0}
    order, parents, inboard, backward = [], [], [], []
    for i, start, k in _walk_outwards(_adjacency(len(names), tree, ends), _roots(tree, ends, group)):
        order.append(i)
        number[i] = len(order)
        parents.append(number[start])
        inboard.append(k)
        backward.append(k >= 0 and ends[k][0] == i)
    return Topology(
        bodies=tuple(names[i] for i in order),
        parent=tuple(parents),
        joint=tuple(inboard),
        reversed=tuple(backward),
        nqs=tuple(arcs[k].nq if k >= 0 else FREE_NQ for k in inboard),
        nvs=tuple(arcs[k].nv if k >= 0 else FREE_NV for k in inboard),
        cuts=tuple(cuts),
        joint_names=tuple(arc.name for arc in arcs),
    )


def _spanning_forest(names: Sequence[str], arcs: list[Arc], ends: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """Kruskal: the arcs of the tree, and for each vertex the label of its connected part."""
    group = list(range(len(names)))

    def find(i: int) -> int:
        while group[i] != i:
            group[i] = group[group[i]]
            i = group[i]
        return i

    tree = []
    # Kruskal takes joints in this order; the sort is stable, so ties go by the user's order.
    candidates = [k for k, arc in enumerate(arcs) if arc.cut is not True]
    for k in sorted(candidates, key=lambda k: (arcs[k].cut is not False, not arcs[k].wanted, arcs[k].nv)):
        start, end = find(ends[k][0]), find(ends[k][1])
        if start != end:
            # Keep the lowest vertex as the label: then the world's part is labelled 0.
            group[max(start, end)] = min(start, end)
            tree.append(k)
        elif arcs[k].cut is False:
            _refuse_loop(k, tree, names, arcs, ends)
    return tree, [find(i) for i in range(len(names))]


def _adjacency(count: int, tree: list[int], ends: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """For each vertex its (joint, other end) in the tree."""
    around = [[] for _ in range(count)]
    for k in tree:
        parent, child = ends[k]
        around[parent].append((k, child))
        around[child].append((k, parent))
    return around


def _roots(tree: list[int], ends: list[tuple[int, int]], group: list[int]) -> list[int]:
    """One body of each part apart from the world: the first that is no joint's child (a tree always has one)."""
    children = {ends[k][1] for k in tree}
    roots = {}
    for i, label in enumerate(group):
        if label != 0 and i not in children:
            roots.setdefault(label, i)
    return list(roots.values())


def _walk_outwards(around: list[list[tuple[int, int]]], roots: list[int]):
    """Yields (body, its parent, joint), each time the lowest body whose parent was there before."""
    frontier = [(i, 0, -1) for i in roots] + [(i, 0, k) for k, i in around[0]]
    heapify(frontier)
    while frontier:
        i, start, k = heappop(frontier)
        yield i, start, k
        for outboard, j in around[i]:
            if outboard != k:
                heappush(frontier, (j, i, outboard))


def _refuse_loop(
    closing: int, tree: list[int], names: Sequence[str], arcs: list[Arc], ends: list[tuple[int, int]]
) -> NoReturn:
    """All joints of a loop have cut=False: names the way round it."""
    around = _adjacency(len(names), tree, ends)
    first, last = ends[closing]
    came = {first: (first, closing)}
    queue = [first]
    for i in queue:
        for k, j in around[i]:
            if j not in came:
                came[j] = (i, k)
                queue.append(j)
    way, i = [names[first], arcs[closing].name], last
    while i != first:
        way += [names[i], arcs[came[i][1]].name]
        i = came[i][0]
    raise MechanismError(
        f"every joint of the loop {' -> '.join([*way, names[first]])} has cut=False, but a loop must be opened "
        f"at one of its joints; remove cut=False from the one to cut"
    )
