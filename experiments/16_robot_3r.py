"""A robot with three revolute joints follows a line with its tool: inverse, and forward again.

    python experiments/16_robot_3r.py [config.toml]

Sol 1983, figures 1.2 and 1.3: a 3R robot whose tool goes from (0.5, 0, 0.5) to (0, 0.5, 1) m (as far as the scan can be
read); its dimensions and masses are not given and are chosen. The tool is driven along the line, from rest to rest by a
polynomial of degree five; joints follow (kinematic simulation), inverse dynamics gives the torques, and these torques,
as a table over time, must bring the free robot along the same line. Checked: the joint angles against the closed form
of this arm, the work of the torques against the energy, and the way back. The figure goes to `out/`.
"""

import jax
import jax.numpy as jnp
import numpy as np

import diffmb as mb

jax.config.update("jax_enable_x64", True)


# 1. Describe. All rods lie along x when the angles are zero; positive shoulder and elbow turn downwards.
def line(t, p):
    s = jnp.clip(t / p["t_end"], 0.0, 1.0)
    return p["from"] + (p["to"] - p["from"]) * s**3 * (10 - 15 * s + 6 * s**2)


def robot(config, driven):
    upper, fore, rod, hand = (config[key] for key in ("upper", "fore", "fore_mass", "tool_mass"))
    centre, thin = (rod / 2 + hand) * fore / (rod + hand), rod * 0.04**2 / 2  # of the rod with the tool at its end
    across = rod * fore**2 / 12 + rod * (centre - fore / 2) ** 2 + hand * (fore - centre) ** 2
    tip = mb.Marker("forearm", (fore, 0, 0))
    tool = mb.Constraint("tool", "world", tip, lambda t, rel, p: rel.translation)
    way = {key: config[key] for key in ("from", "to", "t_end")}
    path = mb.PositionDrive("path", "tool", line, {key: jnp.asarray(value) for key, value in way.items()})
    return mb.Mechanism(
        [
            mb.cylinder("column", 0.1, config["height"], mass=config["column_mass"]),
            mb.rod("upper", upper, mass=config["upper_mass"], radius=0.05),
            mb.RigidBody("forearm", rod + hand, (centre, 0, 0), (thin, across, across)),
        ],
        [
            mb.Revolute("yaw", mb.Marker("world", (0, 0, config["height"] / 2)), "column", axis="z"),
            mb.Revolute("shoulder", mb.Marker("column", (0, 0, config["height"] / 2)), "upper", axis="y"),
            mb.Revolute("elbow", mb.Marker("upper", (upper, 0, 0)), "forearm", axis="y"),
        ],
        constraints=[tool] if driven else [],
        drives=[path] if driven else [],
        gravity=(0, 0, -config["gravity"]),
    )


# 2. Joint angles in closed form, elbow above.
def by_hand(config, place):
    a, b = config["upper"], config["fore"]
    x, y, z = place[:, 0], place[:, 1], place[:, 2] - config["height"]
    r = np.hypot(x, y)
    elbow = np.arccos((r**2 + z**2 - a**2 - b**2) / (2 * a * b))
    shoulder = -np.arctan2(z, r) - np.arctan2(b * np.sin(elbow), a + b * np.cos(elbow))
    return np.stack([np.arctan2(y, x), shoulder, elbow], 1)


def main(config):
    ts = np.linspace(0.0, config["t_end"], config["frames"])
    names = ["yaw", "shoulder", "elbow"]
    model, free = mb.compile(robot(config, True)), mb.compile(robot(config, False))
    start = mb.assemble(model, guess=dict(zip(names, config["guess"], strict=True)))
    motion = mb.simulate_kinematics(model, start, ts)
    p = {key: jnp.asarray(config[key]) for key in ("from", "to", "t_end")}
    place = np.asarray(jax.vmap(lambda t: line(t, p))(jnp.asarray(ts)))
    gap = np.abs(np.asarray(motion.q) - by_hand(config, place)).max()
    print(f"inverse kinematics: closed form to {gap:.1e} rad")
    assert gap < config["closed"], "closed form"

    # 3. Torques, their work, and forward again.
    torques = jax.jit(jax.vmap(lambda q, v, vd: mb.inverse_dynamics(free, q, v, vd)))(motion.q, motion.v, motion.vd)
    power = np.asarray((torques * motion.v).sum(1))
    weights = np.ones(len(ts))
    weights[1:-1:2], weights[2:-1:2] = 4, 2  # Simpson
    work = (weights * power).sum() * (ts[1] - ts[0]) / 3
    energy = [float(mb.potential_energy(free, motion.q[k])) for k in (0, -1)]
    print(f"work of the torques {work:.8f} J, gained by height {energy[1] - energy[0]:.8f} J")
    assert abs(work - energy[1] + energy[0]) < config["work"], "work and energy"
    inputs = {name: mb.Table(ts, torques[:, k], "cubic") for k, name in enumerate(names)}
    begin = mb.assemble(free, motion.q[0], motion.v[0])
    traj = mb.simulate(free, begin, ts, inputs=inputs, controller=mb.Tolerance(config["rtol"]))
    end = mb.Marker("forearm", (config["fore"], 0, 0))
    tip = np.asarray(jax.jit(jax.vmap(lambda q: mb.kinematics(free, q)[end].pose.translation))(traj.q))
    off = np.linalg.norm(tip - place, axis=1).max()
    print(f"forward with these torques: {int(traj.stats.steps)} steps, off the line by {off:.1e} m")
    assert off < config["back"], "forward and inverse disagree"
    draw = lambda axes: plot(axes, config, ts, motion, torques, tip)
    mb.draw("out/16_robot_3r.png", draw, columns=3, size=(15, 4.4))


def plot(axes, config, ts, motion, torques, tip):
    q = np.asarray(motion.q)
    for k in np.linspace(0, len(ts) - 1, 7).astype(int):
        shoulder, fore = q[k, 1], q[k, 1] + q[k, 2]
        r = np.cumsum([0, config["upper"] * np.cos(shoulder), config["fore"] * np.cos(fore)])
        z = np.cumsum([config["height"], -config["upper"] * np.sin(shoulder), -config["fore"] * np.sin(fore)])
        part = ts[k] / ts[-1]
        axes[0].plot(r, z, "o-", color=(0.1 + 0.75 * part, 0.35, 0.8 - 0.6 * part), lw=2)
    axes[0].plot([0, 0], [0, config["height"]], "k", lw=4)
    axes[0].plot(np.hypot(tip[:, 0], tip[:, 1]), tip[:, 2], "k:", lw=1)
    axes[0].set(xlabel="reach, m", ylabel="z, m", title="the arm in its own plane, blue to red", aspect="equal")
    for k, name in enumerate(("yaw", "shoulder", "elbow")):
        axes[1].plot(ts, np.degrees(q[:, k]), f"C{k}", label=name)
        axes[2].plot(ts, torques[:, k], f"C{k}", label=name)
    axes[1].set(xlabel="t, s", ylabel="degrees", title="joint angles")
    axes[2].set(xlabel="t, s", ylabel="N m", title="torques by inverse dynamics")
    for axis in axes[1:]:
        axis.legend(fontsize=8)


if __name__ == "__main__":
    main(mb.settings(__file__))
