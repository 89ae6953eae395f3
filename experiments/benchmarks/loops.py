"""Planar mechanisms with closed loops as plain numpy, and the same for diffmb and for Pinocchio.

A `Loops` is a tree of revolute joints about z, and pairs of points that a pin holds together. diffmb closes each pair
by a revolute joint in space (five rows, three of them redundant in the plane); Pinocchio by a 3D point contact (three
rows, one of them redundant), which is the least that its loop closures offer here.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import diffmb as mb

GRAVITY = (0.0, -9.81, 0.0)


@dataclasses.dataclass(frozen=True)
class Loops:
    """Body i turns about z at `pivot[i]` of body `parent[i]` (-1: ground); `pins` are (body, point, body, point)."""

    name: str
    parent: tuple[int, ...]
    pivot: np.ndarray  # (n, 2)
    mass: np.ndarray
    com: np.ndarray  # (n, 2)
    spin: np.ndarray  # (n,) inertia about the centre of mass
    pins: tuple[tuple[int, tuple[float, float], int, tuple[float, float]], ...]
    start: np.ndarray  # (n,) angles near a closed attitude, the first one to be kept


def windows(count: int) -> Loops:
    """`count` four-bar windows in a row (the N-four-bar of the multibody benchmark library): rods of 1 m and 1 kg."""
    parent, pivot, start, pins = [], [], [], []
    for k in range(count + 1):  # cranks on the ground, the coupler to the next one on each but the last
        parent.append(-1)
        pivot.append((float(k), 0.0))
        start.append(1.2)
        if k < count:
            parent.append(len(parent) - 1)
            pivot.append((1.0, 0.0))
            start.append(-1.2)
            pins.append((len(parent) - 1, (1.0, 0.0), len(parent), (1.0, 0.0)))
    n = len(parent)
    com = np.tile([0.5, 0.0], (n, 1))
    return Loops(
        f"{count} loops" if count > 1 else "four-bar", tuple(parent), np.array(pivot), np.ones(n), com, np.ones(n) / 12,
        tuple(pins), np.array(start),
    )  # fmt: skip


def andrews() -> Loops:
    """Andrews' squeezing mechanism: seven bodies, three loops through the point E; constants of the IVP test set."""
    names = ["K1", "K2", "K3", "K5", "K4", "K7", "K6"]
    at = {name: i for i, name in enumerate(names)}
    A, B = (-0.06934, -0.00227), (-0.03635, 0.03273)
    tree = {  # parent, pivot in it, centre of mass, mass, spin, angle relative to the parent
        "K1": (-1, (0, 0), (0.00092, 0), 0.04325, 2.194e-6, -0.0617138900142764),
        "K2": (at["K1"], (0.007, 0), (-0.0115, 0), 0.00365, 4.410e-7, 0.0),
        "K3": (-1, B, (0.01043, -0.01874), 0.02373, 5.255e-6, 0.455279819163070),
        "K5": (-1, A, (0.02308, 0.00916), 0.07050, 1.169e-5, 0.487364979543843),
        "K4": (at["K5"], (0.04, 0), (0, -(0.02 - 0.01421)), 0.00706, 5.667e-7, 0.222668390165886),
        "K7": (-1, A, (0.00449, -0.01228), 0.05498, 1.912e-5, 1.23054744454982),
        "K6": (at["K7"], (0, -0.04), (0.02 - 0.01421, 0), 0.00706, 5.667e-7, -0.222668390165886),
    }
    parent, pivot, com, mass, spin, start = zip(*tree.values(), strict=True)
    E = {"K2": (-0.028, 0.0), "K3": (0.0, -0.035), "K4": (0.0, -0.02), "K6": (0.02, 0.0)}
    pins = tuple((at[k], E[k], at["K3"], E["K3"]) for k in ("K2", "K4", "K6"))
    return Loops("Andrews", parent, np.array(pivot, float), np.array(mass), np.array(com, float), np.array(spin), pins,
                 np.array(start))  # fmt: skip


def _inertia(m: Loops, i: int) -> np.ndarray:
    return np.diag([0.6, 0.6, 1.0]) * m.spin[i]  # only the last entry matters in the plane


def mechanism(m: Loops) -> mb.Mechanism:
    name = lambda i: "world" if i < 0 else f"b{i}"
    marker = lambda i, point: mb.Marker(name(i), (*point, 0.0))
    bodies = [mb.RigidBody(name(i), m.mass[i], (*m.com[i], 0.0), _inertia(m, i)) for i in range(len(m.parent))]
    joints = [mb.Revolute(f"j{i}", marker(p, m.pivot[i]), name(i)) for i, p in enumerate(m.parent)]
    pins = [mb.Revolute(f"pin{k}", marker(i, a), marker(j, b), cut=True) for k, (i, a, j, b) in enumerate(m.pins)]
    return mb.Mechanism(bodies, [*joints, *pins], gravity=GRAVITY)


def states(m: Loops, model: mb.Model, batch: int) -> list[np.ndarray]:
    """Consistent (q, v) near the start, and random loads; q in the order of the model's joints."""
    rng = np.random.default_rng(len(m.parent))
    start = model.pack({f"j{i}": x for i, x in enumerate(m.start)})
    angle = m.start[0] + rng.uniform(-0.02, 0.02, batch)

    @jax.jit
    @jax.vmap
    def assembled(angle, v):
        near = model.pack({"j0": angle}, start)
        state = mb.assemble(model, {"j0": angle}, v, guess=model.unpack(near), throw=False)
        return state.q, state.v, state.ok

    few = min(batch, 64)  # assembling thousands is not what is measured: 64 different ones are repeated
    q, v, ok = assembled(jnp.asarray(angle[:few]), jnp.asarray(rng.standard_normal((few, model.nv))))
    if not bool(ok.all()):
        raise SystemExit(f"{m.name} does not close")
    again = -(-batch // few)
    tau = rng.standard_normal((batch, model.nv)) * float(m.mass.mean()) * 0.1
    return [np.tile(np.asarray(q), (again, 1))[:batch], np.tile(np.asarray(v), (again, 1))[:batch], tau]


def pinocchio(m: Loops, order: list[int]) -> tuple[Callable[..., np.ndarray], Callable[..., Any]]:
    """Accelerations, and their derivatives, for one state whose entries belong to the bodies in `order`."""
    import pinocchio as pin

    model = pin.Model()
    model.gravity.linear = np.array(GRAVITY)
    joint = {-1: 0}
    for i, parent in enumerate(m.parent):  # parents stand before their children, and depth first
        placement = pin.SE3(np.eye(3), np.array([*m.pivot[i], 0.0]))
        joint[i] = model.addJoint(joint[parent], pin.JointModelRZ(), placement, f"j{i}")
        inertia = pin.Inertia(float(m.mass[i]), np.array([*m.com[i], 0.0]), _inertia(m, i))
        model.appendBodyToJoint(joint[i], inertia, pin.SE3.Identity())
    point = lambda p: pin.SE3(np.eye(3), np.array([*p, 0.0]))
    loops = [
        pin.RigidConstraintModel(
            pin.ContactType.CONTACT_3D, model, joint[i], point(a), joint[j], point(b), pin.ReferenceFrame.LOCAL
        )
        for i, a, j, b in m.pins
    ]
    data, kept = model.createData(), [c.createData() for c in loops]
    pin.initConstraintDynamics(model, data, loops, kept)
    settings = pin.ProximalSettings(1e-12, 1e-12, 20)
    place = np.argsort(order)  # where each of Pinocchio's joints stands in the model's order

    def forward(q, v, tau):
        return pin.constraintDynamics(model, data, q[place], v[place], tau[place], loops, kept, settings)[order]

    def gradient(q, v, tau):
        forward(q, v, tau)
        pin.computeConstraintDynamicsDerivatives(model, data, loops, kept)
        return data.ddq_dq, data.ddq_dv, data.ddq_dtau

    return forward, gradient
