"""A four-bar through its singular attitudes: where it folds, it has two freedoms, and goes on.

    python experiments/21_four_bar_singular.py [config.toml]

Sol 1983, figure 8.1 and section 8.2: a four-bar whose bars lie on one line has two degrees of freedom instead of one,
the crank may go on or turn back, and counting rows (Gruebler) does not tell. With bars of equal length this happens
twice a turn; as the N-four-bar (N = 1) it is a benchmark of the IFToMM, which asks for the energy after 10 s. Inertia
carries it through: as long as the bars stay parallel it is a pendulum,

    (5/3) m l^2 add + 2 m g l cos(a) = 0

Checked: this motion over all folds (the pendulum runs beside it), the energy, and the rank: 1 freedom, 2 in the folds.
"""

import jax
import jax.numpy as jnp
import numpy as np

import diffmb as mb

jax.config.update("jax_enable_x64", True)


# 1. Describe: the four-bar, and a pendulum with its inertia 5/3 m l^2 and its moment 2 m g l cos(a).
def four_bar(config):
    l, m = config["length"], config["mass"]
    end = lambda body: mb.Marker(body, (l, 0, 0))
    return mb.Mechanism(
        [mb.rod(name, l, mass=m) for name in ("crank", "coupler", "rocker")],
        [
            mb.Revolute("A", "world", "crank"),
            mb.Revolute("B", end("crank"), "coupler"),
            mb.Revolute("C", end("coupler"), end("rocker"), cut=True),
            mb.Revolute("D", mb.Marker("world", (l, 0, 0)), "rocker"),
        ],
        gravity=(0, -config["gravity"], 0),
    )


def pendulum(config):
    l, m = config["length"], config["mass"]
    body = mb.RigidBody("bob", 3 * m, (2 * l / 3, 0, 0), np.ones(3) * m * l**2 / 3)
    return mb.Mechanism([body], [mb.Revolute("A", "world", "bob")], gravity=(0, -config["gravity"], 0))


# 2. Let both go.
def swing(mech, config, **guess):
    model = mb.compile(mech)
    start = mb.assemble(model, {"A": config["angle"]}, {"A": config["speed"]}, guess=guess)
    ts = jnp.linspace(0.0, config["t_end"], config["frames"])
    return mb.simulate(model, start, ts, controller=mb.Tolerance(config["rtol"]))


def main(config):
    traj = swing(four_bar(config), config, B=-config["angle"], D=config["angle"])
    alone = swing(pendulum(config), config)
    a = np.asarray(traj.coordinate("A"))
    gap, drift = np.abs(a - alone.coordinate("A")).max(), float(traj.energy_change)
    folds = int(abs(np.floor(a[-1] / np.pi) - np.floor(a[0] / np.pi)))
    steps = int(traj.stats.steps)
    print(f"{steps} steps through {folds} folds; off the pendulum by {gap:.1e} rad, energy by {drift:.1e} J")
    assert folds > 0 and gap < config["accuracy"] and drift < config["drift"], "lost its way in a fold"

    # 3. Freedoms by rank, along the motion and in the fold.
    look = jax.jit(jax.vmap(lambda q: mb.mobility(traj.model, q)))
    on_the_way, folded = look(traj.q), mb.mobility(traj.model, jnp.zeros(3))
    dofs, distance = on_the_way.dof, on_the_way.distance
    print(f"freedoms on the way {set(dofs.tolist())}, folded {int(folded.dof)}, by counting rows {folded.gruebler}")
    assert set(dofs.tolist()) == {1} and folded.dof == 2, "freedoms"
    mb.draw("out/21_four_bar_singular.png", lambda axes: plot(axes, traj, alone, distance), columns=3, size=(14, 4))


def plot(axes, traj, alone, distance):
    ts, a = np.asarray(traj.ts), np.asarray(traj.coordinate("A"))
    axes[0].plot(ts, np.degrees(alone.coordinate("A")), "C7", lw=4, alpha=0.5, label="pendulum of the same energy")
    axes[0].plot(ts, np.degrees(a), "C0", label="crank")
    axes[0].set(ylabel="angle, degrees", title="through the folds")
    energy = np.asarray(traj.energy())
    axes[1].plot(ts, energy - energy[0], "C3", label="change of energy")
    axes[1].set(ylabel="J", title="energy")
    axes[2].semilogy(ts, distance, "C0", label="smallest singular value")
    axes[2].set(ylabel="beside the largest", title="distance to a singular attitude")
    for axis in axes:
        axis.set_xlabel("t, s")
        axis.legend()


if __name__ == "__main__":
    main(mb.settings(__file__))
