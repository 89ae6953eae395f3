"""Names: each body and joint has one, all different, and joints refer to bodies by name. No jax inside."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from ._errors import MechanismError

WORLD = "world"


def nearest(name: object, names: Sequence[str]) -> str:
    """Advice on an unknown name: the names that look like it, else the first few that exist."""
    close = get_close_matches(name, names) if isinstance(name, str) else []
    if close:
        return f"did you mean {' or '.join(repr(c) for c in close)}?"
    if not names:
        return "there are none"
    return f"known names: {', '.join(repr(n) for n in names[:10])}{', ...' if len(names) > 10 else ''}"


def check_names(bodies: Sequence[str], joints: Iterable[tuple[str, str, str]]) -> None:
    """Refuses names that are missing, taken or unknown. `joints` are (name, parent body, child body)."""
    taken: dict[str, str] = {}
    for name in bodies:
        _take(name, "body", taken)
    known = {WORLD, *taken}
    for name, parent, child in joints:
        _take(name, "joint", taken)
        for role, body in (("parent", parent), ("child", child)):
            if body not in known:
                advice = nearest(body, [WORLD, *bodies])
                raise MechanismError(f"joint {name!r}: its {role} is on {body!r}, which is not a body; {advice}")
        if parent == child:
            raise MechanismError(
                f"joint {name!r} connects {parent!r} with itself; its parent and child must be different bodies"
            )


def _take(name: str, kind: str, taken: dict[str, str]) -> None:
    if not isinstance(name, str) or not name:
        raise MechanismError(f"a {kind} is named {name!r}; a name must be a non-empty string")
    if name == WORLD:
        raise MechanismError(f"a {kind} is named 'world', which is the name of the ground; choose another name")
    if name in taken:
        other = taken[name]
        both = (
            f"two {'bodies' if kind == 'body' else 'joints'} are"
            if other == kind
            else f"a {other} and a {kind} are both"
        )
        raise MechanismError(f"{both} named {name!r}; names must be unique, rename one of them")
    taken[name] = kind
