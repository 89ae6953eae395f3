"""Closed mechanisms that the tests share."""

import jax.numpy as jnp
import numpy as np
from helpers import KINDS, random_body, random_marker

import diffmb as mb


def four_bar(l1=0.1, l2=0.3, l3=0.25, base=0.3, cut=None, gravity=(0, -9.81, 0), **more):
    """The planar four-bar of the design page; in space its cut revolute has three redundant rows."""
    joint = lambda name, *ends: mb.Revolute(name, *ends, axis="z", cut=True if name == cut else None)
    return mb.Mechanism(
        [mb.rod("crank", l1, mass=0.2), mb.rod("coupler", l2, mass=0.5), mb.rod("rocker", l3, mass=0.4)],
        [
            joint("A", "world", "crank"),
            joint("B", mb.Marker("crank", (l1, 0, 0)), "coupler"),
            joint("C", mb.Marker("coupler", (l2, 0, 0)), mb.Marker("rocker", (l3, 0, 0))),
            joint("D", mb.Marker("world", (base, 0, 0)), "rocker"),
        ],
        gravity=gravity,
        **more,
    )


def crank_slider(crank=0.2, rod=0.5, offset=0.05, gravity=(0, -9.81, 0), **more):
    """Crank, connecting rod and slider (Wijckmans 3.3)."""
    return mb.Mechanism(
        [mb.rod("crank", crank, mass=0.4), mb.rod("rod", rod, mass=0.6), mb.box("slider", (0.1, 0.06, 0.06), mass=0.8)],
        [
            mb.Revolute("A", "world", "crank"),
            mb.Revolute("B", mb.Marker("crank", (crank, 0, 0)), "rod"),
            mb.Revolute("C", mb.Marker("rod", (rod, 0, 0)), "slider"),
            mb.Prismatic("D", mb.Marker("world", (0, offset, 0)), "slider", axis="x"),
        ],
        gravity=gravity,
        **more,
    )


def bricard(length=1.0, gravity=(0, 0, -9.81), cut=None):
    """Bricard's six-bar: six equal links round a cube, each axis along the next but one edge; nd = 1, not 0.

    Written at its cubic attitude, q = 0, where it is mobile; the world is the sixth link.
    """
    corners = length * jnp.array([[0, 0, 0], [1, 0, 0], [1, -1, 0], [1, -1, 1], [0, -1, 1], [0, 0, 1]], float)
    axes = np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]], float)
    bodies, joints, before, origin = [], [], "world", np.zeros(3)
    for k in range(5):
        end = corners[k + 1] - corners[k]
        inertia = (length**2 * jnp.eye(3) - jnp.outer(end, end)) / 12 + 1e-3 * length**2 * jnp.eye(3)
        bodies.append(mb.RigidBody(f"link {k + 1}", 1.0, end / 2, inertia))
        inner = mb.Marker(before, corners[k] - origin)
        joints.append(mb.Revolute(f"R{k + 1}", inner, f"link {k + 1}", axis=axes[k], cut=True if cut == k else None))
        before, origin = f"link {k + 1}", corners[k]
    ends = mb.Marker(before, corners[5] - origin), mb.Marker("world", corners[5])
    joints.append(mb.Revolute("R6", *ends, axis=axes[5], cut=True if cut in (None, 5) else None))
    return mb.Mechanism(bodies, joints, gravity=gravity)


def rolling_disc(radius=0.3):
    """A thin disc on a plane, free to lean, roll and turn: 6 - 1 - 2 speeds."""
    mass = 1.3
    return mb.Mechanism(
        [mb.RigidBody("disc", mass, (0, 0, 0), np.array([0.25, 0.25, 0.5]) * mass * radius**2)],
        constraints=[mb.RollingDisc("contact", "world", "disc", radius)],
    )


def loop_of(kind, seed=0):
    """A chain world - b1 - b2 whose tip hangs on the world by a cut joint of the given kind, and a closed attitude.

    Free and spherical joints leave room enough for any kind; the second marker of the closing joint is put where it
    closes at t = 0.3.
    """
    rng = np.random.default_rng(seed)
    bodies = [random_body(rng, "b1"), random_body(rng, "b2")]
    tree = [
        mb.Free("J1", "world", random_marker(rng, "b1")),
        mb.Spherical("J2", random_marker(rng, "b1"), random_marker(rng, "b2")),
    ]
    joint = KINDS[kind]("loop", "b2", "world")
    model = mb.compile(mb.Mechanism(bodies, tree))
    q = mb.retract(model, model.neutral(), jnp.asarray(0.7 * rng.standard_normal(model.nv)))
    own = joint.retract(joint.neutral(), jnp.asarray(0.6 * rng.standard_normal(joint.nv)))
    end = mb.kinematics(model, q)["b2"].pose @ joint.pose(own, jnp.asarray(0.3))
    closing = KINDS[kind]("loop", "b2", mb.Marker("world", end.translation, end.rotation))
    return mb.Mechanism(bodies, [*tree, _cut(closing)], gravity=(0.5, -2.0, -9.0)), q


def _cut(joint):
    object.__setattr__(joint, "cut", True)  # the kinds of helpers.py take no keyword
    return joint
