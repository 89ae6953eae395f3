"""STUDY: a config made runnable. Everything here is a traceable function of `values`, numbers by name.

    values      {"crank": 0.1, "coupler.mass": 0.5}      parameters of the config, and numbers of the mechanism
    values -> mechanism -> model -> state -> trajectory -> channels -> responses
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .._assembly import State, assemble
from .._bodies._marker import Marker
from .._channels import Channel, find_channel
from .._config._build import coordinates, law_of, marker, mechanism, times
from .._config._document import Document, Entry
from .._config._schema import Config, Solver
from .._errors import MechanismError, StudyError
from .._mechanism import Mechanism
from .._model import Model, compile
from .._names import nearest
from .._plan import FixedStep
from .._results import RESULTS
from .._simulate import simulate
from .._solver import Auto, StoredSteps, Tolerance, explicit, implicit
from .._trajectory import Trajectory
from ._responses import response

Values = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Study:
    """A config, and the factory in Python that the user named on the command line, if any."""

    config: Config
    document: Document
    factory: Callable[..., Mechanism] | None = None

    @property
    def root(self) -> Entry:
        return self.document.root

    @cached_property
    def ts(self) -> np.ndarray:
        return np.asarray(times(self.config.time, self.root))

    @cached_property
    def mechanism(self) -> Mechanism:
        """With the numbers of the config."""
        return self.build({})

    @cached_property
    def model(self) -> Model:
        return compile(self.mechanism)

    def build(self, values: Values) -> Mechanism:
        """The mechanism with other values."""
        parameters = self.parameters(values)
        if self.factory is not None:
            mech = self._called(parameters)
        elif self.config.mechanism is None:
            self.root.fail("has no [mechanism]; describe one, or name a function in Python with --mechanism")
        else:
            mech = mechanism(self.config.mechanism, parameters)
        for name, value in values.items():
            if name not in self.config.parameters:
                mech = _changed(mech, name, value)
        return mech

    def _called(self, parameters: Values) -> Mechanism:
        assert self.factory is not None
        try:
            mech = self.factory(**parameters)
        except TypeError as error:
            raise StudyError(f"--mechanism: {error}; [parameters] are its arguments") from error
        if not isinstance(mech, Mechanism):
            raise StudyError(f"--mechanism gives a {type(mech).__name__}; it must return a diffmb.Mechanism")
        return mech

    def parameters(self, values: Values) -> dict[str, Any]:
        return {name: values.get(name, number) for name, number in self.config.parameters.items()}

    def current(self, names: Any) -> dict[str, Array]:
        """The values of the config, by name; a name that is not known is refused."""
        found = {}
        for name in names:
            own = self.config.parameters
            number: Any = own[name] if name in own else _leaf(self.mechanism, name, list(own))
            found[name] = jnp.asarray(number, float)
        return found

    def markers(self, values: Values) -> dict[str, Marker]:
        section, parameters = self.config.markers, self.parameters(values)
        return {name: marker(at, parameters) for name, at in section.table().items()} if section else {}

    def assemble(self, model: Model, values: Values, throw: bool = True) -> State:
        self._check_joints(model)
        q, v, guess = (self.start(values, what) for what in ("q", "v", "guess"))
        return assemble(model, q, v, guess=guess, t=float(self.ts[0]), throw=throw)

    def start(self, values: Values, what: str) -> dict[str, Any]:
        """Coordinates "q", speeds "v", the "guess" or states "z" of the start, by name."""
        return coordinates(getattr(self.config.start, what), self.parameters(values), what)

    def _check_joints(self, model: Model) -> None:
        for what in ("q", "v", "guess"):
            at = getattr(self.config.start, what)
            for name, entry in at.table().items() if at is not None else ():
                if name not in model.inboard:
                    entry.fail(f"names no joint of the tree; {nearest(name, list(model.inboard))}")

    def inputs(self, values: Values) -> dict[str, Any]:
        section, parameters = self.config.inputs, self.parameters(values)
        return {name: law_of(at, parameters) for name, at in section.table().items()} if section else {}

    def states(self, values: Values) -> dict[str, Any] | None:
        return self.start(values, "z") or None

    def simulate(self, values: Values, throw: bool = True) -> Trajectory:
        """The whole motion in one go, as derivatives need it."""
        model = compile(self.build(values))
        state = self.assemble(model, values, throw)
        return self.go(model, state, jnp.asarray(self.ts), values, throw=throw, z=self.states(values))

    def go(self, model: Model, state: State, ts: Array, values: Values, **more: Any) -> Trajectory:
        own = self.config.solver
        return simulate(
            model,
            state,
            ts,
            **{"solver": method(own), "controller": controller(own), "inputs": self.inputs(values)} | more,
            max_steps=own.max_steps,
            adjoint=StoredSteps(own.stored_steps),
        )

    def channels(self, names: Any, values: Values | None = None) -> list[Channel]:
        markers = self.markers(values or {})
        return [find_channel(self.model, name, markers) for name in names]

    def channel_values(self, traj: Trajectory, names: Any, values: Values) -> dict[str, Array]:
        return {own.name: own.read(traj) for own in self.channels(names, values)}

    def responses(self, values: Values, names: Any, throw: bool = True) -> dict[str, Array]:
        """Responses by name, from one simulation; nan if it fails and does not throw."""
        traj = self.simulate(values, throw)
        asked = {name: self.config.responses[name] for name in names}
        read = self.channel_values(traj, dict.fromkeys(own.channel for own in asked.values()), values)
        found = {name: response(own, read[own.channel], self.ts) for name, own in asked.items()}
        if throw:
            return found
        fine = traj.result == RESULTS.successful
        return {name: jnp.where(fine, value, jnp.nan) for name, value in found.items()}


def method(solver: Solver) -> Any:
    if solver.method == "auto":
        return Auto()
    return explicit(solver.order) if solver.method == "explicit" else implicit(solver.order)


def controller(solver: Solver) -> Any:
    return FixedStep(solver.step) if solver.step is not None else Tolerance(solver.rtol, solver.atol)


_LEAF = re.compile(r"(?P<part>.+?)\.(?P<field>[\w.]+)(?:\[(?P<index>\d+)\])?")


def _look(mech: Mechanism, part: str, field: str) -> Any:
    found = mech[part]
    for name in field.split("."):
        found = getattr(found, name) if not isinstance(found, dict) else found[name]
    return found


def _leaf(mech: Mechanism, name: str, parameters: list[str]) -> Array:
    match = _LEAF.fullmatch(name)
    names = [part.name for part in mech.parts]
    if not match:
        raise StudyError(f'there is no parameter "{name}"; {nearest(name, parameters)}')
    if match["part"] not in names:
        raise StudyError(f'the number "{name}": there is no part "{match["part"]}"; {nearest(match["part"], names)}')
    try:
        found = _look(mech, match["part"], match["field"])
        if not eqx.is_inexact_array(found):
            raise AttributeError
        found = found[int(match["index"])] if match["index"] else found
        if found.shape:
            raise StudyError(f'the number "{name}" is an array of shape {found.shape}; choose one, "{name}[0]"')
    except (AttributeError, KeyError, IndexError):
        part = mech[match["part"]]
        fields = [f for f in part.__dataclass_fields__ if eqx.is_inexact_array(getattr(part, f, None))]
        raise StudyError(f'there is no number "{name}"; {nearest(match["field"], fields)}') from None
    return found


def _changed(mech: Mechanism, name: str, value: Any) -> Mechanism:
    match = _LEAF.fullmatch(name)
    if not match:
        raise MechanismError(f"there is no parameter {name!r}")
    old = _look(mech, match["part"], match["field"])
    new = old.at[int(match["index"])].set(value) if match["index"] else jnp.asarray(value, old.dtype)
    return eqx.tree_at(lambda m: _look(m, match["part"], match["field"]), mech, new)


def as_floats(values: Values) -> dict[str, float]:
    return {name: float(jax.device_get(value)) for name, value in values.items()}
