"""A reach: four Hill muscles move an arm to a point, at the least effort.

    python experiments/07_reach.py [config.toml]

Each muscle pulls along a line between two bodies. Its input is the excitation u between 0 and 1, its state the
activation z, which follows u with a lag; the force depends on the length and the speed of the fibre (curves of De
Groote et al. 2016), so a stretched muscle pulls more than one that shortens. A pair of them bends and stretches each
joint. We ask for the excitations that bring the hand from rest to a target, at rest again, in a given time, with the
least integral of z^2 + (u - z)^2: a muscle rises fast and falls slowly, so that with u^2 in its place pulses would be
cheaper than a steady excitation, and no mesh fine enough. The figure goes to `out/`.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np

import diffmb as mb

jax.config.update("jax_enable_x64", True)


# 1. Describe: a muscle goes from point to point; its tendon takes what the fibre at its best leaves of the path.
def muscle(config, name):
    given = config["muscles"][name]
    first, second = (mb.Marker(body, (x, y, 0)) for body, x, y in given["path"])
    law = mb.RigidTendonMuscle(
        given["force"], given["fibre"], given["length"] - given["fibre"], activation=config["tone"]
    )
    return mb.AlongLine(name, first, second, law)


def friction(joint, damping):
    return mb.JointConnection(f"{joint} friction", joint, lambda t, q, v, z, u, c: -c * v, params=damping)


def arm(config):
    (upper, lower), masses = config["lengths"], config["masses"]
    return mb.Mechanism(
        bodies=[mb.rod("upper arm", upper, mass=masses[0]), mb.rod("forearm", lower, mass=masses[1])],
        joints=[
            mb.Revolute("shoulder", "world", "upper arm"),
            mb.Revolute("elbow", mb.Marker("upper arm", (upper, 0, 0)), "forearm"),
        ],
        connections=[
            *(muscle(config, name) for name in config["muscles"]),
            *(friction(joint, config["damping"]) for joint in ("shoulder", "elbow")),
        ],
        gravity=(0.0, 0.0, -9.81),  # the arm lies on a table
    )


# 2. The reach: where the hand must be is a condition on the end, written with the kinematics of the model.
def reach(model, config):
    length, muscles = config["lengths"][1], list(config["muscles"])

    def hand(q):
        return mb.kinematics(model, q)["forearm"].pose.apply(jnp.array([length, 0.0, 0.0]))[:2]

    problem = mb.control.Problem(
        model,
        inputs=dict.fromkeys(muscles, (0.0, 1.0)),
        start={"q": {"shoulder": config["start"][0], "elbow": config["start"][1]}, "v": 0.0},
        end={"v": 0.0, "residual": lambda t, q, v, z, p: hand(q) - p},
        duration=config["duration"],
        running=lambda t, q, v, z, u, p: z @ z + (u - z) @ (u - z),
        bounds=dict.fromkeys(muscles, (0.0, 1.0)) | {"elbow": (0.0, 2.6)},
        params=jnp.array(config["target"]),
    )
    return problem, hand


def plot(axes, solution, path_of_hand, config):
    axes[0].plot(path_of_hand[:, 0], path_of_hand[:, 1], ".-")
    axes[0].plot(*config["target"], "rx", ms=10)
    axes[0].set(xlabel="x, m", ylabel="y, m", title="the hand", aspect="equal")
    for name in config["muscles"]:
        (line,) = axes[1].plot(solution.ts, solution.state(name), label=name)
        axes[1].plot(solution.ts, solution.input(name), ":", color=line.get_color())
    axes[1].set(xlabel="t, s", title="activation (lines) and excitation (dots)")
    axes[1].legend(fontsize=7)
    axes[2].plot(solution.ts, solution.speed("shoulder"), label="shoulder")
    axes[2].plot(solution.ts, solution.speed("elbow"), label="elbow")
    axes[2].set(xlabel="t, s", ylabel="rad/s", title="speeds")
    axes[2].legend()


def main(config):
    model = mb.compile(arm(config))
    problem, hand = reach(model, config)
    begin = time.perf_counter()
    solution = mb.control.collocation(problem, nodes=config["nodes"], accuracy=config["accuracy"])
    print(f"{solution}\n{time.perf_counter() - begin:.1f} s, compiling included")
    again = solution.trajectory()
    miss = np.linalg.norm(hand(again.q[-1]) - np.array(config["target"]))
    print(f"simulated with these excitations the hand misses the target by {1e3 * miss:.2g} mm")
    assert solution.converged and miss < config["miss"], "no reach"
    path_of_hand = np.asarray(jax.vmap(hand)(jnp.asarray(solution.q)))
    mb.draw("out/07_reach.png", lambda axes: plot(axes, solution, path_of_hand, config), columns=3, size=(12, 4))


if __name__ == "__main__":
    main(mb.settings(__file__))
