"""Springs, beams, friction, stops, contact: the energetic connections."""

import numpy as np
from examples import Example

import diffmb as mb

ENDS = (mb.Marker("a", (0.1, 0.2, 0.3)), "b")


def duffing(d, p):
    return 0.5 * p["k"] * d**2 + 0.25 * p["cubic"] * d**4


GRIP = mb.Grip(mu=0.3, normal=20.0, mu_static=0.5, stribeck=0.4, slip=0.05)
LAWS = {
    "potential": mb.PotentialLaw(duffing, {"k": 5.0, "cubic": 40.0}, c=0.3, rest=0.1),
    "table": mb.TableLaw(at=[-0.4, -0.1, 0.2, 0.35, 0.6], loads=[-3.0, -0.5, 0.4, 4.0, 4.5], c=0.2),
    "bumper": mb.BumperLaw(k=30.0, c=0.4, rest=0.3),
    "stops": mb.StopLaw(low=-0.1, high=0.1, k=40.0, c=0.5, n=3.0),
    "prony": mb.PronyLaw(k=3.0, branches=[8.0, 2.0], times=[0.3, 2.0], rest=0.05),
    "fung": mb.FungLaw(a=2.0, b=3.0, parts=[0.3, 0.2], times=[0.2, 1.5], rest=-0.1),
    "friction": mb.FrictionLaw(GRIP, c=0.2),
    "lugre": mb.LuGreLaw(GRIP, k=50.0, c_bristle=40.0, c=0.3),
}
FOLLOWING = mb.LuGreLaw(mb.Grip(mu=0.3, normal=2.0, slip=0.05, contact="guide"), k=50.0, c_bristle=1.0)
PARALLEL = mb.ParallelLaw([LAWS["prony"], mb.LinearLaw(k=4.0, c=0.2, rest=0.2, preload=1.5), FOLLOWING])
EXAMPLES = {name: Example(mb.OnCoordinates("c", "A", law), at=(0.1,), spread=0.3) for name, law in LAWS.items()}
EXAMPLES |= {
    "rope over an eyelet": Example(
        mb.AlongPath("c", ["a", "b", "world"], mb.RopeLaw(k=30.0, c=0.4, rest=0.4), ratio=0.5),
        at=((0.3, -0.2, 0.4), (0.9, 0.1, 0.2)),
        spread=0.1,
    ),
    "friction on a geared coordinate": Example(
        mb.OnCoordinates("c", ["A", ("B", 1)], LAWS["lugre"], ratio=(3.0, -0.5)), at=(0.1, 0.2)
    ),
    "parallel": Example(mb.OnCoordinates("c", ("A", 1), PARALLEL), at=(0.1,), followed=2),
    "along line": Example(mb.AlongLine("c", *ENDS, mb.RopeLaw(k=30.0, c=0.4, rest=0.5))),
    "along axis": Example(mb.AlongAxis("c", *ENDS, mb.LinearLaw(k=30.0, c=2.0, rest=0.1), axis=(1.0, 2.0, -0.5))),
    "about axis": Example(mb.AboutAxis("c", *ENDS, mb.LinearLaw(k=3.0, c=0.2, preload=0.4), axis="z"), turn=0.8),
}

ROOT = np.random.default_rng(1).normal(size=(6, 6))
RUBBER = {"k": 4.0 * ROOT @ ROOT.T, "c": 0.2 * ROOT.T @ ROOT, "preload": (0.1, 0.2, -0.3, 1.0, -2.0, 0.5)}
BEAM = {"at": ((0.5, 0.05, -0.05),), "spread": 0.05, "turn": 0.2}
HARD = mb.ContactLaw(k=200.0, c=0.4, mu=0.5, slip=0.2)
SHEET = {"points": [(0.0, 0.0), (0.4, 0.05), (-0.1, 0.3)], "thickness": 0.01, "young": 1e4, "poisson": 0.3}
EXAMPLES |= {
    "bushing": Example(mb.Bushing("c", *ENDS, **RUBBER), turn=0.7),
    "planar beam": Example(mb.PlanarBeam("c", *ENDS, EA=100.0, EI=2.0, length=0.5, beta=0.1), **BEAM),
    "beam": Example(mb.Beam("c", *ENDS, EA=100.0, GJ=1.0, EIy=2.0, EIz=3.0, length=0.5, beta=0.1), **BEAM),
    "plane": Example(
        mb.PlaneElement("c", ["a", "b", "world"], **SHEET, beta=0.05),
        at=((0.4, 0.0, 0.1), (-0.1, 0.3, 0.0)),
        spread=0.05,
    ),
    "uniform": Example(mb.UniformField("c", *ENDS, force=(1.0, -2.0, 0.5))),
    "point": Example(mb.PointField("c", *ENDS, strength=3.0, core=0.1)),
    "drag": Example(mb.Drag("c", *ENDS, quadratic=0.7, linear=0.2, wind=(1.0, -0.5, 0.3))),
    "sphere on plane": Example(mb.SphereOnPlane("c", *ENDS, radius=0.4, law=HARD), at=((0.3, -0.2, 0.3),), spread=0.1),
    "disc on plane": Example(
        mb.DiscOnPlane("c", *ENDS, radius=0.4, law=HARD), at=((0.3, -0.2, 0.1),), spread=0.1, turn=1.5
    ),
    "spheres": Example(
        mb.SphereOnSphere("c", *ENDS, first_radius=0.3, second_radius=0.4, law=HARD), at=((0.3, -0.2, 0.4),), spread=0.1
    ),
}
