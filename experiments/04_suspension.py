"""A wheel on a road with a bump: spring and damper for the smoothest ride that the travel allows.

    python experiments/04_suspension.py [config.toml]

A quarter of a car: the body on a spring and a damper, the wheel on the spring of its tyre. We ask for the smallest rms
acceleration of the body after a bump, while the suspension may not move more than its travel. The limit is active: a
softer spring would be smoother and hit the stops. Numbers by name: `suspension.k`, `suspension.c`. The figure goes to
`out/`.
"""

import jax
import jax.numpy as jnp

import diffmb as mb

jax.config.update("jax_enable_x64", True)


# 1. Describe. Everything moves along y; heights are measured from rest, so gravity is left away.
def bump(t, p):
    """A smooth bump, m, that passes within p[1] seconds."""
    phase = jnp.clip(t / p[1], 0.0, 1.0)
    return p[0] * jnp.sin(jnp.pi * phase) ** 4


def quarter_car(config):
    slide = lambda name, body, height: mb.Prismatic(name, mb.Marker("world", (0, height, 0)), body, axis="y")
    return mb.Mechanism(
        [mb.sphere("road", 0.05, mass=1.0), mb.sphere("wheel", 0.1, mass=config["wheel_mass"]),
         mb.sphere("body", 0.2, mass=config["body_mass"])],
        [slide("r", "road", 0.0), slide("w", "wheel", 0.3), slide("b", "body", 0.8)],
        connections=[
            mb.SpringDamper("tyre", "road", "wheel", config["tyre"], 0.0, 0.3),
            mb.SpringDamper("suspension", "wheel", "body", config["k"], config["c"], 0.5),
        ],
        drives=[mb.PositionDrive("bump", "r", bump, (config["height"], config["passes"]))],
        gravity=(0, 0, 0),
    )  # fmt: skip


# 2. Drive over it.
def ride(mech, config):
    model = mb.compile(mech)
    ts = jnp.linspace(0.0, config["t_end"], config["frames"])
    return mb.simulate(model, mb.assemble(model, throw=False), ts, controller=mb.Tolerance(1e-9), throw=False)


def main(config):
    mech, travel = quarter_car(config), config["travel"]

    def comfort(m):
        """rms acceleration of the body, and the travel used (a smooth maximum over time)."""
        traj = ride(m, config)
        spring, damper = m["suspension"].k, m["suspension"].c
        stroke = traj.coordinate("b") - traj.coordinate("w")
        rate = traj.speed("b") - traj.speed("w")
        force = -(spring * stroke + damper * rate)
        used = jnp.linalg.norm(stroke, ord=config["order"])
        return jnp.sqrt(((force / m["body"].mass) ** 2).mean()), {"travel": used}

    task = {
        "where": ["suspension.k", "suspension.c"],
        "bounds": {"suspension.k": tuple(config["k_bounds"]), "suspension.c": tuple(config["c_bounds"])},
        "constraints": {"travel": mb.Limit(upper=travel)},
    }
    found = mb.optimise(comfort, mech, method=mb.SLSQP(), tolerance=1e-6, **task)
    print(f"{found}\n\nfirst-order conditions are left by {found.optimality:.1e}, the travel by {found.violation:.1e}")
    assert found.converged, "no optimum"
    price = found.multipliers.get("travel", 0.0)
    print(f"a millimetre more of travel would save {1e-3 * price:.4g} m/s2")

    # 3. Without derivatives, limits included.
    evolution = mb.DifferentialEvolution(config["seed"], members=8, iterations=config["generations"])
    other = mb.optimise(comfort, mech, method=evolution, **task)
    print(f"without derivatives: {other.simulations} rides against {found.simulations}, {other.value:.8g} m/s2")
    assert found.value <= other.value * (1 + 1e-6), "the search without derivatives found something better"
    assert other.value <= found.value * (1 + config["agreement"]), "the search without derivatives did not get there"

    runs = {"start": ride(mech, config), "optimum": ride(found.mech, config)}
    mb.draw("out/04_suspension.png", lambda axes: plot(axes, runs, found, other, travel), columns=3, size=(13, 4))


def plot(axes, runs, found, other, travel):
    for (name, traj), color in zip(runs.items(), ("C7", "C0")):
        axes[0].plot(traj.ts, 1e3 * traj.coordinate("b"), color, label=f"body, {name}")
        axes[1].plot(traj.ts, 1e3 * (traj.coordinate("b") - traj.coordinate("w")), color, label=name)
    axes[0].plot(runs["start"].ts, 1e3 * runs["start"].coordinate("r"), "k:", label="road")
    axes[0].set(xlabel="t, s", ylabel="height, mm", title="over the bump")
    for side in (-1, 1):
        axes[1].axhline(1e3 * side * travel, color="C3", linestyle="--")
    axes[1].set(xlabel="t, s", ylabel="suspension, mm", title="travel, and its limit")
    for run, label, color in ((found, "SLSQP, exact derivatives", "C0"), (other, "differential evolution", "C1")):
        values = [i.value for i in run.history]
        axes[2].plot([i.evaluations for i in run.history], values, color, marker=".", label=label)
    axes[2].set(xlabel="questions (a generation is one)", ylabel="rms acceleration, m/s2", title="convergence")
    for axis in axes:
        axis.legend()


if __name__ == "__main__":
    main(mb.settings(__file__))
