"""Static orders that the sweeps need, found once per topology. No jax inside.

A joint of nv speeds is walked as nv speeds in a row, so the tree of bodies becomes a tree of speeds: the parent of a
speed is the speed before it in its joint, or else the last one on the way to the world. A body rides on the last
speed of its joint; a welded body rides where its parent does, and a body welded to the world rides on none.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ._topology import Topology


@dataclass(frozen=True, eq=False)
class Walk:
    """See `walk`."""

    parent: np.ndarray  # (n,) number of the parent body, 0 the world
    paths: np.ndarray  # (n, n) [i, k]: is body k on the path to body i
    rounds: int  # doublings until every pose reaches the world
    tree: np.ndarray  # (n,) number of the tree each body belongs to, from 0
    is_chain: bool
    speed_parent: np.ndarray  # (nv,) number of the parent speed, 0 the world
    speed_body: np.ndarray  # (nv,) the body (0-based) that each speed moves
    speed_paths: np.ndarray  # (nv, nv) [e, d]: is speed d on the path to speed e
    speeds_are_chain: bool
    riders: tuple[tuple[int, ...], ...]  # bodies that ride on each speed
    movers: tuple[tuple[int, ...], ...]  # speeds of each body's joint


@lru_cache(maxsize=512)
def walk(topology: Topology) -> Walk:
    """The orders of a topology."""
    parent = np.asarray(topology.parent)
    n = len(parent)
    tree, last, speed_parent, riders = [], [0], [], [[] for _ in range(topology.nv)]
    movers = [tuple(range(s, s + k)) for s, k in zip(topology.v_start, topology.nvs, strict=True)]
    for i in range(n):
        tree.append(tree[parent[i] - 1] if parent[i] else max(tree, default=-1) + 1)
        carrier = last[parent[i]]
        for speed in movers[i]:
            speed_parent.append(carrier)
            carrier = speed + 1
        last.append(carrier)
        if carrier:
            riders[carrier - 1].append(i)
    return Walk(
        parent=parent,
        paths=_paths(parent),
        rounds=int(np.ceil(np.log2(max(topology.depth)))),
        tree=np.array(tree),
        is_chain=bool((parent == np.arange(n)).all()),
        speed_parent=np.array(speed_parent, int),
        speed_body=np.repeat(np.arange(n), topology.nvs),
        speed_paths=_paths(speed_parent),
        speeds_are_chain=speed_parent == list(range(topology.nv)),
        riders=tuple(map(tuple, riders)),
        movers=tuple(movers),
    )


def _paths(parent) -> np.ndarray:
    paths = np.eye(len(parent), dtype=bool)
    for i, p in enumerate(parent):
        if p:
            paths[i] |= paths[p - 1]
    return paths
