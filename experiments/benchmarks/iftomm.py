"""Problems of the IFToMM multibody benchmark library, and a stiff one: mechanism, start, and where a point must end.

The end error of a run is how far that point is from where it should be, in lengths of the arm that carries it, so about
an angle in rad. Where a mechanism has one freedom and its equation is short, the reference comes from that equation
in numpy; Andrews' angles come from the IVP test set (agreed by two formulations to 1e-12); else from diffmb's own run
with the tightest tolerance, by a method that is not measured at that tolerance.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import loops
import numpy as np
from scipy.integrate import solve_ivp

import diffmb as mb

GRAVITY = (0.0, -9.81, 0.0)


@dataclasses.dataclass(frozen=True)
class Minimal:
    """One freedom as an ordinary differential equation in numpy: slope, start, and the place of the point."""

    slope: Callable[[float, np.ndarray], Any]
    start: tuple[float, ...]
    place: Callable[[np.ndarray], np.ndarray]


@dataclasses.dataclass(frozen=True)
class Problem:
    """A mechanism that starts at q with the speeds `rate` x `direction` and runs for `end` seconds."""

    name: str
    group: str
    mechanism: mb.Mechanism
    model: mb.Model
    q: Any
    direction: Any
    rate: float
    end: float
    point: mb.Marker
    arm: float
    spread: float  # of `rate` in a batch
    batch: int = 1024
    planar: bool = True
    stiff: bool = False
    inputs: dict[str, float] = dataclasses.field(default_factory=dict)
    minimal: Minimal | None = None
    place: np.ndarray | None = None  # where the point ends; None: a tight run says so


def _problem(name: str, group: str, mech: mb.Mechanism, q: dict[str, float], lead: str, **more: Any) -> Problem:
    """Assembled at q (others are guessed), the speeds from that of the joint `lead`."""
    model = mb.compile(mech)
    state = mb.assemble(model, {lead: q[lead]}, {lead: 1.0}, guess=q)
    if more.get("minimal"):
        more["place"] = exact(more["minimal"], more["end"])
    return Problem(name, group, mech, model, state.q, state.v, **more)


def exact(m: Minimal, end: float) -> np.ndarray:
    """Where the point ends."""
    found = solve_ivp(m.slope, (0.0, end), m.start, method="DOP853", rtol=3e-14, atol=1e-14)
    return m.place(found.y[:, -1])


def _along(angle: float) -> np.ndarray:
    return np.array([np.cos(angle), np.sin(angle), 0.0])


def pendulum() -> Problem:
    """A01: a point of 1 kg at 1 m, released at rest from (-1, 0)."""
    bob = mb.RigidBody("bob", 1.0, (1.0, 0.0, 0.0), (0.0, 0.0, 0.0))
    mech = mb.Mechanism([bob], [mb.Revolute("A", "world", "bob")], gravity=GRAVITY)
    minimal = Minimal(lambda t, y: (y[1], -9.81 * np.cos(y[0])), (np.pi, 0.0), lambda y: _along(y[0]))
    point = mb.Marker("bob", (1.0, 0.0, 0.0))
    return _problem("pendulum", "pendulum", mech, {"A": np.pi}, "A", rate=0.0, end=10.0, point=point, arm=1.0,
                    spread=0.05, minimal=minimal)  # fmt: skip


def four_bars(count: int) -> Problem:
    """A02: windows of rods, 1 m and 1 kg, upright, whose tips start with 1 m/s; they fold flat twice a turn."""
    mech = loops.mechanism(loops.windows(count))
    pull = -9.81 * ((count + 1) / 2 + count) / ((count + 1) / 3 + count)
    minimal = Minimal(lambda t, y: (y[1], pull * np.cos(y[0])), (np.pi / 2, -1.0), lambda y: _along(y[0]))
    upright = {j.name: np.pi / 2 if j.parent.body == "world" else -np.pi / 2 for j in mech.joints if not j.cut}
    return _problem(f"{count} four-bar{'s' * (count > 1)}", "four-bars", mech, upright, "j0", rate=-1.0, end=10.0,
                    point=mb.Marker("b0", (1.0, 0.0, 0.0)), arm=1.0, spread=0.05, minimal=minimal,
                    batch=1024 if count == 1 else 256 if count < 40 else 16)  # fmt: skip


def bricard() -> Problem:
    """A04: five rods of 1 m, 1 kg and 0.1 m thickness round a cube; six revolutes, one freedom, a redundant row.

    9 s of the 10 s: at 10 s, after four periods, it is almost at rest, and errors in time would not be seen.
    """
    corners = np.array([[0, 0, 0], [1, 0, 0], [1, -1, 0], [1, -1, 1], [0, -1, 1], [0, 0, 1]], float)
    axes = np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]], float)
    bodies, joints, before, origin = [], [], "world", np.zeros(3)
    for k in range(5):
        end, body = corners[k + 1] - corners[k], f"link {k + 1}"
        inertia = np.diag(np.where(np.abs(end) > 0.5, 0.02, 1.01)) / 12
        bodies.append(mb.RigidBody(body, 1.0, end / 2, inertia))
        joints.append(mb.Revolute(f"R{k + 1}", mb.Marker(before, corners[k] - origin), body, axis=axes[k]))
        before, origin = body, corners[k]
    ends = mb.Marker(before, corners[5] - origin), mb.Marker("world", corners[5])
    joints.append(mb.Revolute("R6", *ends, axis=axes[5], cut=True))
    mech = mb.Mechanism(bodies, joints, gravity=GRAVITY)
    start = {f"R{k + 1}": 0.0 for k in range(5)}
    point = mb.Marker("link 3", corners[3] - corners[2])
    return _problem("Bricard", "spatial loop", mech, start, "R1", rate=0.0, end=9.0, point=point, arm=1.0, spread=0.05,
                    planar=False)  # fmt: skip


def andrews() -> Problem:
    """A03: Andrews' squeezer with its spring and the motor moment, 0.03 s: almost three turns of the crank."""
    plain = loops.andrews()
    tree = loops.mechanism(plain)
    spring = mb.SpringDamper(
        "spring", mb.Marker("world", (0.014, 0.072, 0.0)), mb.Marker("b2", (0.02, -0.018, 0.0)), 4530.0, 0.0, 0.07785
    )
    mech = mb.Mechanism(tree.bodies, tree.joints, connections=[spring], gravity=(0.0, 0.0, 0.0))
    start = {f"j{i}": float(x) for i, x in enumerate(plain.start)}
    return _problem("Andrews", "squeezer", mech, start, "j0", rate=0.0, end=0.03, arm=0.007, spread=5.0,
                    point=mb.Marker("b0", (0.007, 0.0, 0.0)), inputs={"j0": 0.033},
                    place=0.007 * _along(15.810771195153519))  # fmt: skip


def stiff() -> Problem:
    """A crank-slider whose slider carries a mass on a stiff, overdamped mount: modes at -600 and -15000 1/s."""
    bodies = [mb.rod("crank", 0.2, mass=0.4), mb.rod("rod", 0.5, mass=0.6), mb.box("slider", (0.1,) * 3, mass=0.8)]
    bodies.append(mb.box("load", (0.05,) * 3, mass=0.2))
    joints = [
        mb.Revolute("A", "world", "crank"),
        mb.Revolute("B", mb.Marker("crank", (0.2, 0, 0)), "rod"),
        mb.Prismatic("D", mb.Marker("world", (0, 0.05, 0)), "slider", axis="x"),
        mb.Prismatic("E", "slider", "load", axis="x"),
        mb.Revolute("C", mb.Marker("rod", (0.5, 0, 0)), "slider", cut=True),
    ]
    mount = mb.SpringDamper("mount", "slider", "load", 1e6, 2e3, 0.2)
    mech = mb.Mechanism(bodies, joints, connections=[mount], gravity=GRAVITY)
    start = {"A": 0.4, "B": -0.5, "D": 0.67, "E": 0.2}
    model = mb.compile(mech)
    state = mb.assemble(model, {"A": 0.4, "E": 0.2}, {"A": 1.0, "E": 0.0}, guess=start)
    return Problem("stiff mount", "stiff", mech, model, state.q, state.v, rate=10.0, end=2.0,
                   point=mb.Marker("crank", (0.2, 0.0, 0.0)), arm=0.2, spread=0.05, batch=256, stiff=True)  # fmt: skip


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "pendulum": pendulum,
    "four-bar": lambda: four_bars(1),
    "four-bar-10": lambda: four_bars(10),
    "four-bar-40": lambda: four_bars(40),
    "bricard": bricard,
    "andrews": andrews,
    "stiff": stiff,
}


def place_of(p: Problem, q: Any) -> Any:
    """Of the observed point, in the world, at the coordinates q."""
    return mb.kinematics(p.model, jnp.asarray(q))[p.point].pose.translation


def error_of(p: Problem, place: Any, reference: np.ndarray) -> float:
    """In lengths of the arm; what is not a number is infinitely wrong."""
    error = float(np.linalg.norm(np.asarray(place) - reference) / p.arm)
    return error if np.isfinite(error) else np.inf
