"""A double pendulum: swing it, trust it, differentiate it, and run a thousand of them.

    python experiments/01_double_pendulum.py [config.toml]

Two rods hang in the vertical plane. We let them fall from rest and ask how the height of the tip after `t_end` seconds
depends on the lengths and masses of the rods. No formula of the pendulum appears below: the mechanism is described, and
motion, energy and gradients follow from the description. The figure goes to `out/`.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np

import diffmb as mb

jax.config.update("jax_enable_x64", True)  # mechanisms want double precision; diffmb leaves the choice to us


# 1. Describe. Every number may be traced by jax, so every number can be differentiated.
def pendulum(lengths, masses):
    upper, lower = lengths
    return mb.Mechanism(
        bodies=[mb.rod("upper", upper, mass=masses[0]), mb.rod("lower", lower, mass=masses[1])],
        joints=[
            mb.Revolute("shoulder", "world", "upper", axis="z"),
            mb.Revolute("elbow", mb.Marker("upper", (upper, 0.0, 0.0)), "lower", axis="z"),
        ],
        gravity=(0.0, -9.81, 0.0),
    )


# 2. Move, and ask. Steps end at the times we ask for; the tip is a point of the lower rod.
def swing(lengths, masses, config, ts):
    model = mb.compile(pendulum(lengths, masses))
    start = mb.assemble(model, dict(zip(("shoulder", "elbow"), config["angles"])))
    return mb.simulate(model, start, ts, controller=mb.Tolerance(config["tolerance"]), throw=False)


def tip(model, q, length):
    return mb.kinematics(model, q)["lower"].pose.apply(jnp.array([1.0, 0.0, 0.0]) * length)


# 3. One number that depends on everything.
def tip_height(lengths, masses, config):
    traj = swing(lengths, masses, config, [0.0, config["t_end"]])
    return tip(traj.model, traj.q[-1], lengths[1])[1]


# 4. Differentiate: reverse mode through the whole swing, next to central differences of the same function.
def gradients(lengths, masses, config):
    height = jax.jit(lambda x: tip_height(x[:2], x[2:], config))
    x = jnp.concatenate([lengths, masses])
    exact = jax.jit(jax.grad(height))(x)
    eps = 1e-5
    steps = eps * jnp.eye(4)
    differences = jnp.stack([(height(x + e) - height(x - e)) / (2 * eps) for e in steps])
    return height(x), exact, differences


# 5. Batch: `jax.vmap` is the whole interface.
def batch_of_swings(lengths, masses, config):
    rng = np.random.default_rng(0)
    many = jnp.asarray(lengths * rng.uniform(0.9, 1.1, (config["batch"], 2)))
    run = jax.jit(jax.vmap(lambda x: tip_height(x, masses, config))).lower(many).compile()
    start = time.perf_counter()
    heights = run(many).block_until_ready()
    return heights, time.perf_counter() - start


def plot(axes, times, tips, drift):
    left, right = axes
    left.plot(tips[:, 0], tips[:, 1])
    left.set(xlabel="x, m", ylabel="y, m", title="path of the tip", aspect="equal")
    right.plot(times, drift)
    right.set(xlabel="t, s", ylabel="(E - E0) / scale", title="energy error")


def main(config):
    lengths, masses = jnp.array(config["lengths"]), jnp.array(config["masses"])
    print(pendulum(lengths, masses))

    traj = swing(lengths, masses, config, np.linspace(0.0, config["t_end"], config["frames"]))
    print(f"\n{traj}")
    energies = traj.energy()
    scale = 9.81 * masses.sum() * lengths.sum()  # a natural measure: the energy itself may be near zero
    drift = (energies - energies[0]) / scale
    print(f"\nenergy error over {config['t_end']} s: {jnp.abs(drift).max():.1e} of m g l")
    assert jnp.abs(drift).max() < 1e-5, "energy is not conserved: take a smaller tolerance"

    height, exact, differences = gradients(lengths, masses, config)
    print(f"\ntip height at the end: {height:.6f} m\n{'gradient with respect to':26}{'exact':>14}{'differences':>14}")
    for name, a, b in zip(("upper length", "lower length", "upper mass", "lower mass"), exact, differences):
        print(f"  {name:24}{a:14.8f}{b:14.8f}")
    assert jnp.allclose(exact, differences, rtol=1e-5, atol=1e-6), "gradient and differences disagree"

    heights, seconds = batch_of_swings(lengths, masses, config)
    print(f"\n{len(heights)} pendulums in {seconds:.3f} s: tip height {heights.mean():.3f} +- {heights.std():.3f} m\n")

    tips = jax.jit(jax.vmap(tip, in_axes=(None, 0, None)))(traj.model, traj.q, lengths[1])
    mb.draw(
        "out/01_double_pendulum.png",
        lambda axes: plot(axes, np.asarray(traj.ts), np.asarray(tips), np.asarray(drift)),
        columns=2,
        size=(9, 4),
    )


if __name__ == "__main__":
    main(mb.settings(__file__))
