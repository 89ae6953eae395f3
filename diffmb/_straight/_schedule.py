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


class Step(NamedTuple):
    """How a number is made: by what, of which three numbers, and with which signs."""

    kind: Any
    a: int
    b: int
    c: int
    s: float = 1.0
    u: float = 1.0


class Schedule(NamedTuple):
    """For each group of `WIDTH` numbers its kind, a place in `kinds`; the numbers that go in; signs; what is made."""

    kinds: list[Any]
    kind: np.ndarray  # (groups,)
    of: np.ndarray  # (groups, 3, WIDTH)
    signs: np.ndarray  # (groups, 2, WIDTH)
    made: np.ndarray  # (groups, WIDTH), NOTHING where a place is free


@no_type_check  # called for each of some ten thousand numbers
def _steps(graph: Graph, made: Sequence[int], results: Sequence[int]) -> dict[int, Step]:
    """Each number that is made by itself."""
    uses = dict.fromkeys(results, 2)
    for n in made:
        for a in graph.args[n]:
            uses[a] = uses.get(a, 0) + 1
    steps: dict[int, Step] = {}

    def product(n: int) -> Step | None:
        """The product that makes n and nothing else does."""
        return steps[n] if graph.primitive[n] is lax.mul_p and uses[n] == 1 and n in steps else None

    for n in made:
        primitive, args = graph.primitive[n], graph.args[n]
        if primitive is lax.add_p or primitive is lax.sub_p:
            (x, y), u = args, 1.0 if primitive is lax.add_p else -1.0
            if (one := product(x)) is not None:
                del steps[x]
                steps[n] = Step(SUM, one.a, one.b, y, 1.0, u)
            elif (one := product(y)) is not None:
                del steps[y]
                steps[n] = Step(SUM, one.a, one.b, x, u, 1.0)
            else:
                steps[n] = Step(SUM, x, ONE, y, 1.0, u)
        elif primitive is lax.mul_p:
            steps[n] = Step(SUM, *args, NOTHING)
        elif primitive is lax.neg_p:
            steps[n] = Step(SUM, *args, ONE, NOTHING, -1.0)
        elif primitive is lax.convert_element_type_p:
            steps[n] = Step(SUM, *args, ONE, NOTHING)
        else:
            steps[n] = Step(primitive, *args, *[NOTHING] * (3 - len(args)))
    return steps


@no_type_check
def schedule(graph: Graph, made: Sequence[int], results: Sequence[int]) -> Schedule:
    """How to make the numbers `made`, each of which comes after those that it is made of."""
    steps = _steps(graph, made, results)
    turn: dict[int, int] = {}  # in which a number is made; what is given is there before
    places: dict[Any, dict[int, list[int]]] = {}  # kind -> turn -> numbers
    later: dict[Any, dict[int, int]] = {}  # kind -> turn without a free place -> one to try instead
    for n, (kind, a, b, c, *_) in steps.items():
        first = max(turn.get(a, 0), turn.get(b, 0), turn.get(c, 0)) + 1
        full, taken = later.setdefault(kind, {}), places.setdefault(kind, {})
        found = first
        while found in full:
            found = full[found]
        while first in full:
            full[first], first = found, full[first]
        group = taken.setdefault(found, [])
        group.append(n)
        turn[n] = found
        if len(group) == WIDTH:
            full[found] = found + 1
    kinds = sorted(places, key=lambda kind: kind != SUM)
    groups = sorted((t, k, group) for k, kind in enumerate(kinds) for t, group in places[kind].items())
    rows = [[*group, *[NOTHING] * (WIDTH - len(group))] for *_, group in groups]
    free = Step(None, NOTHING, NOTHING, NOTHING)
    all_steps = [steps.get(n, free) for row in rows for n in row]
    of = np.array([step[1:4] for step in all_steps], np.int64).reshape(-1, WIDTH, 3)
    signs = np.array([step[4:] for step in all_steps]).reshape(-1, WIDTH, 2)
    kind = np.array([k for _, k, _ in groups], np.uint32)
    return Schedule(kinds, kind, of.transpose(0, 2, 1), signs.transpose(0, 2, 1), np.array(rows, np.int64))
