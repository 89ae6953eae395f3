"""Fluid films, whose loads follow a multiplier or grow without bounds, and composites with massless nodes."""

from examples import Example

import diffmb as mb

DISC = mb.cam_profile(0.03, 0.01, 0.02, 0.008, 0.25)
OIL = {"width": 0.012, "modulus": 2.3e11, "viscosity": 0.03, "pressure_coefficient": 1.5e-8, "eyring": 4e6}
TRACTION = mb.CamTraction("c", "a", "b", DISC, 0.01, "contact", **OIL)
BEARING = mb.JournalBearing("c", "a", "b", radius=0.006, length=0.008, clearance=6e-6, viscosity=0.03)


def lubricated_roller():
    """A cam turns at a steady rate and drags a roller that a spring presses on it."""
    cam, roller = mb.cylinder("cam", 0.03, 0.01, mass=0.2), mb.cylinder("roller", 0.01, 0.012, mass=0.03)
    slide = mb.box("slide", (0.01, 0.01, 0.01), mass=0.05)
    joints = [
        mb.Revolute("turn", "world", "cam"),
        mb.Prismatic("lift", mb.Marker("world", (-0.04, 0.0, 0.0)), "slide", axis=(-1, 0, 0)),
        mb.Revolute("spin", "slide", "roller"),
    ]
    contact = mb.CamContact("contact", "cam", "roller", DISC, 0.01)
    drag = mb.CamTraction("drag", "cam", "roller", DISC, 0.01, "contact", **OIL)
    press = mb.SpringDamper("press", mb.Marker("world", (-0.1, 0.0, 0.0)), "slide", k=5e3, length=0.16)
    motor = mb.VelocityDrive("motor", "turn", lambda t, w: w, 50.0)
    parts = {"constraints": [contact], "connections": [drag, press], "drives": [motor]}
    return mb.Mechanism([cam, slide, roller], joints, **parts)


def strings():
    """Three strings that meet in a knot, on which a force acts."""
    spring = lambda k, end, stiffness: mb.SpringDamper(f"s{k}", end, "knot", k=stiffness, length=0.1)
    ends = ["0", mb.Marker("1", (0.02, 0.0, 0.01)), "2"]
    knot = mb.Node((0.2, 0.05, 0.1), force=(0.5, -1.0, 0.3))
    elements = [spring(k, end, 40.0 + 15 * k) for k, end in enumerate(ends)]
    return mb.Composite("c", ["a", "b", "world"], {"knot": knot}, elements)


def creeping():
    """A node that spring-dampers hold in all directions, and that creeps to its equilibrium."""
    part = lambda name, first, second, k, c: mb.SpringDamper(name, first, second, k=k, c=c, length=0.1)
    elements = [part("s1", "0", "m", 50.0, 3.0), part("s2", "m", "1", 20.0, 5.0)]
    elements += [part("s3", mb.Marker("0", (0.0, 0.3, 0.0)), "m", 8.0, 2.0)]
    elements += [part("s4", mb.Marker("1", (0.2, 0.1, -0.3)), "m", 12.0, 1.0)]  # three lines could carry no load
    return mb.Composite("c", ["a", "b"], {"m": (0.15, -0.1, 0.2)}, elements, damped=True)


EXAMPLES = {
    "traction": Example(
        TRACTION,
        at=((-0.02, 0.034641, 0.0),),
        spread=1e-4,
        turn=0.2,
        rate=0.5,
        follow=(-900.0, -300.0),
        followed=1,
        still=False,  # where nothing moves at all the film is so thin that no difference resolves its slope
    ),
    "journal": Example(BEARING, at=((2e-6, -2.5e-6, 0.0),), spread=6e-7, turn=0.01, rate=1e-3, still=False),
    "composite": Example(strings(), at=((0.5, 0.1, 0.0), (0.1, -0.3, 0.4)), spread=0.03, z_spread=0.01),
    "damped composite": Example(creeping(), spread=0.05, z_spread=0.02),
}
