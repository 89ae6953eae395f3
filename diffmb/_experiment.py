"""EXPERIMENT: a measured run, how it started, and the simulation that should have seen the same.

    mechanism, start  ->  assemble  ->  simulate at the measured times  ->  channels by name

Start values may be unknown; they are then numbers like those of the mechanism, called "start.A" or "start.A.speed".
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ._assembly import assemble
from ._channels import read_channel
from ._errors import MechanismError
from ._measurement import Measurement
from ._model import compile
from ._names import nearest
from ._parameters import Place
from ._simulate import simulate
from ._spatial._axis import as_array
from ._trajectory import Trajectory

Run = Callable[[Any, Mapping[str, Array], Mapping[str, Array], Array], Trajectory]


@dataclasses.dataclass(frozen=True, eq=False)
class Experiment:
    """One measured run.

    **Arguments:**

    - `data`: a `mb.Measurement`, from `mb.read_csv` for example.
    - `q`, `v`: coordinates and speeds at the start by joint name, which are held, as in `mb.assemble`; rest by default.
    - `guess`: coordinates to start from that choose the branch.
    - `unknown`: which of the start values are to be found: "A" for a coordinate, "A.speed"; what q and v say is then
        where to start from.
    - `begin`: the time of the start, s; by default the first measured one.
    - `channels`: for each column what it measures: the name of a channel (`_channels.py` lists them), or a function of
        the trajectory that returns (times,). By default a column has the name of its channel.
    - `noise`: standard deviations by column, if they are known; else they are estimated from what is left.
    - `options`: keywords of `mb.simulate`, such as inputs and solver.
    - `run`: another simulation, a function (mech, q, v, ts) -> trajectory.
    - `name`: unique among experiments.
    """

    data: Measurement
    q: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    v: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    guess: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    unknown: Sequence[str] = ()
    begin: float | None = None
    channels: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    noise: Mapping[str, float] = dataclasses.field(default_factory=dict)
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    run: Run | None = None
    name: str = ""

    def __post_init__(self):
        unknown = (self.unknown,) if isinstance(self.unknown, str) else tuple(self.unknown)
        object.__setattr__(self, "unknown", unknown)
        columns = [*self.data.channels]
        for key in (*self.channels, *self.noise):
            if key not in columns:
                raise MechanismError(f"experiment {self.title!r}: there is no column {key!r}; {nearest(key, columns)}")
        for key, value in self.noise.items():
            if not (np.isfinite(value) and value > 0):
                raise MechanismError(f"experiment {self.title!r}: the noise of {key!r} is {value}; give it above zero")
        for name in unknown:
            speed = name.endswith(".speed")
            known = self.v if speed else self.q
            if name.removesuffix(".speed") not in known:
                advice = "v" if speed else "q"
                raise MechanismError(
                    f"experiment {self.title!r}: {name!r} is unknown; say in {advice}={{...}} where to start from"
                )
        if self.begin is not None and not self.begin <= self.data.times[0]:
            raise MechanismError(
                f"experiment {self.title!r} begins at {self.begin:g} s, after the first time {self.data.times[0]:g}"
            )

    @property
    def title(self) -> str:
        return self.name or self.data.name

    @property
    def late(self) -> int:
        """1 if the motion starts before the first measured time."""
        return int(self.begin is not None and self.begin < self.data.times[0])

    def tree(self) -> dict[str, Any]:
        """All that the simulation takes, as a tree of arrays."""
        numbers = lambda given: {name: as_array(value) for name, value in given.items()}
        times = np.append(np.array(self.begin, float), self.data.times) if self.late else self.data.times
        if len(times) < 2:
            raise MechanismError(f"experiment {self.title!r} has one time only; say when it began, begin=...")
        start = {"q": numbers(self.q), "v": numbers(self.v), "guess": numbers(self.guess)}
        return start | {"ts": jnp.asarray(times), "options": dict(self.options)}

    def plan(self) -> tuple:
        """What is static."""
        return self.run, self.late, tuple((key, self.channels.get(key, key)) for key in self.data.channels)


@dataclasses.dataclass(frozen=True)
class Simulated:
    """All channels of all experiments as a function of (mechanism, starts), (times, channels) for each."""

    build: Callable | None
    plans: tuple

    def __call__(self, tree: tuple) -> list[Array]:
        mech = tree[0] if self.build is None else self.build(tree[0])
        return [self._one(mech, plan, own) for plan, own in zip(self.plans, tree[1], strict=True)]

    def _one(self, mech: Any, plan: tuple, own: Mapping[str, Any]) -> Array:
        run, late, channels = plan
        if run is None:
            model = compile(mech)
            state = assemble(model, own["q"], own["v"], guess=own["guess"], t=own["ts"][0], throw=False)
            traj = simulate(model, state, own["ts"], **{"throw": False, **own["options"]})
        else:
            traj = run(mech, own["q"], own["v"], own["ts"])
        columns = [read_channel(traj, what) if isinstance(what, str) else what(traj) for _, what in channels]
        for (key, _), column in zip(channels, columns, strict=True):
            if jnp.shape(column) != own["ts"].shape:
                raise MechanismError(
                    f"channel {key!r} has shape {jnp.shape(column)} instead of one number for each of "
                    f"{own['ts'].shape[0]} times"
                )
        return jnp.stack(columns, 1)[late:]


def start_places(tree: tuple, experiments: Sequence[Experiment]) -> list[Place]:
    """Where the unknown start values stand."""
    index = {jax.tree_util.keystr(path): k for k, (path, _) in enumerate(jax.tree_util.tree_flatten_with_path(tree)[0])}
    found = []
    for e, experiment in enumerate(experiments):
        prefix = "start" if len(experiments) == 1 else f"{experiment.title}.start"
        for name in experiment.unknown:
            group, joint = ("v", name.removesuffix(".speed")) if name.endswith(".speed") else ("q", name)
            leaf = tree[1][e][group][joint]
            place = index[f"[1][{e}]['{group}'][{joint!r}]"]
            found.append(Place(place, f"{prefix}.{name}", leaf.shape, leaf.dtype))
    return found
