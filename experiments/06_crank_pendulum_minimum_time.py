"""A pendulum on a crank mechanism: the fastest move that leaves it at rest.

    python experiments/06_crank_pendulum_minimum_time.py [config.toml]

A motor turns a crank; a rod pushes a slider; a pendulum hangs from the slider. The crank shall go from one angle to
another in the shortest time, with the pendulum at rest and hanging straight before and after. The loop of the mechanism
is closed at every point of the solution, and nobody derives its equations: the mechanism is described, and the problem
of optimal control is stated in its names. The figure goes to `out/`.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np

import diffmb as mb

jax.config.update("jax_enable_x64", True)
DOWN = -np.pi / 2


# 1. Describe. The prismatic joint closes the loop.
def crane(config):
    crank, rod, length, masses = config["crank"], config["rod"], config["pendulum"], config["masses"]
    return mb.Mechanism(
        bodies=[
            mb.rod("crank", crank, mass=masses[0]),
            mb.rod("rod", rod, mass=masses[1]),
            mb.box("slider", (0.1, 0.06, 0.06), mass=masses[2]),
            mb.rod("pendulum", length, mass=masses[3]),
        ],
        joints=[
            mb.Revolute("motor", "world", "crank"),
            mb.Revolute("knee", mb.Marker("crank", (crank, 0, 0)), "rod"),
            mb.Revolute("pin", mb.Marker("rod", (rod, 0, 0)), "slider"),
            mb.Prismatic("rail", "world", "slider", axis="x"),
            mb.Revolute("hook", "slider", "pendulum"),
        ],
        gravity=(0.0, -9.81, 0.0),
    )


# 2. State the problem: what may be chosen, where it starts, where it ends, what is minimised: time, with a little
#    effort. Without that there are arcs where time alone does not say what the torque is, and it flutters.
def fastest_move(model, config):
    first, last = config["angles"]
    limit = config["torque"]
    return mb.control.Problem(
        model,
        inputs={"motor": (-limit, limit)},
        start=mb.assemble(model, {"motor": first, "hook": DOWN}, guess={"knee": -first}),
        end={"q": {"motor": last, "hook": DOWN}, "v": 0.0},
        duration=mb.control.Free(*config["duration"], guess=config["guess"]),
        running=lambda t, q, v, z, u, p: 1.0 + p[0] * (u[0] / p[1]) ** 2,
        params=jnp.array([config["effort"], limit]),
    )


# 3. Look: the same motion by simulation, and how well the loop is closed.
def check(solution, config):
    model = solution.problem.model
    closed = jax.vmap(lambda q: mb.constraint_residual(model, q))(solution.q)
    again = solution.trajectory()
    apart = np.abs(again.q[-1] - solution.q[-1]).max()
    print(f"loop open by at most {np.abs(closed).max():.1e}, rows that were left out included")
    print(f"simulated with the torque found, the end differs by {apart:.1e} rad")
    assert solution.converged and np.abs(closed).max() < 1e-8 and apart < config["apart"], "no move"


def plot(axes, solution):
    axes[0].plot(solution.ts, solution.input("motor"), ".-", lw=1, ms=3)
    axes[0].set(ylabel="torque of the motor, N m", title=f"shortest time {solution.duration:.4f} s")
    axes[1].plot(solution.ts, solution.coordinate("motor"), label="crank")
    axes[1].plot(solution.ts, solution.coordinate("hook") - DOWN, label="pendulum, from the vertical")
    axes[1].legend()
    axes[1].set(ylabel="angle, rad")
    ends = np.array(solution.mesh.ends) * solution.duration
    axes[2].step(ends, np.append(solution.errors, solution.errors[-1]), where="post")
    axes[2].set(yscale="log", xlabel="t, s", ylabel="estimated error of the mesh")


def main(config):
    model = mb.compile(crane(config))
    problem = fastest_move(model, config)
    begin = time.perf_counter()
    solution = mb.control.collocation(problem, nodes=config["nodes"], accuracy=config["accuracy"])
    print(f"{solution}\n{time.perf_counter() - begin:.1f} s, compiling included")
    check(solution, config)
    mb.draw("out/06_crank_pendulum_minimum_time.png", lambda axes: plot(axes, solution), rows=3, size=(8, 8))


if __name__ == "__main__":
    main(mb.settings(__file__))
