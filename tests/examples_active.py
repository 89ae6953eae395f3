"""Actuators, muscles and tyres."""

from examples import Example

import diffmb as mb

PAIR = (mb.Marker("a", (0.1, 0.2, 0.3)), "b")
CYLINDER = mb.HydraulicCylinder(
    area_a=2e-3, area_b=1.2e-3, volume_a=1e-3, volume_b=8e-4, middle=0.5, valve=3e-7, supply_pressure=1.6e7, bulk=1e9,
    leakage=1e-12, friction=300.0, underlap=0.1, laminar=1e6,
)  # fmt: skip
MUSCLE = mb.Muscle(800.0, 0.1, 0.2, pennation=0.3, activation=0.4, length=0.31)
OTHER = mb.Muscle(300.0, 0.2, 0.3, activation=0.4, length=0.52, curves=mb.muscle_curves_2016())
SEAL = mb.LuGreLaw(mb.Grip(mu=0.3, normal=2.0, slip=0.05, contact="guide"), k=50.0, c_bristle=1.0)
ROLLING = {
    "longitudinal": (2.0, 1.6, 1.0, 0.5), "lateral": (1.5, 1.3, 0.8, -1.0), "creep": 2.0, "ramp": 0.3,
    "cx": 20.0, "cy": 50.0,
}  # fmt: skip

EXAMPLES = {
    "force along a line": Example(mb.AlongLine("c", *PAIR, mb.ForceInput(3.0))),
    "motor about an axis": Example(
        mb.AboutAxis("c", *PAIR, mb.DcMotor(0.3, 2.0, 0.1, friction=0.05), axis=(0.6, 0.0, 0.8), ratio=5.0)
    ),
    "motor along a screw": Example(
        mb.AlongAxis("c", *PAIR, mb.DcMotor(0.3, 2.0, 0.1, friction=0.05), axis=(0.6, 0.0, 0.8), ratio=20.0)
    ),
    "inputs, states and multipliers side by side": Example(
        mb.OnCoordinates("c", "A", mb.ParallelLaw([mb.ForceInput(3.0), SEAL, mb.DcMotor(0.3, 2.0, 0.1)]), ratio=2.0),
        at=(0.2,), followed=2,
    ),
    "PD": Example(
        mb.OnCoordinates("c", ["A", ("B", 1)], mb.PdController(30.0, 2.0), ratio=(1.0, -0.4)), at=(0.2, -0.4)
    ),
    "PID": Example(mb.OnCoordinates("c", "A", mb.PidController(30.0, 5.0, 2.0, lag=0.1), ratio=3.0), at=(0.2,)),
    "servo": Example(mb.OnCoordinates("c", "A", mb.PositionServo(30.0, 0.1, damping=2.0)), at=(0.2,)),
    "cylinder": Example(mb.AlongLine("c", *PAIR, CYLINDER), z=(7e6, 6e6), z_spread=3e5, spread=0.05),
    "muscle over a via-point": Example(
        mb.AlongPath("c", ["a", "b", "world"], MUSCLE), at=((0.15, 0.0, 0.05), (0.3, 0.02, 0.0)), spread=0.003,
        rate=0.3, z_spread=0.02, u=(0.1, 0.9),
    ),
    "muscle with a rigid tendon": Example(
        mb.AlongLine("c", *PAIR, mb.RigidTendonMuscle(800.0, 0.1, 0.2, pennation=0.2, activation=0.4)),
        at=((0.1, 0.2, 0.2),), spread=0.01, rate=0.3, z_spread=0.02, u=(0.1, 0.9),
    ),
    "muscle with two heads": Example(
        mb.SplitMuscle("c", ["a", "b", "d", "world"], [(0, 1, 2), (0, 1, 3)], [MUSCLE, OTHER]),
        at=((0.15, 0.0, 0.05), (0.3, 0.02, 0.0), (0.4, -0.3, 0.0)), spread=0.003, rate=0.3, z_spread=0.02, u=(0.1, 0.9),
    ),
    "radial tyre": Example(
        mb.RadialTyre("c", *PAIR, radius=1.0, k=300.0, c=20.0, ramp=0.3), at=((0.3, 0.2, 0.5),), spread=0.1, turn=0.2
    ),
    "slip tyre": Example(
        mb.SlipTyre("c", *PAIR, 1.0, 300.0, 20.0, kx=200.0, ky=150.0, **ROLLING), at=((0.3, 0.2, 0.5),), spread=0.1,
        turn=0.2, z_spread=0.3,
    ),
    "slip tyre that leaves the ground": Example(
        mb.SlipTyre("c", *PAIR, 1.0, 300.0, 20.0, kx=200.0, ky=150.0, **ROLLING), at=((0.3, 0.2, 0.9),), spread=0.1,
        turn=0.2, z_spread=0.3,
    ),
}  # fmt: skip
