"""A four-bar whose coupler point follows a given path: synthesis with prescribed timing.

    python experiments/02_coupler_path.py [config.toml]

A crank turns once. A point of the coupler shall pass given points of the plane at given angles of the crank. Lengths,
the place of the point on the coupler, and place and tilt of the base are free; that the crank can turn all the way
round (Grashof) is a set of limits. The path asked for is that of a linkage that we know, so the optimum is known too:
no distance at all. A run without derivatives shows what the gradient is worth. The figure goes to `out/`.
"""

import time

import jax
import jax.numpy as jnp
import numpy as np

import diffmb as mb

jax.config.update("jax_enable_x64", True)


# 1. Describe: every length is a number of our own, so one number may stand in several places.
def four_bar(p):
    joint = lambda name, *ends: mb.Revolute(name, *ends, axis="z", cut=name == "C")
    along = lambda length: jnp.array([1.0, 0.0, 0.0]) * length
    tilt = mb.rotation_about(jnp.array([0.0, 0.0, 1.0]), p["tilt"])
    base = jnp.stack([p["x"], p["y"], jnp.zeros_like(p["x"])])
    return mb.Mechanism(
        [mb.rod("crank", p["crank"], mass=1.0), mb.rod("coupler", p["coupler"], mass=1.0),
         mb.rod("rocker", p["rocker"], mass=1.0)],
        [
            joint("A", mb.Marker("world", base, tilt), "crank"),
            joint("B", mb.Marker("crank", along(p["crank"])), "coupler"),
            joint("C", mb.Marker("coupler", along(p["coupler"])), mb.Marker("rocker", along(p["rocker"]))),
            joint("D", mb.Marker("world", base + tilt @ along(p["base"]), tilt), "rocker"),
        ],
    )  # fmt: skip


# 2. The path of the coupler point: the linkage is assembled at every angle of the crank.
def path(p, angles):
    model = mb.compile(four_bar(p))
    point = mb.Marker("coupler", jnp.stack([p["u"], p["v"], jnp.zeros_like(p["u"])]))

    def at(angle):
        # the branch: the coupler leans to the rocker, whatever the crank does
        state = mb.assemble(model, {"A": angle}, guess={"B": 0.9 - angle, "D": 1.6}, throw=False)
        place = mb.kinematics(model, state.q)[point].pose.translation[:2]
        return jnp.where(state.ok, place, jnp.nan)

    return jax.vmap(at)(angles)


# 3. Grashof: the crank is the shortest and turns all the way round, with some room.
def room(p):
    others = ("base", "coupler", "rocker")
    total = sum(p[name] for name in others)
    return jnp.stack([total - 2 * p[name] - p["crank"] for name in others])


def main(config):
    angles = jnp.linspace(0.0, 2 * jnp.pi, config["points"], endpoint=False)
    wanted = path({k: jnp.asarray(v) for k, v in config["known"].items()}, angles)
    size = jnp.ptp(wanted, axis=0).max()

    def miss(p):
        """Mean square distance from the wanted points, relative to the size of the path."""
        return (((path(p, angles) - wanted) / size) ** 2).sum(1).mean()

    start = {k: float(v) for k, v in config["start"].items()}
    task = {
        "bounds": {k: tuple(v) for k, v in config["bounds"].items()},
        "constraints": {"room": mb.Limit(room, lower=config["room"])},
    }
    seconds = time.perf_counter()
    found = mb.optimise(miss, start, method=mb.SLSQP(config["iterations"]), tolerance=1e-6, **task)
    seconds = time.perf_counter() - seconds
    print(f"{found}\n\nwith derivatives: {found.simulations} paths, {seconds:.1f} s with compiling")
    print(f"first-order conditions are left by {found.optimality:.1e}; distance {np.sqrt(found.value):.2e} of the size")
    assert found.converged and found.optimality < 1e-6, "no optimum"

    # 4. Without derivatives: a population over the whole box.
    evolution = mb.DifferentialEvolution(config["seed"], members=5, iterations=config["generations"], tolerance=1e-10)
    other = mb.optimise(miss, start, method=evolution, tolerance=1e-6, **task)
    print(f"\nwithout derivatives: {other.simulations} paths, distance {np.sqrt(other.value):.2e}")
    assert found.value <= other.value, "the search without derivatives found something better"

    designs = {"start": start, "without derivatives": other.mech, "optimum": found.mech}
    numbers = lambda p: {k: jnp.asarray(v) for k, v in p.items()}
    paths = {name: path(numbers(p), angles) for name, p in designs.items()}
    mb.draw(
        "out/02_coupler_path.png",
        lambda axes: plot(axes, np.asarray(wanted), paths, found, other),
        columns=2,
        size=(10, 4.5),
    )


def plot(axes, wanted, paths, found, other):
    left, right = axes
    for (name, xy), style in zip(paths.items(), ("C7--", "C1-", "C0-")):
        closed = np.concatenate([np.asarray(xy), np.asarray(xy)[:1]])
        left.plot(closed[:, 0], closed[:, 1], style, label=name)
    left.plot(wanted[:, 0], wanted[:, 1], "k.", label="wanted")
    left.set(xlabel="x, m", ylabel="y, m", title="path of the coupler point", aspect="equal")
    left.legend()
    for run, label, color in ((found, "SLSQP, exact derivatives", "C0"), (other, "differential evolution", "C1")):
        right.loglog([i.evaluations for i in run.history], np.sqrt([i.value for i in run.history]), color, label=label)
    right.set(xlabel="questions (a generation is one)", ylabel="distance / size of the path", title="convergence")
    right.legend()


if __name__ == "__main__":
    main(mb.settings(__file__))
