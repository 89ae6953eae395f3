"""What the machine of `_machine.py` is to do, four numbers at a time.

    x = s a b + u c,      s, u = 1 or -1                            sums, differences and products, the most of all
    x = op(a, b, c)                                                 all other operations

A product that is used once, in a sum, is made with it. Numbers that are made at once are made by the same operation and
not of each other: each one has its turn as early as what it is made of allows, in the first group with a free place.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, no_type_check

import numpy as np
from jax import lax

from ._graph import Graph

WIDTH = 4  # numbers that are made at once; more find too few others to be made with
NOTHING, ONE = -1, -2  # numbers of no graph: -0, since 0 x + -0 keeps the sign of all zeros, and 1
SUM = "sum"  # the kind of s a b + u c
SUMS = {lax.add_p, lax.sub_p, lax.mul_p, lax.neg_p, lax.convert_element_type_p}  # what is made so


Step = tuple[int, int, int, int, float, float]  # how a number is made: place of its kind among all; a, b, c; s, u


class Schedule(NamedTuple):
    """For each group of `WIDTH` numbers its kind, a place in `kinds`; the numbers that go in; signs; what is made."""

    kinds: list[Any]
    kind: np.ndarray  # (groups,)
    of: np.ndarray  # (groups, 3, WIDTH)
    signs: np.ndarray  # (groups, 2, WIDTH)
    made: np.ndarray  # (groups, WIDTH), NOTHING where a place is free


@no_type_check  # called for each of some ten thousand numbers
def _steps(graph: Graph, made: Sequence[int], results: Sequence[int]) -> tuple[list[Any], dict[int, Step]]:
    """The kinds, and each number that is made by itself."""
    kinds, steps, uses = {SUM: 0}, {}, dict.fromkeys(results, 2)
    for n in made:
        for a in graph.args[n]:
            uses[a] = uses.get(a, 0) + 1

    def product(n: int) -> Step | None:
        """The product that makes n and nothing else does, which then need not be made."""
        return steps.pop(n, None) if graph.primitive[n] is lax.mul_p and uses[n] == 1 else None

    for n in made:
        primitive, args = graph.primitive[n], graph.args[n]
        if primitive is lax.add_p or primitive is lax.sub_p:
            (x, y), u = args, 1.0 if primitive is lax.add_p else -1.0
            if (one := product(x)) is not None:
                steps[n] = (0, one[1], one[2], y, 1.0, u)
            elif (one := product(y)) is not None:
                steps[n] = (0, one[1], one[2], x, u, 1.0)
            else:
                steps[n] = (0, x, ONE, y, 1.0, u)
        elif primitive is lax.mul_p:
            steps[n] = (0, *args, NOTHING, 1.0, 1.0)
        elif primitive is lax.neg_p:
            steps[n] = (0, *args, ONE, NOTHING, -1.0, 1.0)
        elif primitive is lax.convert_element_type_p:
            steps[n] = (0, *args, ONE, NOTHING, 1.0, 1.0)
        else:
            steps[n] = (kinds.setdefault(primitive, len(kinds)), *args, *[NOTHING] * (3 - len(args)), 1.0, 1.0)
    return list(kinds), steps


@no_type_check
def schedule(graph: Graph, made: Sequence[int], results: Sequence[int]) -> Schedule:
    """How to make the numbers `made`, each of which comes after those that it is made of."""
    kinds, steps = _steps(graph, made, results)
    turn: dict[int, int] = {}  # in which a number is made; what is given is there before
    groups: dict[int, list[int]] = {}  # numbers by turn and kind
    later: dict[int, int] = {}  # for groups without a free place one to try instead
    for n, (kind, a, b, c, *_) in steps.items():
        first = (max(turn.get(a, 0), turn.get(b, 0), turn.get(c, 0)) + 1) * len(kinds) + kind
        found = first
        while found in later:
            found = later[found]
        while first in later:
            later[first], first = found, later[first]
        group = groups.setdefault(found, [])
        group.append(n)
        turn[n] = found // len(kinds)
        if len(group) == WIDTH:
            later[found] = found + len(kinds)
    order = sorted(groups)
    rows = [n for g in order for n in [*groups[g], *[NOTHING] * (WIDTH - len(groups[g]))]]
    free = (0, NOTHING, NOTHING, NOTHING, 1.0, 1.0)
    table = np.array([steps.get(n, free) for n in rows], float).reshape(-1, WIDTH, 6).transpose(0, 2, 1)
    kind = np.array([g % len(kinds) for g in order], np.uint32)
    return Schedule(kinds, kind, table[:, 1:4].astype(int), table[:, 4:], np.array(rows, int).reshape(-1, WIDTH))
