"""Answers that do not come from diffmb: other programs, closed forms from books, and naive sums written in numpy.

Reference trees and Pinocchio share their conventions: quaternions (x, y, z, w), a free joint's speeds linear then
angular, both in the child's axes. `Order` carries them to diffmb's: (w, x, y, z), angular first, regular numbering.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

import diffmb as mb

# Each tree is compiled to be run once: without LLVM's slow passes that takes half the time.
quick_jit = partial(
    jax.jit, compiler_options={"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
)

_QUATERNION = (3, 0, 1, 2)  # where w, x, y, z stand in x, y, z, w
_Q = {1: (0,), 4: _QUATERNION, 7: (0, 1, 2, *(3 + i for i in _QUATERNION))}
_V = {1: (0,), 3: (0, 1, 2), 6: (3, 4, 5, 0, 1, 2)}


class Order(NamedTuple):
    """diffmb's q is theirs[q], diffmb's v is theirs[v]; a matrix over speeds is theirs[v][:, v]."""

    q: np.ndarray
    v: np.ndarray

    def matrix(self, theirs: Any) -> np.ndarray:
        return np.asarray(theirs)[np.ix_(self.v, self.v)]


def _order(model: mb.Model, q_start: Sequence[int], v_start: Sequence[int]) -> Order:
    """The starts are theirs, listed in the order of diffmb's bodies."""
    top = model.topology
    q = [start + i for start, size in zip(q_start, top.nqs, strict=True) for i in _Q[size]]
    v = [start + i for start, size in zip(v_start, top.nvs, strict=True) for i in _V[size]]
    return Order(np.array(q), np.array(v))


# Reference trees


def mechanism_from_reference(tree: dict[str, Any]) -> mb.Mechanism:
    """The mechanism of a reference tree; body and joint i have the name of its joint i."""
    kinds = {"revolute": mb.Revolute, "prismatic": mb.Prismatic, "spherical": mb.Spherical, "free": mb.Free}
    bodies, joints = [], []
    for joint in tree["joints"]:
        name, parent = joint["name"], joint["parent"]
        if joint["mass"] == 0:
            bodies.append(mb.massless(name))
        else:
            bodies.append(mb.RigidBody(name, joint["mass"], joint["com"], joint["inertia_com"]))
        inner = mb.Marker(
            tree["joints"][parent]["name"] if parent >= 0 else "world",
            np.array(joint["placement_p"]),
            np.array(joint["placement_R"]),
        )
        axis = {"axis": np.array(joint["axis"])} if joint["type"] in ("revolute", "prismatic") else {}
        joints.append(kinds[joint["type"]](f"to {name}", inner, name, **axis))
    return mb.Mechanism(bodies=bodies, joints=joints, gravity=tree["gravity"])


def reference_order(tree: dict[str, Any], model: mb.Model) -> Order:
    by_name = {joint["name"]: joint for joint in tree["joints"]}
    ours = [by_name[name] for name in model.topology.bodies]
    return _order(model, [joint["idx_q"] for joint in ours], [joint["idx_v"] for joint in ours])


# Pinocchio


def mechanism_to_pinocchio(mech: mb.Mechanism, model: mb.Model) -> tuple[Any, Order]:
    """The same tree in Pinocchio. Its joint frame is the child marker; joints are not reversed.

    Joints are added depth first: with any other order Pinocchio 4.1 returns wrong mass matrices and derivatives.
    """
    import pinocchio as pin

    def place(marker: mb.Marker) -> Any:
        return pin.SE3(np.asarray(marker.pose.rotation), np.asarray(marker.pose.translation))

    top = model.topology
    assert not any(top.reversed) and not top.cuts
    joints = [mech.joints[k] if k >= 0 else mb.Free("added", "world", body) for k, body in zip(top.joint, top.bodies)]
    make = {
        mb.Revolute: lambda j: pin.JointModelRevoluteUnaligned(np.asarray(j.axis)),
        mb.Prismatic: lambda j: pin.JointModelPrismaticUnaligned(np.asarray(j.axis)),
        mb.Spherical: lambda j: pin.JointModelSpherical(),
        mb.Free: lambda j: pin.JointModelFreeFlyer(),
    }
    theirs, number = pin.Model(), {0: 0}
    theirs.gravity.linear = np.asarray(mech.gravity)
    stack = [i for i, parent in enumerate(top.parent) if parent == 0][::-1]
    while stack:
        i = stack.pop()
        joint, body, parent = joints[i], mech[top.bodies[i]], top.parent[i]
        placement = place(joint.parent)
        if parent:
            placement = place(joints[parent - 1].child).inverse() * placement
        number[i + 1] = theirs.addJoint(number[parent], make[type(joint)](joint), placement, top.bodies[i])
        inertia = pin.Inertia(float(body.mass), np.asarray(body.com), np.asarray(body.inertia))
        theirs.appendBodyToJoint(number[i + 1], inertia, place(joint.child).inverse())
        stack += [k for k, above in enumerate(top.parent) if above == i + 1][::-1]
    ids = [number[i + 1] for i in range(len(top.bodies))]
    return theirs, _order(model, [theirs.idx_qs[k] for k in ids], [theirs.idx_vs[k] for k in ids])


def random_rotation(rng: np.random.Generator) -> np.ndarray:
    Q, R = np.linalg.qr(rng.standard_normal((3, 3)))
    Q = Q * np.sign(np.diag(R))
    return Q * np.linalg.det(Q)


def random_tree(rng: np.random.Generator, kinds: Sequence[str], *, near: int = 4) -> mb.Mechanism:
    """One body per kind ("revolute", "prismatic", "spherical", "free"), each on one of the `near` bodies before it."""
    make = {"revolute": mb.Revolute, "prismatic": mb.Prismatic, "spherical": mb.Spherical, "free": mb.Free}
    bodies, joints = [], []
    for i, kind in enumerate(kinds):
        parent = int(rng.integers(max(0, i - near), i)) if i else -1
        R, moments = random_rotation(rng), rng.uniform(0.05, 0.2, 3)
        inertia = R @ np.diag(moments[[1, 2, 0]] + moments) @ R.T
        bodies.append(mb.RigidBody(f"b{i}", rng.uniform(0.5, 2.0), 0.3 * rng.standard_normal(3), inertia))
        inner = mb.Marker(f"b{parent}" if i else "world", 0.4 * rng.standard_normal(3), random_rotation(rng))
        outer = mb.Marker(f"b{i}", 0.2 * rng.standard_normal(3), random_rotation(rng))
        axis = {"axis": rng.standard_normal(3)} if kind in ("revolute", "prismatic") else {}
        joints.append(make[kind](f"j{i}", inner, outer, **axis))
    return mb.Mechanism(bodies=bodies, joints=joints, gravity=rng.standard_normal(3) * 6)


# Pendulum and double pendulum of uniform rods of length 2 l, gravity along x, angles from x about z (Wijckmans 1992)


class Pendulum(NamedTuple):
    """Wijckmans 1992, examples 2.1-2.3."""

    m: float
    l: float
    g: float

    @property
    def J(self) -> float:
        return self.m * self.l**2 / 3

    def descriptor(self, phi: float, rate: float) -> tuple[np.ndarray, np.ndarray]:
        """(xdd, ydd, phidd) of the centre and the force of the pivot on the rod, from the 5x5 system of example 2.2."""
        s, c = np.sin(phi), np.cos(phi)
        Phi_q = np.array([[1.0, 0.0, self.l * s], [0.0, 1.0, -self.l * c]])
        gamma = -self.l * rate**2 * np.array([c, s])
        M = np.diag([self.m, self.m, self.J])
        system = np.block([[M, Phi_q.T], [Phi_q, np.zeros((2, 2))]])
        solution = np.linalg.solve(system, np.concatenate([[self.m * self.g, 0.0, 0.0], gamma]))
        return solution[:3], -solution[3:]

    def mass(self) -> float:
        return 4 / 3 * self.m * self.l**2

    def acceleration(self, phi: float) -> float:
        """Example 2.3: (m l^2 + J) phidd + m g l sin phi = 0."""
        return -self.m * self.g * self.l * np.sin(phi) / (self.m * self.l**2 + self.J)

    def energy(self, phi: float, rate: float) -> tuple[float, float]:
        return 0.5 * self.mass() * rate**2, -self.m * self.g * self.l * np.cos(phi)


class DoublePendulum(NamedTuple):
    """Wijckmans 1992, examples 3.1-3.2: angle phi of the first rod, angle theta of the second relative to it."""

    m1: float
    m2: float
    l: float
    g: float

    def velocities(self, q: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(xd, yd, angular) of both centres, by the matrices A12, B12 and B01 of (E.3.27)-(E.3.30)."""
        phi, both = q[0], q[0] + q[1]
        B01 = np.array([-self.l * np.sin(phi), self.l * np.cos(phi), 1.0])
        B12 = np.array([-self.l * np.sin(both), self.l * np.cos(both), 1.0])
        A12 = np.eye(3)
        A12[:2, 2] = B01[:2] + B12[:2]
        V1 = B01 * v[0]
        return V1, A12 @ V1 + B12 * v[1]

    def mass_matrix(self, q: np.ndarray) -> np.ndarray:
        J1, J2 = 4 / 3 * self.m1 * self.l**2, 4 / 3 * self.m2 * self.l**2  # about the ends
        arm = 2 * self.m2 * self.l**2
        c = np.cos(q[1])
        return np.array([[J1 + J2 + 2 * arm + 2 * arm * c, J2 + arm * c], [J2 + arm * c, J2]])

    def bias(self, q: np.ndarray, v: np.ndarray) -> np.ndarray:
        """M vd + bias = 0; the second row is the equation that follows (E.3.37), the first is Lagrange's for phi."""
        arm = 2 * self.m2 * self.l**2 * np.sin(q[1])
        weight2 = self.m2 * self.g * self.l * np.sin(q[0] + q[1])
        weight1 = (self.m1 + 2 * self.m2) * self.g * self.l * np.sin(q[0])
        first = -arm * ((v[0] + v[1]) ** 2 - v[0] ** 2) + weight1 + weight2
        return np.array([first, arm * v[0] ** 2 + weight2])

    def energy(self, q: np.ndarray, v: np.ndarray) -> tuple[float, float]:
        kinetic = 0.0
        for m, V in zip((self.m1, self.m2), self.velocities(q, v), strict=True):
            kinetic += 0.5 * m * (V[0] ** 2 + V[1] ** 2 + self.l**2 / 3 * V[2] ** 2)
        height = (self.m1 + 2 * self.m2) * np.cos(q[0]) + self.m2 * np.cos(q[0] + q[1])
        return kinetic, -self.g * self.l * height


# Naive sums over bodies


class State(NamedTuple):
    """A frame in the world: rotation, origin, angular velocity, velocity of the origin."""

    R: np.ndarray
    p: np.ndarray
    w: np.ndarray
    v: np.ndarray


GROUND = State(np.eye(3), np.zeros(3), np.zeros(3), np.zeros(3))


def rodrigues(axis: np.ndarray, angle: float) -> np.ndarray:
    x, y, z = axis / np.linalg.norm(axis)
    K = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    return np.eye(3) + np.sin(angle) * K + (1 - np.cos(angle)) * K @ K


def carry(parent: State, arm: np.ndarray, R: np.ndarray, w: np.ndarray, slip: np.ndarray) -> State:
    """The child with its origin at `arm`, moving by `slip`, turned by R, turning by w: all relative to the parent."""
    reach = parent.R @ arm
    velocity = parent.v + np.cross(parent.w, reach) + parent.R @ slip
    return State(parent.R @ R, parent.p + reach, parent.w + parent.R @ w, velocity)


def angles123(q: np.ndarray, v: np.ndarray, parent: State, where: np.ndarray) -> State:
    """Kamman: body-fixed angles about 1, 2, 3, spin in the child from their rates, translations in the parent."""
    x, y, z = np.eye(3)
    R = rodrigues(x, q[0]) @ rodrigues(y, q[1]) @ rodrigues(z, q[2])
    c2, s2, c3, s3 = np.cos(q[1]), np.sin(q[1]), np.cos(q[2]), np.sin(q[2])
    w = R @ (np.array([[c2 * c3, s3, 0], [-c2 * s3, c3, 0], [s2, 0, 1.0]]) @ v[:3])
    return carry(parent, where + q[3:], R, w, v[3:])


def rotation_translation(q: np.ndarray, v: np.ndarray, parent: State, where: np.ndarray, axis, slide) -> State:
    """Schoenmakers (2.6)-(2.14): turns about h and slides along d, both fixed in the parent."""
    return carry(parent, where + slide * q[1], rodrigues(axis, q[0]), axis * v[0], slide * v[1])


def kinetic_energy(bodies: Sequence[mb.RigidBody], states: Sequence[State]) -> float:
    total = 0.0
    for body, s in zip(bodies, states, strict=True):
        speed = s.v + np.cross(s.w, s.R @ np.asarray(body.com))
        spin = s.R.T @ s.w
        total += 0.5 * float(body.mass) * speed @ speed + 0.5 * spin @ np.asarray(body.inertia) @ spin
    return total
