"""Connections that a user writes, and the plain spring."""

import jax.numpy as jnp
from examples import Example

import diffmb as mb

PARAMS = {"k": 7.0, "c": 0.6, "gain": (0.4, -1.3)}


def bushing(t, rel, twist, z, u, p):
    """Depends on everything: pose, twist, time, a state and two inputs."""
    turn = jnp.array([rel.rotation[2, 1], rel.rotation[0, 2], rel.rotation[1, 0]])
    force = -p["k"] * rel.rotation.T @ rel.translation - p["c"] * twist[3:]
    moment = -p["k"] * turn - z[0] * twist[:3] + jnp.sin(t) * force
    return jnp.concatenate([moment + p["gain"][0] * u[0], force * (1 + z[0] ** 2) + p["gain"][1] * u[1]])


def lag(t, rel, twist, z, u, p):
    return u[0] - z * p["c"] + twist[4] * jnp.cos(t)


def stored(t, rel, z, p):
    return 0.5 * p["k"] * rel.translation @ rel.translation + z[0] ** 2


def balance(t, rel, twist, z, u, p):
    """What must come from outside, so that dE/dt = supply - w . twist."""
    change = p["k"] * rel.translation @ (rel.rotation @ twist[3:]) + 2.0 * z[0] * lag(t, rel, twist, z, u, p)[0]
    return change + bushing(t, rel, twist, z, u, p) @ twist


def torsion(t, q, v, z, u, p):
    return -p[0] * q - p[1] * v


def wound(t, q, z, p):
    return 0.5 * p[0] * q @ q


def rubbed(t, q, v, z, u, p):
    return p[1] * v @ v


def elongations(t, rel, p):
    """Of two bars from the first marker to the others, and the area that the three span, in units of p."""
    a, b = rel[0].translation, rel[1].translation
    normal = jnp.cross(a, b)
    return jnp.array([jnp.sqrt(a @ a) - p["length"], jnp.sqrt(b @ b) - p["length"], 0.5 * jnp.sqrt(normal @ normal)])


def membrane(t, e, ed, z, u, p):
    return -p["k"] * e - p["c"] * ed


def stretched(t, e, z, p):
    return 0.5 * p["k"] @ (e * e)


def warmed(t, e, ed, z, u, p):
    return p["c"] * ed @ ed


ENDS = (mb.Marker("a", (0.1, 0.2, 0.3)), "b")
USER = {"states": 1, "inputs": 2, "state_rate": lag, "energy": stored, "supply": balance}
SHEET = {"k": jnp.array([30.0, 20.0, 5.0]), "c": 0.4, "length": 0.3}
EXAMPLES = {
    "spring": Example(mb.SpringDamper("c", *ENDS, k=30.0, c=2.0, length=0.4)),
    "user": Example(mb.Connection("c", *ENDS, bushing, PARAMS, **USER, start=0.3)),
    "joint": Example(
        mb.JointConnection("c", ["A", ("B", 1)], torsion, (3.0, 0.2), energy=wound, dissipation=rubbed), at=(0.2, -0.4)
    ),
    "span": Example(
        mb.Span("c", ["a", "b", "world"], membrane, SHEET, strain=elongations, energy=stretched, dissipation=warmed),
        at=((0.4, 0.0, 0.1), (-0.1, 0.3, 0.0)),
        spread=0.05,
    ),
}
