"""Systems of the founding documents with random numbers."""

import jax.numpy as jnp
import numpy as np
from helpers import random_mechanism

import diffmb as mb

EIGHT = (0, 1, 2, 1, 2, 1, 1, 7)  # Kamman
TWELVE = (0, 1, 2, 3, 4, 4, 6, 1, 8, 9, 9, 11)  # Schoenmakers 2.2.1
ATTIA = ("spherical", "revolute", "prismatic", "revolute", "revolute", "spherical", "revolute", "revolute", "prismatic",
         "spherical", "revolute", "prismatic")  # fmt: skip


def eight_bodies():
    """Every body free to turn (three angles) and to move on its lower body."""
    return random_mechanism(0, ["angles"] * 8, parent=EIGHT.__getitem__)


def twelve_bodies():
    """The joints of Attia on Schoenmakers' tree, with a loop from body 5 to body 7, a gear and springs, and a state
    that closes it."""
    tree = random_mechanism(1, ATTIA, parent=TWELVE.__getitem__)
    model, rng = mb.compile(tree), np.random.default_rng(2)
    q = mb.retract(model, model.neutral(), jnp.asarray(0.5 * rng.standard_normal(model.nv)))
    motion = mb.kinematics(model, q)
    meeting = motion["b5"].pose.apply(jnp.array([0.1, 0.2, -0.1]))
    ends = mb.Marker("b5", (0.1, 0.2, -0.1)), mb.Marker("b7", motion["b7"].pose.inverse().apply(meeting))
    gear = q[model.coordinates("revolute 2")][0] + 0.7 * q[model.coordinates("revolute 8")][0]
    mech = mb.Mechanism(
        tree.bodies,
        [*tree.joints, mb.Spherical("loop", *ends, cut=True)],
        constraints=[mb.LinearCoupling("gear", {"revolute 2": 1.0, "revolute 8": 0.7}, float(gear))],
        connections=[
            mb.SpringDamper("tie", mb.Marker("b12", (0.1, 0.0, 0.3)), "world", k=50.0, c=2.0, length=0.4),
            mb.OnCoordinates("coil", "revolute 4", mb.LinearLaw(k=3.0, c=0.2)),
        ],
        gravity=tree.gravity,
    )
    model = mb.compile(mech)
    state = mb.assemble(model, q, jnp.asarray(rng.standard_normal(model.nv)))
    return model, state
