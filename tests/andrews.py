"""Andrews' squeezing mechanism as bodies and joints, and planar mechanisms once more, written in numpy.

The second half shares nothing with diffmb: a planar mechanism is a list of bodies whose points are sums of arms,

    p = p0 + sum_j r_j e(a_j),    a_j = s_j . q + a0_j,    e(a) = (cos a, sin a)

so that every Jacobian and every velocity term is one line, and M qdd + b + G^T lam = f, G qdd = gamma is one solve.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

import diffmb as mb

PATH = Path(__file__).parents[2] / "shared/reference/P03_A03_andrews.json"
JOINTS = ("O", "F", "B", "G", "A5", "H", "A7")  # beta, theta, gamma, phi, delta, omega, epsilon


def reference() -> dict[str, Any]:
    return json.loads(PATH.read_text())


def andrews(p: dict[str, float]) -> mb.Mechanism:
    """Seven bodies, ten revolutes about z: O, F, B, A5, G, A7, H carry the seven angles, three at E close the loops."""
    com = {
        "K1": (p["ra"], 0, 0),
        "K2": (-p["da"], 0, 0),
        "K3": (p["sb"], -p["sa"], 0),
        "K4": (0, p["ea"] - p["e"], 0),
        "K5": (p["ta"], -p["tb"], 0),
        "K6": (p["zf"] - p["fa"], 0, 0),
        "K7": (p["ub"], -p["ua"], 0),
    }
    E2, base = mb.Marker("K2", (-p["d"], 0, 0)), mb.Marker("world", (p["xa"], p["ya"], 0))
    return mb.Mechanism(
        [mb.RigidBody(f"K{k}", p[f"m{k}"], com[f"K{k}"], (p[f"i{k}"],) * 3) for k in range(1, 8)],
        [
            mb.Revolute("O", "world", "K1"),
            mb.Revolute("F", mb.Marker("K1", (p["rr"], 0, 0)), "K2"),
            mb.Revolute("B", mb.Marker("world", (p["xb"], p["yb"], 0)), "K3"),
            mb.Revolute("A5", base, "K5"),
            mb.Revolute("G", mb.Marker("K5", (p["zt"], 0, 0)), "K4"),
            mb.Revolute("A7", base, "K7"),
            mb.Revolute("H", mb.Marker("K7", (0, -p["u"], 0)), "K6"),
            mb.Revolute("E3", E2, mb.Marker("K3", (0, -p["ss"], 0)), cut=True),
            mb.Revolute("E4", E2, mb.Marker("K4", (0, -p["e"], 0)), cut=True),
            mb.Revolute("E6", E2, mb.Marker("K6", (p["zf"], 0, 0)), cut=True),
        ],
        gravity=(0, 0, 0),
    )


def andrews_loads(model: mb.Model, q, p: dict[str, float]) -> dict[str, Any]:
    """The motor as tau and the spring as a wrench on K3, as keywords of `mb.dynamics`."""
    D = mb.Marker("K3", (p["sd"], -p["sc"], 0))
    arm = jnp.array([p["xc"], p["yc"], 0.0]) - mb.kinematics(model, q)[D].pose.translation
    force = p["c0"] * (1 - p["l0"] / jnp.sqrt(arm @ arm)) * arm
    tau = jnp.zeros(model.nv).at[model.speeds("O")].set(p["mom"])
    return {"tau": tau, "wrenches": [(D, jnp.concatenate([jnp.zeros(3), force]))]}


def in_order(model: mb.Model, angles) -> jnp.ndarray:
    """The seven angles (or their rates) of the reference as q (or v) of the model."""
    return model.pack(dict(zip(JOINTS, angles, strict=True)))


def out_of_order(model: mb.Model, q) -> np.ndarray:
    """... and back."""
    return np.stack([np.asarray(q)[..., model.coordinates(joint).start] for joint in JOINTS], -1)


# --- numpy only


class Point(NamedTuple):
    """p0 + sum of arms (r, s, a0), s over the coordinates; `slides` moves it along x with a coordinate."""

    p0: tuple[float, float]
    arms: Sequence[tuple[float, Sequence[float], float]]
    slides: Any = 0.0

    def at(self, q, v) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Position, Jacobian (2, n), and Jacobian rate times v."""
        p, J, b = np.array(self.p0, float), np.zeros((2, len(q))), np.zeros(2)
        for r, s, a0 in self.arms:
            a = np.dot(s, q) + a0
            e, across = np.array([np.cos(a), np.sin(a)]), np.array([-np.sin(a), np.cos(a)])
            p, J, b = p + r * e, J + r * np.outer(across, s), b - r * e * np.dot(s, v) ** 2
        p[0] += np.sum(self.slides * np.asarray(q))
        J[0] += self.slides
        return p, J, b

    def __sub__(self, other: "Point") -> "Point":
        p0 = (self.p0[0] - other.p0[0], self.p0[1] - other.p0[1])
        return Point(p0, [*self.arms, *((-r, s, a0) for r, s, a0 in other.arms)], self.slides - other.slides)


class PlanarBody(NamedTuple):
    """Mass, inertia about the centre of mass, centre of mass, and the coordinates that turn it."""

    m: float
    I: float
    centre: Point
    turn: Sequence[float]


def planar_dynamics(bodies, closures, q, v, forces=(), tau=0.0, gravity=0.0):
    """qdd and the multipliers of M qdd + b + G^T lam = f. `forces` are pairs of a Point and a force on it."""
    n = len(q)
    M, f = np.zeros((n, n)), np.zeros(n) + tau
    for m, I, centre, turn in bodies:
        _, J, b = centre.at(q, v)
        M += m * J.T @ J + I * np.outer(turn, turn)
        f += J.T @ (m * np.array([0.0, -gravity]) - m * b)
    for point, force in forces:
        f += point.at(q, v)[1].T @ force
    rows = [closure.at(q, v) for closure in closures]
    G, gamma = np.concatenate([r[1] for r in rows]), -np.concatenate([r[2] for r in rows])
    K = np.block([[M, G.T], [G, np.zeros((len(G), len(G)))]])
    x = np.linalg.solve(K, np.concatenate([f, gamma]))
    return x[:n], x[n:]


def andrews_in_numpy(p: dict[str, float], q, v) -> tuple[np.ndarray, np.ndarray]:
    """Accelerations of the seven angles and the six multipliers, rows and signs as in the IVP test set."""
    unit = np.eye(7)
    beta, gamma, delta, epsilon = unit[0], unit[2], unit[4], unit[6]
    K2, K4, K6 = unit[0] + unit[1], unit[3] + delta, unit[5] + epsilon
    O, A, B, down = (0.0, 0.0), (p["xa"], p["ya"]), (p["xb"], p["yb"]), -np.pi / 2
    bodies = [
        PlanarBody(p["m1"], p["i1"], Point(O, [(p["ra"], beta, 0)]), beta),
        PlanarBody(p["m2"], p["i2"], Point(O, [(p["rr"], beta, 0), (-p["da"], K2, 0)]), K2),
        PlanarBody(p["m3"], p["i3"], Point(B, [(np.hypot(p["sa"], p["sb"]), gamma, 0)]), gamma),
        PlanarBody(p["m4"], p["i4"], Point(A, [(p["zt"], delta, 0), (p["e"] - p["ea"], K4, down)]), K4),
        PlanarBody(p["m5"], p["i5"], Point(A, [(np.hypot(p["ta"], p["tb"]), delta, 0)]), delta),
        PlanarBody(p["m6"], p["i6"], Point(A, [(p["u"], epsilon, down), (p["zf"] - p["fa"], K6, 0)]), K6),
        PlanarBody(p["m7"], p["i7"], Point(A, [(np.hypot(p["ua"], p["ub"]), epsilon, 0)]), epsilon),
    ]
    E2 = Point(O, [(p["rr"], beta, 0), (-p["d"], K2, 0)])
    E3 = Point(B, [(p["ss"], gamma, down)])
    E4 = Point(A, [(p["zt"], delta, 0), (p["e"], K4, down)])
    E6 = Point(A, [(p["u"], epsilon, down), (p["zf"], K6, 0)])
    D = Point(B, [(p["sd"], gamma, 0), (p["sc"], gamma, down)])
    arm = np.array([p["xc"], p["yc"]]) - D.at(q, v)[0]
    spring = p["c0"] * (1 - p["l0"] / np.linalg.norm(arm)) * arm
    return planar_dynamics(bodies, [E2 - E3, E2 - E4, E2 - E6], q, v, [(D, spring)], p["mom"] * beta)


def planar_close(closures: Sequence[Point], q, held: dict[int, float], rates: dict[int, float]):
    """(q, v) that close, with some coordinates and rates given: Newton from the guess q, then one solve."""
    q = np.array(q, float)
    q[list(held)] = list(held.values())
    free = [k for k in range(len(q)) if k not in held]
    at = lambda q: (np.concatenate(x) for x in zip(*(c.at(q, 0 * q)[:2] for c in closures), strict=True))
    for _ in range(50):
        phi, G = at(q)
        q[free] -= np.linalg.lstsq(G[:, free], phi, rcond=None)[0]
    phi, G = at(q)
    assert np.abs(phi).max() < 1e-12, "the oracle's mechanism does not close"
    v = np.zeros_like(q)
    v[list(rates)] = list(rates.values())
    free = [k for k in range(len(q)) if k not in rates]
    v[free] = np.linalg.lstsq(G[:, free], -G @ v, rcond=None)[0]
    return q, v
