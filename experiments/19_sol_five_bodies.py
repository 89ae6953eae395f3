"""Sol's system of five bodies: topology, freedoms, and the same motion whichever way its loop is opened.

    python experiments/19_sol_five_bodies.py [config.toml]

Sol 1983, figures 4.1 to 4.6 and 5.4: B1 slides on the ground, B2 and B3 follow on pins, a ball-and-socket joint ties B3
to the ground (the closed chain), B4 slides on B1, and B5 has no kinematic connection at all; springs E1 and E2 do not
count in the graph. No numbers are given: they are chosen, pins upright on the plane of the slide, as in his drawing, so
that the chain moves: of the ball's three rows one is redundant. E1 is put between B1 and B4, E2 between B3 and B5.

Checked: his location column (0, 1, 2, 1, 0) and S^T T^T = 1 for the tree matrix; freedoms by rank (8) and by Gruebler's
count (7); position and velocity of B2 as in his section 5.2; energy; and the motion with the loop opened at the ball,
as he does, and at a pin.
"""

import jax
import jax.numpy as jnp
import numpy as np

import diffmb as mb

jax.config.update("jax_enable_x64", True)


# 1. Describe.
def five_bodies(config, cut):
    l2, l3, m = config["length2"], config["length3"], config["masses"]
    at = mb.Marker
    return mb.Mechanism(
        [
            mb.box("B1", (0.1, 0.06, 0.06), mass=m[0]),
            mb.rod("B2", l2, mass=m[1]),
            mb.rod("B3", l3, mass=m[2]),
            mb.box("B4", (0.05, 0.05, 0.05), mass=m[3]),
            mb.sphere("B5", 0.05, mass=m[4]),
        ],
        [
            mb.Prismatic("H1", "world", "B1", axis="x"),
            mb.Revolute("H2", "B1", "B2", axis="z", cut=cut == "H2"),
            mb.Revolute("H3", at("B2", (l2, 0, 0)), "B3", axis="z"),
            mb.Prismatic("H4", at("B1", config["offset4"]), "B4", axis="y"),
            mb.Free("H5", at("world", config["hang"]), "B5"),
            mb.Spherical("C1", at("world", config["ball"]), at("B3", (l3, 0, 0)), cut=cut == "C1"),
        ],
        connections=[
            mb.SpringDamper("E1", "B1", "B4", config["spring1"][0], 0.0, config["spring1"][1]),
            mb.SpringDamper("E2", at("B3", (l3 / 2, 0, 0)), "B5", config["spring2"][0], 0.0, config["spring2"][1]),
        ],
        gravity=(0, -config["gravity"], 0),
    )


# 2. Move, from the attitude that closes the chain by hand.
def run(config, cut):
    model = mb.compile(five_bodies(config, cut))
    l2, l3, a = config["length2"], config["length3"], config["angle"]
    b = -np.arcsin(l2 * np.sin(a) / l3)
    closed = {"H1": config["ball"][0] - l2 * np.cos(a) - l3 * np.cos(b), "H2": a, "H3": b - a}
    closed |= {"C1": [np.cos(b / 2), 0, 0, np.sin(b / 2)], "H4": config["spring1"][1] / 2}
    start = mb.assemble(model, guess={name: value for name, value in closed.items() if name in model.inboard})
    ts = jnp.linspace(0.0, config["t_end"], config["frames"])
    return mb.simulate(model, start, ts, controller=mb.Tolerance(config["rtol"]))


def places(traj):
    """Of all bodies over time, by name."""
    found = jax.jit(jax.vmap(lambda q: mb.kinematics(traj.model, q).pose.translation))(traj.q)
    return {name: np.asarray(found[:, k]) for k, name in enumerate(traj.model.topology.bodies)}


def check_graph(model):
    """Sol 4.3: the location column, and the tree matrix T (body i on the path to j) as the inverse of S."""
    parents = list(model.topology.parent)
    print(f"location column {parents}, cut {[model.topology.joint_names[k] for k in model.topology.cuts]}")
    assert parents == [0, 1, 2, 1, 0], "Sol's numbering"
    S, T = np.eye(5), np.eye(5)
    for j, i in enumerate(parents):
        if i:
            S[i - 1, j] = -1
            T[:, j] += T[:, i - 1]
    assert np.array_equal(S.T @ T.T, np.eye(5)), "S^T T^T = 1"


def main(config):
    traj = run(config, "C1")
    check_graph(traj.model)
    free = mb.mobility(traj.model, traj.q[0])
    print(f"{int(free.dof)} freedoms, by Gruebler's count {free.gruebler}; redundant: {', '.join(free.redundant)}")
    assert (free.dof, free.gruebler) == (8, 7) and len(free.redundant) == 1, "freedoms by rank and by count"

    # 3. B2 by hand (5.2): r = q1 e1 + R(q2) b, rd = v1 e1 + v2 x R(q2) b; here b is the centre of the rod.
    middle = mb.Marker("B2", (config["length2"] / 2, 0, 0))
    centre = jax.jit(jax.vmap(lambda q, v: mb.kinematics(traj.model, q, v)[middle]))(traj.q, traj.v)
    (x, a), (xd, ad) = (np.asarray(y)[:, :2].T for y in (traj.q, traj.v))
    h = config["length2"] / 2
    place = np.stack([x + h * np.cos(a), h * np.sin(a)], 1)
    velocity = np.stack([xd - h * ad * np.sin(a), h * ad * np.cos(a)], 1)
    off = max(np.abs(centre.pose.translation[:, :2] - place).max(), np.abs(centre.twist[:, 3:5] - velocity).max())
    drift = float(traj.energy_change)
    print(f"B2 by hand to {off:.1e}; {int(traj.stats.steps)} steps, energy changes by {drift:.1e} J")
    assert off < 1e-12 and drift < config["drift"], "kinematics by hand, or energy"

    # 4. The loop opened at a pin instead: B3 now hangs on the ball.
    other = run(config, "H2")
    first, second = places(traj), places(other)
    gap = max(np.abs(first[name] - second[name]).max() for name in first)
    print(f"opened at pin H2 (tree {list(other.model.topology.bodies)}): the same motion to {gap:.1e} m")
    assert gap < config["agreement"], "the motion depends on which joint is cut"
    draw = lambda axes: plot(axes, config, traj, first, second)
    mb.draw("out/19_sol_five_bodies.png", draw, columns=3, size=(14, 4.2))


def plot(axes, config, traj, origin, other):
    ball, count = np.array(config["ball"]), len(traj.ts)
    for k in np.linspace(0, count - 1, 6).astype(int):
        fade = 0.25 + 0.75 * k / (count - 1)
        chain = np.stack([origin["B2"][k], origin["B3"][k], ball])
        axes[0].plot(chain[:, 0], chain[:, 1], "C0o-", alpha=fade)
        axes[0].plot(*np.stack([origin["B1"][k], origin["B4"][k]])[:, :2].T, "C2s-", alpha=fade)
        axes[0].plot(*origin["B5"][k, :2], "C3o", ms=9, alpha=fade)
    axes[0].set(xlabel="x, m", ylabel="y, m", title="six instants: B1-B4 green, B2-B3 blue, B5 red", aspect="equal")
    for k, n in enumerate(("B1", "B4", "B5")):
        side = 0 if n == "B1" else 1
        axes[1].plot(traj.ts, other[n][:, side], "C7", lw=4, alpha=0.5, label="opened at H2" if k == 0 else None)
        axes[1].plot(traj.ts, origin[n][:, side], f"C{k}", label=f"{n}, {'xy'[side]}")
    axes[1].set(xlabel="t, s", ylabel="m", title="two ways to open the loop")
    axes[1].legend(fontsize=8)
    energy = np.asarray(traj.energy())
    axes[2].plot(traj.ts, traj.kinetic_energy(), "C0", label="kinetic")
    axes[2].plot(traj.ts, traj.potential_energy() - energy[0], "C1", label="potential")
    axes[2].plot(traj.ts, energy - energy[0], "k", label="sum")
    axes[2].set(xlabel="t, s", ylabel="J", title="energy")
    axes[2].legend(fontsize=8)


if __name__ == "__main__":
    main(mb.settings(__file__))
