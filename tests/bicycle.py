"""The Whipple bicycle (Meijaard et al. 2007) that the tests share."""

import numpy as np

import diffmb as mb


def bicycle(p: dict[str, float]) -> mb.Mechanism:
    """Four bodies written at the upright attitude, origins at the rear contact; x forward, z up (the file: down)."""
    tensor = lambda n: (*(p[f"I{n}{k}"] for k in ("xx", "yy", "zz")), 0, -p[f"I{n}xz"], 0)
    wheel = lambda n: (p[f"I{n}xx"], p[f"I{n}yy"], p[f"I{n}xx"])
    upright = np.array([[1.0, 0, 0], [0, 0, 1], [0, -1, 0]])  # z of the marker along y: the axle
    hubs = {"R": (0, 0, p["rR"]), "F": (p["w"], 0, p["rF"])}
    axis, foot = (np.sin(p["lam"]), 0, -np.cos(p["lam"])), (p["w"] + p["c"], 0, 0)
    axle = lambda body, n: mb.Marker(body, hubs[n])
    return mb.Mechanism(
        [
            mb.RigidBody("B", p["mB"], (p["xB"], 0, -p["zB"]), tensor("B")),
            mb.RigidBody("H", p["mH"], (p["xH"], 0, -p["zH"]), tensor("H")),
            mb.RigidBody("R", p["mR"], hubs["R"], wheel("R")),
            mb.RigidBody("F", p["mF"], hubs["F"], wheel("F")),
        ],
        [
            mb.Free("frame", "world", "B"),
            mb.Revolute("steer", mb.Marker("B", foot), mb.Marker("H", foot), axis=axis),
            mb.Revolute("rear", axle("B", "R"), axle("R", "R"), axis="y"),
            mb.Revolute("front", axle("H", "F"), axle("F", "F"), axis="y"),
        ],
        constraints=[
            mb.RollingDisc("rear contact", "world", mb.Marker("R", hubs["R"], upright), p["rR"]),
            mb.RollingDisc("front contact", "world", mb.Marker("F", hubs["F"], upright), p["rF"]),
        ],
        gravity=(0, 0, -p["g"]),
    )
