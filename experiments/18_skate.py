"""Sol's skate: a blade that goes where it points, on an inclined plane.

    python experiments/18_skate.py [config.toml]

Sol 1983, (3.3.20), his example of a constraint that cannot be integrated: tan(y3) y1d - y2d = 0. It takes away a speed
and no degree of freedom. He writes no motion down; on a slope there is one in closed form. With x down the slope, a
skate that starts at rest pointing down and turning at w keeps turning, a = w t, and

    u = g' sin(w t) / w         speed along the blade, g' = g sin(slope)
    x = g' sin^2(w t) / 2w^2    y = g' (w t - sin(2 w t) / 2) / 2w^2        a cycloid: it does not go down, but across
    N = 2 m g' sin(w t)         what the ice holds against, sideways

Checked: this motion and this load, the energy, the count of freedoms, the derivative of where it arrives by w, and
Sol's own form of the constraint as far as it has a meaning. The figure goes to `out/`.
"""

import jax
import jax.numpy as jnp
import numpy as np

import diffmb as mb

jax.config.update("jax_enable_x64", True)


# 1. Describe: a body in a plane, and the blade; `mb.Skate` holds in all directions, Sol's form up to a quarter turn.
def sol(t, rel, twist, params):
    velocity = rel.rotation @ twist[3:]
    return rel.rotation[1, 0] / rel.rotation[0, 0] * velocity[0] - velocity[1]


def skate(config, blade):
    g, slope, inertia = config["gravity"], config["slope"], config["inertia"]
    return mb.Mechanism(
        [mb.RigidBody("skate", config["mass"], (0, 0, 0), (inertia, inertia, inertia))],
        [mb.Planar("ice", "world", "skate")],
        constraints=[blade],
        gravity=(g * np.sin(slope), 0, -g * np.cos(slope)),
    )


# 2. Glide.
def glide(config, blade, turn, ts, **options):
    model = mb.compile(skate(config, blade))
    start = mb.assemble(model, {"ice": jnp.zeros(3)}, {"ice": jnp.stack([0.0, 0.0, turn])}, throw=False)
    return mb.simulate(model, start, ts, controller=mb.Tolerance(config["rtol"]), **options)


def main(config):
    w, pull = config["turn"], config["gravity"] * np.sin(config["slope"])
    ts = np.linspace(0.0, 2 * np.pi * config["turns"] / w, config["frames"])
    blade = mb.Skate("blade", "world", "skate")
    traj = glide(config, blade, w, ts)
    place = np.asarray(traj.coordinate("ice"))
    angle, width = w * ts, pull / (2 * w**2)
    exact = width * np.stack([np.sin(angle) ** 2, angle - np.sin(2 * angle) / 2], 1)
    off = np.abs(place[:, :2] - exact).max() / width
    side = np.asarray(traj.multipliers("blade"))[:, 0]
    load = 2 * config["mass"] * pull * np.sin(angle)
    off_load = np.abs(np.abs(side) - np.abs(load)).max() / np.abs(load).max()
    found = mb.mobility(traj.model, traj.q[0])
    dof, speeds, drift = int(found.dof), int(found.velocity_dof), float(traj.energy_change)
    print(f"{int(traj.stats.steps)} steps; closed form: places to {off:.1e} of {width:.3f} m, load to {off_load:.1e}")
    print(f"energy changes by {drift:.1e} J; {dof} freedoms, {speeds} speeds")
    assert off < config["accuracy"] and off_load < config["accuracy"], "closed form"
    assert drift < config["accuracy"] * config["mass"] * pull * width, "energy"
    assert (dof, speeds) == (3, 2), "a nonholonomic row takes a speed, not a freedom"

    # 3. Sol's form, and the derivative of the way across after a fixed time by w.
    part = ts[ts * w <= config["upto"]]
    other = glide(config, mb.Nonholonomic("blade", "world", "skate", sol), w, part)
    gap = np.abs(other.q - traj.q[: len(part)]).max()
    T = float(part[-1])
    across = lambda w: glide(config, blade, w, [0.0, T], throw=False).coordinate("ice")[-1, 1]
    slope = float(jax.jit(jax.jacfwd(across))(w))
    by_hand = pull / (2 * w**2) * (T - T * np.cos(2 * w * T)) - pull / w**3 * (w * T - np.sin(2 * w * T) / 2)
    print(f"Sol's form differs by {gap:.1e}; dy/dw = {slope:.10f}, by hand {by_hand:.10f}")
    assert gap < config["accuracy"] and abs(slope / by_hand - 1) < config["accuracy"], "Sol's form, or the derivative"
    draw = lambda axes: plot(axes, ts, place, exact, np.degrees(angle), side, load)
    mb.draw("out/18_skate.png", draw, rows=2, size=(10, 5.5))


def plot(axes, ts, place, exact, angle, side, load):
    above, below = axes
    above.plot(exact[:, 1], -exact[:, 0], "C7", lw=4, alpha=0.5, label="closed form")
    above.plot(place[:, 1], -place[:, 0], "C0", label="diffmb")
    size = 0.15 * np.abs(exact[:, 0]).max()
    for k in range(0, len(ts), len(ts) // 24):
        a = np.radians(angle[k])
        ends = np.array([[np.cos(a), np.sin(a)], [-np.cos(a), -np.sin(a)]]) * size + place[k, :2]
        above.plot(ends[:, 1], -ends[:, 0], "k", lw=1)
    above.set(xlabel="across the slope, m", ylabel="down the slope, m", title="track, and the blade", aspect="equal")
    below.plot(ts, np.sign(side[1] * load[1]) * load, "C7", lw=4, alpha=0.5, label="closed form")
    below.plot(ts, side, "C0", label="diffmb")
    below.set(xlabel="t, s", ylabel="N", title="what the ice holds against, sideways")
    below.legend(loc="upper right")


if __name__ == "__main__":
    main(mb.settings(__file__))
