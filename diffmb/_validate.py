"""What compiling refuses: numbers that cannot be, and massless tips that leave the mass matrix singular.

Numbers are checked when a part is built, but `eqx.tree_at` and optimisers can change them afterwards; here they are all
looked at once more, and the message says whose they are. Numbers that are being traced pass.
"""

import re
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ._bodies._rigid import check_body, check_value
from ._errors import MechanismError
from ._mechanism import Mechanism
from ._spatial._axis import is_concrete
from ._topology import Topology


def check_numbers(mechanism: Mechanism) -> None:
    """Refuses NaN, infinity, wrong shapes, impossible masses and inertias, and directions of no length, by name."""
    for body in mechanism.bodies:
        check_body(body)
    for kind, parts in (
        ("joint", mechanism.joints),
        ("constraint", mechanism.constraints),
        ("connection", mechanism.connections),
        ("drive", mechanism.drives),
    ):
        for part in parts:
            _check_part(f"{kind} {part.name!r}", part)
    check_value("the mechanism", "gravity", mechanism.gravity, (3,))


_MARKER = re.compile(r"(parent|child|first|second|markers\.\d+)\.(position|rotation)")


def _check_part(what: str, part: Any) -> None:
    for path, value in jax.tree_util.tree_leaves_with_path(part):
        if not isinstance(value, float) and not jnp.issubdtype(getattr(value, "dtype", bool), jnp.inexact):
            continue
        field = jax.tree_util.keystr(path, simple=True, separator=".")
        frame = _MARKER.fullmatch(field)
        turned = frame is not None and frame[2] == "rotation"
        check_value(what, field, value, None if frame is None else (4,) if turned else (3,))
        if field.startswith("axis"):
            _check_direction(what, field, value, "give a vector of non-zero length")
        elif turned:
            _check_direction(what, field, value, "the quaternion (1, 0, 0, 0) means no rotation")


def _check_direction(what: str, field: str, value, advice: str) -> None:
    if is_concrete(value) and not np.linalg.norm(np.asarray(value)) > 1e-9:
        raise MechanismError(f"{what}: {field} = {np.asarray(value).tolist()} has no direction; {advice}")


def find_massless_leaves(topology: Topology, masses: Sequence) -> None:
    """Refuses a joint that moves nothing but massless bodies: its speeds have no inertia and M is singular.

    `masses` are in the order of `topology.bodies`. Not looked for: a body with mass but without inertia about the axis
    of its joint, when the axis passes through its centre of mass (a thin rod spinning about itself, a particle). M is
    singular then too, but with more joints whether it is depends on the configuration.
    """
    if not is_concrete(*masses):
        return
    n = len(topology.parent)
    outboard = [0.0, *map(float, masses)]
    for i in range(n, 0, -1):
        outboard[topology.parent[i - 1]] += outboard[i]
    for i in range(1, n + 1):
        if outboard[i] == 0.0 and topology.nvs[i - 1] > 0:
            _refuse_massless(topology, i)


def _refuse_massless(topology: Topology, body: int) -> None:
    tip = body
    for i in range(body + 1, len(topology.parent) + 1):  # follow one branch to its end
        if topology.parent[i - 1] == tip:
            tip = i
    chain = " -> ".join(topology.path(tip))
    advice = "give a body beyond it mass, or use a weld instead of the joint"
    if topology.cuts:
        loop = ", ".join(repr(topology.joint_names[k]) for k in topology.cuts)
        advice += f" (the loop cut at {loop} could be opened at another joint with cut=True)"
    raise MechanismError(
        f"{_name(topology, body)} moves only massless bodies, so the mass matrix is singular: {chain}; {advice}"
    )


def _name(topology: Topology, body: int) -> str:
    k = topology.joint[body - 1]
    return f"joint {topology.joint_names[k]!r}" if k >= 0 else f"the free joint of {topology.bodies[body - 1]!r}"
