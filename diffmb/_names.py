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


def check_names(
    bodies: Sequence[str],
    joints: Iterable[tuple[str, str, str]],
    constraints: Iterable[tuple[str, str, str]] = (),
    others: Iterable[tuple[str, str]] = (),
) -> None:
    """Refuses names that are missing, taken or unknown.

    `joints` and `constraints` are (name, first body, second body), `others` (name, kind).
    """
    taken: dict[str, str] = {}
    for name in bodies:
        _take(name, "body", taken)
    known = {WORLD, *taken}
    families = (("joint", ("parent", "child"), joints), ("constraint", ("first", "second"), constraints))
    for kind, roles, parts in families:
        for name, first, second in parts:
            _take(name, kind, taken)
            for role, body in zip(roles, (first, second), strict=True):
                if body not in known:
                    advice = nearest(body, [WORLD, *bodies])
                    raise MechanismError(f"{kind} {name!r}: its {role} is on {body!r}, which is not a body; {advice}")
            if first == second:
                raise MechanismError(
                    f"{kind} {name!r} connects {first!r} with itself; its {' and '.join(roles)} must be different "
                    "bodies"
                )
    for name, kind in others:
        _take(name, kind, taken)


def _take(name: str, kind: str, taken: dict[str, str]) -> None:
    if not isinstance(name, str) or not name:
        raise MechanismError(f"a {kind} is named {name!r}; a name must be a non-empty string")
    if name == WORLD:
        raise MechanismError(f"a {kind} is named 'world', which is the name of the ground; choose another name")
    if name in taken:
        other = taken[name]
        both = (
            f"two {'bodies' if kind == 'body' else kind + 's'} are"
            if other == kind
            else f"a {other} and a {kind} are both"
        )
        raise MechanismError(f"{both} named {name!r}; names must be unique, rename one of them")
    taken[name] = kind
