"""Sol's fuel-injection pump, all of it: lubricated cam and roller, oil film at the pin, spring, fuel.

    python experiments/11_pump_dynamics.py [config.toml]

Sol 1983, 9.3. The pump of experiment 10; rolling is replaced by the traction of an elastohydrodynamic film, whose
normal load is the multiplier of the contact, and the pin by a journal bearing of 6 um clearance: displacements of a
micrometre beside 10 mm of lift, and relaxation in 1e-7 s beside a turn of 60 ms. The implicit solver takes 1051 steps
for 160 degrees; many of them where pieces of the profile meet and the curvature jumps.

What Sol does not give is chosen (`configs/`): masses, spring, widths, and the product of the fuel's pressure and area,
which is taken such that the largest pressure of Hertz is near his 975 N/mm2. What comes out, and what he has:

    film of the contact, mean    0.285 um   0.26        it hangs on the geometry that experiment 10 finds; a little on
                     smallest    0.048 um   0.06        spring and width; his formula of the film is not known
    slip on the lines            16 %       -           inertia of the roller, friction of the bearing and traction
         at the top              1 %        33 %        (Johnson and Tevaarwerk here, Houpert there) decide it: chosen
         end of the line         143 %      -           entrainment falls to a ninth there, and slip is related to it
    slip changes its sign at     -151 deg   -145 deg    as above
    eccentricity                 2 to 50 %  10 to 50 %  the length of the bearing is chosen; short here, finite there
    torque, largest              17 N m     -           his figure has no readable scale

The balance of energy, power of the drive and the fuel = change of energy + heat, is integrated by Gauss's rule: its
nodes are the requested times. It closes to 3e-5 of the 9.2 J that go to and fro (at rtol 1e-6; the torque follows the
rate of the film, 1e6 N s/m). At last the slope of the largest Hertz pressure by the transition radius, which
differences of runs confirm to four digits. The figure goes to `out/`.
"""

import jax
import jax.numpy as jnp
import numpy as np

import diffmb as mb

jax.config.update("jax_enable_x64", True)


# 1. Describe. The roller sits on the plunger by a planar joint: its coordinates are the eccentricity and the turn.
def pressed(t, q, v, z, u, p):
    """The fuel on the plunger, by the angle of the shaft: a pulse sin^2, as Sol's normed curve."""
    along = jnp.clip((q[0] - p["start"]) / (p["end"] - p["start"]), 0.0, 1.0)
    return jnp.stack([0.0 * along, -p["force"] * jnp.sin(jnp.pi * along) ** 2])


def brought(t, q, v, z, u, p):
    return pressed(t, q, v, z, u, p) @ v


def turning(t, p):
    return p["first"] + p["speed"] * t


def films(rt, c):
    lobe = mb.Marker("shaft", rotation=((0.0, 1.0, 0.0), (-1.0, 0.0, 0.0), (0.0, 0.0, 1.0)))
    cam = (c["base_radius"], c["lift"], c["base_radius"] + c["lift"], rt, jnp.radians(c["top_angle"]))
    ends = lobe, "roller", mb.cam_profile(*cam), c["roller_radius"]
    oil = {name: c[name] for name in ("width", "modulus", "viscosity", "pressure_coefficient", "eyring")}
    size = c["bearing_radius"], c["bearing_length"], c["clearance"], c["viscosity"]
    contact, ehd = mb.CamContact("contact", *ends), mb.CamTraction("ehd", *ends, "contact", **oil)
    return contact, ehd, mb.JournalBearing("hd", "plunger", "roller", *size)


def pump(rt, c):
    contact, ehd, hd = films(rt, c)
    start, end = (jnp.radians(angle) for angle in c["fuel"])
    lowest = c["base_radius"] + c["roller_radius"]
    free = 0.1 + c["preload"] / c["stiffness"]
    spring = mb.SpringDamper("spring", mb.Marker("world", (0, lowest + 0.1, 0)), "plunger", c["stiffness"], length=free)
    fuel = {"start": start, "end": end, "force": c["fuel_force"]}
    drive = {"first": jnp.radians(c["first"]), "speed": c["speed"]}
    return mb.Mechanism(
        [
            mb.RigidBody("shaft", 1.0, inertia=(1e-3,) * 3),
            mb.RigidBody("plunger", c["plunger_mass"], inertia=(1e-4,) * 3),
            mb.RigidBody("roller", c["roller_mass"], inertia=(1e-5, 1e-5, c["roller_inertia"])),
        ],
        [
            mb.Revolute("q1", "world", "shaft"),
            mb.Prismatic("q5", "world", "plunger", axis="y"),
            mb.Planar("gap", "plunger", "roller"),
        ],
        constraints=[contact],
        connections=[ehd, hd, spring, mb.JointConnection("fuel", ["q1", "q5"], pressed, fuel, supply=brought)],
        drives=[mb.PositionDrive("drive", "q1", turning, drive)],
        gravity=(0, -9.81, 0),
    )


# 2. Times at the nodes of Gauss's rule, in panels that end where something has a corner; and the weights. The film
#    shifts the corners of the profile by a thousandth of a degree: each is inside a narrow panel of its own.
def panels(c):
    rb, top, rt = c["base_radius"], c["base_radius"] + c["lift"], c["transition_radius"]
    half = np.radians(c["top_angle"])
    flank = half + np.arccos((rb - rt) / (top - rt))
    line = np.sqrt((top - rt) ** 2 - (rb - rt) ** 2)
    turns = np.degrees([half, flank - np.arctan(line / (rb + c["roller_radius"])), flank])
    corners = [-180 + sign * a + side * c["narrow"] for a in turns for sign in (-1, 1) for side in (-1, 1)]
    corners = np.array([c["first"], *sorted([*corners, *c["fuel"]], reverse=True), c["last"]])
    corners = corners[(corners <= c["first"]) & (corners >= c["last"])]
    counts = np.ceil((corners[:-1] - corners[1:]) / c["panel"]).astype(int)
    edges = [np.linspace(a, b, n, endpoint=False) for a, b, n in zip(corners[:-1], corners[1:], counts)]
    edges = np.radians(np.append(np.concatenate(edges), c["last"]) - c["first"]) / c["speed"]
    x, w = np.polynomial.legendre.leggauss(c["nodes"])
    length = np.diff(edges)[:, None]
    inside = edges[:-1, None] + 0.5 * length * (1 + x)
    return np.concatenate([[0.0], inside.ravel(), edges[-1:]]), (0.5 * length * w).ravel()


# 3. The run, and what happens in the contact. Relative pose and twist of the roller are those of a plane motion.
def seen(q, v, lam, ehd):
    angle = q[0] - jnp.pi / 2
    turned = lambda a: jnp.array([[jnp.cos(a), -jnp.sin(a), 0.0], [jnp.sin(a), jnp.cos(a), 0.0], [0.0, 0.0, 1.0]])
    centre, velocity = jnp.array([q[2], q[1] + q[3], 0.0]), jnp.array([v[2], v[1] + v[3], 0.0])
    relative = velocity - v[0] * jnp.array([-centre[1], centre[0], 0.0])
    twist = jnp.concatenate([jnp.array([0.0, 0.0, v[4] - v[0]]), turned(-q[4]) @ relative])
    return ehd.lubrication(mb.Pose(turned(q[4] - angle), turned(-angle) @ centre), twist, lam)


def begin(c):
    """On the base circle: rolling, and the pin in the middle of its film."""
    spin = -c["speed"] * c["base_radius"] / c["roller_radius"]
    held = {"q1": np.radians(c["first"]), "gap": np.zeros(3)}, {"gap": [0.0, 0.0, spin]}
    model = mb.compile(pump(c["transition_radius"], c))
    return mb.assemble(model, *held, guess={"q5": c["base_radius"] + c["roller_radius"]})


def run(rt, c, state, ts):
    model = mb.compile(pump(rt, c))
    size = np.array([1e3, 1e1, 1.0, 1.0, 1e4, 1e6, 1e4, 1e3, 1e3, 1e6])  # of q and v
    tolerance = mb.Tolerance(c["rtol"], c["atol"] * size)
    traj = mb.simulate(model, state, ts, solver=mb.implicit(), controller=tolerance, throw=False)
    loads = traj.dynamics()
    lam = jax.vmap(lambda d: d.multipliers("contact")[0])(loads)
    film = jax.vmap(seen, (0, 0, 0, None))(traj.q, traj.v, lam, films(rt, c)[1])
    scale, k = 1e9, c["sharpness"]
    peak = scale * jax.nn.logsumexp(k * film.pressure / scale) / k
    return peak, (traj, film, jax.vmap(lambda d: d.load("drive"))(loads))


def main(c):
    ts, weights = panels(c)
    rt, h, start = c["transition_radius"], c["difference"], begin(c)
    along = jax.jit(lambda rt: jax.jvp(lambda rt: run(rt, c, start, ts), (rt,), (1.0,), has_aux=True))
    alone = jax.jit(lambda rt: (lambda peak, rest: (peak, None, rest))(*run(rt, c, start, ts)))
    see = along if h else alone  # without differences the slope is not asked for: a third of the time to compile
    _, slope, (traj, film, torque) = see(rt)
    print(f"{traj!r}")
    assert traj.result == mb.RESULTS.successful and int(traj.stats.steps) <= c["most_steps"]

    # 4. Energy: what goes in and what becomes heat, against what is stored.
    summed = lambda power: float(weights @ np.asarray(power)[1:-1])
    power = torque * traj.speed("q1")
    work, moved, fuel, heat = (summed(p) for p in (power, jnp.abs(power), traj.supply(), traj.dissipation()))
    stored = float(traj.energy()[-1] - traj.energy()[0])
    left = work + fuel - heat - stored
    print(f"drive {work:+.5f} J, fuel {fuel:+.5f}, heat {heat:.5f}, stored {stored:+.5f}", end="; ")
    print(f"open by {left:.1e} of {moved:.3f} J that go to and fro")
    assert abs(left) < c["closure"] * moved

    # 5. The figures of the book.
    slip = np.asarray(jnp.abs(film.slip / film.entrainment))
    thin, gap = 1e6 * np.asarray(film.film), np.hypot(*np.asarray(traj.q[:, 2:4]).T) / c["clearance"]
    mean = float(weights @ thin[1:-1] / weights.sum())
    print(f"EHD film {mean:.3f} um on average (Sol 0.26), {thin.min():.3f} at least (0.06)")
    print(f"slip at most {100 * slip[1:].max():.0f} % (33), eccentricity at most {100 * gap.max():.0f} % (10 to 50)")
    print(f"Hertz at most {1e-6 * film.pressure.max():.0f} N/mm2 (975); torque at most {-torque.min():.1f} N m")
    assert 0.2 < mean < 0.35 and 0.03 < thin.min() < 0.08 and gap.max() < 0.6
    assert 900e6 < film.pressure.max() < 1050e6
    if h:
        difference = float(see(rt + h)[0] - see(rt - h)[0]) / (2 * h)
        print(f"d peak / d transition radius: {1e-12 * slope:.5f}, differences {1e-12 * difference:.5f} N/mm2 per um")
        assert np.isclose(slope, difference, rtol=c["agreement"])
    angle = np.degrees(np.asarray(traj.q[:, 0]))
    spin = np.asarray(traj.speed("gap"))[:, 2]
    mb.draw(
        "out/11_pump_dynamics.png",
        lambda axes: plot(axes, angle, film, torque, gap, slip, spin, c),
        rows=2,
        columns=3,
        size=(14, 7),
    )


def plot(axes, angle, film, torque, gap, slip, spin, c):
    rolling = spin - np.asarray(film.slip) / -c["roller_radius"]
    panels = (
        ([(-np.asarray(torque), "")], "drive torque, N m", "drive"),
        ([(1e-6 * np.asarray(film.pressure), "")], "N/mm2", "largest Hertz pressure"),
        ([(np.asarray(film.normal), "normal"), (10 * np.asarray(film.traction), "10 x traction")], "N", "contact"),
        (
            [(1e6 * np.asarray(film.film), "EHD"), (0.1e6 * c["clearance"] * (1 - gap), "0.1 x HD")],
            "um",
            "smallest films",
        ),
        ([(spin, "with films"), (rolling, "rolling")], "rad/s", "spin of the roller"),
        ([(100 * slip, "")], "%", "slip / entrainment"),
    )
    for axis, (curves, unit, title) in zip(axes, panels):
        for values, name in curves:
            axis.plot(-angle[1:], values[1:], label=name or None)
        axis.set(xlabel="-angle of the shaft, deg", ylabel=unit, title=title)
        if curves[0][1]:
            axis.legend()
        axis.axvspan(-c["fuel"][0], -c["fuel"][1], color="C7", alpha=0.2)


if __name__ == "__main__":
    main(mb.settings(__file__))
