"""PROBLEM of optimal control: what moves, what may be chosen, what it costs.

minimise    terminal(t_f, q, v, z, p) + integral of running(t, q, v, z, u, p) dt        over inputs u and duration T
subject to  the motion of the mechanism, its loops and constraints (equation card)
            fixed or bounded coordinates, speeds, states of connections at the start and at the end
            bounds on inputs, coordinates, speeds, states;  lower <= path(t, q, v, z, u, p) <= upper
"""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._assembly import State
from .._errors import MechanismError
from .._model import Model
from .._names import nearest


class Free(eqx.Module):
    """A duration to be found between `lower` and `upper`, s; the search starts from `guess`, or from their mean."""

    lower: float = eqx.field(static=True)
    upper: float = eqx.field(static=True)
    guess: float = eqx.field(static=True)

    def __init__(self, lower: Any, upper: Any, guess: Any = None):
        if not 0.0 < lower < upper < np.inf:
            raise MechanismError(f"Free({lower}, {upper}): give a lower duration above zero and a larger, finite upper")
        guess = 0.5 * (lower + upper) if guess is None else guess
        if not lower <= guess <= upper:
            raise MechanismError(f"Free({lower}, {upper}): the guess {guess} is not between them")
        self.lower, self.upper, self.guess = float(lower), float(upper), float(guess)


class Path(eqx.Module):
    """A condition on the way: lower <= function(t, q, v, z, u, p) <= upper, numbers or arrays; equal limits hold it."""

    function: Callable = eqx.field(static=True)
    lower: Any = -np.inf
    upper: Any = np.inf
    name: str = eqx.field(static=True, default="path")


class Condition(eqx.Module):
    """What holds at one end: numbers `values` at the places `which` of (q, v, z), and residuals of a function."""

    values: np.ndarray
    which: tuple[int, ...] = eqx.field(static=True)
    function: Callable | None = eqx.field(static=True)


class Problem(eqx.Module):
    """An optimal control problem of a mechanism.

    **Arguments:**

    - `model`: the compiled mechanism.
    - `inputs`: what may be chosen over time: names of joints (loads at their speeds, N or N m) or of connections with
        inputs, each with its bounds `(lower, upper)`, numbers or arrays, or None.
    - `start`, `end`: a `mb.State`, or a dict with any of: "q", "v", "z": an array or number for all of them, or values
        by name of joint or connection; what is not named is free. "residual": `function(t, q, v, z, p)` to be zero.
        States z start from `model.start_states()` unless "z" says otherwise.
    - `duration`: s, or `Free(lower, upper)`.
    - `running`: cost per second `function(t, q, v, z, u, p)`; a number too: 1.0 asks for the shortest time.
    - `terminal`: cost of the end, `function(t, q, v, z, p)`.
    - `bounds`: `(lower, upper)` of coordinates by joint, or of states by connection; `speed_bounds` of speeds by joint.
    - `path`: `Path`s.
    - `params`: numbers p that the functions use, in any tree.
    - `guess`: coordinates by joint name that choose the branch on which loops close.

    In the functions u holds the chosen inputs in the order of `inputs`.
    """

    model: Model
    params: Any
    start: Condition
    end: Condition
    places: tuple[tuple[str, str, int, int], ...] = eqx.field(static=True)  # name, "tau" or "u", start, stop
    running: Any = eqx.field(static=True)
    terminal: Callable | None = eqx.field(static=True)
    path: tuple[Path, ...]
    limits: dict[str, np.ndarray]  # lower and upper of "u" and "x", (2, n); of the duration "T", and its guess, (3,)
    guess: dict[str, Any]

    def __init__(self, model: Model, inputs: Mapping[str, Any], *, start: Any, end: Any = None, duration: Any,
                 running: Any = None, terminal: Callable | None = None, bounds: Mapping[str, Any] | None = None,
                 speed_bounds: Mapping[str, Any] | None = None, path: Any = (), params: Any = None,
                 guess: Mapping[str, Any] | None = None):  # fmt: skip
        self.model, self.params, self.guess = model, params, dict(guess or {})
        if running is None and terminal is None:
            raise MechanismError("nothing is minimised: give running= or terminal=; running=1.0 asks for shortest time")
        self.running, self.terminal = running, terminal
        if not isinstance(duration, Free):
            if not 0.0 < float(duration) < np.inf:
                raise MechanismError(f"the duration is {duration} s; give a positive one, or Free(lower, upper)")
            duration = np.full(3, float(duration))
        else:
            duration = np.array([duration.lower, duration.upper, duration.guess])
        self.places, u_limits = _places(model, inputs)
        x_limits = _state_limits(model, bounds or {}, speed_bounds or {})
        self.limits = {"u": u_limits, "x": x_limits, "T": duration}
        self.path = (path,) if isinstance(path, Path) else tuple(path)
        self.start = _condition(model, start, "start")
        self.end = _condition(model, end, "end")
        self._try_functions()
        self._check_ends()

    @property
    def duration(self) -> tuple[float, float, float]:
        """Lower and upper limit, and guess, s."""
        lower, upper, guess = self.limits["T"]
        return float(lower), float(upper), float(guess)

    @property
    def nx(self) -> int:
        """Number of states (q, v, z)."""
        return self.model.nq + self.model.nv + self.model.nz

    @property
    def nu(self) -> int:
        """Number of chosen inputs."""
        return sum(stop - start for _, _, start, stop in self.places)

    def loads(self, u: Array) -> tuple[Array, Array]:
        """(tau (nv,), u (nu of the model,)) of the chosen inputs."""
        found = {"tau": jnp.zeros(self.model.nv, u.dtype), "u": jnp.zeros(self.model.nu, u.dtype)}
        at = 0
        for _, which, start, stop in self.places:
            found[which] = found[which].at[start:stop].set(u[at : at + stop - start])
            at += stop - start
        return found["tau"], found["u"]

    def limits_at(self, side: int, c: "Condition") -> np.ndarray:
        """Limits of (q, v, z) at one end, side 0 lower, 1 upper: none for what is fixed there, perhaps at its limit."""
        found = self.limits["x"][side].copy()
        found[np.array(c.which, int)] = (-np.inf, np.inf)[side]
        return found

    def input(self, name: str) -> slice:
        """Where an input stands in u."""
        at = 0
        for own, _, start, stop in self.places:
            if own == name:
                return slice(at, at + stop - start)
            at += stop - start
        raise MechanismError(f"{name!r} is no input of the problem; {nearest(name, [p[0] for p in self.places])}")

    def state_names(self) -> list[str]:
        """Each of (q, v, z) in words."""
        names = [""] * self.nx
        for what, offset, where in (("coordinate", 0, "coordinates"), ("speed", self.model.nq, "speeds")):
            for joint in self.model.inboard:
                part = getattr(self.model, where)(joint)
                for k, i in enumerate(range(part.start, part.stop)):
                    number = f" {k}" if part.stop - part.start > 1 else ""
                    names[offset + i] = f"{what}{number} of joint {joint!r}"
        for name in self.model.connection_names:
            part = self.model.states(name)
            for k, i in enumerate(range(part.start, part.stop)):
                names[self.model.nq + self.model.nv + i] = f"state {k} of connection {name!r}"
        return names

    def _check_ends(self) -> None:
        lower, upper = self.limits["x"]
        for title, c in (("start", self.start), ("end", self.end)):
            for k, value in zip(c.which, c.values):
                if not lower[k] <= value <= upper[k]:
                    name = self.state_names()[k]
                    raise MechanismError(
                        f"{title}: {name} = {value:g} is outside of its bounds {lower[k]:g}, {upper[k]:g}"
                    )

    def _try_functions(self) -> None:
        """Shapes of the user's functions, before anything is compiled."""
        m = self.model
        sample = [jax.ShapeDtypeStruct(s, m.mass.dtype) for s in ((), (m.nq,), (m.nv,), (m.nz,), (self.nu,))]
        tries = [("running", self.running, sample)] if callable(self.running) else []
        tries += [("terminal", self.terminal, sample[:4])] if self.terminal is not None else []
        tries += [(f"path {p.name!r}", p.function, sample) for p in self.path]
        ends = (("start", self.start), ("end", self.end))
        tries += [(f"{n}['residual']", c.function, sample[:4]) for n, c in ends if c.function is not None]
        for title, function, args in tries:
            try:
                shape = jax.eval_shape(lambda *a: jnp.asarray(function(*a)), *args, self.params).shape
            except Exception as error:
                raise MechanismError(f"{title} fails: {type(error).__name__}: {error}") from error
            if title in ("running", "terminal") and shape != ():
                raise MechanismError(f"{title} gives shape {shape}; a cost is one number")


def _places(model: Model, inputs: Mapping[str, Any]) -> tuple[tuple, np.ndarray]:
    known = [*model.inboard, *(n for n in model.connection_names if model.input(n).stop > model.input(n).start)]
    places, limits = [], [np.zeros((2, 0))]
    for name, pair in inputs.items():
        if name not in known:
            raise MechanismError(
                f"inputs name {name!r}, which is no joint or connection with inputs; {nearest(name, known)}"
            )
        where = model.speeds(name) if name in model.inboard else model.input(name)
        places.append((name, "tau" if name in model.inboard else "u", where.start, where.stop))
        limits.append(_pair(f"input {name!r}", pair, where.stop - where.start))
    return tuple(places), np.concatenate(limits, 1)


def _pair(title: str, pair: Any, size: int) -> np.ndarray:
    """(2, size): lower and upper limits."""
    try:
        lower, upper = (-np.inf, np.inf) if pair is None else pair
        found = np.stack([np.broadcast_to(np.asarray(x, float), (size,)) for x in (lower, upper)])
    except (TypeError, ValueError) as error:
        raise MechanismError(f"the bounds of {title} are {pair!r}; give (lower, upper) for {size}, or None") from error
    if not (found[0] <= found[1]).all():
        raise MechanismError(f"the bounds of {title} are {pair!r}: the lower is above the upper")
    return found


def _state_limits(model: Model, bounds: Mapping[str, Any], speed_bounds: Mapping[str, Any]) -> np.ndarray:
    found = np.stack([np.full(model.nq + model.nv + model.nz, s * np.inf) for s in (-1, 1)])
    for name, pair in bounds.items():
        if name in model.connection_names:
            where, offset = model.states(name), model.nq + model.nv
        elif name in model.inboard:
            where, offset = model.coordinates(name), 0
        else:
            advice = nearest(name, [*model.inboard, *model.connection_names])
            raise MechanismError(f"bounds name {name!r}, which is no joint or connection; {advice}")
        found[:, offset + where.start : offset + where.stop] = _pair(repr(name), pair, where.stop - where.start)
    for name, pair in speed_bounds.items():
        where = model.speeds(name)
        part = slice(model.nq + where.start, model.nq + where.stop)
        found[:, part] = _pair(f"the speed of {name!r}", pair, where.stop - where.start)
    return found


def _condition(model: Model, given: Any, title: str) -> Condition:
    if isinstance(given, State):
        given = {"q": given.q, "v": given.v}
    given = dict(given or {})
    if title == "start" and "z" not in given:
        given["z"] = model.start_states()
    unknown = set(given) - {"q", "v", "z", "residual"}
    if unknown:
        raise MechanismError(f"{title} holds {sorted(unknown)}; it may hold 'q', 'v', 'z' and 'residual'")
    finders: dict[str, tuple[int, int, Callable[[str], slice]]] = {
        "q": (0, model.nq, lambda name: model.coordinates(name)),
        "v": (model.nq, model.nv, lambda name: model.speeds(name)),
        "z": (model.nq + model.nv, model.nz, lambda name: model.states(name)),
    }
    which, values = [], []
    for key, (offset, size, find) in finders.items():
        value = given.get(key)
        if value is None:
            continue
        parts = value.items() if isinstance(value, Mapping) else [(None, value)]
        for name, number in parts:
            where = slice(0, size) if name is None else find(name)
            try:
                numbers = np.broadcast_to(np.asarray(number, float), (where.stop - where.start,))
            except (TypeError, ValueError) as error:
                what = f"{title}[{key!r}]" + ("" if name is None else f"[{name!r}]")
                need = where.stop - where.start
                raise MechanismError(f"{what} has {np.shape(number)}, not {need} numbers") from error
            which += range(offset + where.start, offset + where.stop)
            values += list(numbers)
    return Condition(np.asarray(values, float), tuple(which), given.get("residual"))
