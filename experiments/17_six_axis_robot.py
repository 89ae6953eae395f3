"""A six-axis arm carries its tool round a circle and turns it on the way: inverse, and forward again.

    python experiments/17_six_axis_robot.py [config.toml]

Sol 1983, figure 1.2: the ASEA robot. The document shows a drawing; dimensions, masses and the path are chosen (config).
The pose of the tool, all six coordinates of it, is prescribed as a function of time; the six joints follow from it
(kinematic simulation), inverse dynamics gives their torques, and these as tables over time must bring the free arm
along the same path (without the friction of gears the light wrist, upright, would fall from the smallest error).
Checked: the tool is where it should be, the drive's own wrench at the tool and the torques say the same (virtual work),
the torques work against friction only over the closed path, and the way back. The figure goes to `out/`.
"""

import jax
import jax.numpy as jnp
import numpy as np

import diffmb as mb

jax.config.update("jax_enable_x64", True)


# 1. Describe.
def wanted(t, p):
    """The tool's pose: once round the circle, from rest to rest; tool along x, swinging about z and rolling about x."""
    s = jnp.clip(t / p["t_end"], 0.0, 1.0)
    angle = 2 * jnp.pi * s**3 * (10 - 15 * s + 6 * s**2)
    place = p["centre"] + p["radius"] * jnp.stack([0.0 * t, jnp.cos(angle), jnp.sin(angle)])
    z, x = jnp.array([0.0, 0.0, 1.0]), jnp.array([1.0, 0.0, 0.0])
    turn = mb.rotation_about(z, p["swing"] * jnp.sin(angle)) @ mb.rotation_about(x, p["roll"] * jnp.sin(2 * angle))
    return turn, place


def path(config):
    return {key: jnp.asarray(config[key]) for key in ("t_end", "centre", "radius", "swing", "roll")}


def robot(config, driven):
    bodies, joints, before = [], [], "world"
    for k, axis in enumerate(config["axes"]):
        own = f"link{k + 1}"
        bodies.append(mb.RigidBody(own, config["masses"][k], config["coms"][k], config["inertias"][k]))
        joints.append(mb.Revolute(f"axis{k + 1}", mb.Marker(before, config["places"][k]), own, axis=axis))
        before = own
    hold = mb.PrescribedPose("tool", "world", mb.Marker(before, config["tool"]), wanted, path(config))
    gear = lambda k, c: mb.OnCoordinates(f"gear{k + 1}", f"axis{k + 1}", mb.LinearLaw(0.0, c))
    gears = [gear(k, c) for k, c in enumerate(config["friction"])]
    held, gravity = [hold] if driven else [], (0, 0, -config["gravity"])
    return mb.Mechanism(bodies, joints, constraints=held, connections=gears, gravity=gravity)


# 2. The joints follow the tool.
def follow(config, ts):
    model = mb.compile(robot(config, True))
    start = mb.assemble(model, guess={f"axis{k + 1}": angle for k, angle in enumerate(config["guess"])})
    return mb.simulate_kinematics(model, start, ts)


def main(config):
    ts = np.linspace(0.0, config["t_end"], config["frames"])
    motion, free = follow(config, ts), mb.compile(robot(config, False))
    tip = mb.Marker("link6", config["tool"])
    look = jax.jit(jax.vmap(lambda q: (mb.kinematics(free, q)[tip].pose, mb.kinematics(free, q).pose.translation)))
    turn, place = jax.jit(jax.vmap(lambda t: wanted(t, path(config))))(jnp.asarray(ts))
    pose, joints = look(motion.q)
    off = max(np.abs(pose.translation - place).max(), np.abs(pose.rotation - turn).max())
    print(f"inverse kinematics: the tool is on its path to {off:.1e}")
    assert off < config["reached"], "the tool is off its path"

    # 3. Torques, with friction of the gears; the load of the prescribed pose is the same at the tool: tau = -G^T lam.
    friction = jnp.asarray(config["friction"])

    @jax.jit
    @jax.vmap
    def loads(t, q, v, vd):
        lam = mb.dynamics(motion.model, q, v, t=t).multipliers("tool")
        return mb.inverse_dynamics(free, q, v, vd) + friction * v, -mb.constraint_jacobian(motion.model, q, t).T @ lam

    torques, through = loads(motion.ts, motion.q, motion.v, motion.vd)
    gap = np.abs(torques - through).max() / np.abs(torques).max()
    weights = np.ones(len(ts))
    weights[1:-1:2], weights[2:-1:2] = 4, 2  # Simpson
    total = lambda power: (weights * np.asarray(power.sum(1))).sum() * (ts[1] - ts[0]) / 3
    work, heat = total(torques * motion.v), total(friction * motion.v**2)
    print(f"torques and the wrench at the tool agree to {gap:.1e}; work {work:.6f} J, all of it friction: {heat:.6f} J")
    assert gap < config["reached"] and abs(work - heat) < config["work"], "virtual work"

    # 4. Forward again.
    inputs = {f"axis{k + 1}": mb.Table(ts, torques[:, k], "cubic") for k in range(6)}
    begin = mb.assemble(free, motion.q[0], motion.v[0])
    traj = mb.simulate(free, begin, ts, inputs=inputs, controller=mb.Tolerance(config["rtol"]))
    reached = np.asarray(look(traj.q)[0].translation)
    back = np.linalg.norm(reached - place, axis=1)
    print(f"forward with these torques: {int(traj.stats.steps)} steps, off the path by {back.max():.1e} m")
    assert back.max() < config["back"], "forward and inverse disagree"
    mb.draw("out/17_six_axis_robot.png", lambda axes: plot(axes, motion, joints, torques, reached, back),
            rows=2, columns=2, size=(12, 8))  # fmt: skip


def plot(axes, motion, joints, torques, reached, back):
    ts = np.asarray(motion.ts)
    oblique = lambda p: (p[..., 1] - 0.8 * p[..., 0], p[..., 2] - 0.3 * p[..., 0])
    chain = np.concatenate([np.zeros((len(ts), 1, 3)), joints, reached[:, None]], 1)
    for k in np.linspace(0, len(ts) - 1, 9).astype(int):
        part = ts[k] / ts[-1]
        axes[0].plot(*oblique(chain[k]), "o-", color=(0.1 + 0.75 * part, 0.35, 0.8 - 0.6 * part), lw=1.5)
    axes[0].plot(*oblique(reached), "k", lw=2)
    axes[0].set(xlabel="y - 0.8 x, m", ylabel="z - 0.3 x, m", title="the arm, blue to red", aspect="equal")
    for k in range(6):
        axes[1].plot(ts, np.degrees(motion.q[:, k]), f"C{k}", label=f"axis {k + 1}")
        axes[2].plot(ts, torques[:, k], f"C{k}", label=f"axis {k + 1}")
    axes[1].set(xlabel="t, s", ylabel="degrees", title="joint angles")
    axes[2].set(xlabel="t, s", ylabel="N m", title="torques by inverse dynamics")
    axes[3].semilogy(ts[1:], np.maximum(back[1:], 1e-16), "C3")
    axes[3].set(xlabel="t, s", ylabel="m", title="forward with these torques: distance from the path")
    for axis in axes[1:3]:
        axis.legend(fontsize=8, ncols=2)


if __name__ == "__main__":
    main(mb.settings(__file__))
