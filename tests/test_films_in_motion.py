"""Fluid films in motion: stiff runs in a stated number of implicit steps, with their balance of energy closed.

W_drive - heat = E(end) - E(start)          powers integrated by Gauss's rule, whose nodes are the requested times
"""

import numpy as np
from examples_special import lubricated_roller

import diffmb as mb


def nodes(end, panels, count):
    """Times: the start, the nodes of each panel, the end; and the weights of the nodes."""
    edges = np.linspace(0.0, end, panels + 1)
    x, w = np.polynomial.legendre.leggauss(count)
    inside = edges[:-1, None] + 0.5 * end / panels * (1 + x)
    return np.concatenate([[0.0], inside.ravel(), [end]]), np.tile(0.5 * end / panels * w, panels)


def balance(traj, weights, power):
    """(what the balance leaves open, the work of the drive, the heat), J."""
    work, heat = (float(weights @ np.asarray(p)[1:-1]) for p in (power, traj.dissipation()))
    energy = np.asarray(traj.energy())
    return work - heat - (energy[-1] - energy[0]), work, heat


def test_an_unbalanced_rotor_in_its_oil():
    """A rotor whose centre of mass is 2 um off turns at 300 rad/s in a film of 20 um that relaxes in microseconds."""
    speed, clearance, mass, offset = 300.0, 20e-6, 2.0, 2e-6
    rotor = mb.RigidBody("rotor", mass, (offset, 0.0, 0.0), (1e-3,) * 3)
    film = mb.JournalBearing("film", "world", "rotor", radius=0.01, length=0.01, clearance=clearance, viscosity=0.02)
    drive = mb.VelocityDrive("drive", ("gap", 2), lambda t, w: w, speed)
    model = mb.compile(
        mb.Mechanism([rotor], [mb.Planar("gap", "world", "rotor")], connections=[film], drives=[drive],
                     gravity=(0.0, -9.81, 0.0))
    )  # fmt: skip
    state = mb.assemble(model, {"gap": [0.0, -0.5 * clearance, 0.0]}, {"gap": [0.0, 0.0, speed]})
    ts, weights = nodes(0.04, 20, 4)
    tolerance = mb.Tolerance(1e-6, np.array([1e-10, 1e-10, 1e-6, 1e-7, 1e-7, 1e-4]))
    traj = mb.simulate(model, state, ts, solver=mb.implicit(), controller=tolerance)
    assert int(traj.stats.steps) <= 250 and int(traj.stats.rejected) <= 40
    left, _, heat = balance(traj, weights, traj.load("drive") * speed)
    assert abs(left) < 1e-5 * heat and heat > 0.0
    # The orbit: the film carries weight and centrifugal force, and the journal stays inside, pulled round by the spin.
    e = np.asarray(traj.q[:, :2]) / clearance
    assert 0.1 < np.hypot(*e.T).max() < 0.95
    assert np.ptp(e[-20:], axis=0).max() > 0.1 * offset / clearance  # and it whirls
    force = mass * (np.asarray(traj.vd[:, :2]) + [0.0, 9.81])
    turned = speed * np.asarray(traj.ts)
    force = force - mass * offset * speed**2 * np.stack([np.cos(turned), np.sin(turned)], 1)
    assert np.allclose(force, traj.reaction("film")[:, 3:5], rtol=1e-6, atol=1e-6)


def test_traction_takes_implicit_steps():
    """A cam turns at a steady rate and drags a roller that a spring presses on it, from rest to nearly rolling."""
    roller = mb.compile(lubricated_roller())
    ts, weights = nodes(0.004, 10, 4)
    traj = mb.simulate(roller, mb.assemble(roller), ts, solver=mb.implicit(), controller=mb.Tolerance(1e-7))
    assert int(traj.stats.steps) <= 120 and int(traj.stats.rejected) <= 10
    left, work, heat = balance(traj, weights, traj.load("motor") * 50.0)
    assert abs(left) < 1e-5 * work and 0.3 * work < heat < 0.7 * work  # half is lost in bringing up to speed
    assert abs(float(traj.speed("spin")[-1]) * 0.01 + 50.0 * 0.03) < 0.02 * 1.5
